"""The CPU time that is Ray's own, in a run with players on Ray, counted piece by piece.

Four pieces: Ray's processes, its threads in the learner's process, the learner's calls into it, and in the players'
processes all that is not playing. Whatever else a run with Ray takes longer for, it is not Ray's instructions that take
it, but what processes cost each other: caches, memory, and the clock of the cores.

Threads are told apart by name, which Linux knows: Ray names its own, and all others are named as their process.
"""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dqnitro.run.cluster.actors import PlayerHost, RayHosts
from dqnitro.run.cluster.player import Permit, Played

NS = 1e-9


class OfThreads(NamedTuple):
    """CPU seconds of a process."""

    its_own: float
    others: float  # threads with names of their own


def of_threads(pid: int, proc: pathlib.Path = pathlib.Path("/proc")) -> OfThreads:
    tasks, own, others = proc / str(pid) / "task", 0.0, 0.0
    name = (tasks / str(pid) / "comm").read_text()
    for task in tasks.iterdir():
        try:
            seconds = int((task / "schedstat").read_text().split()[0]) * NS
            own, others = (own + seconds, others) if (task / "comm").read_text() == name else (own, others + seconds)
        except (FileNotFoundError, ProcessLookupError):  # it ended
            continue
    return OfThreads(own, others)


class TimedHost(PlayerHost):
    """An actor that knows how much of its thread's time was not playing."""

    def __init__(self) -> None:
        super().__init__()
        self._played_s = 0.0

    def play(self, player: int, permit: Permit, weights: np.ndarray) -> Played:
        began = time.thread_time()
        try:
            return super().play(player, permit, weights)
        finally:
            self._played_s += time.thread_time() - began

    def ray_s(self) -> float:
        """CPU seconds of this process since its start that are Ray's."""
        return time.thread_time() - self._played_s + of_threads(os.getpid()).others


class TimedHosts(RayHosts):
    """As many players on Ray; tells what Ray has used so far."""

    kind = TimedHost

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.calls_s = 0.0

    def read(self) -> dict[str, float]:
        """CPU seconds. Asking the players is a call of its own, and part of them."""
        players = [h.actor.ray_s.remote() for h in self._hosts if self._is_up(h)]
        return {
            "calls": self.calls_s,
            "threads": of_threads(os.getpid()).others,
            "players": float(sum(self._ray.get(players))),
        }

    def __getattribute__(self, name: str) -> Any:
        """Calls of the learner, and what they call in turn, are timed once."""
        found = super().__getattribute__(name)
        return self._timed(found) if name in TIMED else found

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            before, began = self.calls_s, time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.calls_s = before + time.thread_time() - began

        return timed


TIMED = {"put", "play", "get", "prepare", "better", "sharing", "room"}  # what the learner calls while it goes on
