"""Environments whose games are one decision, each with another kind of observation: what it shows is the answer."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple


class Question(gym.Env):
    """The action that is asked for brings 1, another one 0."""

    action_space = Discrete(2)
    reward_threshold = 0.9

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.answer = int(self.np_random.integers(self.action_space.n))
        self.shown = self.show(self.answer)
        return self.shown, {}

    def show(self, answer: int) -> Any:
        raise NotImplementedError

    def step(self, action):
        return self.shown, float(action == self.answer), True, False, {}

    def somewhere(self, side: int, size: int = 1) -> tuple[slice, slice]:
        row, column = self.np_random.integers(0, side - size + 1, 2)
        return slice(row, row + size), slice(column, column + size)


class Colour(Question):
    """A square of 16x16 pixels is red or blue; in grey it would look the same."""

    observation_space = Box(0, 255, (16, 16, 3), np.uint8)
    colours = ((76, 0, 0), (0, 0, 200))  # both 23 in grey

    def show(self, answer):
        picture = np.zeros((16, 16, 3), np.uint8)
        picture[self.somewhere(16, 4)] = self.colours[answer]
        return picture


class Board(Question):
    """A board of 10x10 fields with four kinds of pieces, as MinAtar has: which of two is on it?"""

    observation_space = Box(0.0, 1.0, (10, 10, 4), np.bool_)

    def show(self, answer):
        board = np.zeros((10, 10, 4), np.bool_)
        board[(*self.somewhere(10, 2), 2 * answer + 1)] = True
        return board


class Stacked(Question):
    """Two frames that the environment has stacked: a dot moves to the left or to the right."""

    observation_space = Box(0.0, 1.0, (2, 12, 12), np.float32)

    def show(self, answer):
        frames = np.zeros((2, 12, 12), np.float32)
        row, column = self.np_random.integers(1, 11, 2)
        frames[0, row, column] = 1.0
        frames[1, row, column + (1 if answer else -1)] = 1.0
        return frames


class Large(Question):
    """A picture of 40x60 pixels in colour, which is resized: the left half is lit, or the right one."""

    observation_space = Box(0, 255, (40, 60, 3), np.uint8)

    def show(self, answer):
        picture = np.zeros((40, 60, 3), np.uint8)
        picture[:, 30 * answer : 30 * answer + 30, 1] = self.np_random.integers(100, 256)
        return picture


class Mixed(Question):
    """A Dict with a Tuple in it."""

    observation_space = Dict({"lamp": Discrete(2), "rest": Tuple([Box(-1, 1, (2,)), Discrete(3)])})

    def show(self, answer):
        return {"lamp": answer, "rest": (self.np_random.uniform(-1, 1, 2).astype(np.float32), 1)}
