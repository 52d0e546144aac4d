# ruff: noqa: F403, F405
"""The TIA: picture and collisions, evaluated late.

The CPU does not drive the TIA: a store into a picture register only goes into a log (cycle, register, value).
`replay` reads the log when somebody needs the result: a collision register is read, the log is full, the
frame ends. Between two logged changes of a line nothing moves, so such a *segment* is evaluated as a whole:
the six objects are 160-bit masks (`chips/tia_masks.py`), collisions are ANDs and pixels are written eight at a time. A segment in
which no latch can change is not evaluated at all, and no pixel is drawn unless asked for.

Clocks are colour clocks (3 per CPU cycle, 228 per line, the first 68 blank) since the start of line 0.
"""

from __future__ import annotations

import numpy as np

from ..jit.target import MEETS, as_log, as_state, compiled, inlined, meet, together, unit, wide
from .layout import *
from .tia_masks import REVERSED
from .tia_motion import motion, reset_class, reset_position, wrap
from .tia_scanline import BL, M0, M1, P0, P1, PAIRS, PF, evaluate

# The beam is brought this many clocks past a store before its register changes (PF: by cycle in the line).
DELAY = np.zeros(64, np.int64)
DELAY[[0x01, 0x0B, 0x0C, 0x1B, 0x1C]] = 1
DELAY[[0x04, 0x05, 0x12, 0x13]] = 8
PF_DELAY = np.array([4, 5, 2, 3], np.int64)
# What a store can change at once: 0 nothing that shows, 1 the picture and collisions, 2 colours only.
SHOWS = np.ones(64, np.int64)
SHOWS[[0x20, 0x21, 0x22, 0x23, 0x24, 0x2B]] = 0
SHOWS[[0x06, 0x07, 0x08, 0x09]] = 2
# Stores that must reach the log; the others (sync, audio, undriven addresses) change nothing in here.
LOGGED = np.zeros(64, np.int64)
LOGGED[0x01] = 1
LOGGED[0x04:0x15] = 1
LOGGED[0x1B:0x2D] = 1

ARK_STEPS = np.array([18, 33, 0, 17], np.int64)


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
def player0_changed(s_at):
    """The graphics byte in use, after one of the registers that choose it."""
    s = as_state(s_at)
    shape = s[S_GRP0_OLD] if s[S_VDELP0] else s[S_GRP0]
    if s[S_REFP0] == 0:
        shape = REVERSED[shape & 0xFF]
    s[S_SHAPE0] = shape
    s[S_PRESENT] = (s[S_PRESENT] & ~P0) | (P0 if shape else 0)
    s[S_DIRTY] |= P0


@inlined
def player1_changed(s_at):
    s = as_state(s_at)
    shape = s[S_GRP1_OLD] if s[S_VDELP1] else s[S_GRP1]
    if s[S_REFP1] == 0:
        shape = REVERSED[shape & 0xFF]
    s[S_SHAPE1] = shape
    s[S_PRESENT] = (s[S_PRESENT] & ~P1) | (P1 if shape else 0)
    s[S_DIRTY] |= P1


@inlined
def others_changed(s_at):
    """Missiles and ball: enabled or not."""
    s = as_state(s_at)
    present = s[S_PRESENT] & ~(M0 | M1 | BL)
    if s[S_ENAM0] and not s[S_RESMP0]:
        present |= M0
    if s[S_ENAM1] and not s[S_RESMP1]:
        present |= M1
    if s[S_ENABL_OLD] if s[S_VDELBL] else s[S_ENABL]:
        present |= BL
    s[S_PRESENT] = present
    s[S_DIRTY] |= M0 | M1 | BL


@inlined
def playfield_changed(s_at, bits):
    s = as_state(s_at)
    s[S_PF] = bits
    s[S_PRESENT] = (s[S_PRESENT] & ~PF) | (PF if bits else 0)
    s[S_DIRTY] |= PF


