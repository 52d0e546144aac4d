"""What the parts of `bench gpu` share: timing by the GPU's own clock, and a ring full of made-up experience."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dqnitro.lab.bench.contest import Rate

UNIT = "frames or samples/s"


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
