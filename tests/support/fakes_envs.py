"""Tiny environments that are solved in seconds, registered with Gymnasium under `dqnitro_test/`."""

from __future__ import annotations

import os
import pathlib
import time

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    """Walk right to the end of a corridor of 6: +1 there. Left of the start is nothing. 20 steps at most."""

    def __init__(self, length: int = 6) -> None:
        self.length = length
        self.observation_space = gym.spaces.Box(0, 1, (length,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def _obs(self):
        obs = np.zeros(self.length, np.float32)
        obs[self.at] = 1
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.t = int(self.np_random.integers(0, 2)), 0
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        self.at = max(0, self.at + (1 if action == 1 else -1))
        done = self.at == self.length - 1
        return self._obs(), 1.0 if done else -0.01, done, self.t >= 20, {}


class SlowOnRay(Corridor):
    """A corridor whose steps take 5 ms on a node of a Ray cluster: accidents take seconds to notice there."""

    def step(self, action):
        if "RAY_RAYLET_PID" in os.environ:
            time.sleep(0.005)
        return super().step(action)


class Stuck(Corridor):
    """A corridor in which the 80th step of a process never ends, if a variable names a file to say so in."""

    steps = 0

    def step(self, action):
        Stuck.steps += 1
        if Stuck.steps >= 80 and (sign := os.environ.get("DQNITRO_TEST_STUCK")):
            pathlib.Path(sign).touch()
            time.sleep(3600)
        return super().step(action)


class Hungry(Corridor):
    """Out of memory in the third step."""

    def step(self, action):
        if self.t == 2:
            self.eat_everything()
        return super().step(action)

    def eat_everything(self):
        raise MemoryError("no memory for another picture")


class Moody(Corridor):
    """A corridor that does what it is told in one step of a process, once: raise, hang, or return what is no number."""

    steps, mood, at_step = 0, "", 0

    def step(self, action):
        Moody.steps += 1
        obs, reward, done, late, info = super().step(action)
        if Moody.steps == Moody.at_step:
            if Moody.mood == "raise":
                raise KeyError("the wrong door")
            if Moody.mood == "hang":
                time.sleep(3600)
            reward = {"nan reward": float("nan"), "no reward": None}.get(Moody.mood, reward)
            obs = {"nan": np.full_like(obs, np.nan), "no observation": None, "inf": obs + np.inf}.get(Moody.mood, obs)
        return obs, reward, done, late, info


class Catch(gym.Env):
    """A pixel falls through a picture of 16x16; a paddle at the bottom has to be under it. Scores -1 or +1 a game."""

    def __init__(self, size: int = 16) -> None:
        self.size = size
        self.observation_space = gym.spaces.Box(0, 255, (size, size), np.uint8)
        self.action_space = gym.spaces.Discrete(3)

    def _obs(self):
        picture = np.zeros((self.size, self.size), np.uint8)
        picture[self.y, self.x] = 255
        picture[-1, max(0, self.paddle - 1) : self.paddle + 2] = 200
        return picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.y, self.paddle = int(self.np_random.integers(0, self.size)), 0, self.size // 2
        return self._obs(), {}

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + action - 1, 0, self.size - 1))
        self.y += 1
        done = self.y == self.size - 1
        reward = 0.0 if not done else (1.0 if abs(self.paddle - self.x) <= 1 else -1.0)
        return self._obs(), reward, done, False, {}


def register() -> None:
    for name, kind in (("Corridor-v0", Corridor), ("Catch-v0", Catch), ("Stuck-v0", Stuck), ("Hungry-v0", Hungry),
                       ("Moody-v0", Moody), ("SlowOnRay-v0", SlowOnRay)):  # fmt: skip
        if f"dqnitro_test/{name}" not in gym.registry:
            gym.register(f"dqnitro_test/{name}", entry_point=f"support.fakes_envs:{kind.__name__}")


register()
