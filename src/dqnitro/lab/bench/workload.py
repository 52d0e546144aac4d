"""The work that the small benchmarks share: the game's network, made-up batches, a real update."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec
from dqnitro.learn.learner import Learner

if TYPE_CHECKING:
    from dqnitro.lab.bench.contest import Step


def game_spec(game: str) -> tuple[Config, EnvSpec]:
    """The textbook config of a game, and the spec of its environment."""
    from dqnitro.envs import make_envs

    config = recipes.baseline(game)
    envs = make_envs(config)
    envs.close()
    return config, envs.spec


def observations(spec: EnvSpec, batch: int, seed: int = 0) -> np.ndarray:
    """Made-up observations: the speed does not depend on their content."""
    rng = np.random.default_rng(seed)
    if spec.obs_dtype == np.uint8:
        return rng.integers(0, 256, (batch, *spec.obs_shape), dtype=np.uint8)
    return rng.standard_normal((batch, *spec.obs_shape)).astype(spec.obs_dtype)


def make_batch(spec: EnvSpec, size: int, device: str) -> Batch:
    rng = np.random.default_rng(1)
    tensors = (
        torch.from_numpy(observations(spec, size)),
        torch.from_numpy(rng.integers(0, spec.n_actions, size)),
        torch.from_numpy(rng.integers(-1, 2, size).astype(np.float32)),
        torch.full((size,), 0.99),
        torch.from_numpy(observations(spec, size, seed=2)),
        torch.ones(size),
    )
    return Batch(*(t.to(device) for t in tensors))


def update_step(learner: Learner, batch: Batch) -> Step:
    """One whole update (target, loss, backward, optimiser); returns the samples it learned from."""

    def step() -> float:
        learner.update(batch)
        settle(learner.device.type)
        return float(batch.reward_t.shape[0])

    return step


def forward_step(forward: Callable[[torch.Tensor], torch.Tensor], obs: torch.Tensor) -> Step:
    """One pass without gradients; returns the number of observations."""

    def step() -> float:
        with torch.no_grad():
            forward(obs)
        settle(obs.device.type)
        return float(obs.shape[0])

    return step


def settle(device_type: str) -> None:
    """Wait for the GPU: its calls return before the work is done, and a benchmark would only time the queue."""
    if device_type == "cuda":
        torch.cuda.synchronize()
