"""The first start on a machine: the kernels of an update are compiled while processes compile the console."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dqnitro.atari.jit import compile_early
from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.envs.base import EnvSpec
from dqnitro.envs.turns import EnvGroups, count_groups
from dqnitro.learn.transforms import chosen
from dqnitro.run.gpu.agent import GpuAgent

FEWEST_SLOTS = 64  # of a ring that only lends its shape


class Blank:
    """Environments of which nothing but the shape is known."""

    def __init__(self, spec: EnvSpec) -> None:
        self.spec = spec

    def reset(self) -> np.ndarray:
        return np.zeros((self.spec.n_envs, *self.spec.obs_shape), self.spec.obs_dtype)

    def close(self) -> None: ...


def blank_groups(config: Config) -> EnvGroups:
    """In the groups of the runner; the reference backend tells the shapes, which needs no compiler."""
    envs = make_envs(config.replace(n_envs=1, envs="wrappers", env_threads=0, env_parts=0))
    envs.close()
    count = count_groups(config)
    each: list[Any] = [Blank(replace(envs.spec, n_envs=config.n_envs // count)) for _ in range(count)]
    return EnvGroups(each)


def with_small_ring(config: Config) -> Config:
    """A config with the same kernels and little memory: Triton looks at whether 16 divides the number of slots."""
    slots = config.replay_capacity // config.n_envs
    slots = min(slots, FEWEST_SLOTS + slots % 16)
    return config.replace(replay_capacity=slots * config.n_envs, first_fill_steps=config.batch_size)


MakeAgent = Callable[[Config, EnvGroups], GpuAgent]


def compile_kernels(config: Config, make_agent: MakeAgent) -> None:
    """Compile what the agent of a config will start, without its environments."""
    agent = make_agent(with_small_ring(config), blank_groups(config))
    agent.update.compile_for(agent.all_passes)


def _try(config: Config, make_agent: MakeAgent) -> None:
    with contextlib.suppress(Exception):  # whatever is wrong here will be wrong again where it is reported
        compile_kernels(config, make_agent)


@contextlib.contextmanager
def kernels_meanwhile(config: Config, device: torch.device, make_agent: MakeAgent) -> Iterator[None]:
    """While the block waits for the console's compiler, if there is something to wait for and something to compile."""
    ours = any(t.reads_ring for t in chosen(config.wrappers))
    if not (device.type == "cuda" and ours and compile_early.under_way()):
        yield
        return
    thread = threading.Thread(target=_try, args=(config, make_agent), name="kernels", daemon=True)
    thread.start()
    yield
    while thread.is_alive():
        thread.join(0.2)  # a join without a limit could not be interrupted everywhere
