# ruff: noqa: F403, F405
"""The TIA: picture and collisions, evaluated late.

The CPU does not drive the TIA: a store into a picture register only goes into a log (cycle, register, value).
`replay_unit` reads the log when its result is needed: when a collision register is read, the log is full or the
frame ends. Between two logged changes of a line nothing moves, so such a *segment* is evaluated as a whole:
the six objects are 160-bit masks (`chips/tia_masks.py`), collisions are ANDs and pixels are written eight at a
time. A segment in which no latch can change is not evaluated at all, and pixels are drawn only on request.

Clocks are colour clocks (3 per CPU cycle, 228 per line, the first 68 blank) since the start of line 0.
"""

from __future__ import annotations

import numpy as np

from ..jit.target import MEETS, as_log, as_state, inlined, meet, together, unit, wide
from .layout import *
from .tia_apart import replay_apart
from .tia_changes import WAITING, irregular, irregular_after, move, moving, next_change, shows_now
from .tia_registers import *
from .tia_scanline import PAIRS, evaluate
from .tia_store import end_of_line, store, takes_effect

# Stores that must reach the log; the others (sync, audio, undriven addresses) do not change the picture.
LOGGED = np.zeros(64, np.int64)
LOGGED[VBLANK] = 1
LOGGED[NUSIZ0 : RESBL + 1] = 1
LOGGED[GRP0 : CXCLR + 1] = 1


@wide
def log_entry(cycle, reg, value):
    return (np.int64(cycle) << 16) | (reg << 8) | value


@wide
def entry_cycle(entry):
    return entry >> 16


@wide
def entry_rest(entry):
    """The register in bits 8..13, the value below."""
    return entry & 0x3FFF


@inlined
def close(s_at, screen_at, h, paint):
    """Evaluate the pixels of the line from where the last evaluation ended up to h."""
    s = as_state(s_at)
    h_from = s[S_FROM]
    if h <= h_from:
        return
    full = h_from == 0 and h == PIXELS
    if not (full and s[S_SETTLED]) or s[S_BLANK] or paint:
        need = 0 if s[S_VBLANK] else PAIRS[s[S_PRESENT]] & ~s[S_COLLISION]
        if need or paint:
            evaluate(s_at, screen_at, h_from, h, need, paint)
        if s[S_BLANK] and h_from < 8 and h >= 8:
            s[S_BLANK] = 0
            full = False  # the blanked row is not one to copy
        s[S_SETTLED] = 1 if full else 0
    s[S_FROM] = h


@inlined
def replay_together(s_at, prop_at, log_at, until, screen_at):
    """`replay_apart` for consoles that share a warp: the beam moves piece by piece, so that all meet in `close`."""
    s, prop, log = as_state(s_at), as_state(prop_at), as_log(log_at)
    logged = s[S_LOGGED]
    s[S_LOGGED] = 0
    drawn, start, end = s[S_DRAWN], s[S_START], s[S_END]
    draw = s[S_DRAW] != 0
    height = prop[P_HEIGHT]
    odd = irregular(s_at)
    i, fresh, shows, t, reg, value, cycle, x, moved = 0, True, False, 0, 0, 0, 0, 0, 0
    while i <= logged:
        lanes = together()
        if fresh:
            i = next_change(s_at, log_at, i, logged, odd)
        last = i == logged
        if fresh:
            shows, reg, value, cycle, x, moved, t = False, 0, 0, 0, 0, 0, until
            if not last:
                entry = log[i]
                rest, cycle = entry_rest(entry), entry_cycle(entry)
                reg, value = rest >> 8, rest & 0xFF
                t = takes_effect(s_at, reg, cycle)
                if reg == HMOVE:
                    x = cycle % LINE_CYCLES
                    moved = moving(s_at, x)
                shows = shows_now(s_at, reg, value, x, moved, draw)
        # ---- move the beam to the end of the line, or to t if that comes first
        h, line_ends, closes = 0, False, False
        if start <= t and drawn < end:
            line = s[S_LINE_START]
            t = min(t, end) if t > drawn else t
            line_ends = t > drawn and t > line + LINE_CLOCKS
            if line_ends:
                h, closes = PIXELS, True
            else:
                drawn = max(drawn, t)
                h = min(max(drawn - line - BLANK_CLOCKS, 0), PIXELS)
                if h > s[S_FROM]:
                    closes = last or drawn == end or shows
        meet(lanes)
        if closes:
            close(s_at, screen_at, h, draw and s[S_ROW] < height)
        meet(lanes)
        fresh = not line_ends
        if line_ends:
            end_of_line(s_at)
            if odd & WAITING:
                odd = irregular(s_at)
            elif s[S_SETTLED] and s[S_BLANK] == 0 and not draw:
                more = (t - s[S_LINE_START] - 1) // LINE_CLOCKS  # lines in which nothing can happen
                s[S_LINE_START] += more * LINE_CLOCKS
                s[S_ROW] += more
        else:
            i += 1
            if not last:
                if shows:
                    s[S_SETTLED] = 0
                if reg == HMOVE:
                    if prop[P_HMOVE_BLANKS] and (x <= 20 or x == LAST_CYCLE):
                        s[S_BLANK] = 1
                    move(s_at, cycle, x, moved)
                else:
                    store(s_at, prop_at, reg, value, cycle)
                odd = irregular_after(s_at, reg, odd)
        meet(lanes)
    s[S_DRAWN] = drawn


@unit
def replay_unit(s_at, prop_at, log_at, until, screen_at):
    """Apply the logged stores, then bring picture and collisions up to clock `until`."""
    if MEETS and as_state(prop_at)[P_TOGETHER]:
        replay_together(s_at, prop_at, log_at, until, screen_at)
    else:
        replay_apart(s_at, prop_at, log_at, until, screen_at)
    return 0
