"""What is due when: the only place with periods.

A tick advances the steps by the number of environments that made a decision, so nothing here computes `steps % period`.
Work is *owed* (due so far minus done so far), and owed work is never skipped or done twice, however far a tick goes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


def linear(start: float, end: float, duration: int, at: int) -> float:
    """A straight line from `start` at 0 to `end` at `duration`, flat after it."""
    if at >= duration:
        return end
    return start + (end - start) * (at / duration)


@dataclass
class Clock:
    """Counts steps, updates and target syncs, and says what is owed."""

    first_fill_steps: int
    steps_per_update: float
    target_sync_steps: int
    epsilon_start: float
    epsilon_end: float
    epsilon_decay_steps: int
    priority_beta: float = 0.4
    priority_beta_steps: int = 100_000
    steps: int = 0
    updates: int = 0
    syncs: int = 0

    def count_steps(self, n: int) -> None:
        self.steps += n

    def updates_due(self) -> int:
        """Updates that are due by now. The first one is due as soon as the first fill is complete."""
        if self.steps < self.first_fill_steps:
            return 0
        return math.floor((self.steps - self.first_fill_steps) / self.steps_per_update) + 1

    def owes_update(self) -> bool:
        return self.updates < self.updates_due()

    def owes_sync(self) -> bool:
        """Is a target sync owed before the next update?

        The next update is scheduled for step `first_fill + updates * steps_per_update`, however many steps a tick has.
        Syncs are counted at that step, so 1 and 16 environments sync before the same updates.
        """
        scheduled = self.first_fill_steps + self.updates * self.steps_per_update
        return self.syncs < math.floor(scheduled / self.target_sync_steps)

    def count_sync(self) -> None:
        """A sync catches up with all periods that have passed: copying the network twice in a row changes nothing."""
        scheduled = self.first_fill_steps + self.updates * self.steps_per_update
        self.syncs = math.floor(scheduled / self.target_sync_steps)

    def count_update(self) -> None:
        self.updates += 1

    def epsilon(self) -> float:
        return linear(self.epsilon_start, self.epsilon_end, self.epsilon_decay_steps, self.steps)

    def beta(self) -> float:
        return linear(self.priority_beta, 1.0, self.priority_beta_steps, self.steps)

    def get_state(self) -> dict[str, int]:
        return {"steps": self.steps, "updates": self.updates, "syncs": self.syncs}

    def set_state(self, state: Mapping[str, int]) -> None:
        self.steps = int(state["steps"])
        self.updates = int(state["updates"])
        self.syncs = int(state["syncs"])


class Every:
    """True once every `seconds` of wall clock; never if that is 0. For logs and checkpoints, which change no result."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self._now = now
        self._next = now() + seconds

    def due(self) -> bool:
        if not self._seconds:
            return False
        now = self._now()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
