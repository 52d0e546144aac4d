"""The Atari wrappers: plain, slow, and the reference implementation of every faster environment backend.

`atari.make_atari_env` combines them to what ale-py's C++ AtariVectorEnv does, byte for byte. Comments say where that
differs from the wrappers in the literature (FIRE before the no-ops, 0 to 29 of them, zeros in a new stack, stale
screens after an early end). A wrapper reads only what Gymnasium defines, plus `info["lives"]`.
"""

from __future__ import annotations

from typing import Any

import cv2
import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

StepResult = tuple[Any, Any, bool, bool, dict[str, Any]]


class FireReset(gym.Wrapper):
    """Press FIRE for one frame at the start of a game that has FIRE; some games wait for it forever."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        meanings = env.get_wrapper_attr("get_action_meanings")()
        self.fire = meanings.index("FIRE") if "FIRE" in meanings else None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        if self.fire is not None:
            obs, _, _, _, info = self.env.step(self.fire)
        return obs, info


class NoopReset(gym.Wrapper):
    """Start a game with k no-op frames; the seed of the reset draws k uniformly from 0 to noop_max-1.

    A FIRE pressed before counts as one of them (`pressed`).
    """

    def __init__(self, env: gym.Env, noop_max: int, pressed: int = 0) -> None:
        super().__init__(env)
        self.noop_max = noop_max
        self.pressed = pressed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is None:
            raise ValueError("NoopReset needs a seed at every reset: the no-ops of a game depend on nothing else")
        obs, info = self.env.reset(seed=seed, options=options)
        for _ in range(draw_noops(seed, self.noop_max) - self.pressed):
            obs, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                # Reset only the console: FIRE is not pressed again, as in ale-py.
                obs, info = self.unwrapped.reset()
        return obs, info


def draw_noops(seed: int, noop_max: int) -> int:
    """A uniform integer in 0..noop_max-1 as C++ draws it: std::mt19937(seed) and Lemire's multiply-and-reject."""
    if noop_max <= 1:
        return 0
    # The legacy generator on purpose: its raw stream is that of std::mt19937; the new ones seed differently.
    stream = np.random.RandomState(seed)
    while True:
        product = int.from_bytes(stream.bytes(4), "little") * noop_max
        if product & 0xFFFFFFFF >= (2**32 - noop_max) % noop_max:
            return product >> 32


class FrameLimit(gym.Wrapper):
    """Truncate a game after `max_frames` frames, counted from the end of the reset (no-ops do not count)."""

    def __init__(self, env: gym.Env, max_frames: int) -> None:
        super().__init__(env)
        self.max_frames = max_frames
        self.frames = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.frames = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.frames += 1
        return obs, reward, terminated, truncated or (self.frames >= self.max_frames and not terminated), info


class MaxAndSkip(gym.Wrapper):
    """Repeat an action for `skip` frames; observe the last one, or the maximum of the last two (removes flicker).

    When a game ends, ale-py stops *before* it reads the screen, and it pools in place. The observation of a game's last
    step is therefore what the two buffers still hold. This is reproduced, because a learner sees those observations.
    """

    def __init__(self, env: gym.Env, skip: int, max_pool: bool = True) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, Box)
        self.skip = skip
        self.max_pool = max_pool
        self.last = np.zeros(env.observation_space.shape, np.uint8)
        self.before = np.zeros_like(self.last)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        self.last[...] = obs
        self.before[...] = 0
        return self.last.copy(), info

    def step(self, action: Any) -> StepResult:
        total = 0.0
        terminated, truncated, info = False, False, {}
        for left in range(self.skip - 1, -1, -1):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
            if left == 1:
                self.before[...] = obs
            elif left == 0:
                self.last[...] = obs
        if self.max_pool:
            np.maximum(self.last, self.before, out=self.last)
        return self.last.copy(), total, terminated, truncated, info


class EpisodicLife(gym.Wrapper):
    """Set `info["life_lost"]` when a life was lost and others are left.

    The game itself continues, so this must not be `terminated`, after which every vector environment resets. Learning
    treats it as the end of the return (`Step.terminated`); playing ignores it.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.lives = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        self.lives = info.get("lives", 0)
        return obs, info

    def step(self, action: Any) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = info.get("lives", 0)
        if 0 < lives < self.lives and not terminated:
            info = {**info, "life_lost": True}
        self.lives = lives
        return obs, reward, terminated, truncated, info


class ClipReward(gym.RewardWrapper):
    """Clip rewards to -1..1. For a single environment: the backends clip later, because scores need raw rewards."""

    def reward(self, reward: Any) -> float:
        return min(1.0, max(-1.0, float(reward)))


def shrink(image: np.ndarray, size: int, method: str = "area") -> np.ndarray:
    """A grey image as size x size. `area` averages what each pixel covers, as the compiled backends do."""
    return resized(image, size, size, method)


def resized(image: np.ndarray, height: int, width: int, method: str = "area") -> np.ndarray:
    """A grey image as height x width."""
    if method == "pillow":
        from PIL import Image

        # Pillow's bilinear filter grows with the scale, so it uses every pixel; OpenCV's uses four.
        return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if method == "area" else cv2.INTER_LINEAR)


class Warp(gym.ObservationWrapper):
    """Downscale a grey screen of height x width to size x size."""

    def __init__(self, env: gym.Env, size: int, method: str = "area") -> None:
        super().__init__(env)
        self.size = size
        self.method = method
        self.observation_space = Box(0, 255, (size, size), np.uint8)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        if observation.shape == (self.size, self.size):
            return observation
        return shrink(observation, self.size, self.method)


class FrameStack(gym.Wrapper):
    """The last `count` frames, the oldest first. A new game starts with zeros: [0, 0, 0, frame].

    A frame is height x width, or channels x height x width; stacked, the channels of all frames are one axis.
    """

    def __init__(self, env: gym.Env, count: int) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, Box)
        *channels, height, width = env.observation_space.shape
        self.channels = channels[0] if channels else 1
        shape = (count * self.channels, height, width)
        self.observation_space = Box(0, 255, shape, np.uint8)
        self.frames = np.zeros(shape, np.uint8)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        self.frames[: -self.channels] = 0
        self.frames[-self.channels :] = obs
        return self.frames.copy(), info

    def step(self, action: Any) -> StepResult:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.frames[: -self.channels] = self.frames[self.channels :]
        self.frames[-self.channels :] = obs
        return self.frames.copy(), reward, terminated, truncated, info
