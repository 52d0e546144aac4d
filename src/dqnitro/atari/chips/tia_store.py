# ruff: noqa: F403, F405
"""What a store into a register of the TIA changes, and from which clock on."""

from __future__ import annotations

import numpy as np

from ..jit.target import as_state, compiled, inlined
from .layout import *
from .tia_masks import REVERSED
from .tia_motion import motion, reset_class, reset_position, wrap
from .tia_registers import *
from .tia_scanline import BL, M0, M1, P0, P1, PF

# Clocks after a store during which the beam still shows the old value (of PFx: by the cycle in the line).
DELAY = np.zeros(64, np.int64)
DELAY[[VBLANK, REFP0, REFP1, GRP0, GRP1]] = 1
DELAY[[NUSIZ0, NUSIZ1, RESM0, RESM1]] = 8
PF_DELAY = np.array([4, 5, 2, 3], np.int64)
# The "cosmic ark" bug: a store into HMM0 while HMOVE counts keeps missile 0 moving, by these steps, line after line.
ARK_STEPS = np.array([18, 33, 0, 17], np.int64)


@inlined
def player0_changed(s_at):
    """Find the graphics byte in use, after a store into one of the registers that choose it."""
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
def between_lines(s_at):
    """What waited for the end of the line: hidden copies, mirroring, the cosmic-ark bug."""
    s = as_state(s_at)
    if s[S_SUPPRESS0] | s[S_SUPPRESS1]:
        s[S_SUPPRESS0] = s[S_SUPPRESS1] = 0
        s[S_DIRTY] |= P0 | P1
        s[S_SETTLED] = 0
    if s[S_REFLECT] != s[S_CTRLPF] & MIRRORED_FIELD:
        s[S_REFLECT] = s[S_CTRLPF] & MIRRORED_FIELD
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
def end_of_line(s_at):
    s = as_state(s_at)
    s[S_LINE_START] += LINE_CLOCKS
    s[S_ROW] += 1
    s[S_FROM] = 0
    between_lines(s_at)


