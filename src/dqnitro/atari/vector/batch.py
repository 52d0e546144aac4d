"""One batch of work: what `AtariVec` hands to its threads, and the observation arrays that they fill."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from . import agent_step, cpu_step
from .arrays import Memory, Scratch, Shared, Tasks

_HELD_BY_POOL = 3  # references to an array that only the pool knows: the list, the loop variable, getrefcount itself
_RUN: Any = cpu_step.run

Todo = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # commands, seeds, actions, strengths


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


class Batch:
    """Tasks for some consoles: `ids` are their numbers in the environment, `tasks.ids` those in the shared memory.

    They are handed out in an `order`, whose first `long` places take longer than others. Without `final_obs` no final
    observation is kept.
    """

    __slots__ = ("final_obs", "ids", "job", "long", "obs", "tasks")

    def __init__(
        self,
        obs: np.ndarray,
        final_obs: np.ndarray | None,
        ids: np.ndarray,
        first_console: int,
        order: np.ndarray,
        long: int,
        todo: Todo,
    ) -> None:
        n = len(ids)
        flat = obs.reshape(n, -1)
        self.obs, self.final_obs, self.ids, self.long = obs, final_obs, ids, long
        self.tasks = Tasks(
            order, ids + np.int32(first_console), *todo,
            flat, flat if final_obs is None else final_obs.reshape(n, -1),
            np.empty((agent_step.R_SIZE, n), np.int32), np.empty((2, n), np.bool_),
        )  # fmt: skip
        self.job: Any = None  # what `ThreadPool.start` gave

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
