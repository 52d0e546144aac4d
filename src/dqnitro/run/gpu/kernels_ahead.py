"""While the console is loaded, or compiled by processes of its own: the GPU is prepared in a thread. In the first start
on a machine that means to compile the kernels of an update.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dqnitro.atari.jit import compile_early
from dqnitro.config import Config
from dqnitro.envs import make_envs, of_one_env
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
    envs = make_envs(of_one_env(config, "wrappers"))
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


def _try(work: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(Exception):  # whatever is wrong here will be wrong again where it is reported
        work(*arguments)


def wake(device: torch.device, triton: bool) -> None:
    """What a GPU does once in a process, and takes half a second for: its context, its library for products."""
    x = torch.zeros((16, 16), device=device)
    torch.mm(x, x)
    if triton:
        importlib.import_module("dqnitro.learn.gpu.fused_update")


@contextlib.contextmanager
def gpu_meanwhile(config: Config, device: torch.device, make_agent: MakeAgent) -> Iterator[None]:
    """Prepare the GPU in a thread while the block prepares the console, which may have to be compiled."""
    if device.type != "cuda":
        yield
        return
    ours = any(t.reads_ring for t in chosen(config.wrappers))
    if ours and compile_early.under_way():
        thread = threading.Thread(target=_try, args=(compile_kernels, config, make_agent), name="gpu", daemon=True)
    else:
        thread = threading.Thread(target=_try, args=(wake, device, ours), name="gpu", daemon=True)
    thread.start()
    yield
    while thread.is_alive():
        thread.join(0.2)  # a join without a limit could not be interrupted everywhere
