"""The arguments of environments: one object for those that every device has, and what they mean for a game."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode

from ..games import game_table, table_language
from . import agent_step
from .joystick import MOST_RADIUS, stick_space

MOST_ENVS = 2**20
MOST_THREADS = 1024

# Arguments that are numbers, and the values that they may have. The ends are far above what is of use: what lies beyond
# would be a slip, memory that no machine has, or a call that nobody could interrupt (no-ops are played in compiled
# code).
WHOLE = {
    "max_num_frames_per_episode": (0, 2**31 - 1), "img_height": (1, 4096), "img_width": (1, 4096),
    "stack_num": (1, 1024), "noop_max": (0, 10_000),
}  # fmt: skip
REAL = {"repeat_action_probability": (0.0, 1.0), "continuous_action_threshold": (-1e6, 1e6)}
LONG_NOOPS = 1000  # from here on a batch may take seconds, so the caller waits in Python, where Ctrl-C is noticed


class WrongFrameskip(gymnasium.error.Error, ValueError):
    """ale-py raises Gymnasium's error, other arguments are ValueErrors: this is both."""


class WrongActions(ValueError, AssertionError):
    """Actions that cannot be played. ale-py asserts, so who catches that catches this; `python -O` changes nothing."""


def check_whole(name: str, value: Any, low: int, high: int, hint: str = "") -> None:
    """ValueError unless a value is a whole number in a range."""
    try:
        fits = low <= operator.index(value) <= high
    except TypeError:
        fits = False
    if not fits:
        more = f". hint: {hint}" if hint else ""
        raise ValueError(f"{name} must be a whole number from {low:,} to {high:,}, got {value!r}{more}")


@dataclass(frozen=True)
class VecOptions:
    """The arguments that `AtariVec` has on every device, with the names and defaults of ale-py's `AtariVectorEnv`."""

    max_num_frames_per_episode: int = 108000
    repeat_action_probability: float = 0.0
    full_action_space: bool = False
    continuous: bool = False
    continuous_action_threshold: float = 0.5
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
    img_height: int = 84
    img_width: int = 84
    grayscale: bool = True
    stack_num: int = 4
    frameskip: int = 4
    maxpool: bool = True
    noop_max: int = 30
    episodic_life: bool = False
    life_loss_info: bool = False
    reward_clipping: bool = True
    use_fire_reset: bool = True

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> VecOptions:
        """The options among the arguments of a constructor, which has other arguments too."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})

    def check(self, num_envs: int, batch_size: int = 0) -> None:
        """Refuse what no console can play with."""
        if type(self.frameskip) is not int or not 1 <= self.frameskip <= 1000:
            raise WrongFrameskip(f"frameskip must be a positive int (at most 1000), got {self.frameskip!r}. hint: 4")
        check_whole("num_envs", num_envs, 1, MOST_ENVS)
        check_whole("batch_size", batch_size, 0, num_envs, "a batch has at most num_envs environments (0: all)")
        for name, (low, high) in WHOLE.items():
            check_whole(name, getattr(self, name), low, high)
        for name, (low, high) in REAL.items():
            value = getattr(self, name)
            if isinstance(value, str) or not low <= float(value) <= high:  # NaN is in no range
                raise ValueError(f"{name} must be from {low:g} to {high:g}, got {value!r}. hint: see ale-py's defaults")
        if AutoresetMode(self.autoreset_mode) == AutoresetMode.DISABLED:
            raise ValueError(
                f"Invalid autoreset_mode: {self.autoreset_mode}. hint: AutoresetMode.NEXT_STEP or SAME_STEP"
            )

    @property
    def same_step(self) -> bool:
        """A new game begins in the step in which the last one ends, not in the next."""
        return AutoresetMode(self.autoreset_mode) == AutoresetMode.SAME_STEP

    @property
    def channels(self) -> int:
        return 1 if self.grayscale else 3

    @property
    def frame_bytes(self) -> int:
        return self.img_height * self.img_width * self.channels

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Of one environment."""
        return (self.stack_num, self.img_height, self.img_width) + (() if self.grayscale else (3,))

    def action_set(self, game: table_language.Game) -> np.ndarray:
        """The console's actions, by the number that an agent gives them."""
        legal = [a for a in range(18) if game_table.LEGAL[game.id] >> a & 1]
        return np.array(legal if self.full_action_space or self.continuous else game.actions, np.int64)

    def action_space(self, game: table_language.Game) -> Space[Any]:
        """Of one environment."""
        return stick_space() if self.continuous else Discrete(len(self.action_set(game)))

    def numbers(self, game: table_language.Game) -> np.ndarray:
        """The options as compiled code reads them: `O_...` of `agent_step`."""
        values = {
            agent_step.O_GAME: game.id,
            agent_step.O_SKIP: self.frameskip,
            agent_step.O_STACK: self.stack_num,
            agent_step.O_POOL: self.maxpool,
            agent_step.O_NOOPS: self.noop_max,
            agent_step.O_FIRE: self.use_fire_reset and table_language.FIRE in self.action_set(game),
            agent_step.O_EPISODIC: self.episodic_life,
            agent_step.O_LIFE_FLAG: self.life_loss_info,
            agent_step.O_CLIP: self.reward_clipping,
            agent_step.O_MOST_FRAMES: self.max_num_frames_per_episode,
            agent_step.O_CHANNELS: self.channels,
            agent_step.O_SAME_STEP: self.same_step,
            agent_step.O_FRAME_BYTES: self.frame_bytes,
        }
        return np.array([values[k] for k in range(agent_step.O_SIZE)], np.int64)


