"""The environments of the `device` runner: consoles on the GPU that start their games in steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from dqnitro.config import Config
from dqnitro.envs.ale import vector_options


class CudaEnvs:
    """What the runner needs of consoles on a GPU, with a `CudaVec` behind it. They are those of a run with `of` (by
    default: these) consoles from number `first` on, which decides their seeds.
    """

    def __init__(self, config: Config, device: torch.device, first: int = 0, of: int = 0) -> None:
        from dqnitro.atari.cuda.vec import CudaVec

        c = config
        options: dict[str, Any] = vector_options(c) | {"life_loss_info": c.episodic_life}
        self.vec = CudaVec(c.env_id, c.n_envs, device=str(device), resets_aside=True, **options)
        assert isinstance(self.vec.single_action_space, Discrete)
        self.n_actions = int(self.vec.single_action_space.n)
        self.vec.reset(seed=c.seed * 100_003 % (2**31 - (of or c.n_envs)) + first)

    # tensors that keep their address
    @property
    def obs(self) -> Tensor:
        return self.vec.obs

    @property
    def actions(self) -> Tensor:
        return self.vec.actions

    @property
    def resetting(self) -> Tensor:
        return self.vec.away

    def step(self) -> None:
        self.vec.launch_step()

    def restart(self, which: Tensor) -> None:
        self.vec.restart(which)

    def outcome(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.vec.rewards.float(), self.vec.terminated, self.vec.truncated

    def ended(self) -> Tensor:
        """Whose game ended with the last step: by its rules, or cut off by a limit."""
        return self.vec.game_over | self.vec.truncated

    def get_state(self) -> Mapping[str, Any]:
        return self.vec.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.vec.set_state(dict(state))

    def close(self) -> None:
        self.vec.close()
