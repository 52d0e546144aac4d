"""The replay protocol, and what all replays share, so that they can be compared draw by draw.

The n-step return is implemented five times, for five targets: Python (`plain.py`), NumPy and Numba (`frames.py`,
`frames_numba.py`), torch on the GPU (`gpu_ring.py`) and Triton (`learn/gpu/triton_forward.py`).
tests/replay/test_frames.py compares the first three with each other, tests/replay/test_gpu_ring.py the fourth with
values computed by hand, and tests/support/own_kernels_checks.py the fifth with the fourth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from dqnitro.dqn import Batch
from dqnitro.envs.base import Step

if TYPE_CHECKING:
    from dqnitro.replay.placed import Drawn


class Sample(NamedTuple):
    """A batch, or the places of one, and where it came from; pass `ids` to `update_priorities`."""

    batch: Batch | Drawn
    ids: np.ndarray


class ReplayMemory(Protocol):
    """What every replay is, on the host or on a GPU: memory that can be saved."""

    @property
    def bytes_per_transition(self) -> float:
        """Memory of a full replay divided by its capacity."""
        ...

    def get_state(self) -> Mapping[str, np.ndarray]: ...

    def set_state(self, state: Mapping[str, np.ndarray]) -> None: ...


@runtime_checkable
class Replay(ReplayMemory, Protocol):
    """Remembers transitions and hands out batches of them."""

    def start(self, obs: np.ndarray) -> None:
        """The first observation of all environments, before the first `add`."""
        ...

    def add(self, actions: np.ndarray, step: Step) -> None:
        """The step that followed these actions on the last observation."""
        ...

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float) -> Sample:
        """`batch_size` transitions, with replacement."""
        ...

    def update_priorities(self, ids: np.ndarray, td_error: Tensor) -> None:
        """New temporal-difference errors of sampled transitions; uniform replays ignore them."""
        ...

    def __len__(self) -> int:
        """Number of transitions that can be sampled now."""
        ...


def draw_uniform(sizes: np.ndarray, batch_size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(environment, age rank) pairs, uniform over all transitions of all environments.

    `sizes[e]` is the number of transitions of environment e; rank 0 is the oldest. One `rng.integers` per sample.
    """
    if len(sizes) == 1:  # the same numbers with a few calls less
        return np.zeros(batch_size, np.int64), rng.integers(0, sizes[0], batch_size)
    ends = np.cumsum(sizes)
    flat = rng.integers(0, ends[-1], batch_size)
    env = np.searchsorted(ends, flat, side="right")
    return env, flat - (ends[env] - sizes[env])


def gamma_powers(gamma: float, n_step: int) -> np.ndarray:
    """gamma^0 .. gamma^n_step in float32. All replays sum rewards with these, in this order, to agree bit for bit."""
    return np.array([gamma**k for k in range(n_step + 1)], np.float32)


def saved(
    state: Mapping[str, np.ndarray], name: str, like: np.ndarray, low: float = -np.inf, high: float = np.inf
) -> np.ndarray:
    """An array of a checkpoint, of the shape and type of `like` and within the bounds; ValueError otherwise."""
    found = np.asarray(state[name])
    if found.shape != like.shape or found.dtype != like.dtype:
        raise ValueError(f"{name} is {found.dtype} {found.shape}, expected {like.dtype} {like.shape}")
    if found.size and found.dtype.kind in "iuf" and not (found.min() >= low and found.max() <= high):
        raise ValueError(f"{name} has values from {found.min()} to {found.max()}, expected {low:g} to {high:g}")
    return found
