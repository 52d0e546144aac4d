"""Environments on the CPU for the `device` runner, where it has no GPU: several ranks on a machine without one.

They keep the protocol of consoles on a GPU: an environment whose game has ended begins the next one in the step that
follows, and is `resetting` until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.errors import ConfigError


class HostEnvs:
    """A `DevicePlayer` on any environment backend with images. `first`: the number of its first environment."""

    def __init__(self, config: Config, first: int) -> None:
        # Scores count rewards as the game gives them; the agent clips what it learns from.
        self._envs = make_envs(config.replace(clip_rewards=False), first)
        spec = self._envs.spec
        size = config.screen_size
        if spec.obs_shape != (config.frame_stack, size, size):
            self._envs.close()
            raise ConfigError(
                f"runner device needs images of {config.frame_stack} grey frames, {config.env_id} has {spec.obs_shape}",
                "use --images grey",
            )
        n = spec.n_envs
        self.n_actions, self.frames_per_step = spec.n_actions, spec.frames_per_step
        self.obs = torch.from_numpy(self._envs.reset().copy())
        self.actions = torch.zeros(n, dtype=torch.int64)
        self.resetting = torch.zeros(n, dtype=torch.int32)
        self._reward = torch.zeros(n)
        self._terminated, self._truncated, self._ended = torch.zeros((3, n), dtype=torch.bool)

    def step(self) -> None:
        self._envs.send(self.actions.numpy())
        step = self._envs.recv()
        self.obs.copy_(torch.from_numpy(np.ascontiguousarray(step.obs_t)))
        self._reward.copy_(torch.from_numpy(step.reward_t))
        self._terminated.copy_(torch.from_numpy(step.terminated))
        self._truncated.copy_(torch.from_numpy(step.truncated))
        self._ended.zero_()
        for end in step.ends:
            self._ended[end.env] = True
        self.resetting.copy_(self._ended)

    def outcome(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._reward, self._terminated, self._truncated

    def ended(self) -> Tensor:
        return self._ended

    def get_state(self) -> Mapping[str, Any]:
        return {**self._envs.get_state(), "away": self.resetting.numpy().copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        games = {k: np.asarray(v) for k, v in state.items()}
        away = games.pop("away")
        self.obs.copy_(torch.from_numpy(np.ascontiguousarray(self._envs.set_state(games))))
        self.resetting.copy_(torch.from_numpy(np.array(away, np.int32)))

    def close(self) -> None:
        self._envs.close()
