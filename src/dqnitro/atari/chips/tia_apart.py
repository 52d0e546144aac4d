# ruff: noqa: F403, F405
"""The TIA's log replayed for one console alone: on a CPU core, or in a warp of its own on a GPU.

Most stores repeat what their register holds already: a program that draws writes the same bytes line after line. Such a
store is passed over, without moving the beam. The others move the beam and close a segment only if something visible
depends on their register, and a row whose registers are those of the row above is copied.
"""

from __future__ import annotations

import numpy as np

from ..jit.target import as_log, as_screen, as_state, inlined
from .layout import *
from .tia_changes import (
    ALWAYS,
    FLUSHES,
    HELD,
    HIT_BY,
    HOLDS,
    LATER,
    QUIET,
    QUIET_UNSEEN,
    SHOWN_BY,
    STORED,
    WAITING,
    irregular,
    irregular_after,
    move,
    moving,
    next_change,
)
from .tia_layers import join_words, paint_apart, within
from .tia_masks import U0
from .tia_registers import *
from .tia_scanline import PAIRS, collide, layer_words, refresh, repeat_row
from .tia_store import between_lines, same, store, takes_effect

# What `settled` says of the row above: other registers, these, these with its first pixels blanked.
OTHER, SAME, SAME_BLANKED = 0, 1, 2


@inlined
def meet_objects(s_at, seen, h):
    """Set the latches of the objects that meet in the pixels seen..h-1."""
    s = as_state(s_at)
    if s[S_VBLANK] == 0 and h > seen:
        need = PAIRS[s[S_PRESENT]] & ~s[S_COLLISION]
        if need:
            if s[S_DIRTY]:
                refresh(s_at)
            collide(s_at, seen, h, need)


@inlined
def needed(s_at):
    """The latches that the objects on the line could still set."""
    s = as_state(s_at)
    return 0 if s[S_VBLANK] else PAIRS[s[S_PRESENT]] & ~s[S_COLLISION]