@inlined
def close(s_at, screen_at, h, paint):
    """Evaluate the pixels of the line from where the last evaluation ended up to h."""
    s = as_state(s_at)
    h_from = s[S_FROM]
    if h <= h_from:
        return
    full = h_from == 0 and h == 160
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
def end_of_line(s_at):
    s = as_state(s_at)
    s[S_LINE_START] += 228
    s[S_ROW] += 1
    s[S_FROM] = 0
    if s[S_SUPPRESS0] | s[S_SUPPRESS1]:
        s[S_SUPPRESS0] = s[S_SUPPRESS1] = 0
        s[S_DIRTY] |= P0 | P1
        s[S_SETTLED] = 0
    if s[S_REFLECT] != s[S_CTRLPF] & 1:
        s[S_REFLECT] = s[S_CTRLPF] & 1
        s[S_DIRTY] |= PF
        s[S_SETTLED] = 0
    if s[S_ARK]:
        count = (s[S_ARK_COUNT] + 1) & 3
        s[S_ARK_COUNT] = count
        s[S_POS_M0] = wrap(s[S_POS_M0] - ARK_STEPS[count])
        s[S_ARK_LOOK] = count if count < 3 else 0
        s[S_DIRTY] |= M0
        s[S_SETTLED] = 0


@inlined
def store(s_at, prop_at, reg, value, cycle):
    """A register takes its new value. The cycle in the line matters to few: a division that the others are spared."""
    s = as_state(s_at)
    prop = as_state(prop_at)
    if reg == 0x1B:
        s[S_GRP0] = value
        if s[S_GRP1_OLD] != s[S_GRP1]:
            s[S_GRP1_OLD] = s[S_GRP1]
            if s[S_VDELP1]:
                player1_changed(s_at)
        if not s[S_VDELP0]:
            player0_changed(s_at)
    elif reg == 0x1C:
        s[S_GRP1] = value
        if s[S_GRP0_OLD] != s[S_GRP0]:
            s[S_GRP0_OLD] = s[S_GRP0]
            if s[S_VDELP0]:
                player0_changed(s_at)
        if s[S_ENABL_OLD] != s[S_ENABL]:
            s[S_ENABL_OLD] = s[S_ENABL]
            others_changed(s_at)
        if not s[S_VDELP1]:
            player1_changed(s_at)
    elif reg == 0x0D:
        playfield_changed(s_at, (s[S_PF] & ~0xF) | (value >> 4))
    elif reg == 0x0E:
        playfield_changed(s_at, (s[S_PF] & ~0xFF0) | (REVERSED[value & 0xFF] << 4))
    elif reg == 0x0F:
        playfield_changed(s_at, (s[S_PF] & 0xFFF) | (value << 12))
    elif reg == 0x06:
        s[S_COLUP0] = (value & 0xFE) | s[S_LOSS]
    elif reg == 0x07:
        s[S_COLUP1] = (value & 0xFE) | s[S_LOSS]
    elif reg == 0x08:
        s[S_COLUPF] = (value & 0xFE) | s[S_LOSS]
    elif reg == 0x09:
        s[S_COLUBK] = (value & 0xFE) | s[S_LOSS]
    elif reg == 0x0A:
        s[S_CTRLPF] = value
        s[S_DIRTY] |= BL
        if 3 * (cycle % 76) < 147 and s[S_REFLECT] != value & 1:
            s[S_REFLECT] = value & 1
            s[S_DIRTY] |= PF
    elif reg == 0x1D:
        s[S_ENAM0] = value & 2
        others_changed(s_at)
    elif reg == 0x1E:
        s[S_ENAM1] = value & 2
        others_changed(s_at)
    elif reg == 0x1F:
        s[S_ENABL] = value & 2
        others_changed(s_at)
    elif reg == 0x04:
        s[S_NUSIZ0] = value
        s[S_SUPPRESS0] = s[S_ARK_LOOK] = 0
        s[S_DIRTY] |= P0 | M0
    elif reg == 0x05:
        s[S_NUSIZ1] = value
        s[S_SUPPRESS1] = 0
        s[S_DIRTY] |= P1 | M1
    elif reg == 0x0B:
        s[S_REFP0] = value & 8
        player0_changed(s_at)
    elif reg == 0x0C:
        s[S_REFP1] = value & 8
        player1_changed(s_at)
    elif reg == 0x10:
        new = reset_position(3 * (cycle % 76), 3)
        s[S_SUPPRESS0] = 0 if reset_class(new, s[S_POS_P0], s[S_NUSIZ0] & 7) < 0 else 1
        s[S_POS_P0] = new
        s[S_DIRTY] |= P0
    elif reg == 0x11:
        new = reset_position(3 * (cycle % 76), 3)
        s[S_SUPPRESS1] = 0 if reset_class(new, s[S_POS_P1], s[S_NUSIZ1] & 7) < 0 else 1
        s[S_POS_P1] = new
        s[S_DIRTY] |= P1
    elif reg == 0x12 or reg == 0x13 or reg == 0x14:
        reset_other(s_at, reg, cycle % 76, 3 * cycle - s[S_HMOVE_CLOCK])
    elif reg == 0x01:
        s[S_VBLANK] = value & 2
    elif reg == 0x22:
        if 3 * cycle - s[S_HMOVE_CLOCK] == 63 and s[S_HM_M0] == 7 and value >> 4 == 6:
            s[S_ARK] = 1
            s[S_ARK_COUNT] = 0
        s[S_HM_M0] = value >> 4
    elif 0x20 <= reg <= 0x24:
        s[S_HM_P0 + reg - 0x20] = value >> 4
    elif reg == 0x25:
        s[S_VDELP0] = value & 1
        player0_changed(s_at)
    elif reg == 0x26:
        s[S_VDELP1] = value & 1
        player1_changed(s_at)
    elif reg == 0x27:
        s[S_VDELBL] = value & 1
        others_changed(s_at)
    elif reg == 0x28:
        if s[S_RESMP0] and not value & 2:
            s[S_POS_M0] = wrap(s[S_POS_P0] + middle(s[S_NUSIZ0] & 7))
            s[S_ARK_LOOK] = 0
        s[S_RESMP0] = value & 2
        others_changed(s_at)
    elif reg == 0x29:
        if s[S_RESMP1] and not value & 2:
            s[S_POS_M1] = wrap(s[S_POS_P1] + middle(s[S_NUSIZ1] & 7))
        s[S_RESMP1] = value & 2
        others_changed(s_at)
    elif reg == 0x2A:
        x = cycle % 76
        if prop[P_HMOVE_BLANKS] and (x <= 20 or x == 75):
            s[S_BLANK] = 1
        for k in range(5):
            s[S_POS_P0 + k] = wrap(s[S_POS_P0 + k] + motion(x, s[S_HM_P0 + k]))
        s[S_SUPPRESS0] = s[S_SUPPRESS1] = s[S_ARK_LOOK] = s[S_ARK] = 0
        s[S_HMOVE_CLOCK] = 3 * cycle
        s[S_DIRTY] |= P0 | P1 | M0 | M1 | BL
    elif reg == 0x2B:
        for k in range(5):
            s[S_HM_P0 + k] = 0
    elif reg == 0x2C:
        s[S_COLLISION] = 0


