"""TorchRL: `AtariVec` as a batched `EnvBase`, with tensordicts in and out.

TorchRL itself says when a game starts again: it calls `reset` with the mask of those that ended. The consoles would do
so by themselves in their next step, and a masked reset comes before that step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..vec import AtariVec
from .missing import MissingLibrary

try:
    import torch
    from tensordict import TensorDict, TensorDictBase
    from torchrl.data import Binary, Bounded, Categorical, Composite, Unbounded
    from torchrl.envs import EnvBase
except ImportError as error:
    raise MissingLibrary("TorchRLAtari", "TorchRL", "torchrl") from error

ENDS = ("done", "terminated", "truncated")


class TorchRLAtari(EnvBase):
    """`TorchRLAtari("pong", 8)`; the arguments are those of `AtariVec`, which is `.vec`. Observations are `pixels`."""

    def __init__(self, game: str, num_envs: int, *, seed: int | None = None, **options: Any) -> None:
        if options.get("batch_size") or "autoreset_mode" in options or options.get("continuous"):
            raise ValueError(
                "TorchRLAtari steps all environments with discrete actions, and TorchRL resets them. hint: leave out "
                "batch_size, autoreset_mode and continuous"
            )
        super().__init__(device=torch.device("cpu"), batch_size=torch.Size([num_envs]))
        self.vec = AtariVec(game, num_envs, **options)
        self._next_seed = seed
        one, column = torch.Size([num_envs]), torch.Size([num_envs, 1])
        stacks = torch.Size([num_envs, *(self.vec.single_observation_space.shape or ())])
        n_actions = len(self.vec.game.actions) if not options.get("full_action_space") else 18
        self.observation_spec = Composite(
            pixels=Bounded(0, 255, shape=stacks, dtype=torch.uint8), lives=Unbounded(one, dtype=torch.int64), shape=one
        )
        self.action_spec = Categorical(n_actions, shape=one, dtype=torch.int64)
        self.reward_spec = Unbounded(column, dtype=torch.float32)
        self.full_done_spec = Composite({name: Binary(1, shape=column, dtype=torch.bool) for name in ENDS}, shape=one)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None or bool(mask.all()):
            obs, info = self.vec.reset(seed=self._next_seed)
            self._next_seed = None
        else:
            obs, info = self.vec.reset(options={"reset_mask": mask.reshape(-1).numpy()})
        none = torch.zeros((*self.batch_size, 1), dtype=torch.bool)
        return self._seen(obs, info, dict.fromkeys(ENDS, none))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        obs, reward, terminated, truncated, info = self.vec.step(tensordict["action"])
        ends = dict(zip(ENDS, (terminated | truncated, terminated, truncated), strict=True))
        out = self._seen(obs, info, {name: torch.from_numpy(x.copy()).unsqueeze(-1) for name, x in ends.items()})
        return out.set("reward", torch.from_numpy(reward.astype(np.float32)).unsqueeze(-1))

    def _seen(self, obs: np.ndarray, info: dict[str, np.ndarray], ends: dict[str, Any]) -> TensorDict:
        seen = {"pixels": torch.from_numpy(obs), "lives": torch.from_numpy(info["lives"].astype(np.int64))}
        return TensorDict({**seen, **ends}, batch_size=self.batch_size)

    def _set_seed(self, seed: int | None) -> None:
        self._next_seed = seed

    def close(self, **kwargs: Any) -> None:
        self.vec.close()
        super().close(**kwargs)