@inlined
def replay_unseen(s_at, prop_at, log_at, logged, until):
    """A frame that is not drawn. While no latch can change and nothing waits for the line's end, the beam waits."""
    s, log = as_state(s_at), as_log(log_at)
    drawn, start, end = s[S_DRAWN], s[S_START], s[S_END]
    line, seen, settled = s[S_LINE_START], s[S_FROM], s[S_SETTLED]
    first = line
    ahead = drawn  # where the beam would be if it did not wait
    blank_ends = np.int64(NEVER)
    if s[S_BLANK]:
        blank_ends = line + BLANK_CLOCKS + 8 + (0 if seen < 8 else LINE_CLOCKS)
    odd = irregular(s_at)
    need = needed(s_at)
    i = np.int64(0)
    while True:
        i = next_change(s_at, log_at, i, logged, odd)
        last = i == logged
        reg, value, cycle, x, moved = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        t, shows = until, True
        if not last:
            entry = log[i]
            i += 1
            rest, cycle = entry & 0x3FFF, entry >> 16
            reg, value = rest >> 8, rest & 0xFF
            if (QUIET_UNSEEN >> reg) & 1:
                s[HOLDS[reg]] = (s[HOLDS[reg]] & ~HELD[reg]) | STORED[rest]
                continue
            if reg == HMCLR:
                for k in range(5):
                    s[S_HM_P0 + k] = 0
                continue
            t = 3 * cycle + LATER[4 * reg + (cycle & 3)]
            if reg == HMOVE:
                x = cycle % LINE_CYCLES
                moved = moving(s_at, x)
            elif reg == RESP0 or reg == RESP1:
                t = takes_effect(s_at, reg, cycle)
        watches = need != 0 or odd & WAITING != 0
        if last:
            t = max(t, ahead)
        elif t >= start:
            ahead = max(ahead, t)
        if watches or last:
            if start <= t and drawn < end:
                if t > drawn:
                    drawn = min(t, end)
                    while drawn > line + LINE_CLOCKS:
                        if not (settled and seen == 0):
                            if need:
                                meet_objects(s_at, seen, np.int64(PIXELS))
                                need = needed(s_at)
                            settled = np.int64(1 if seen == 0 else 0)
                        line += LINE_CLOCKS
                        seen = np.int64(0)
                        if odd & WAITING:
                            between_lines(s_at)
                            odd = irregular(s_at)
                            settled = np.int64(0)
                        elif settled:
                            more = (drawn - line - 1) // LINE_CLOCKS
                            line += LINE_CLOCKS * more
                h = min(max(drawn - line - BLANK_CLOCKS, 0), PIXELS)
                if h > seen:
                    if not last:
                        shows = HIT_BY[reg] & (s[S_PRESENT] | ALWAYS) != 0
                        if reg == HMOVE:
                            shows = moved & s[S_PRESENT] != 0
                        elif reg == GRP0 or reg == GRP1:
                            shows = not same(s_at, reg, value)
                    if shows or drawn == end:
                        if need:
                            meet_objects(s_at, seen, h)
                        seen = h
            if last:
                break
        if reg == HMOVE:
            if as_state(prop_at)[P_HMOVE_BLANKS] and (x <= 20 or x == LAST_CYCLE):
                blank_ends = 3 * (cycle - x) + BLANK_CLOCKS + 8 + (0 if x <= 20 else LINE_CLOCKS)
                blank_ends = max(blank_ends, start + BLANK_CLOCKS + 8)
            move(s_at, cycle, x, moved)
        else:
            store(s_at, prop_at, reg, value, cycle)
        settled = np.int64(0)
        odd = irregular_after(s_at, reg, odd)
        need = needed(s_at)
        if not watches and (need != 0 or odd & WAITING != 0) and start <= t and drawn < end:
            # nothing was to be seen up to here
            drawn = min(max(drawn, ahead), end)
            more = max((drawn - line - 1) // LINE_CLOCKS, 0)
            line += LINE_CLOCKS * more
            if more:
                seen = np.int64(0)
            seen = max(seen, min(max(drawn - line - BLANK_CLOCKS, 0), PIXELS))
    s[S_DRAWN], s[S_LINE_START], s[S_FROM], s[S_SETTLED] = drawn, line, seen, settled
    s[S_ROW] += (line - first) // LINE_CLOCKS
    s[S_BLANK] = 1 if drawn < blank_ends and blank_ends != NEVER else 0


@inlined
def replay_drawn(s_at, prop_at, log_at, logged, until, screen_at):
    """A frame that is drawn."""
    s, log = as_state(s_at), as_log(log_at)
    drawn, start, end = s[S_DRAWN], s[S_START], s[S_END]
    line, row, h_from, settled = s[S_LINE_START], s[S_ROW], s[S_FROM], s[S_SETTLED]
    seen = painted = h_from
    nothing = (U0, U0, U0, U0, U0, U0, U0, U0, U0)
    composed = nothing
    height = as_state(prop_at)[P_HEIGHT]
    odd = irregular(s_at)
    i = np.int64(0)
    while True:
        i = next_change(s_at, log_at, i, logged, odd)
        last = i == logged
        reg, value, cycle, x, moved = np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        t, shows = until, True
        if not last:
            entry = log[i]
            i += 1
            rest, cycle = entry & 0x3FFF, entry >> 16
            reg, value = rest >> 8, rest & 0xFF
            if (QUIET >> reg) & 1:
                s[HOLDS[reg]] = (s[HOLDS[reg]] & ~HELD[reg]) | STORED[rest]
                continue
            if reg == HMCLR:
                for k in range(5):
                    s[S_HM_P0 + k] = 0
                continue
            present = s[S_PRESENT] | ALWAYS
            t = 3 * cycle + LATER[4 * reg + (cycle & 3)]
            shows = SHOWN_BY[reg] & present != 0
            if reg == GRP0 or reg == GRP1:
                shows = not same(s_at, reg, value)
            elif reg == HMOVE:
                x = cycle % LINE_CYCLES
                moved = moving(s_at, x)
                shows = moved & present != 0 or x == LAST_CYCLE or x == 0  # then it blanks the line that follows
            elif reg == RESP0 or reg == RESP1:
                t = takes_effect(s_at, reg, cycle)
        # ---- move the beam to t, line by line
        if start <= t and drawn < end:
            if t > drawn:
                if t > end:
                    t = end
                while t > line + LINE_CLOCKS:
                    blank = s[S_BLANK] and painted < 8
                    paint = row < height
                    if settled and h_from == 0:
                        if paint:
                            if settled == SAME_BLANKED and not blank:
                                if s[S_DIRTY] and not s[S_VBLANK]:
                                    refresh(s_at)
                                paint_apart(s_at, screen_at, row, np.int64(0), np.int64(PIXELS), layer_words(s_at))
                            else:
                                repeat_row(screen_at, s[S_BUFFER], row)
                                if blank:
                                    as_screen(screen_at)[s[S_BUFFER], row, 0] = U0
                    elif painted < PIXELS:
                        meet_objects(s_at, seen, np.int64(PIXELS))
                        if paint:
                            if not s[S_VBLANK]:
                                if s[S_DIRTY]:
                                    refresh(s_at)
                                if h_from == 0:
                                    composed = layer_words(s_at)
                                else:
                                    composed = join_words(composed, within(h_from, np.int64(PIXELS), layer_words(s_at)))
                            paint_apart(s_at, screen_at, row, painted, np.int64(PIXELS), composed)
                            composed = nothing
                    settled = np.int64(OTHER)
                    if h_from == 0 and seen == 0:
                        settled = np.int64(SAME_BLANKED if blank else SAME)
                    if blank:
                        s[S_BLANK] = 0
                    line += LINE_CLOCKS
                    row += 1
                    h_from = seen = painted = np.int64(0)
                    if odd & WAITING:
                        between_lines(s_at)
                        odd = irregular(s_at)
                        settled = np.int64(OTHER)
                drawn = t
            # ---- evaluate the pixels that this store must not change any more
            h = min(max(drawn - line - BLANK_CLOCKS, 0), PIXELS)
            if h > h_from and (last or drawn == end or shows):
                meet_objects(s_at, seen, h)
                seen = max(seen, h)
                if reg != CXCLR or drawn == end:
                    if row < height and not s[S_VBLANK]:
                        if s[S_DIRTY]:
                            refresh(s_at)
                        composed = join_words(composed, within(h_from, h, layer_words(s_at)))
                    h_from = h
        if last and seen > h_from:
            if row < height and not s[S_VBLANK]:
                if s[S_DIRTY]:
                    refresh(s_at)
                composed = join_words(composed, within(h_from, seen, layer_words(s_at)))
            h_from = seen
        if painted < h_from and (last or drawn == end or (FLUSHES >> reg) & 1):
            if row < height:
                paint_apart(s_at, screen_at, row, painted, h_from, composed)
            composed = nothing
            painted = h_from
        if last:
            break
        if reg == HMOVE:
            if as_state(prop_at)[P_HMOVE_BLANKS] and (x <= 20 or x == LAST_CYCLE):
                s[S_BLANK] = 1
            move(s_at, cycle, x, moved)
        else:
            store(s_at, prop_at, reg, value, cycle)
        if shows:
            settled = np.int64(OTHER)
        odd = irregular_after(s_at, reg, odd)
    s[S_DRAWN], s[S_LINE_START], s[S_ROW], s[S_FROM] = drawn, line, row, h_from
    s[S_SETTLED] = 1 if settled == SAME else 0


@inlined
def replay_apart(s_at, prop_at, log_at, until, screen_at):
    """For each logged store: move the beam to it, evaluate what it changes, store. Then move the beam to `until`."""
    s = as_state(s_at)
    logged = s[S_LOGGED]
    s[S_LOGGED] = 0
    if s[S_DRAW]:
        replay_drawn(s_at, prop_at, log_at, logged, until, screen_at)
    else:
        replay_unseen(s_at, prop_at, log_at, logged, until)
