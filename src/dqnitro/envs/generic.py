"""Any Gymnasium environment with discrete actions, converted to one of two shapes: vectors or stacked grey images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from dqnitro.config import Config
from dqnitro.envs.names import unknown_env
from dqnitro.envs.wrappers import EpisodicLife, FrameStack, StepResult, Warp
from dqnitro.errors import ConfigError

# A box with fewer pixels per side (a board, a 7x7 map) is not an image: downscaling would only blur it.
SMALLEST_IMAGE = 16


def make_gym_env(spec: Any, config: Config, on_frame: Callable[[np.ndarray], None] | None = None) -> gym.Env:
    """The environment of a Gymnasium spec, checked and converted. Rewards are unchanged.

    `on_frame` gets the result of `render()` (RGB) after every reset and step.
    """
    env = _construct(spec)
    if on_frame is not None:
        env = _with_pictures(spec, env)
    check_actions(env.action_space, config.env_id)
    kind = space_kind(env.observation_space, config.env_id)
    env = ZeroBasedActions(env)
    if on_frame is not None:
        env = Watched(env, on_frame)
    if config.episodic_life:
        env = EpisodicLife(env)
    if kind == "vector":
        return FlatFloats(env)
    return FrameStack(Warp(Grey(env), config.screen_size, config.resize), config.frame_stack)


def find_spec(env_id: str) -> Any:
    """Gymnasium's spec of `env_id`; `module:EnvId` imports the module first, which registers the environment."""
    module = env_id.partition(":")[0] if ":" in env_id else None
    try:
        # The spec is looked up here and sent to worker processes as a whole, so what the parent registered works there.
        if module is not None:
            __import__(module)
        return gym.spec(env_id.rpartition(":")[2])
    except ModuleNotFoundError as e:
        if e.name is None or module is None or not (module + ".").startswith(e.name + "."):
            raise  # the user's module exists but one of its imports is missing: they need the traceback
        raise ConfigError(f"no module named {module!r} for environment {env_id!r}", "is it on PYTHONPATH?") from e
    except (gym.error.UnregisteredEnv, gym.error.Error) as e:
        raise unknown_env(env_id) from e


def _construct(spec: Any, **kwargs: Any) -> gym.Env:
    try:
        return gym.make(spec, disable_env_checker=True, **kwargs)
    except gym.error.Error as e:
        raise ConfigError(f"Gymnasium cannot make {spec.id}: {' '.join(str(e).split())}") from e


def _with_pictures(spec: Any, env: gym.Env) -> gym.Env:
    # Gymnasium only warns about an unsupported mode and then fails in the user's constructor.
    modes = env.metadata.get("render_modes", [])
    env.close()
    if "rgb_array" not in modes:
        raise ConfigError(f"{spec.id} has the render modes {modes}, a video needs 'rgb_array'")
    return _construct(spec, render_mode="rgb_array")


def check_actions(space: gym.Space, env_id: str) -> None:
    """ConfigError unless there are at least two discrete actions."""
    if not isinstance(space, Discrete):
        raise ConfigError(
            f"{env_id} has the action space {space}, DQN needs Discrete",
            "choose another environment, or wrap it so that its actions are Discrete(n)",
        )
    if space.n < 2:
        raise ConfigError(f"{env_id} has {space.n} action", "DQN needs at least two")


def space_kind(space: gym.Space, env_id: str) -> Literal["image", "vector"]:
    """How the observations will be treated; ConfigError if the space is not supported."""
    if isinstance(space, Discrete):
        return "vector"
    supported = "Box vectors, Box images (HxW, HxWx1, HxWx3, 1xHxW, 3xHxW) and Discrete are supported"
    if not isinstance(space, Box):
        raise ConfigError(f"{env_id} has the observation space {_short(space)}", supported)
    sides = sorted(space.shape)[-2:]
    if len(space.shape) < 2 or min(sides) < SMALLEST_IMAGE:
        return "vector"
    if len(space.shape) == 3 and _channel_axis(space.shape) is None:
        raise ConfigError(
            f"{env_id} has images of shape {space.shape}",
            f"{supported}; return single frames, which frame_stack stacks",
        )
    if len(space.shape) > 3:
        raise ConfigError(f"{env_id} has observations of shape {space.shape}", supported)
    if space.dtype != np.uint8 and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ConfigError(
            f"{env_id} has {space.dtype} images without bounds",
            "give its Box a finite low (black) and high (white)",
        )
    return "image"


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
    """Vectors: a Box is flattened to float32, a Discrete observation becomes one-hot."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        self.start = int(space.start) if isinstance(space, Discrete) else None
        self.size = int(space.n) if isinstance(space, Discrete) else int(np.prod(space.shape or ()))
        self.observation_space = Box(-np.inf, np.inf, (self.size,), np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        _check_there(observation)
        if self.start is None:
            return np.asarray(observation, np.float32).reshape(self.size)
        out = np.zeros(self.size, np.float32)
        out[int(observation) - self.start] = 1.0
        return out


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


def frames_per_second(env_id: str) -> float:
    """Frames per second that the environment declares for rendering; 30 if it declares none."""
    env = _construct(find_spec(env_id))
    fps = env.metadata.get("render_fps") or 30
    env.close()
    return float(fps)