@inlined
def middle(mode):
    """Where a released missile appears in its player."""
    return 8 if mode == 5 else 16 if mode == 7 else 4


@compiled
def reset_other(s_at, reg, x, since):
    """RESM0, RESM1, RESBL; `since`: clocks since HMOVE, which can still be moving the object."""
    s = as_state(s_at)
    position = reset_position(3 * x, 2)
    if reg == 0x12:
        if since == 60 and x == 23:
            position = 8
        s[S_POS_M0] = position
        s[S_ARK_LOOK] = 0
        s[S_DIRTY] |= M0
    elif reg == 0x13:
        if since == 9 and x == 6:
            position = 3
        s[S_POS_M1] = position
        s[S_DIRTY] |= M1
    else:
        if since == 54 and (x == 20 or x == 23):
            position = 10
        elif since == 9 and x == 6:
            position = 3
        elif since == 21 and x == 10:
            position = 6
        elif since == 18 and x == 9:
            position = 5
        s[S_POS_BL] = position
        s[S_DIRTY] |= BL


@inlined
def same(s_at, reg, value):
    """Would this store leave the picture as it is? Asked for the registers that are written most."""
    s = as_state(s_at)
    if reg == 0x1B:
        return (value == s[S_GRP0] or s[S_VDELP0] != 0) and (s[S_VDELP1] == 0 or s[S_GRP1] == s[S_GRP1_OLD])
    if reg == 0x1C:
        return (
            (value == s[S_GRP1] or s[S_VDELP1] != 0)
            and (s[S_VDELP0] == 0 or s[S_GRP0] == s[S_GRP0_OLD])
            and (s[S_VDELBL] == 0 or s[S_ENABL] == s[S_ENABL_OLD])
        )
    return False


