"""Gymnasium environments with discrete actions, converted to one of two shapes: vectors or stacked images."""

from __future__ import annotations

import copy
import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete
from gymnasium.spaces.utils import flatdim, flatten

from dqnitro import own
from dqnitro.config import Config
from dqnitro.envs.names import split_kwargs, unknown_env
from dqnitro.envs.wrappers import EpisodicLife, FrameStack, StepResult, Warp, resized
from dqnitro.errors import ConfigError

# With images "grey" a box with fewer pixels per side (a board, a 7x7 map) is flattened: resizing would only blur it.
SMALLEST_IMAGE = 16
# With images "full": the smallest board for convolutions, and the smallest image that is brought to `screen_size`. A
# smaller one keeps its size: the networks for Atari need 36 pixels.
SMALLEST_BOARD = 5
SMALLEST_RESIZED = 36


def make_gym_env(
    spec: Any,
    config: Config,
    on_frame: Callable[[np.ndarray], None] | None = None,
    render_mode: str | None = None,
) -> gym.Env:
    """The environment of a Gymnasium spec, checked and converted. Rewards are unchanged.

    `on_frame` gets the result of `render()` (RGB) after every reset and step.
    """
    env = _construct(spec) if render_mode is None else _construct(spec, render_mode=render_mode)
    if on_frame is not None:
        env = _with_pictures(spec, env)
    check_actions(env.action_space, config.env_id)
    kind = space_kind(env.observation_space, config.env_id, config.images)
    env = ZeroBasedActions(env)
    if on_frame is not None:
        env = Watched(env, on_frame)
    if config.episodic_life:
        env = EpisodicLife(env)
    if kind == "vector":
        return FlatFloats(env)
    if config.images == "full":
        return FrameStack(Planes(env, config.screen_size, config.resize), config.frame_stack)
    return FrameStack(Warp(Grey(env), config.screen_size, config.resize), config.frame_stack)


def find_spec(env_id: str) -> Any:
    """Gymnasium's spec of `env_id`.

    `module:EnvId` imports the module first, which registers the environment; `module:function` is a function or class
    that makes one. Both may end with arguments, as in `FrozenLake-v1?is_slippery=false`.
    """
    name, kwargs = split_kwargs(env_id)
    # The spec is looked up here and sent to worker processes as a whole, so what the parent registered works there.
    spec = _own_spec(name)
    if spec is None:
        try:
            spec = gym.spec(name.rpartition(":")[2])
        except (gym.error.UnregisteredEnv, gym.error.Error) as e:
            raise unknown_env(env_id) from e
    if kwargs:
        spec = copy.copy(spec)
        spec.kwargs = {**spec.kwargs, **kwargs}
    return spec


def _own_spec(name: str) -> Any:
    """The spec of a function or class that makes environments; None if the name is one of Gymnasium's."""
    module, _, path = name.partition(":")
    if not path:
        return None
    if not name.startswith(own.LOCAL):
        found: Any = own.import_module(module, name)
        for part in path.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            return None
    maker = own.find("env", name)
    bar = getattr(maker, "reward_threshold", None)
    return EnvSpec(re.sub(r"[^\w.-]", "_", name), entry_point=maker, reward_threshold=bar)


def _construct(spec: Any, **kwargs: Any) -> gym.Env:
    if kwargs.get("render_mode") == "rgb_array":
        _draw_without_a_window()
    try:
        return gym.make(spec, disable_env_checker=True, **kwargs)
    except gym.error.Error as e:
        raise ConfigError(f"Gymnasium cannot make {spec.id}: {' '.join(str(e).split())}") from e


def _draw_without_a_window() -> None:
    """Where there is no screen, SDL (below pygame) complains on stderr about one that it does not need for pictures."""
    if sys.platform.startswith("linux") and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _with_pictures(spec: Any, env: gym.Env) -> gym.Env:
    # Gymnasium only warns about an unsupported mode and then fails in the user's constructor.
    if env.render_mode == "rgb_array":
        return env
    modes = env.metadata.get("render_modes", [])
    env.close()
    if "rgb_array" not in modes:
        raise ConfigError(f"{spec.id} has the render modes {modes}, a video needs 'rgb_array'")
    if callable(spec.entry_point) and not _takes(spec.entry_point, "render_mode"):
        raise ConfigError(
            f"{spec.id} is made without pictures", "make it with render_mode='rgb_array', or take that argument"
        )
    return _construct(spec, render_mode="rgb_array")


