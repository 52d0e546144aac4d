"""The machines of the `device` runner: a `CudaVec` whose steps and starts of games are launched apart."""

from __future__ import annotations

import torch
from torch import Tensor

from dqnitro.config import Config
from dqnitro.envs.ale import vector_options


class Machines:
    """What the runner needs of machines on a card; `CudaVec` behind it, or a stand-in in tests."""

    def __init__(self, config: Config, device: torch.device) -> None:
        from dqnitro.atari.cuda.vec import CudaVec

        c = config
        self.vec = CudaVec(
            c.env_id, c.n_envs, device=str(device), resets_aside=True,
            **vector_options(c) | {"life_loss_info": c.episodic_life},
        )  # fmt: skip
        self.n_actions = int(self.vec.single_action_space.n)  # type: ignore[attr-defined]
        self.vec.reset(seed=c.seed * 100_003 % (2**31 - c.n_envs))

    # tensors that keep their address
    @property
    def obs(self) -> Tensor:
        return self.vec.obs

    @property
    def actions(self) -> Tensor:
        return self.vec.actions

    @property
    def away(self) -> Tensor:
        return self.vec.away

    def step(self) -> None:
        self.vec.launch_step()

    def admit(self) -> None:
        """Machines come back from the start of a game; their observation is its first."""
        self.vec.launch_admit()
        self.vec.launch_show()

    def begin_games(self) -> None:
        self.vec.launch_starts()

    def outcome(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Reward, end of the episode for learning, cut off by a limit, end of the game."""
        v = self.vec
        return v.rewards.float(), v.terminated, v.truncated, v.game_over | v.truncated
