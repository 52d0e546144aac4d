# ruff: noqa: F403, F405
"""Which entries of the TIA's log change something.

Most stores repeat what their register holds already. Tables say what a register holds and what shows it; the registers
that are not so simple at the moment (`irregular`) are kept as bits.
"""

from __future__ import annotations

import numpy as np

from ..jit.target import as_log, as_state, inlined
from .layout import *
from .tia_masks import REVERSED
from .tia_motion import MOTION, wrap
from .tia_registers import *
from .tia_scanline import BL, M0, M1, P0, P1, PF
from .tia_store import DELAY, PF_DELAY, same

# Registers that hold what was stored: the number of the state that has it, and its bits there.
HOLDS = np.full(64, S_DEAD, np.int64)
HELD = np.zeros(64, np.int64)
# Strobes act whatever was there before: each is said to store a bit that its number, 0 or 1, never has.
STROBES = (RESP0, RESP1, RESM0, RESM1, RESBL, HMOVE, HMCLR, CXCLR)
STROBE = 2
HELD[list(STROBES)] = STROBE
for _reg, _at, _held in (
    (VBLANK, S_VBLANK, VBLANK_ON), (NUSIZ0, S_NUSIZ0, 0xFF), (NUSIZ1, S_NUSIZ1, 0xFF), (COLUP0, S_COLUP0, COLOUR),
    (COLUP1, S_COLUP1, COLOUR), (COLUPF, S_COLUPF, COLOUR), (COLUBK, S_COLUBK, COLOUR), (CTRLPF, S_CTRLPF, 0xFF),
    (REFP0, S_REFP0, MIRRORED), (REFP1, S_REFP1, MIRRORED), (PF0, S_PF, 0x0000F), (PF1, S_PF, 0x00FF0),
    (PF2, S_PF, 0xFF000), (GRP0, S_GRP0, 0xFF), (GRP1, S_GRP1, 0xFF), (ENAM0, S_ENAM0, ENABLED),
    (ENAM1, S_ENAM1, ENABLED), (ENABL, S_ENABL, ENABLED), (HMP0, S_HM_P0, 0xF), (HMP1, S_HM_P1, 0xF),
    (HMM0, S_HM_M0, 0xF), (HMM1, S_HM_M1, 0xF), (HMBL, S_HM_BL, 0xF), (VDELP0, S_VDELP0, DELAYED),
    (VDELP1, S_VDELP1, DELAYED), (VDELBL, S_VDELBL, DELAYED), (RESMP0, S_RESMP0, LOCKED), (RESMP1, S_RESMP1, LOCKED),
):  # fmt: skip
    HOLDS[_reg], HELD[_reg] = _at, _held


def _stored() -> np.ndarray:
    """By register and value, as in an entry of the log: the bits that the state holds after this store."""
    stored = np.zeros((64, 256), np.int32)
    values = np.arange(256)
    for reg in range(64):
        stored[reg] = values & HELD[reg]
    stored[PF0], stored[PF1], stored[PF2] = values >> 4, REVERSED << 4, values << 12
    stored[HMP0 : HMBL + 1] = values >> 4
    stored[list(STROBES)] = STROBE
    return stored.reshape(-1)


STORED = _stored()
# Objects that show what a register holds; a store is invisible while none of them is there. ALWAYS: not so simple.
ALWAYS = 64
SHOWN_BY = np.full(64, ALWAYS, np.int64)
SHOWN_BY[[NUSIZ0, NUSIZ1]] = P0 | M0, P1 | M1
SHOWN_BY[[COLUP0, COLUP1, COLUPF]] = P0 | M0 | PF, P1 | M1 | PF, PF | BL  # score colours: players' for the playfield
SHOWN_BY[[CTRLPF, REFP0, REFP1]] = BL | PF, P0, P1
SHOWN_BY[[RESP0, RESP1, RESM0, RESM1, RESBL]] = P0, P1, M0, M1, BL
SHOWN_BY[[HMP0, HMP1, HMM0, HMM1, HMBL, HMCLR]] = 0
# The same for frames that are not drawn, which have no colours.
HIT_BY = SHOWN_BY.copy()
HIT_BY[[COLUP0, COLUP1, COLUPF, COLUBK]] = 0
# Stores that only leave a number behind, of frames that are drawn and of others. HMM0 can start a bug.
QUIET = sum(1 << reg for reg in (HMP0, HMP1, HMM1, HMBL))
QUIET_UNSEEN = QUIET | sum(1 << reg for reg in (COLUP0, COLUP1, COLUPF, COLUBK))
# Stores that need the row painted up to the beam: colours are not kept with its layers.
FLUSHES = sum(1 << reg for reg in (VBLANK, COLUP0, COLUP1, COLUPF, COLUBK, HMOVE))
# Clocks until a store takes effect: 4 * register + cycle of the line modulo 4.
LATER = np.repeat(DELAY, 4)
LATER[4 * PF0 : 4 * PF2 + 4] += np.tile(PF_DELAY, 3)
# Registers whose stores may change what `irregular` says: of the players' graphics, of others. Stores that only end
# what WAITING stands for are not among them.
GRAPHICS = (1 << GRP0) | (1 << GRP1)
PASSED_ON = GRAPHICS | (1 << ENABL)
UNSETTLING = sum(1 << reg for reg in (CTRLPF, RESP0, RESP1, HMM0))
# Irregular because something happens at the end of the line: a hidden copy, mirroring, the cosmic-ark bug.
WAITING = (1 << NUSIZ0) | (1 << NUSIZ1) | (1 << CTRLPF)
FAR = 3  # cycles: no store takes effect later than one that comes so much later