def _takes(function: Any, keyword: str) -> bool:
    """Whether a function has this argument."""
    parameters = inspect.signature(function).parameters
    return keyword in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def check_actions(space: gym.Space, env_id: str) -> None:
    """ConfigError unless there are at least two discrete actions."""
    if not isinstance(space, Discrete):
        raise ConfigError(
            f"{env_id} has the action space {space}, DQN needs Discrete",
            "choose another environment, or wrap it so that its actions are Discrete(n)",
        )
    if space.n < 2:
        raise ConfigError(f"{env_id} has {space.n} action", "DQN needs at least two")


def space_kind(space: gym.Space, env_id: str, images: str = "full") -> Literal["image", "vector"]:
    """How the observations will be treated; ConfigError if the space is not supported. `images`: that setting."""
    if isinstance(space, Box):
        return (_full_kind if images == "full" else _grey_kind)(space, env_id)
    if isinstance(space, Discrete) or space.is_np_flattenable:
        return "vector"
    raise ConfigError(
        f"{env_id} has the observation space {_short(space)}",
        "Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of those are supported",
    )


def _full_kind(space: Box, env_id: str) -> Literal["image", "vector"]:
    layout = layout_of(space.shape)
    if layout is None:
        return "vector"
    if _bounded(space):
        return "image"
    if layout.small:
        return "vector"  # numbers, not colours
    raise _without_bounds(space, env_id)


def _grey_kind(space: Box, env_id: str) -> Literal["image", "vector"]:
    """The rules of images "grey", which runs of older versions have."""
    sides = sorted(space.shape)[-2:]
    if len(space.shape) < 2 or min(sides) < SMALLEST_IMAGE:
        return "vector"
    if len(space.shape) > 3 or (len(space.shape) == 3 and _channel_axis(space.shape) is None):
        raise ConfigError(
            f"{env_id} has images of shape {space.shape}; images grey takes HxW, HxWx1, HxWx3, 1xHxW and 3xHxW",
            "--images full takes stacked frames and any number of channels",
        )
    if not _bounded(space):
        raise _without_bounds(space, env_id)
    return "image"


def _bounded(space: Box) -> bool:
    return space.dtype == np.uint8 or bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())


def _without_bounds(space: Box, env_id: str) -> ConfigError:
    return ConfigError(
        f"{env_id} has {space.dtype} images without bounds", "give its Box a finite low (black) and high (white)"
    )


class Layout(NamedTuple):
    """How the axes of a box are read as an image."""

    axes: tuple[int, ...]  # the order of the axes that makes it (frames,) channels, height, width
    channels: int  # together with those of stacked frames
    height: int
    width: int
    single: bool  # one grey or colour picture, which the trainer stacks; else the environment has stacked frames itself

    @property
    def small(self) -> bool:
        """Smaller than an image that is resized."""
        return min(self.height, self.width) < SMALLEST_RESIZED


def layout_of(shape: tuple[int, ...]) -> Layout | None:
    """HxW; HxWxC or CxHxW; frames of these, stacked along the first axis. None: a box of that shape is not an image."""
    if not 2 <= len(shape) <= 4:
        return None
    frames, picture = shape[:-3], shape[-3:]
    if len(shape) == 2:
        axes, channels, sides = (0, 1), 1, shape
    else:
        axis = _channel_axis(picture)
        if axis is None:
            axis = 0 if picture[0] < picture[2] else 2
        others = [i for i in range(3) if i != axis]
        first = len(frames)
        axes = (*range(first), *(first + i for i in (axis, *others)))
        channels, sides = picture[axis], tuple(picture[i] for i in others)
    if min(sides) < SMALLEST_BOARD:
        return None
    return Layout(axes, channels * int(np.prod(frames)), *sides, single=not frames and channels in (1, 3))


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    # Channels last wins if both fit, as in Gymnasium's own image wrappers.
    return 2 if shape[2] in (1, 3) else 0 if shape[0] in (1, 3) else None


def _short(space: gym.Space) -> str:
    text = " ".join(str(space).split())
    return text if len(text) <= 120 else f"{type(space).__name__} ({text[:100]}...)"


