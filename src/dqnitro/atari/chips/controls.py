# ruff: noqa: F403, F405
"""Joysticks, paddles and console switches: what an action does to the console's input lines."""

from __future__ import annotations

import numpy as np
from numpy import int64

from ..jit.target import compiled
from .layout import *

UP, DOWN, LEFT, RIGHT, FIRE = 1, 2, 4, 8, 16
# Lines pressed by each of the 18 actions.
PRESSED = np.array(
    [
        0, FIRE, UP, RIGHT, LEFT, DOWN, UP | RIGHT, UP | LEFT, DOWN | RIGHT, DOWN | LEFT,
        UP | FIRE, RIGHT | FIRE, LEFT | FIRE, DOWN | FIRE,
        UP | RIGHT | FIRE, UP | LEFT | FIRE, DOWN | RIGHT | FIRE, DOWN | LEFT | FIRE,
    ],
    np.int64,
)  # fmt: skip
RESET_DOWN, SELECT_DOWN = 1, 2  # console switches
PADDLE_STEP, PADDLE_MIN = 23_000, 27_450
CHARGED, NEVER_CHARGED = -1, -2  # paddle inputs without a paddle's resistance


@compiled
def charge_cycles(resistance):
    """Cycles until the capacitor behind a paddle is charged (in doubles, in this order of operations)."""
    return int64(1.6 * resistance * 0.01e-6 * 1.19e6)


@compiled
def switches(s, down):
    """SWCHB with the given console switches pressed: colour, both difficulties B."""
    s[S_SWCHB] = 0x3F & ~down


@compiled
def release(s, prop):
    """Nothing pressed, paddles at resistance 0: the inputs before the first action after power-on."""
    s[S_SWCHA] = 0xFF
    s[S_SWCHB] = 0xFF if prop[P_DIFFICULTY_A] else 0x3F
    s[S_FIRE0] = s[S_FIRE1] = 0x80
    left = CHARGED if prop[P_PADDLES] else NEVER_CHARGED
    right = CHARGED if prop[P_RIGHT_PADDLES] else NEVER_CHARGED
    s[S_POT0] = s[S_POT1] = left
    s[S_POT2] = s[S_POT3] = right


@compiled
def centre_paddles(s, prop):
    s[S_PADDLE_STEP] = s[S_PADDLE_WANT] = PADDLE_STEP
    s[S_PADDLE0] = s[S_PADDLE1] = (PADDLE_MIN + prop[P_PADDLE_MAX]) // 2


@compiled
def press(s, prop, action, down):
    """Player A's action and the console switches, for the next frame. A paddle moves a step each time."""
    pressed = PRESSED[action]
    switches(s, down)
    s[S_FIRE0] = s[S_FIRE1] = 0x80
    if prop[P_PADDLES]:
        position = s[S_PADDLE0]
        if pressed & RIGHT:
            position -= s[S_PADDLE_STEP]
        elif pressed & LEFT:
            position += s[S_PADDLE_STEP]
        s[S_PADDLE0] = position = min(max(position, PADDLE_MIN), prop[P_PADDLE_MAX])
        swap = prop[P_SWAP_PADDLES]
        s[S_POT0 + swap] = charge_cycles(position)
        s[S_POT1 - swap] = charge_cycles(s[S_PADDLE1])
        s[S_SWCHA] = 0xFF & ~((0x80 >> swap) if pressed & FIRE else 0)
        return
    stick = 0xF & ~pressed
    if prop[P_SWAP_PORTS]:
        s[S_SWCHA] = 0xF0 | stick
        if pressed & FIRE:
            s[S_FIRE1] = 0
    else:
        s[S_SWCHA] = 0x0F | (stick << 4)
        if pressed & FIRE:
            s[S_FIRE0] = 0
