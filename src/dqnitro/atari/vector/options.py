"""Arguments of environments that mean the same on the CPU and on a card: the options as compiled code reads them, and who is reset."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..games import game_table
from . import agent_step


def make_options(
    game: game_table.Game,
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
    options = np.zeros(agent_step.O_SIZE, np.int64)
    for place, value in (
        (agent_step.O_GAME, game.id), (agent_step.O_SKIP, frameskip), (agent_step.O_STACK, stack_num), (agent_step.O_POOL, maxpool),
        (agent_step.O_NOOPS, noop_max), (agent_step.O_FIRE, use_fire_reset and game_table.FIRE in actions),
        (agent_step.O_EPISODIC, episodic_life), (agent_step.O_LIFE_FLAG, life_loss_info), (agent_step.O_CLIP, reward_clipping),
        (agent_step.O_MOST_FRAMES, max_num_frames_per_episode), (agent_step.O_CHANNELS, channels),
        (agent_step.O_SAME_STEP, same_step), (agent_step.O_FRAME_BYTES, frame_bytes),
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
