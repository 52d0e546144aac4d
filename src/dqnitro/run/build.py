"""What every runner makes of a config before it builds anything large: device, clock, random numbers."""

from __future__ import annotations

import numpy as np
import torch

from dqnitro.clock import Clock
from dqnitro.config import Config
from dqnitro.errors import ConfigError


def resolve_device(name: str, option: str = "--device") -> str:
    """`auto` becomes cuda or cpu; a GPU that is not there is an error now, not a traceback later."""
    has = torch.cuda.is_available()
    if name == "auto":
        return "cuda" if has else "cpu"
    if name.startswith("cuda") and not has:
        raise ConfigError(
            f"{option} {name}: this torch ({torch.__version__}) sees no CUDA device",
            f"use {option} cpu, or `dqnitro env` to see why",
        )
    if name.startswith("cuda:") and name[5:] not in (names := [str(i) for i in range(torch.cuda.device_count())]):
        raise ConfigError(f"{option} {name}: no such GPU", f"the GPUs here have the numbers {', '.join(names)}")
    return name


def make_clock(c: Config) -> Clock:
    return Clock(
        c.first_fill_steps, c.steps_per_update, c.target_sync_steps, c.epsilon_start, c.epsilon_end,
        c.epsilon_decay_steps, c.priority_beta, c.priority_beta_steps,
    )  # fmt: skip


def make_generators(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Of the actions, and of the replay's samples."""
    act, sample = (np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(2))
    return act, sample
