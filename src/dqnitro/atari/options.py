"""Arguments of environments that mean the same on the CPU and on a card: the options as compiled code reads them, and who is reset."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import games, stepper


def make_options(
    game: games.Game,
    actions: np.ndarray,
    *,
    frameskip: int,
    stack_num: int,
    maxpool: bool,
    noop_max: int,
    use_fire_reset: bool,
    episodic_life: bool,
    life_loss_info: bool,
    reward_clipping: bool,
    max_num_frames_per_episode: int,
    same_step: bool,
    channels: int,
    frame_bytes: int,
) -> np.ndarray:
    """The arguments of `AtariVec`, by the numbers of `stepper`."""
    options = np.zeros(stepper.O_SIZE, np.int64)
    for place, value in (
        (stepper.O_GAME, game.id), (stepper.O_SKIP, frameskip), (stepper.O_STACK, stack_num), (stepper.O_POOL, maxpool),
        (stepper.O_NOOPS, noop_max), (stepper.O_FIRE, use_fire_reset and games.FIRE in actions),
        (stepper.O_EPISODIC, episodic_life), (stepper.O_LIFE_FLAG, life_loss_info), (stepper.O_CLIP, reward_clipping),
        (stepper.O_MOST_FRAMES, max_num_frames_per_episode), (stepper.O_CHANNELS, channels),
        (stepper.O_SAME_STEP, same_step), (stepper.O_FRAME_BYTES, frame_bytes),
    ):  # fmt: skip
        options[place] = value
    return options


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
