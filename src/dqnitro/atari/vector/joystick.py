"""Continuous control: radius, angle and fire of an analogue stick, as ALE turns them into joystick directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

MOST_RADIUS = 1000.0  # real sticks end at 1; from here on a paddle's numbers would grow without need

# joystick directions (left/centre/right, down/centre/up, fire) as actions
STICK = np.array([[[9, 17], [4, 12], [7, 15]], [[5, 13], [0, 1], [2, 10]], [[8, 16], [3, 11], [6, 14]]], np.int32)


def stick_space() -> Box:
    high = np.array([1.0, np.pi, 1.0], np.float32)
    return Box(high * np.array([0, -1, 0], np.float32), high, (3,), np.float32)


def from_stick(actions: Any, edge: float, library: Any = np, table: Any = STICK) -> tuple[Any, Any]:
    """Rows of (radius, angle, fire) to actions and strengths; the radius is also how far a paddle turns.

    `library` is numpy or torch, whose names are the same here; `table` is `STICK` where the actions are.
    """
    radius, angle, fire = actions[:, 0], actions[:, 1], actions[:, 2]
    x, y = radius * library.cos(angle), radius * library.sin(angle)
    across = (x > edge) * 1 - (x < -edge) * 1 + 1
    up = (y > edge) * 1 - (y < -edge) * 1 + 1
    return table[across, up, (fire > edge) * 1], radius
