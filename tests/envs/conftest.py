"""Tiny environments with known answers, registered for the tests of this folder."""

from __future__ import annotations

import os
import signal
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete


class Scripted(gym.Env):
    """Plays `script`: one (reward, terminated, truncated, info) a step. The observation is the number of steps."""

    action_space = Discrete(2)
    observation_space = Box(0, 1000, (1,), np.float64)
    script: ClassVar[list[tuple]] = []

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.array([0.0]), {"lives": 3}

    def step(self, action):
        reward, terminated, truncated, info = self.script[self.steps]
        self.steps += 1
        return np.array([float(self.steps)]), reward, terminated, truncated, info


class Ends(Scripted):
    script: ClassVar[list[tuple]] = [(5, False, False, {}), (-7.5, False, False, {}), (2, True, False, {})]


class Cut(Scripted):
    script: ClassVar[list[tuple]] = [(1, False, False, {}), (1, False, True, {})]


class Lives(Scripted):
    script: ClassVar[list[tuple]] = [
        (1, False, False, {"lives": 3}),
        (1, False, False, {"lives": 2}),  # lost
        (1, False, False, {"lives": 2}),
        (1, False, False, {"lives": 3}),  # won one back
        (1, False, False, {"lives": 2}),  # lost
        (1, True, False, {"lives": 0}),
    ]


class CutWithLife(Scripted):
    script: ClassVar[list[tuple]] = [(1, False, False, {"lives": 3}), (1, False, True, {"lives": 2})]


class OddRewards(Scripted):
    script: ClassVar[list[tuple]] = [
        (np.int64(2), False, False, {}),
        (np.array([0.25]), False, False, {}),
        (np.array(1), False, False, {}),
        (True, np.bool_(True), np.bool_(False), {}),
    ]


class TwoRewards(Scripted):
    script: ClassVar[list[tuple]] = [(np.array([1.0, 2.0]), False, False, {})]


class Raises(Scripted):
    script: ClassVar[list[tuple]] = [(1, False, False, {})]

    def step(self, action):
        if self.steps == 1:
            self.open_the_wrong_door()
        return super().step(action)

    def open_the_wrong_door(self):
        raise KeyError("the wrong door")


class Dies(Scripted):
    script: ClassVar[list[tuple]] = [(1, False, False, {})] * 9

    def step(self, action):
        if action == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Moody(Scripted):
    """Depends on more than seed and actions: cannot be resumed."""

    script: ClassVar[list[tuple]] = [(1, False, False, {})] * 9
    resets = 0

    def reset(self, *, seed=None, options=None):
        Moody.resets += 1
        super().reset(seed=seed)
        return np.array([float(Moody.resets)]), {}

    def step(self, action):
        obs, *rest = super().step(action)
        return obs + Moody.resets, *rest


class Pid(Scripted):
    """Shows the process it runs in."""

    observation_space = Box(0, 1e9, (1,), np.float64)
    script: ClassVar[list[tuple]] = [(0, False, False, {})] * 99

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([float(os.getpid())]), {}


class OwnLength(Scripted):
    """Every game has a length of its own, drawn from the seed."""

    def reset(self, *, seed=None, options=None):
        self.script = [(1, False, False, {})] * (seed % 4) + [(1, True, False, {})]
        return super().reset(seed=seed)


class Long(Scripted):
    """Remembers all that was done to it."""

    observation_space = Box(0, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        self.state = 0.5
        return np.array([self.state]), {}

    def step(self, action):
        self.state = 3.9 * self.state * (1 - self.state) * (0.99 if action else 1.0)
        return np.array([self.state]), 0, False, False, {}


class Paints(Scripted):
    """Renders the number of steps."""

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 12}
    script: ClassVar[list[tuple]] = [(1, False, False, {})] * 9

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.full((8, 8, 3), self.steps, np.uint8)


class FromFive(Scripted):
    """Rewards the action it got; actions begin at 5."""

    action_space = Discrete(3, start=5)

    def step(self, action):
        return np.array([0.0]), action, False, False, {}


class OneHot(Scripted):
    observation_space = Discrete(4, start=2)  # type: ignore[assignment]

    def reset(self, *, seed=None, options=None):
        return 3, {}


for cls in (
    Ends,
    Cut,
    Lives,
    CutWithLife,
    OddRewards,
    TwoRewards,
    Raises,
    Dies,
    Moody,
    Pid,
    OwnLength,
    Long,
    Paints,
    FromFive,
    OneHot,
):
    gym.register(f"Tiny{cls.__name__}-v0", cls)
