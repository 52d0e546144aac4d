"""The TIA: picture and collisions, evaluated late.

The CPU does not drive the TIA: a store into a picture register only goes into a log (cycle, register, value).
`replay` reads the log when somebody needs the result: a collision register is read, the log is full, the
frame ends. Between two logged changes of a line nothing moves, so such a *segment* is evaluated as a whole:
the six objects are 160-bit masks (`masks.py`), collisions are ANDs and pixels are written eight at a time. A segment in
which no latch can change is not evaluated at all, and no pixel is drawn unless asked for.

Clocks are colour clocks (3 per CPU cycle, 228 per line, the first 68 blank) since the start of line 0.
"""

from __future__ import annotations

import numpy as np

from .layout import *
from .masks import (
    ALL,
    EXPAND,
    REVERSED,
    U0,
    U8,
    ball_mask,
    below,
    missile_mask,
    overlap,
    player_mask,
    playfield_mask,
)
from .motion import motion, reset_class, reset_position, wrap
from .target import as_screen, as_state, device, unit

# Object bits, in the order of the enable flags.
P0, M0, P1, M1, BL, PF = 1, 2, 4, 8, 16, 32

# Latch bit of each pair of objects; PAIRS[objects present] = latches that these objects could set.
_LATCHES = (
    (M0, P1), (M0, P0), (M1, P0), (M1, P1), (P0, PF), (P0, BL), (P1, PF), (P1, BL),
    (M0, PF), (M0, BL), (M1, PF), (M1, BL), (BL, PF), (P0, P1), (M0, M1),
)  # fmt: skip
PAIRS = np.array(
    [sum(1 << bit for bit, (a, b) in enumerate(_LATCHES) if present & a and present & b) for present in range(64)],
    np.int64,
)

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
LEFT0, LEFT1 = ALL, np.uint64(0xFFFF)  # the left 80 pixels, for score mode
ONES = np.uint64(0x0101010101010101)


@device
def fill(row, k, mask, colour, word):
    """The eight pixels of word k, with `colour` where the mask byte says so."""
    e = EXPAND[np.int64((mask >> np.uint64(8 * (k & 7))) & np.uint64(0xFF))]
    return (word & ~e) | (colour & e)


@device
def draw_segment(row, h0, h1, bk, pf, p0, p1, f0, f1, f2, a0, a1, a2, b0, b1, b2):
    """Pixels h0..h1-1 of a row from the masks f (playfield colour), a (player 0), b (player 1), disjoint."""
    for w in range(h0 >> 6, (h1 + 63) >> 6):
        f, a, b = f0, a0, b0
        if w == 1:
            f, a, b = f1, a1, b1
        elif w == 2:
            f, a, b = f2, a2, b2
        first, stop = 8 * w, min(8 * w + 8, 20)
        if 8 * first < h0:
            first = h0 >> 3
        if 8 * stop > h1:
            stop = (h1 + 7) >> 3
        used = f | a | b
        for k in range(first, stop):
            word = bk
            if (used >> np.uint64(8 * (k & 7))) & np.uint64(0xFF):
                word = fill(row, k, f, pf, word)
                word = fill(row, k, a, p0, word)
                word = fill(row, k, b, p1, word)
            left, right = h0 - 8 * k, h1 - 8 * k
            if left > 0 or right < 8:
                e = ALL
                if left > 0:
                    e <<= np.uint64(8 * left)
                if right < 8:
                    e &= ~(ALL << np.uint64(8 * right))
                word = (row[k] & ~e) | (word & e)
            row[k] = word


@device
def blank_segment(row, h0, h1):
    draw_segment(row, h0, h1, U0, U0, U0, U0, U0, U0, U0, U0, U0, U0, U0, U0, U0)


