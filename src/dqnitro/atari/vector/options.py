"""The arguments of environments: one object for those that every device has, and what they mean for a game."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode

from ..games import game_table, table_language
from . import agent_step
from .joystick import stick_space


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
        if type(self.frameskip) is not int or self.frameskip <= 0:
            raise gymnasium.error.Error(f"frameskip must be a positive int, got {self.frameskip!r}. hint: 4 is usual")
        if num_envs < 1 or self.stack_num < 1 or not 0 <= batch_size <= num_envs:
            raise ValueError(
                f"num_envs={num_envs}, stack_num={self.stack_num}, batch_size={batch_size}. "
                "hint: at least one environment and frame, and a batch of at most num_envs (0: all)"
            )
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


def seeds_of(seed: int | np.ndarray | None, n: int, first: bool) -> np.ndarray:
    """One seed for each of n environments. A negative seed goes on unseeded, which the `first` reset cannot do."""
    if seed is None:
        # never seeded: each console still needs some start, so draw one
        return np.random.default_rng().integers(0, 2**31, n) if first else np.full(n, -1)
    if isinstance(seed, int):
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