def pixels(shape: tuple[int, ...]) -> Box:
    """A space of bytes.

    Gymnasium keeps four arrays of its size, 113 KB for an environment; here each is one number, seen many times.
    """
    space = Box(0, 255, shape, np.uint8)
    for name in ("low", "high", "bounded_below", "bounded_above"):
        setattr(space, name, np.broadcast_to(getattr(space, name).flat[0], shape))
    return space


def chosen_of(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """The environments that a reset is about: all, or those of `options["reset_mask"]`."""
    if options is None or "reset_mask" not in options:
        return np.arange(num_envs)
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        kind = f"{type(mask)} with dtype {getattr(mask, 'dtype', None)}"
        raise TypeError(f"`reset_mask` must be a boolean numpy array, got {kind}")
    if mask.shape != (num_envs,):
        raise ValueError(f"`reset_mask` must have shape {(num_envs,)}, got {mask.shape}")
    return np.flatnonzero(mask)


def discrete_of(actions: Any, n: int, count: int) -> np.ndarray:
    """Numbers of actions, one for each of n environments, as a new array: the caller may change its own meanwhile."""
    array = _array(actions)
    if array.dtype.kind not in "iu":
        raise WrongActions(f"actions must be whole numbers, got type {array.dtype}. hint: see action_space")
    if array.shape != (n,):
        raise WrongActions(f"actions must have shape {(n,)}, one for each environment, got shape {array.shape}")
    array = array.astype(np.int64)
    if array.min() < 0 or array.max() >= count:
        raise WrongActions(f"actions must be in 0..{count - 1}, got {array}. hint: see action_space")
    return array


def continuous_of(actions: Any, n: int) -> np.ndarray:
    """Rows of (radius, angle, fire) of a stick, one for each of n environments."""
    array = _array(actions)
    if array.dtype.kind not in "fiu":
        raise WrongActions(f"actions must be float32, got {array.dtype}. hint: see action_space")
    if array.shape != (n, 3):
        raise WrongActions(f"actions must have shape {(n, 3)}: radius, angle and fire; got shape {array.shape}")
    array = array.astype(np.float32)
    if not np.isfinite(array).all() or (np.abs(array[:, 0]) > MOST_RADIUS).any():
        raise WrongActions(f"actions must be finite, the radius from 0 to 1, got {array}. hint: see action_space")
    return array


def _array(actions: Any) -> np.ndarray:
    """A NumPy array, a list or tuple, or a torch tensor on any device, as an array."""
    if isinstance(actions, np.ndarray):
        return actions
    if hasattr(actions, "detach"):
        actions = actions.detach().cpu().numpy()
    try:
        return np.asarray(actions)
    except ValueError as error:  # rows of different lengths
        raise WrongActions(f"actions must be an array with one shape ({error})") from error


def seeds_of(seed: int | np.ndarray | None, n: int, first: bool) -> np.ndarray:
    """One seed for each of n environments. A negative seed goes on unseeded, which the `first` reset cannot do."""
    if isinstance(seed, int | np.integer) and not -(2**31) <= seed < 2**31:
        raise TypeError(f"seeds must be integers below 2**31, got {seed!r}")
    if seed is None:
        # never seeded: each console still needs some start, so draw one
        return np.random.default_rng().integers(0, 2**31, n) if first else np.full(n, -1)
    if isinstance(seed, int | np.integer):
        seeds = np.arange(seed, seed + n)
    elif isinstance(seed, np.ndarray):
        if seed.shape != (n,):
            shapes = f"expected shape {(n,)}, got {seed.shape}"
            raise ValueError(f"`seed` must have one entry per sub-environment being reset, {shapes}")
        seeds = seed
    else:
        raise TypeError("Unsupported seed type")
    if seeds.dtype.kind not in "iu" or (seeds > 2**31 - 1).any():
        raise TypeError(f"seeds must be integers below 2**31, got {seed!r}")
    if first:
        drawn = np.random.default_rng().integers(0, 2**31, n)
        seeds = np.where(seeds < 0, drawn, seeds)
    return seeds