@inlined
def odd_graphics(s_at):
    """Of the registers below, those of the players' graphics: a store also passes on what the others hold."""
    s = as_state(s_at)
    odd = 0
    if s[S_GRP1_OLD] != s[S_GRP1]:
        odd |= 1 << GRP0
    if s[S_GRP0_OLD] != s[S_GRP0] or s[S_ENABL_OLD] != s[S_ENABL]:
        odd |= 1 << GRP1
    return odd


@inlined
def irregular(s_at):
    """Registers, a bit each, of which a store acts even if it repeats what they hold."""
    s = as_state(s_at)
    odd = odd_graphics(s_at)
    if s[S_SUPPRESS0] | s[S_ARK_LOOK] | s[S_ARK]:
        odd |= 1 << NUSIZ0
    if s[S_SUPPRESS1]:
        odd |= 1 << NUSIZ1
    if s[S_REFLECT] != s[S_CTRLPF] & MIRRORED_FIELD:
        odd |= 1 << CTRLPF
    return odd


@inlined
def irregular_after(s_at, reg, odd):
    """`irregular` after a store into this register."""
    if (PASSED_ON >> reg) & 1:
        return (odd & ~GRAPHICS) | odd_graphics(s_at)
    if (UNSETTLING >> reg) & 1 or odd & WAITING:
        return irregular(s_at)
    return odd


@inlined
def next_change(s_at, log_at, i, logged, odd):
    """The next entry of the log that changes something, from i on; `logged` if there is none."""
    s, log = as_state(s_at), as_log(log_at)
    if i == logged:
        return i
    entry = log[np.uint64(i)]
    while i + 1 < logged:
        following = log[np.uint64(i + 1)]
        rest = entry & 0x3FFF
        reg = np.uint64(rest >> 8)
        if ((s[np.uint64(HOLDS[reg])] ^ STORED[np.uint64(rest)]) & HELD[reg]) | ((odd >> np.int64(reg)) & 1):
            break
        if (following | 0xFFFF) - entry < FAR << 16:
            break
        entry = following
        i += 1
    return i


@inlined
def moving(s_at, x):
    """The objects that HMOVE in this cycle of the line moves."""
    s = as_state(s_at)
    moved = 0
    if MOTION[16 * x + s[S_HM_P0]]:
        moved |= P0
    if MOTION[16 * x + s[S_HM_P1]]:
        moved |= P1
    if MOTION[16 * x + s[S_HM_M0]]:
        moved |= M0
    if MOTION[16 * x + s[S_HM_M1]]:
        moved |= M1
    if MOTION[16 * x + s[S_HM_BL]]:
        moved |= BL
    if s[S_SUPPRESS0] | s[S_SUPPRESS1] | s[S_ARK_LOOK] | s[S_ARK]:
        moved |= P0 | P1 | M0
    return moved


@inlined
def move(s_at, cycle, x, moved):
    """HMOVE, but for the pixels that it blanks."""
    s = as_state(s_at)
    if moved:
        for k in range(5):
            s[S_POS_P0 + k] = wrap(s[S_POS_P0 + k] + MOTION[16 * x + s[S_HM_P0 + k]])
        s[S_SUPPRESS0] = s[S_SUPPRESS1] = s[S_ARK_LOOK] = s[S_ARK] = 0
        s[S_DIRTY] |= moved & s[S_PRESENT]
    s[S_HMOVE_CLOCK] = 3 * cycle


@inlined
def shows_now(s_at, reg, value, x, moved, draw):
    """Whether the picture, or only the collisions where it is not drawn, is another from this store on.

    Of HMOVE: `x`, the cycle of the line, and `moved`, the objects that it moves.
    """
    s = as_state(s_at)
    present = s[S_PRESENT] | ALWAYS
    if reg == HMOVE:
        return moved & present != 0 or x == LAST_CYCLE or x == 0  # then it blanks the line that follows
    if reg == GRP0 or reg == GRP1:
        return not same(s_at, reg, value)
    by = SHOWN_BY[reg] if draw else HIT_BY[reg]
    return by & present != 0
