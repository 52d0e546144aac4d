"""The replay protocol, and the one way of drawing that all replays share, so that they can be compared draw by draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from dqnitro.dqn import Batch
from dqnitro.envs.base import Step


class Sample(NamedTuple):
    """A batch and where it came from; `ids` go back to `update_priorities`."""

    batch: Batch
    ids: np.ndarray


@runtime_checkable
class Replay(Protocol):
    """Remembers transitions and hands out batches of them."""

    def start(self, obs: np.ndarray) -> None:
        """The first observation of all environments, before the first `add`."""
        ...

    def add(self, actions: np.ndarray, step: Step) -> None:
        """What the actions on the last observation led to."""
        ...

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float) -> Sample:
        """`batch_size` transitions, with replacement."""
        ...

    def update_priorities(self, ids: np.ndarray, td_error: Tensor) -> None:
        """New temporal-difference errors of sampled transitions; uniform replays ignore them."""
        ...

    def __len__(self) -> int:
        """Transitions that can be sampled now."""
        ...

    @property
    def bytes_per_transition(self) -> float:
        """Memory of a full replay divided by its capacity."""
        ...

    def get_state(self) -> Mapping[str, np.ndarray]: ...

    def set_state(self, state: Mapping[str, np.ndarray]) -> None: ...


def draw_uniform(sizes: np.ndarray, batch_size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(environment, age rank) pairs, uniform over all transitions of all environments.

    `sizes[e]` is how many transitions environment e has to offer; rank 0 is its oldest. One draw of `rng.integers` a sample.
    """
    ends = np.cumsum(sizes)
    flat = rng.integers(0, ends[-1], batch_size)
    env = np.searchsorted(ends, flat, side="right")
    return env, flat - (ends[env] - sizes[env])


def gamma_powers(gamma: float, n_step: int) -> np.ndarray:
    """gamma^0 .. gamma^n_step in float32; all replays sum rewards with these, in this order, and so agree bit for bit."""
    return np.array([gamma**k for k in range(n_step + 1)], np.float32)
