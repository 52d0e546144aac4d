"""What the rest of the program knows of a run that is under way: an agent, and the ticks of its runner.

Sessions, sinks, the lab and the commands use this protocol and nothing else of an agent. Who keeps it: `run/inline.py`
(also for `processes`) and `run/gpu/agent.py` (for `device` and `hybrid`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from dqnitro.clock import Clock
from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec, GameEnd

if TYPE_CHECKING:  # a module that only names an agent need not wait for torch
    from torch import Tensor

    from dqnitro.learn.learner import Learner
    from dqnitro.replay.base import ReplayMemory

PHASES = ("act", "env", "sample", "learn", "store")
State = tuple[dict[str, Mapping[str, Any]], dict[str, Any]]


class Tick(NamedTuple):
    """What happened since the last tick: one vector step, or with the runner `device` a CUDA graph of several."""

    steps: int  # decisions so far, over all environments
    updates: int
    epsilon: float
    loss: Tensor | None  # of the last update in this tick; reading it synchronises a GPU
    ends: tuple[GameEnd, ...]


@dataclass
class Phases:
    """Seconds per phase. Two reads of a clock and an addition a phase: under 1 microsecond."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    _last: float = 0.0

    def begin(self) -> None:
        self._last = time.perf_counter()

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now


class HasSpec(Protocol):
    """As much of the environments as is known where they may also be on a GPU."""

    @property
    def spec(self) -> EnvSpec: ...


class Agent(Protocol):
    """A run at one moment. Between two ticks it is at rest: it may be saved, and it may be closed."""

    @property
    def config(self) -> Config: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def phases(self) -> Phases: ...

    @property
    def envs(self) -> HasSpec: ...

    @property
    def replay(self) -> ReplayMemory: ...

    @property
    def learner(self) -> Learner: ...

    def get_state(self) -> State:
        """Everything that decides how the run goes on: named groups of arrays, and a small JSON-ready record."""
        ...

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        """The inverse of `get_state`, on an agent made from the same config, before its first tick."""
        ...

    def close(self) -> None:
        """End whatever was started. May be called twice."""
        ...


class SharedEnvs(Protocol):
    """The environments of the runner `cluster`: players share them, and their number may change."""

    changes: deque[tuple[int, int]]  # chunks, and players from there on, that nobody has noted yet

    @property
    def players(self) -> int: ...

    def repeat(self, changes: Sequence[tuple[int, int]]) -> None:
        """Make these changes at their chunks, whatever the nodes say."""
        ...


def shared_envs(agent: Agent) -> SharedEnvs | None:
    """The environments of an agent whose runner has players that share them."""
    return cast(SharedEnvs, agent.envs) if agent.config.runner == "cluster" else None
