"""The GPU runners with both halves on the CPU, so that faults can be made in them on any machine.

`hybrid` needs no more than leave to run there. `device` plays consoles that only a GPU has; here its games are bars
that fall through a small picture. Graphs, streams and kernels are not in it: they are tested on a GPU (tests/gpu).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

import dqnitro.session
from dqnitro.agent import Tick
from dqnitro.config import Config
from dqnitro.run import RUNNERS
from dqnitro.run.gpu import device

START_STEPS = 2  # in which an environment is resetting


class Bars:
    """n games in which a bar falls from the left or the right half; action 1 is right for right, 0 for left."""

    n_actions = 2

    def __init__(self, config: Config) -> None:
        n, size = config.n_envs, config.screen_size
        self.obs = torch.zeros((n, config.frame_stack, size, size), dtype=torch.uint8)
        self.actions = torch.zeros(n, dtype=torch.int64)
        self.resetting = torch.zeros(n, dtype=torch.int32)
        self.row = torch.arange(n) % 3  # games end at different steps
        self.games = torch.arange(n)
        self._reward, self._over = torch.zeros(n), torch.zeros(n, dtype=torch.bool)
        self._draw(torch.ones(n, dtype=torch.bool))

    @property
    def _side(self) -> torch.Tensor:
        return (self.games * 7 + self.row) % 3 % 2

    def _draw(self, fresh: torch.Tensor) -> None:
        size = self.obs.shape[-1]
        across = torch.arange(size) // (size // 2) == self._side[:, None]
        down = torch.arange(size) // 4 == self.row[:, None]
        picture = (down[:, :, None] & across[:, None, :]).to(torch.uint8) * 200
        older = self.obs[:, 1:].clone().masked_fill_(fresh[:, None, None, None], 0)
        self.obs.copy_(torch.cat([older, picture[:, None]], 1))

    def step(self) -> None:
        here = self.resetting == 0
        self._reward = torch.where(self.actions == self._side, 1.0, -1.0) * here
        self.row += here
        self._over = here & (self.row >= 8)
        begins = self.resetting == 1
        self.resetting.copy_((self.resetting - 1).clamp(min=0))
        self.resetting[self._over] = START_STEPS
        self.row[begins] = 0
        self.games += begins
        self._draw(begins)

    def outcome(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self._reward, self._over, torch.zeros_like(self._over)

    def ended(self) -> torch.Tensor:
        return self._over

    def get_state(self) -> dict[str, np.ndarray]:
        return {k: getattr(self, k).numpy().copy() for k in ("obs", "resetting", "row", "games")}

    def set_state(self, state: Mapping[str, Any]) -> None:
        for k, here in ((k, getattr(self, k)) for k in ("obs", "resetting", "row", "games")):
            there = np.asarray(state[k])
            if there.shape != tuple(here.shape) or there.dtype != here.numpy().dtype:
                raise ValueError(f"{k} has shape {there.shape} and type {there.dtype}")
            here.copy_(torch.from_numpy(there.copy()))

    def close(self) -> None: ...


def make_device(config: Config) -> tuple[device.DeviceAgent, Iterator[Tick]]:
    """In place of `run.gpu.device.make`."""
    torch.set_num_threads(1)
    device.STEPS_PER_GRAPH = 4
    agent = device.DeviceAgent(config, torch.device("cpu"), Bars(config))
    return agent, device.ticks(agent, device.Graphs(agent))


def register() -> None:
    """From now on `train` and `resume` of this process take the GPU runners on a CPU."""
    RUNNERS["device"] = make_device
    dqnitro.session.check_runner = lambda config: None
