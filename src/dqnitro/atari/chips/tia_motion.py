"""Where the TIA's objects move: the strobes RESxx and HMOVE, which depend on the cycle in the line."""

from __future__ import annotations

import numpy as np

from ..jit.target import compiled
from .layout import BLANK_CLOCKS, LINE_CYCLES, PIXELS
from .tia_masks import SECOND, THIRD
from .tia_registers import DOUBLE_SIZE, QUADRUPLE_SIZE

# HMOVE in cycles 0..20 moves an object by at least FLOOR[c] to the right; in 55..74 by HMxx + BIAS, never right.
FLOOR = np.array([-7, -7, -7, -7, -6, -5, -5, -4, -3, -2, -2, -1, 0, 1, 1, 2, 3, 4, 4, 5, 6], np.int64)
BIAS = np.array([6, 5, 4, 4, 3, 2, 1, 1, 0, -1, -2, -2, -3, -4, -5, -5, -6, -7, -8, -8], np.int64)


def _motions() -> np.ndarray:
    """`motion` of every cycle of the line and nibble, in one table: 16 * cycle + nibble."""
    nibble = np.arange(16)
    still = np.where(nibble < 8, -nibble, 16 - nibble)
    motions = np.zeros((LINE_CYCLES, 16), np.int64)
    motions[:21] = np.maximum(still, FLOOR[:, None])
    motions[55:75] = np.minimum(0, still + BIAS[:, None])
    motions[75] = still
    return motions.reshape(-1)


MOTION = _motions()


@compiled
def wrap(position):
    """A position up to one line outside 0..159, put back on the line."""
    if position < 0:
        return position + PIXELS
    if position >= PIXELS:
        return position - PIXELS
    return position


@compiled
def motion(cycle, nibble):
    """Pixels to the right that HMOVE in this cycle of the line moves an object with this HMxx nibble."""
    v = -nibble if nibble < 8 else 16 - nibble
    if cycle <= 20:
        return max(v, FLOOR[cycle])
    if cycle < 55:
        return 0
    if cycle < 75:
        return min(0, v + BIAS[cycle - 55])
    return v


@compiled
def reset_position(x, in_blank):
    """New position after a strobe at clock x of the line.

    `in_blank`: that of a strobe in the blank (players 3, others 2).
    """
    if x < BLANK_CLOCKS:
        return in_blank
    return (x - BLANK_CLOCKS + in_blank + 2) % PIXELS


@compiled
def reset_class(new, old, mode):
    """Where a RESPx strobe falls, which decides how the first copy shows: -1 start of a copy, 1 its pixels, else 0."""
    q = (new - old) % PIXELS
    width = 16 if mode == DOUBLE_SIZE else 32 if mode == QUADRUPLE_SIZE else 8
    if q < 4:
        return -1
    if q < 4 + width:
        return 1
    second = SECOND[mode]
    if second:
        if second <= q < second + 4:
            return -1
        if second + 4 <= q < second + 4 + width:
            return 1
        third = THIRD[mode]
        if third:
            if third <= q < third + 4:
                return -1
            if third + 4 <= q < third + 4 + width:
                return 1
    return 0
