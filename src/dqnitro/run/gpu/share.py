"""The share of one rank in a run on several GPUs: environments, replay and batch are divided, schedules are not."""

from __future__ import annotations

from dqnitro.config import Config


def config_of(config: Config) -> Config:
    """The config of one rank's share. The ring has as many slots for each environment as one process would give it."""
    n = config.n_envs // config.gpus
    slots = config.replay_capacity // config.n_envs
    return config.replace(n_envs=n, batch_size=config.batch_size // config.gpus, replay_capacity=slots * n, gpus=1)
