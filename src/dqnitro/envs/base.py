"""The environment protocol: many environments, stepped together by `send` and `recv`.

Every backend resets in the step *after* an end ("next-step" autoreset): the step of the end shows the final
observation, the next step ignores that environment's action, begins a new game and says so in `Step.reset`. All
environments therefore move together, a time limit never loses its last observation, and the replay has no special case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np


@dataclass(frozen=True)
class EnvSpec:
    """What the learner has to know of the environments."""

    n_envs: int
    n_actions: int
    obs_shape: tuple[int, ...]  # of one environment; images: (frame_stack * channels, height, width)
    obs_dtype: np.dtype[Any]
    frame_stack: int  # 1: nothing is stacked
    frames_per_step: int  # console frames a step takes; 1 where there is no console
    is_image: bool
    channels: int = 1  # of one frame of an image: 1 in grey, 3 in colour

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """What each step adds to the observation: one frame of a stack, or all of it."""
        if self.frame_stack == 1:
            return self.obs_shape
        return self.obs_shape[1:] if self.channels == 1 else (self.channels, *self.obs_shape[1:])

    def newest(self, obs: np.ndarray) -> np.ndarray:
        """That part of observations (n_envs, *obs_shape): (n_envs, *frame_shape)."""
        if self.frame_stack == 1:
            return obs
        return obs[:, -1] if self.channels == 1 else obs[:, -self.channels :]


class GameEnd(NamedTuple):
    """A finished game: `score` is its whole unclipped reward, `steps` the decisions it took."""

    env: int
    score: float
    steps: int


class Step(NamedTuple):
    """What one vector step brought; index i is environment i. Valid until the next `recv`."""

    obs_t: np.ndarray  # (n_envs, *obs_shape): act on this next
    reward_t: np.ndarray  # float32 (n_envs,), clipped if the config says so; 0 where reset
    terminated: np.ndarray  # bool: nothing is to be expected after obs_t (game over, or a life lost)
    truncated: np.ndarray  # bool: cut off by a limit; obs_t is worth what the network says
    reset: np.ndarray  # bool: the action was ignored and obs_t begins a new game
    ends: tuple[GameEnd, ...]  # games that ended in this step


@runtime_checkable
class Envs(Protocol):
    """An environment backend. Serial ones do the work in `recv`; pooled ones work from `send` on."""

    spec: EnvSpec

    @property
    def idle(self) -> np.ndarray | None:
        """bool (n_envs,): which have had no reward for `idle_frames`; None where that is off, or is known elsewhere."""
        ...

    @property
    def last_actions(self) -> np.ndarray | None:
        """int64 (n_envs,): what each did last in its game, anything if nothing yet; None where `idle` is."""
        ...

    def reset(self) -> np.ndarray:
        """Begin every environment's first game; the observation (n_envs, *obs_shape)."""
        ...

    def send(self, actions: np.ndarray) -> None:
        """Start a vector step with int64 actions (n_envs,)."""
        ...

    def recv(self) -> Step:
        """Finish the vector step that `send` started."""
        ...

    def get_state(self) -> Mapping[str, np.ndarray]:
        """All that `set_state` of a new backend needs to go on exactly here; plain arrays only."""
        ...

    def set_state(self, state: Mapping[str, np.ndarray]) -> np.ndarray:
        """Go to a saved state; returns the current observation."""
        ...

    def close(self) -> None:
        """Free processes, threads and memory. May be called twice."""
        ...
