"""One batch of work: what `AtariVec` hands to its threads, and the observation arrays that they fill."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import cpu_step
from .arrays import Memory, Scratch, Shared, Tasks

_HELD_BY_POOL = 3  # references to an array that only the pool knows: the list, the loop variable, getrefcount itself
_RUN: Any = cpu_step.run


class Buffers:
    """Arrays of one shape, used again when free."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._made: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        for array in self._made:
            if sys.getrefcount(array) == _HELD_BY_POOL:
                return array
        array = np.zeros(self.shape, np.uint8)
        if len(self._made) < 8:  # a caller that keeps everything must not make the search long
            self._made.append(array)
        return array


@dataclass(slots=True)
class Batch:
    """Tasks for some consoles: `ids` are their numbers in the environment, `tasks.ids` those in the shared memory.

    Of the places in `tasks.order` the first `long` take longer than others.
    """

    obs: np.ndarray
    final_obs: np.ndarray | None  # None: no final observation is kept
    ids: np.ndarray
    long: int
    tasks: Tasks
    job: Any = None  # what `ThreadPool.start` gave

    @property
    def size(self) -> int:
        return len(self.ids)


class Serial:
    """In place of `ThreadPool`: the caller does all the work at once.

    It works on arrays, not on addresses, so that indices can be checked.
    """

    done = True

    def __init__(self, memory: Memory, shared: Shared, scratch: Scratch) -> None:
        self._arrays = memory, shared, scratch

    def start(self, batch: Batch) -> Serial:
        self.run(batch)
        return self

    def run(self, batch: Batch) -> None:
        _RUN(batch.tasks, *self._arrays)

    def wait(self) -> None: ...

    def close(self) -> None: ...
