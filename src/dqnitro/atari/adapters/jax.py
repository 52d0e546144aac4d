"""JAX: observations as JAX arrays by DLPack, without a copy where JAX takes the memory as it is.

An array of `AtariVec` is never written again while anything holds it, and a JAX array made from it holds it: so what
JAX sees does not change, as JAX requires. Actions may be JAX arrays. The environment itself is not traced: call `step`
between two compiled functions, not inside of one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..vec import AtariVec
from .missing import MissingLibrary

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise MissingLibrary("JaxAtari", "JAX", "jax") from error


class JaxAtari:
    """`JaxAtari("pong", 8)`; the arguments are those of `AtariVec`, which is `.vec`."""

    def __init__(self, game: str, num_envs: int, **options: Any) -> None:
        self.vec = AtariVec(game, num_envs, **options)
        self.num_envs = num_envs
        self.observation_space, self.action_space = self.vec.observation_space, self.vec.action_space

    def reset(self, *, seed: int | np.ndarray | None = None) -> tuple[jax.Array, dict[str, jax.Array]]:
        obs, info = self.vec.reset(seed=seed)
        return as_jax(obs), {name: as_jax(value) for name, value in info.items()}

    def step(self, actions: Any) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, dict[str, jax.Array]]:
        """Observations, rewards, terminated, truncated, infos: those of `AtariVec`, as JAX arrays."""
        *results, info = self.vec.step(np.asarray(actions))
        obs, reward, terminated, truncated = (as_jax(x) for x in results)
        return obs, reward, terminated, truncated, {name: as_jax(value) for name, value in info.items()}

    def close(self) -> None:
        self.vec.close()


def as_jax(array: np.ndarray) -> jax.Array:
    """A JAX array of the same numbers; DLPack, or a copy where DLPack cannot carry them."""
    whole = np.ascontiguousarray(array)
    try:
        return jax.dlpack.from_dlpack(whole)
    except (BufferError, RuntimeError, TypeError, ValueError):  # read-only memory, and kinds of numbers without DLPack
        return jnp.asarray(whole)
