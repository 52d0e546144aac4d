"""A simple game in place of the consoles on a GPU, and a run of the device runner on it."""

from __future__ import annotations

import torch

from dqnitro.config import Config
from dqnitro.run.gpu.device import DeviceAgent

SIZE = 36
GAME = 6  # steps of a game


class Catch:
    """n games of `GAME` steps: a bright bar is on the left or on the right; action 1 is right for right, 0 for left.

    Like consoles on a GPU: an environment whose game has ended is resetting for the steps that its next start takes.
    """

    n_actions = 2
    start_steps = 20

    def __init__(self, n: int, first: int = 0) -> None:
        self._number = torch.arange(first, first + n)
        self.obs = torch.zeros((n, 4, SIZE, SIZE), dtype=torch.uint8)
        self.actions = torch.zeros(n, dtype=torch.int64)
        self.resetting = torch.zeros(n, dtype=torch.int32)
        self._left = torch.full((n,), GAME)
        self._side = self._number % 2
        self._reward, self._over = torch.zeros(n), torch.zeros(n, dtype=torch.bool)
        self.played = 0
        self._draw(torch.ones(n, dtype=torch.bool), fresh=True)

    def _draw(self, which: torch.Tensor, fresh: bool) -> None:
        new = torch.where(which[:, None, None, None], 0 if fresh else self.obs.roll(-1, 1), self.obs)
        half = torch.arange(SIZE)[None, :] // (SIZE // 2) == self._side[:, None]
        new[which, 3] = (half[which][:, None, :] * 200).expand(-1, SIZE, SIZE).to(torch.uint8)
        self.obs.copy_(new)

    def step(self) -> None:
        here = self.resetting == 0
        self.played += int(here.sum())
        self._reward = torch.where(self.actions == self._side, 1.0, -1.0) * here
        self._left = self._left - here.long()
        self._over = here & (self._left == 0)
        self._side = torch.where(here, (self._side * 5 + self._left + self._number) % 2, self._side)
        self._draw(here, fresh=False)
        ready = self.resetting == 1
        self.resetting.copy_((self.resetting - 1).clamp(min=0))
        self.resetting[self._over] = self.start_steps
        self._left[ready] = GAME
        self._draw(ready, fresh=True)

    def outcome(self):
        return self._reward, self._over, torch.zeros_like(self._over)

    def ended(self):
        return self._over

    def get_state(self):
        return {}

    def set_state(self, state):
        assert not state

    def close(self): ...


def config(**changes) -> Config:
    base = Config(
        env_id="pong", n_envs=8, screen_size=SIZE, network="small", hidden_units=32, replay="frames",
        replay_capacity=8 * 400,
        first_fill_steps=200, batch_size=32, steps_per_update=4.0, epsilon_decay_steps=2_000, target_sync_steps=256,
        learning_rate=1e-3, n_step=1, gamma=0.5, wrappers=("no-grad", "fused-adam"), torch_threads=1,
    )  # fmt: skip
    return base.replace(**changes)


def agent(c: Config) -> DeviceAgent:
    torch.manual_seed(c.seed)
    return DeviceAgent(c, torch.device("cpu"), Catch(c.n_envs))