class ZeroBasedActions(gym.Wrapper):
    """Discrete(3, start=5) takes 5, 6, 7; a network chooses 0, 1, 2."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        assert isinstance(env.action_space, Discrete)
        self.start = int(env.action_space.start)
        self.action_space = Discrete(int(env.action_space.n))

    def step(self, action: Any) -> StepResult:
        return self.env.step(int(action) + self.start)


class Watched(gym.Wrapper):
    """Pass every rendered frame to `on_frame`."""

    def __init__(self, env: gym.Env, on_frame: Callable[[np.ndarray], None]) -> None:
        super().__init__(env)
        self.on_frame = on_frame

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        out = self.env.reset(**kwargs)
        self._show()
        return out

    def step(self, action: Any) -> StepResult:
        out = self.env.step(action)
        self._show()
        return out

    def _show(self) -> None:
        try:
            frame = self.env.render()
        except gym.error.DependencyNotInstalled as e:
            raise ConfigError(f"this environment cannot draw itself: {' '.join(str(e).split())}") from e
        if isinstance(frame, np.ndarray):
            self.on_frame(frame)


def _check_there(observation: Any) -> None:
    if observation is None:
        raise TypeError("the environment's observation is None")


class FlatFloats(gym.ObservationWrapper):
    """Vectors: a Box is flattened to float32, a Discrete observation becomes one-hot, Dict and Tuple are joined."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.space = env.observation_space
        self.size = int(flatdim(self.space))
        self.observation_space = Box(-np.inf, np.inf, (self.size,), np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        _check_there(observation)
        if isinstance(self.space, Box):  # most of them; without the detour over its own type
            return np.asarray(observation, np.float32).reshape(self.size)
        return np.asarray(flatten(self.space, observation), np.float32)


class Grey(gym.ObservationWrapper):
    """Any of the supported image layouts as uint8 height x width; colours are weighted by Rec. 601."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, Box)
        self.axis = _channel_axis(space.shape) if len(space.shape) == 3 else None
        self.low, self.scale = 0.0, 1.0
        if space.dtype != np.uint8:
            self.low = float(space.low.min())
            self.scale = 255.0 / max(float(space.high.max()) - self.low, 1e-12)
        sides = [n for i, n in enumerate(space.shape) if i != self.axis]
        self.observation_space = Box(0, 255, (sides[0], sides[1]), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        import cv2

        _check_there(observation)
        image = np.asarray(observation)
        if image.dtype.kind == "f" and not np.isfinite(image).all():
            raise ValueError("the environment's image has pixels that are not finite numbers")
        if image.dtype != np.uint8 or self.scale != 1.0:
            image = np.rint((image - self.low) * self.scale).clip(0, 255).astype(np.uint8)
        if self.axis == 0:
            image = image.transpose(1, 2, 0)
        if image.ndim == 3 and image.shape[2] == 3:
            return cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY)
        return np.ascontiguousarray(image.reshape(image.shape[:2]))


class Planes(gym.ObservationWrapper):
    """Any image as uint8 channels x height x width, with all of its channels: `low` becomes 0, `high` 255."""

    def __init__(self, env: gym.Env, screen_size: int, method: str = "area") -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, Box)
        layout = layout_of(space.shape)
        assert layout is not None
        self.layout, self.method = layout, method
        self.low = float(space.low.min())
        self.scale = 255.0 / max(float(space.high.max()) - self.low, 1e-12)
        self.as_it_is = space.dtype == np.uint8 and self.low == 0.0 and self.scale == 1.0
        most = max(layout.height, layout.width)
        shrunk = [max(SMALLEST_BOARD, n * min(screen_size, most) // most) for n in (layout.height, layout.width)]
        self.sides = (shrunk[0], shrunk[1]) if layout.small else (screen_size, screen_size)
        self.observation_space = Box(0, 255, (layout.channels, *self.sides), np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        _check_there(observation)
        image = np.asarray(observation)
        if not self.as_it_is:
            image = self._bytes(image)
        planes = image.transpose(self.layout.axes).reshape(-1, self.layout.height, self.layout.width)
        if planes.shape[1:] == self.sides:
            return np.ascontiguousarray(planes)
        return np.stack([resized(np.ascontiguousarray(plane), *self.sides, self.method) for plane in planes])

    def _bytes(self, image: np.ndarray) -> np.ndarray:
        if image.dtype.kind == "f" and not np.isfinite(image).all():
            raise ValueError("the environment's image has pixels that are not finite numbers")
        return np.rint((image.astype(np.float32) - self.low) * self.scale).clip(0, 255).astype(np.uint8)


def frames_per_second(env_id: str) -> float:
    """Frames per second that the environment declares for rendering; 30 if it declares none."""
    env = _construct(find_spec(env_id))
    fps = env.metadata.get("render_fps") or 30
    env.close()
    return float(fps)