@inlined
def store(s_at, prop_at, reg, value, cycle):
    """A register takes its new value.

    Registers that are stored most come first. Few depend on the cycle in the line, so only those pay for the division.
    """
    s = as_state(s_at)
    prop = as_state(prop_at)
    # ---- graphics: a store into one player's register also passes the other's on to its delayed copy
    if reg == GRP0:
        s[S_GRP0] = value
        if s[S_GRP1_OLD] != s[S_GRP1]:
            s[S_GRP1_OLD] = s[S_GRP1]
            if s[S_VDELP1]:
                player1_changed(s_at)
        if not s[S_VDELP0]:
            player0_changed(s_at)
    elif reg == GRP1:
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
    # ---- the playfield's 20 bits, leftmost in bit 0
    elif reg == PF0:
        playfield_changed(s_at, (s[S_PF] & ~0xF) | (value >> 4))
    elif reg == PF1:
        playfield_changed(s_at, (s[S_PF] & ~0xFF0) | (REVERSED[value & 0xFF] << 4))
    elif reg == PF2:
        playfield_changed(s_at, (s[S_PF] & 0xFFF) | (value << 12))
    # ---- colours; bit 0 says that a PAL television has lost the colour
    elif reg == COLUP0:
        s[S_COLUP0] = (value & COLOUR) | s[S_LOSS]
    elif reg == COLUP1:
        s[S_COLUP1] = (value & COLOUR) | s[S_LOSS]
    elif reg == COLUPF:
        s[S_COLUPF] = (value & COLOUR) | s[S_LOSS]
    elif reg == COLUBK:
        s[S_COLUBK] = (value & COLOUR) | s[S_LOSS]
    # ---- the playfield's mode: past the middle of the line, mirroring waits for the next one (`end_of_line`)
    elif reg == CTRLPF:
        s[S_CTRLPF] = value
        s[S_DIRTY] |= BL
        if 3 * (cycle % LINE_CYCLES) < 147 and s[S_REFLECT] != value & MIRRORED_FIELD:
            s[S_REFLECT] = value & MIRRORED_FIELD
            s[S_DIRTY] |= PF
    # ---- missiles and ball on or off
    elif reg == ENAM0:
        s[S_ENAM0] = value & ENABLED
        others_changed(s_at)
    elif reg == ENAM1:
        s[S_ENAM1] = value & ENABLED
        others_changed(s_at)
    elif reg == ENABL:
        s[S_ENABL] = value & ENABLED
        others_changed(s_at)
    # ---- copies, sizes and mirrored players
    elif reg == NUSIZ0:
        s[S_NUSIZ0] = value
        s[S_SUPPRESS0] = s[S_ARK_LOOK] = 0
        s[S_DIRTY] |= P0 | M0
    elif reg == NUSIZ1:
        s[S_NUSIZ1] = value
        s[S_SUPPRESS1] = 0
        s[S_DIRTY] |= P1 | M1
    elif reg == REFP0:
        s[S_REFP0] = value & MIRRORED
        player0_changed(s_at)
    elif reg == REFP1:
        s[S_REFP1] = value & MIRRORED
        player1_changed(s_at)
    # ---- strobes: the object goes where the beam is; a player's first copy may wait for the next line
    elif reg == RESP0:
        new = reset_position(3 * (cycle % LINE_CYCLES), 3)
        s[S_SUPPRESS0] = 0 if reset_class(new, s[S_POS_P0], s[S_NUSIZ0] & COPIES) < 0 else 1
        s[S_POS_P0] = new
        s[S_DIRTY] |= P0
    elif reg == RESP1:
        new = reset_position(3 * (cycle % LINE_CYCLES), 3)
        s[S_SUPPRESS1] = 0 if reset_class(new, s[S_POS_P1], s[S_NUSIZ1] & COPIES) < 0 else 1
        s[S_POS_P1] = new
        s[S_DIRTY] |= P1
    elif reg == RESM0 or reg == RESM1 or reg == RESBL:
        reset_other(s_at, reg, cycle % LINE_CYCLES, 3 * cycle - s[S_HMOVE_CLOCK])
    # ---- the beam off: neither pixels nor collisions
    elif reg == VBLANK:
        s[S_VBLANK] = value & VBLANK_ON
    # ---- motion registers; HMM0 can start the cosmic-ark bug
    elif reg == HMM0:
        if 3 * cycle - s[S_HMOVE_CLOCK] == 63 and s[S_HM_M0] == 7 and value >> 4 == 6:
            s[S_ARK] = 1
            s[S_ARK_COUNT] = 0
        s[S_HM_M0] = value >> 4
    elif HMP0 <= reg <= HMBL:
        s[S_HM_P0 + reg - HMP0] = value >> 4
    # ---- delayed copies on or off
    elif reg == VDELP0:
        s[S_VDELP0] = value & DELAYED
        player0_changed(s_at)
    elif reg == VDELP1:
        s[S_VDELP1] = value & DELAYED
        player1_changed(s_at)
    elif reg == VDELBL:
        s[S_VDELBL] = value & DELAYED
        others_changed(s_at)
    # ---- missiles locked to their players: hidden, and released in the player's middle
    elif reg == RESMP0:
        if s[S_RESMP0] and not value & LOCKED:
            s[S_POS_M0] = wrap(s[S_POS_P0] + middle(s[S_NUSIZ0] & COPIES))
            s[S_ARK_LOOK] = 0
        s[S_RESMP0] = value & LOCKED
        others_changed(s_at)
    elif reg == RESMP1:
        if s[S_RESMP1] and not value & LOCKED:
            s[S_POS_M1] = wrap(s[S_POS_P1] + middle(s[S_NUSIZ1] & COPIES))
        s[S_RESMP1] = value & LOCKED
        others_changed(s_at)
    # ---- move all objects, and blank eight pixels if the strobe comes early in the line
    elif reg == HMOVE:
        x = cycle % LINE_CYCLES
        if prop[P_HMOVE_BLANKS] and (x <= 20 or x == 75):
            s[S_BLANK] = 1
        for k in range(5):
            s[S_POS_P0 + k] = wrap(s[S_POS_P0 + k] + motion(x, s[S_HM_P0 + k]))
        s[S_SUPPRESS0] = s[S_SUPPRESS1] = s[S_ARK_LOOK] = s[S_ARK] = 0
        s[S_HMOVE_CLOCK] = 3 * cycle
        s[S_DIRTY] |= P0 | P1 | M0 | M1 | BL
    # ---- clear motion registers, collision latches
    elif reg == HMCLR:
        for k in range(5):
            s[S_HM_P0 + k] = 0
    elif reg == CXCLR:
        s[S_COLLISION] = 0


@inlined
def middle(mode):
    """Where a released missile appears in its player."""
    return 8 if mode == DOUBLE_SIZE else 16 if mode == QUADRUPLE_SIZE else 4


@compiled
def reset_other(s_at, reg, x, since):
    """RESM0, RESM1, RESBL; `since`: clocks since HMOVE, which can still be moving the object."""
    s = as_state(s_at)
    position = reset_position(3 * x, 2)
    if reg == RESM0:
        if since == 60 and x == 23:
            position = 8
        s[S_POS_M0] = position
        s[S_ARK_LOOK] = 0
        s[S_DIRTY] |= M0
    elif reg == RESM1:
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
    """Would this store leave the picture as it is? Only the registers that are stored most are compared."""
    s = as_state(s_at)
    if reg == GRP0:
        return (value == s[S_GRP0] or s[S_VDELP0] != 0) and (s[S_VDELP1] == 0 or s[S_GRP1] == s[S_GRP1_OLD])
    if reg == GRP1:
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
    if PF0 <= reg <= PF2:
        t += PF_DELAY[cycle & 3]  # a line has a multiple of 4 cycles
    elif reg == RESP0:
        if reset_class(reset_position(3 * (cycle % LINE_CYCLES), 3), s[S_POS_P0], s[S_NUSIZ0] & COPIES) > 0:
            t += 11
    elif (
        reg == RESP1
        and reset_class(reset_position(3 * (cycle % LINE_CYCLES), 3), s[S_POS_P1], s[S_NUSIZ1] & COPIES) > 0
    ):
        t += 11
    return t