@unit
def replay_unit(s_at, prop_at, log_at, until, screen_at):
    """Apply the logged stores, then bring picture and collisions up to clock `until`."""
    s, prop, log, screen = as_state(s_at), as_state(prop_at), as_state(log_at), as_screen(screen_at)
    logged = s[S_LOGGED]
    draw = s[S_DRAW] != 0
    buffer = s[S_BUFFER]
    height = prop[P_HEIGHT]
    drawn, line, row_number = s[S_DRAWN], s[S_LINE_START], s[S_ROW]
    start, end = s[S_START], s[S_END]
    vblank, nusiz0, nusiz1 = s[S_VBLANK], s[S_NUSIZ0], s[S_NUSIZ1]
    colup0, colup1, colupf, colubk = s[S_COLUP0], s[S_COLUP1], s[S_COLUPF], s[S_COLUBK]
    ctrlpf, reflect, pf = s[S_CTRLPF], s[S_REFLECT], s[S_PF]
    refp0, refp1 = s[S_REFP0], s[S_REFP1]
    grp0, grp1, grp0_old, grp1_old = s[S_GRP0], s[S_GRP1], s[S_GRP0_OLD], s[S_GRP1_OLD]
    enam0, enam1, enabl, enabl_old = s[S_ENAM0], s[S_ENAM1], s[S_ENABL], s[S_ENABL_OLD]
    vdelp0, vdelp1, vdelbl = s[S_VDELP0], s[S_VDELP1], s[S_VDELBL]
    resmp0, resmp1 = s[S_RESMP0], s[S_RESMP1]
    pos_p0, pos_p1, pos_m0, pos_m1, pos_bl = s[S_POS_P0], s[S_POS_P1], s[S_POS_M0], s[S_POS_M1], s[S_POS_BL]
    suppress0, suppress1 = s[S_SUPPRESS0], s[S_SUPPRESS1]
    blank, ark, look, hmove_clock = s[S_BLANK], s[S_ARK], s[S_ARK_LOOK], s[S_HMOVE_CLOCK]
    collision, loss = s[S_COLLISION], s[S_LOSS]

    shape0, shape1, ball, present = 0, 0, 0, 0
    fresh = False  # shape0 .. present are those of the registers
    dirty = 63  # objects whose masks are not those of the registers
    settled = False  # the last whole line was evaluated and nothing has changed since
    h_from = min(max(drawn - line - 68, 0), 160)
    p00 = p01 = p02 = p10 = p11 = p12 = m00 = m01 = m02 = m10 = m11 = m12 = U0
    bl0 = bl1 = bl2 = pf0 = pf1 = pf2 = U0

    i = 0
    while True:
        reg, value, cycle, clock, x, shows = 0, 0, 0, until, 0, 1
        if i < logged:
            entry = log[i]
            reg, value, cycle = (entry >> 8) & 63, entry & 0xFF, entry >> 16
            clock = 3 * cycle
            x = cycle % 76
            shows = SHOWS[reg]
            t = clock + DELAY[reg]
            if 0x0D <= reg <= 0x0F:
                t += PF_DELAY[x & 3]
            elif reg == 0x10:
                if reset_class(reset_position(3 * x, 3), pos_p0, nusiz0 & 7) > 0:
                    t += 11
            elif reg == 0x11 and reset_class(reset_position(3 * x, 3), pos_p1, nusiz1 & 7) > 0:
                t += 11
        else:
            t = until
        # ---- bring the beam to t, line by line
        moves = t > drawn and t >= start and drawn < end
        if t > end:
            t = end
        while True:
            whole = moves and t > line + 228
            if whole:
                h = 160
                closing = True
            else:
                if moves:
                    drawn = t
                h = min(max(drawn - line - 68, 0), 160)
                closing = drawn == end or i >= logged
                if not closing and h > h_from:
                    closing = shows == 1 or (shows == 2 and draw)
                    if reg == 0x1B:
                        closing = (value != grp0 and vdelp0 == 0) or (vdelp1 != 0 and grp1 != grp1_old)
                    elif reg == 0x1C:
                        closing = (
                            (value != grp1 and vdelp1 == 0)
                            or (vdelp0 != 0 and grp0 != grp0_old)
                            or (vdelbl != 0 and enabl != enabl_old)
                        )
            if closing and h > h_from:
                # ---- evaluate the segment h_from .. h-1
                full = h_from == 0 and h == 160
                paint = draw and row_number < height
                if settled and full and blank == 0:
                    if paint:
                        for k in range(WORDS):
                            screen[buffer, row_number, k] = screen[buffer, row_number - 1, k]
                elif vblank:
                    if paint:
                        blank_segment(screen[buffer, row_number], h_from, h)
                else:
                    if not fresh:
                        shape0 = grp0_old if vdelp0 else grp0
                        shape1 = grp1_old if vdelp1 else grp1
                        if refp0 == 0:
                            shape0 = REVERSED[shape0]
                        if refp1 == 0:
                            shape1 = REVERSED[shape1]
                        ball = enabl_old if vdelbl else enabl
                        present = 0
                        if shape0:
                            present |= P0
                        if enam0 and not resmp0:
                            present |= M0
                        if shape1:
                            present |= P1
                        if enam1 and not resmp1:
                            present |= M1
                        if ball:
                            present |= BL
                        if pf:
                            present |= PF
                        fresh = True
                    need = PAIRS[present] & ~collision
                    if need != 0 or paint:
                        if dirty & P0:
                            p00 = p01 = p02 = U0
                            if present & P0:
                                p00, p01, p02 = player_mask(shape0, nusiz0, suppress0, pos_p0)
                        if dirty & P1:
                            p10 = p11 = p12 = U0
                            if present & P1:
                                p10, p11, p12 = player_mask(shape1, nusiz1, suppress1, pos_p1)
                        if dirty & M0:
                            m00 = m01 = m02 = U0
                            if present & M0 and look != 2:
                                m00, m01, m02 = missile_mask(nusiz0, look, pos_m0)
                        if dirty & M1:
                            m10 = m11 = m12 = U0
                            if present & M1:
                                m10, m11, m12 = missile_mask(nusiz1, 0, pos_m1)
                        if dirty & BL:
                            bl0 = bl1 = bl2 = U0
                            if present & BL:
                                bl0, bl1, bl2 = ball_mask(ctrlpf, pos_bl)
                        if dirty & PF:
                            pf0, pf1, pf2 = playfield_mask(pf, reflect)
                        dirty = 0
                    if need != 0:
                        # The range goes into one side of each pair: b = ball, f = playfield, ...
                        r0, r1, r2 = ALL, ALL, ALL
                        if not full:
                            r0, r1, r2 = below(h, 0), below(h, 1), below(h, 2)
                            r0 &= ~below(h_from, 0)
                            r1 &= ~below(h_from, 1)
                            r2 &= ~below(h_from, 2)
                        if need & 0x1550:
                            f0, f1, f2 = pf0 & r0, pf1 & r1, pf2 & r2
                            if need & 0x10 and overlap(p00, p01, p02, f0, f1, f2):
                                collision |= 0x10
                            if need & 0x40 and overlap(p10, p11, p12, f0, f1, f2):
                                collision |= 0x40
                            if need & 0x100 and overlap(m00, m01, m02, f0, f1, f2):
                                collision |= 0x100
                            if need & 0x400 and overlap(m10, m11, m12, f0, f1, f2):
                                collision |= 0x400
                            if need & 0x1000 and overlap(bl0, bl1, bl2, f0, f1, f2):
                                collision |= 0x1000
                        if need & 0x0AA0:
                            f0, f1, f2 = bl0 & r0, bl1 & r1, bl2 & r2
                            if need & 0x20 and overlap(p00, p01, p02, f0, f1, f2):
                                collision |= 0x20
                            if need & 0x80 and overlap(p10, p11, p12, f0, f1, f2):
                                collision |= 0x80
                            if need & 0x200 and overlap(m00, m01, m02, f0, f1, f2):
                                collision |= 0x200
                            if need & 0x800 and overlap(m10, m11, m12, f0, f1, f2):
                                collision |= 0x800
                        if need & 0x2006:
                            f0, f1, f2 = p00 & r0, p01 & r1, p02 & r2
                            if need & 0x2 and overlap(m00, m01, m02, f0, f1, f2):
                                collision |= 0x2
                            if need & 0x4 and overlap(m10, m11, m12, f0, f1, f2):
                                collision |= 0x4
                            if need & 0x2000 and overlap(p10, p11, p12, f0, f1, f2):
                                collision |= 0x2000
                        if need & 0x9:
                            f0, f1, f2 = p10 & r0, p11 & r1, p12 & r2
                            if need & 0x1 and overlap(m00, m01, m02, f0, f1, f2):
                                collision |= 0x1
                            if need & 0x8 and overlap(m10, m11, m12, f0, f1, f2):
                                collision |= 0x8
                        if need & 0x4000 and overlap(m00 & r0, m01 & r1, m02 & r2, m10, m11, m12):
                            collision |= 0x4000
                    if paint:
                        a0, a1, a2 = p00 | m00, p01 | m01, p02 | m02
                        b0, b1, b2 = p10 | m10, p11 | m11, p12 | m12
                        f0, f1, f2 = pf0 | bl0, pf1 | bl1, pf2 | bl2
                        # A quirk: the playfield alone takes score colours even when it has priority.
                        if ctrlpf & 4 and not (ctrlpf & 2 and present == PF):
                            a0, a1, a2 = a0 & ~f0, a1 & ~f1, a2 & ~f2
                            b0, b1, b2 = b0 & ~f0, b1 & ~f1, b2 & ~f2
                        elif ctrlpf & 2:
                            a0 |= pf0 & LEFT0
                            a1 |= pf1 & LEFT1
                            b1 |= pf1 & ~LEFT1
                            b2 |= pf2
                            f0, f1, f2 = bl0 & ~(a0 | b0), bl1 & ~(a1 | b1), bl2 & ~(a2 | b2)
                        else:
                            f0, f1, f2 = f0 & ~(a0 | b0), f1 & ~(a1 | b1), f2 & ~(a2 | b2)
                        b0, b1, b2 = b0 & ~a0, b1 & ~a1, b2 & ~a2
                        draw_segment(
                            screen[buffer, row_number], h_from, h,
                            np.uint64(colubk) * ONES, np.uint64(colupf) * ONES,
                            np.uint64(colup0) * ONES, np.uint64(colup1) * ONES,
                            f0, f1, f2, a0, a1, a2, b0, b1, b2,
                        )  # fmt: skip
                settled = full and blank == 0
                if blank != 0 and h_from < 8:
                    if paint:
                        blank_segment(screen[buffer, row_number], h_from, min(8, h))
                    if h >= 8:
                        blank = 0
                h_from = h
            if not whole:
                break
            # ---- end of line
            line += 228
            row_number += 1
            h_from = 0
            if suppress0 | suppress1:
                suppress0 = suppress1 = 0
                dirty |= P0 | P1
                settled = False
            if reflect != (ctrlpf & 1):
                reflect = ctrlpf & 1
                dirty |= PF
                settled = False
            if ark:
                count = (s[S_ARK_COUNT] + 1) & 3
                s[S_ARK_COUNT] = count
                pos_m0 = wrap(pos_m0 - ARK_STEPS[count])
                look = count if count < 3 else 0
                dirty |= M0
                settled = False
        if i >= logged:
            break
        i += 1

        # ---- the register changes
        if shows:
            settled = False
            fresh = False
        if reg == 0x1B:
            dirty |= P0
            grp0 = value
            if grp1_old != grp1:
                grp1_old = grp1
                dirty |= P1
        elif reg == 0x1C:
            dirty |= P1
            grp1 = value
            if grp0_old != grp0:
                grp0_old = grp0
                dirty |= P0
            if enabl_old != enabl:
                enabl_old = enabl
                dirty |= BL
        elif reg == 0x0D:
            pf = (pf & ~0xF) | (value >> 4)
            dirty |= PF
        elif reg == 0x0E:
            pf = (pf & ~0xFF0) | (REVERSED[value] << 4)
            dirty |= PF
        elif reg == 0x0F:
            pf = (pf & 0xFFF) | (value << 12)
            dirty |= PF
        elif reg == 0x06:
            colup0 = (value & 0xFE) | loss
        elif reg == 0x07:
            colup1 = (value & 0xFE) | loss
        elif reg == 0x08:
            colupf = (value & 0xFE) | loss
        elif reg == 0x09:
            colubk = (value & 0xFE) | loss
        elif reg == 0x0A:
            ctrlpf = value
            dirty |= BL
            if 3 * x < 147 and reflect != (value & 1):
                reflect = value & 1
                dirty |= PF
        elif reg == 0x1D:
            enam0 = value & 2
            dirty |= M0
        elif reg == 0x1E:
            enam1 = value & 2
            dirty |= M1
        elif reg == 0x1F:
            enabl = value & 2
            dirty |= BL
        elif reg == 0x04:
            nusiz0 = value
            suppress0 = look = 0
            dirty |= P0 | M0
        elif reg == 0x05:
            nusiz1 = value
            suppress1 = 0
            dirty |= P1 | M1
        elif reg == 0x0B:
            refp0 = value & 8
            dirty |= P0
        elif reg == 0x0C:
            refp1 = value & 8
            dirty |= P1
        elif reg == 0x10:
            new = reset_position(3 * x, 3)
            suppress0 = 0 if reset_class(new, pos_p0, nusiz0 & 7) < 0 else 1
            pos_p0 = new
            dirty |= P0
        elif reg == 0x11:
            new = reset_position(3 * x, 3)
            suppress1 = 0 if reset_class(new, pos_p1, nusiz1 & 7) < 0 else 1
            pos_p1 = new
            dirty |= P1
        elif reg == 0x12:
            pos_m0 = reset_position(3 * x, 2)
            if clock - hmove_clock == 60 and x == 23:
                pos_m0 = 8
            look = 0
            dirty |= M0
        elif reg == 0x13:
            pos_m1 = reset_position(3 * x, 2)
            if clock - hmove_clock == 9 and x == 6:
                pos_m1 = 3
            dirty |= M1
        elif reg == 0x14:
            pos_bl = reset_position(3 * x, 2)
            since = clock - hmove_clock
            if since == 54 and (x == 20 or x == 23):
                pos_bl = 10
            elif since == 9 and x == 6:
                pos_bl = 3
            elif since == 21 and x == 10:
                pos_bl = 6
            elif since == 18 and x == 9:
                pos_bl = 5
            dirty |= BL
        elif reg == 0x01:
            vblank = value & 2
        elif reg == 0x20:
            s[S_HM_P0] = value >> 4
        elif reg == 0x21:
            s[S_HM_P1] = value >> 4
        elif reg == 0x22:
            if clock - hmove_clock == 63 and s[S_HM_M0] == 7 and value >> 4 == 6:
                ark = 1
                s[S_ARK_COUNT] = 0
            s[S_HM_M0] = value >> 4
        elif reg == 0x23:
            s[S_HM_M1] = value >> 4
        elif reg == 0x24:
            s[S_HM_BL] = value >> 4
        elif reg == 0x25:
            vdelp0 = value & 1
            dirty |= P0
        elif reg == 0x26:
            vdelp1 = value & 1
            dirty |= P1
        elif reg == 0x27:
            vdelbl = value & 1
            dirty |= BL
        elif reg == 0x28:
            if resmp0 and not value & 2:
                pos_m0 = wrap(pos_p0 + (8 if nusiz0 & 7 == 5 else 16 if nusiz0 & 7 == 7 else 4))
                look = 0
            resmp0 = value & 2
            dirty |= M0
        elif reg == 0x29:
            if resmp1 and not value & 2:
                pos_m1 = wrap(pos_p1 + (8 if nusiz1 & 7 == 5 else 16 if nusiz1 & 7 == 7 else 4))
            resmp1 = value & 2
            dirty |= M1
        elif reg == 0x2A:
            if prop[P_HMOVE_BLANKS] and (x <= 20 or x == 75):
                blank = 1
            pos_p0 = wrap(pos_p0 + motion(x, s[S_HM_P0]))
            pos_p1 = wrap(pos_p1 + motion(x, s[S_HM_P1]))
            pos_m0 = wrap(pos_m0 + motion(x, s[S_HM_M0]))
            pos_m1 = wrap(pos_m1 + motion(x, s[S_HM_M1]))
            pos_bl = wrap(pos_bl + motion(x, s[S_HM_BL]))
            suppress0 = suppress1 = look = ark = 0
            hmove_clock = clock
            dirty |= P0 | P1 | M0 | M1 | BL
        elif reg == 0x2B:
            s[S_HM_P0] = s[S_HM_P1] = s[S_HM_M0] = s[S_HM_M1] = s[S_HM_BL] = 0
        elif reg == 0x2C:
            collision = 0

    s[S_LOGGED] = 0
    s[S_DRAWN], s[S_LINE_START], s[S_ROW] = drawn, line, row_number
    s[S_VBLANK], s[S_NUSIZ0], s[S_NUSIZ1] = vblank, nusiz0, nusiz1
    s[S_COLUP0], s[S_COLUP1], s[S_COLUPF], s[S_COLUBK] = colup0, colup1, colupf, colubk
    s[S_CTRLPF], s[S_REFLECT], s[S_PF] = ctrlpf, reflect, pf
    s[S_REFP0], s[S_REFP1] = refp0, refp1
    s[S_GRP0], s[S_GRP1], s[S_GRP0_OLD], s[S_GRP1_OLD] = grp0, grp1, grp0_old, grp1_old
    s[S_ENAM0], s[S_ENAM1], s[S_ENABL], s[S_ENABL_OLD] = enam0, enam1, enabl, enabl_old
    s[S_VDELP0], s[S_VDELP1], s[S_VDELBL] = vdelp0, vdelp1, vdelbl
    s[S_RESMP0], s[S_RESMP1] = resmp0, resmp1
    s[S_POS_P0], s[S_POS_P1], s[S_POS_M0], s[S_POS_M1], s[S_POS_BL] = pos_p0, pos_p1, pos_m0, pos_m1, pos_bl
    s[S_SUPPRESS0], s[S_SUPPRESS1] = suppress0, suppress1
    s[S_BLANK], s[S_ARK], s[S_ARK_LOOK], s[S_HMOVE_CLOCK] = blank, ark, look, hmove_clock
    s[S_COLLISION] = collision
    return 0