@inlined
def takes_effect(s_at, reg, cycle):
    """The clock up to which the beam still sees the old value of a register that is stored in this cycle."""
    s = as_state(s_at)
    t = 3 * cycle + DELAY[reg]
    if 0x0D <= reg <= 0x0F:
        t += PF_DELAY[cycle & 3]  # 76 is a multiple of 4
    elif reg == 0x10:
        if reset_class(reset_position(3 * (cycle % 76), 3), s[S_POS_P0], s[S_NUSIZ0] & 7) > 0:
            t += 11
    elif reg == 0x11 and reset_class(reset_position(3 * (cycle % 76), 3), s[S_POS_P1], s[S_NUSIZ1] & 7) > 0:
        t += 11
    return t


@inlined
def must_close(s_at, reg, value, draw):
    """Does this store change what is seen from here on?"""
    shows = SHOWS[reg]
    return (shows == 1 or (shows == 2 and draw)) and not same(s_at, reg, value)


@inlined
def replay_together(s_at, prop_at, log_at, until, screen_at):
    """`replay_apart` for machines that share a warp: one piece of the beam's way at a time, so that they meet in `close`."""
    s, prop, log = as_state(s_at), as_state(prop_at), as_log(log_at)
    logged = s[S_LOGGED]
    s[S_LOGGED] = 0
    drawn, start, end = s[S_DRAWN], s[S_START], s[S_END]
    draw = s[S_DRAW] != 0
    height = prop[P_HEIGHT]
    i, fresh, t, reg, value, cycle = 0, True, 0, 0, 0, 0
    while i <= logged:
        lanes = together()
        last = i == logged
        if fresh:
            reg, value, cycle, t = 0, 0, 0, until
            if not last:
                entry = log[i]
                rest, cycle = entry_rest(entry), entry_cycle(entry)
                reg, value = rest >> 8, rest & 0xFF
                t = takes_effect(s_at, reg, cycle)
        # ---- to the end of the line, or to t
        h, line_ends, closes = 0, False, False
        if start <= t and drawn < end:
            line = s[S_LINE_START]
            t = min(t, end) if t > drawn else t
            line_ends = t > drawn and t > line + 228
            if line_ends:
                h, closes = 160, True
            else:
                drawn = max(drawn, t)
                h = min(max(drawn - line - 68, 0), 160)
                if h > s[S_FROM]:
                    closes = last or drawn == end or must_close(s_at, reg, value, draw)
        meet(lanes)
        if closes:
            close(s_at, screen_at, h, draw and s[S_ROW] < height)
        meet(lanes)
        fresh = not line_ends
        if line_ends:
            end_of_line(s_at)
        else:
            i += 1
            if not last:
                if SHOWS[reg]:
                    s[S_SETTLED] = 0
                store(s_at, prop_at, reg, value, cycle)
        meet(lanes)
    s[S_DRAWN] = drawn


@inlined
def replay_apart(s_at, prop_at, log_at, until, screen_at):
    s, prop, log = as_state(s_at), as_state(prop_at), as_log(log_at)
    logged = s[S_LOGGED]
    s[S_LOGGED] = 0
    drawn, start, end = s[S_DRAWN], s[S_START], s[S_END]
    draw = s[S_DRAW] != 0
    height = prop[P_HEIGHT]
    for i in range(logged + 1):
        reg, value, cycle = np.int64(0), np.int64(0), np.int64(0)
        last = i == logged
        t = until
        if not last:
            entry = log[i]
            rest, cycle = entry_rest(entry), entry_cycle(entry)
            reg, value = rest >> 8, rest & 0xFF
            t = takes_effect(s_at, reg, cycle)
        # ---- bring the beam to t
        if start <= t and drawn < end:
            line = s[S_LINE_START]
            if t > drawn:
                if t > end:
                    t = end
                while t > line + 228:
                    close(s_at, screen_at, np.int64(160), draw and s[S_ROW] < height)
                    end_of_line(s_at)
                    line += 228
                drawn = t
            # ---- evaluate what this store would change
            h = min(max(drawn - line - 68, 0), 160)
            if h > s[S_FROM]:
                if last or drawn == end or must_close(s_at, reg, value, draw):
                    close(s_at, screen_at, h, draw and s[S_ROW] < height)
        if last:
            break
        if SHOWS[reg]:
            s[S_SETTLED] = 0
        store(s_at, prop_at, reg, value, cycle)
    s[S_DRAWN] = drawn


@unit
def replay_unit(s_at, prop_at, log_at, until, screen_at):
    """Apply the logged stores, then bring picture and collisions up to clock `until`."""
    if MEETS:
        replay_together(s_at, prop_at, log_at, until, screen_at)
    else:
        replay_apart(s_at, prop_at, log_at, until, screen_at)
    return 0
