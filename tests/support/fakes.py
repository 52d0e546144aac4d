"""A made-up environment whose every frame is different, so that a wrong stack or a wrong neighbour cannot hide."""

import numpy as np

from dqnitro.envs.base import EnvSpec, Step


def spec(n_envs: int, stack: int, size: int = 2, channels: int = 1) -> EnvSpec:
    return EnvSpec(n_envs, 4, (stack * channels, size, size), np.dtype(np.uint8), stack, 4, True, channels)


class Stream:
    """Random episodes with terminations, life losses (terminated, no reset) and time limits."""

    def __init__(
        self,
        n_envs: int,
        stack: int,
        seed: int,
        p_end: float = 0.15,
        p_cut: float = 0.1,
        p_life: float = 0.1,
        channels: int = 1,
    ) -> None:
        self.spec = spec(n_envs, stack, channels=channels)
        self.rng = np.random.default_rng(seed)
        self.p_end, self.p_cut, self.p_life = p_end, p_cut, p_life
        self.pending = np.zeros(n_envs, bool)
        self.obs = np.zeros((n_envs, *self.spec.obs_shape), np.uint8)
        for e in range(n_envs):
            self._push(e, fresh=True)

    def _push(self, e: int, fresh: bool) -> None:
        if fresh:
            self.obs[e] = 0
        self.obs[e] = np.roll(self.obs[e], -self.spec.channels, axis=0)
        self.obs[e, -self.spec.channels :] = self.rng.integers(1, 256, self.spec.obs_shape[1:])

    def step(self) -> tuple[np.ndarray, Step]:
        n = self.spec.n_envs
        actions = self.rng.integers(0, 4, n)
        reset = self.pending.copy()
        u = self.rng.random(n)
        terminated = (u < self.p_end + self.p_life) & ~reset
        over = (u < self.p_end) & ~reset
        truncated = (u > 1 - self.p_cut) & ~reset
        for e in range(n):
            self._push(e, fresh=bool(reset[e]))
        reward = np.where(reset, 0, self.rng.integers(-1, 2, n)).astype(np.float32)
        self.pending = over | truncated
        return actions, Step(self.obs.copy(), reward, terminated, truncated, reset, ())
