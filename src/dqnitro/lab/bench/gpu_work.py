"""What the parts of `bench gpu` share: timing by the GPU's own clock, consoles scattered over their games, a full ring.

A run of minutes plays games that end and begin at all times. Consoles that all began a moment ago would show a rate
that no run keeps, so before anything is timed they are scattered over their games, and the table says how many games
ended meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dqnitro.lab.bench.contest import Rate

UNIT = "frames or samples/s"
SCATTER_STEPS = 512  # vector steps over which games are scattered: starts then take at most one step in twenty
SCATTER_S = 20.0  # of them as many as fit into these seconds, where consoles are very many
FEWEST_STEPS = 128
LONGEST_START = 40  # vector steps that nearly every start of a game takes


def clocked(work: Callable[[], object], amount: Callable[[], float], device: torch.device, took: list[float]) -> Rate:
    """Repeat `work` for about the seconds asked for. `amount` (done so far) is read before and after, never in between.

    The seconds of one call of `work` are appended to `took`.
    """

    def seconds_of(times: int) -> float:
        if device.type != "cuda":
            begin = time.perf_counter()
            for _ in range(times):
                work()
            return time.perf_counter() - begin
        torch.cuda.synchronize(device)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(times):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000.0

    each = seconds_of(2) / 2

    def rate(seconds: float) -> float:
        times, before = max(1, round(seconds / max(each, 1e-9))), amount()
        spent = seconds_of(times)
        took.append(spent / times)
        return (amount() - before) / spent

    return rate


def random_step(consoles: Any, n: int, device: torch.device) -> None:
    consoles.actions.copy_(torch.randint(0, consoles.n_actions, (n,), device=device))
    consoles.step()


def scatter(consoles: Any, n: int, device: torch.device) -> int:
    """Random play in which every console begins a new game once, each at another step. Returns the steps played."""

    def seconds_of(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            random_step(consoles, n, device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    seconds_of(2)  # the first launches load the kernels
    each = seconds_of(4) / 4
    steps = max(FEWEST_STEPS, min(SCATTER_STEPS, int(SCATTER_S / max(each, 1e-9))))
    begins = torch.randint(0, steps - LONGEST_START, (n,), device=device)
    for t in range(steps):
        consoles.restart(begins == t)
        random_step(consoles, n, device)
    return steps


class Games:
    """Games that ended, and consoles that were between two games, while something was measured."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.n = n
        self._ends, self._resetting, self._steps = torch.zeros((3,), dtype=torch.int64, device=device)

    def count(self, ends: Tensor | int, resetting: Tensor) -> None:
        """After a step (or a graph of them); nothing here waits for the GPU."""
        self._ends.add_(ends)
        self._resetting.add_((resetting != 0).sum())
        self._steps.add_(1)

    def columns(self, counts: float, seconds: float) -> dict[str, float]:
        """`counts` calls of `count` took `seconds`."""
        steps = max(1, int(self._steps))
        ends = int(self._ends) / steps * counts / max(seconds, 1e-9)
        return {"games_per_s": ends, "share_resetting": int(self._resetting) / steps / self.n}


@dataclass
class Timed:
    """A rate, and the games that were played meanwhile."""

    rate: Rate
    games: Games


def fill(ring: Any, n_actions: int) -> None:
    """Made-up experience in every slot: the speed does not depend on its content."""
    made: dict[str, Callable[[Tensor], Tensor]] = {
        "frames": lambda t: t.random_(0, 256), "action": lambda t: t.random_(0, n_actions),
        "reward": lambda t: t.random_(-1, 2),
        "terminated": lambda t: t.bernoulli_(0.001), "valid": lambda t: t.fill_(True), "age": lambda t: t.fill_(1000),
    }  # fmt: skip
    for name, into in made.items():
        into(getattr(ring, name))
    ring.filled.fill_(ring.slots)
