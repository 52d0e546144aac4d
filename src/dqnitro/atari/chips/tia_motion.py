"""Where the TIA's objects go: strobes of RESxx and the motion of HMOVE, by the cycle in the line."""

from __future__ import annotations

import numpy as np

from ..jit.target import compiled
from .tia_masks import SECOND, THIRD

# HMOVE in cycles 0..20 moves an object by at least FLOOR[c] to the right; in 55..74 by HMxx + BIAS, never right.
FLOOR = np.array([-7, -7, -7, -7, -6, -5, -5, -4, -3, -2, -2, -1, 0, 1, 1, 2, 3, 4, 4, 5, 6], np.int64)
BIAS = np.array([6, 5, 4, 4, 3, 2, 1, 1, 0, -1, -2, -2, -3, -4, -5, -5, -6, -7, -8, -8], np.int64)


@compiled
def wrap(position):
    """One step outside 0..159 comes back on the other side."""
    if position < 0:
        return position + 160
    if position >= 160:
        return position - 160
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
    """New position after a strobe at clock x of the line: players 3 (+5), missiles and ball 2 (+4)."""
    if x < 68:
        return in_blank
    return (x - 68 + in_blank + 2) % 160


@compiled
def reset_class(new, old, mode):
    """How the first copy shows after RESPx: -1 strobe fell into the start of a copy, 1 into its pixels, else 0."""
    q = (new - old) % 160
    width = 16 if mode == 5 else 32 if mode == 7 else 8
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
