"""One Atari console, frame by frame, and the stack of wrappers around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
from ale_py import roms
from gymnasium.spaces import Box, Discrete

from dqnitro.config import Config
from dqnitro.envs.wrappers import (
    ClipReward,
    EpisodicLife,
    FireReset,
    FrameLimit,
    FrameStack,
    MaxAndSkip,
    NoopReset,
    StepResult,
    Warp,
)

CONSOLE_HZ = 60


class AtariFrames(gym.Env):
    """A step is one console frame; the observation is the grey screen (210 x 160 for most games).

    ale-py's own Gymnasium environment is not used because it hashes the seed before the console gets it and the C++
    vector environment does not, so the two could never play the same game.
    """

    def __init__(
        self,
        game: str,
        sticky_actions: float = 0.0,
        full_actions: bool = False,
        on_frame: Callable[[np.ndarray], None] | None = None,
    ) -> None:
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.rom = str(roms.get_rom_path(game))
        self.on_frame = on_frame
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", sticky_actions)
        self.ale.loadROM(self.rom)
        self.actions = self.ale.getLegalActionSet() if full_actions else self.ale.getMinimalActionSet()
        self.action_space = Discrete(len(self.actions))
        self.observation_space = Box(0, 255, self.ale.getScreenDims(), np.uint8)

    def get_action_meanings(self) -> list[str]:
        return [action.name for action in self.actions]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """With a seed, the game depends on nothing before it. It costs 90 ms: ale-py takes a seed only with a ROM."""
        if seed is not None:
            self.ale.setInt("random_seed", seed)
            self.ale.loadROM(self.rom)
        self.ale.reset_game()
        return self._observe()

    def step(self, action: Any) -> StepResult:
        reward = self.ale.act(self.actions[action])
        obs, info = self._observe()
        return obs, float(reward), self.ale.game_over(), False, info

    def _observe(self) -> tuple[np.ndarray, dict[str, Any]]:
        if self.on_frame is not None:
            self.on_frame(self.ale.getScreenRGB())
        return self.ale.getScreenGrayscale(), {"lives": self.ale.lives()}


def make_atari_env(
    game: str,
    config: Config,
    on_frame: Callable[[np.ndarray], None] | None = None,
    clip_rewards: bool = False,
) -> gym.Env:
    """The wrapped game that `config` describes, with unclipped rewards unless `clip_rewards`.

    Every reset needs a seed. `on_frame` gets each console frame (60 per second) as RGB, also those of the no-ops.
    """
    env: gym.Env = AtariFrames(game, config.sticky_actions, config.full_actions, on_frame)
    pressed = 0
    if config.fire_reset:
        env = FireReset(env)
        pressed = int(env.fire is not None)
    env = NoopReset(env, config.noop_max, pressed)
    env = FrameLimit(env, config.max_episode_frames)
    env = MaxAndSkip(env, config.frame_skip, config.max_pool)
    if config.episodic_life:
        env = EpisodicLife(env)
    if clip_rewards:
        env = ClipReward(env)
    env = Warp(env, config.screen_size, config.resize)
    return FrameStack(env, config.frame_stack)
