# ruff: noqa: F403, F405
"""Evaluate a segment of one line: which collision latches the objects set, and which colours the pixels get."""

from __future__ import annotations

import numpy as np

from ..jit.target import as_screen, as_state, compiled, get_word, inlined, put_word
from .layout import *
from .tia_masks import ALL, EXPAND, U0, ball_mask, below, missile_mask, overlap, player_mask, playfield_mask
from .tia_registers import FIELD_FIRST, SCORE_COLOURS

# Object bits, in the order of the enable flags.
P0, M0, P1, M1, BL, PF = 1, 2, 4, 8, 16, 32

# Latch bit of each pair of objects; PAIRS[objects present] = latches that these objects could set.
_LATCHES = (
    (M0, P1), (M0, P0), (M1, P0), (M1, P1), (P0, PF), (P0, BL), (P1, PF), (P1, BL),
    (M0, PF), (M0, BL), (M1, PF), (M1, BL), (BL, PF), (P0, P1), (M0, M1),
)  # fmt: skip
(
    CX_M0P1, CX_M0P0, CX_M1P0, CX_M1P1, CX_P0PF, CX_P0BL, CX_P1PF, CX_P1BL,
    CX_M0PF, CX_M0BL, CX_M1PF, CX_M1BL, CX_BLPF, CX_P0P1, CX_M0M1,
) = (1 << bit for bit in range(15))  # fmt: skip
WITH_PF = CX_P0PF | CX_P1PF | CX_M0PF | CX_M1PF | CX_BLPF
WITH_BL = CX_P0BL | CX_P1BL | CX_M0BL | CX_M1BL
WITH_P0 = CX_M0P0 | CX_M1P0 | CX_P0P1
WITH_P1_OR_M0 = CX_M0P1 | CX_M1P1 | CX_M0M1
PAIRS = np.array(
    [sum(1 << bit for bit, (a, b) in enumerate(_LATCHES) if present & a and present & b) for present in range(64)],
    np.int64,
)

LEFT1 = np.uint64(0xFFFF)  # the pixels 64..79: in score mode the left half has player 0's colour
ONES = np.uint64(0x0101010101010101)
BYTE = np.uint64(0xFF)


@inlined
def put(s_at, at, words):
    put_word(s_at, at, words[0])
    put_word(s_at, at + 1, words[1])
    put_word(s_at, at + 2, words[2])


@inlined
def get(s_at, at):
    return get_word(s_at, at), get_word(s_at, at + 1), get_word(s_at, at + 2)


@inlined
def refresh(s_at):
    """Masks of the objects that changed since they were last needed."""
    s = as_state(s_at)
    dirty, present = s[S_DIRTY], s[S_PRESENT]
    none = (U0, U0, U0)
    if dirty & P0:
        put(s_at, S_MASK_P0, none)
        if present & P0:
            put(s_at, S_MASK_P0, player_mask(s[S_SHAPE0], s[S_NUSIZ0], s[S_SUPPRESS0], s[S_POS_P0]))
    if dirty & P1:
        put(s_at, S_MASK_P1, none)
        if present & P1:
            put(s_at, S_MASK_P1, player_mask(s[S_SHAPE1], s[S_NUSIZ1], s[S_SUPPRESS1], s[S_POS_P1]))
    if dirty & M0:
        put(s_at, S_MASK_M0, none)
        if present & M0 and s[S_ARK_LOOK] != 2:
            put(s_at, S_MASK_M0, missile_mask(s[S_NUSIZ0], s[S_ARK_LOOK], s[S_POS_M0]))
    if dirty & M1:
        put(s_at, S_MASK_M1, none)
        if present & M1:
            put(s_at, S_MASK_M1, missile_mask(s[S_NUSIZ1], np.int64(0), s[S_POS_M1]))
    if dirty & BL:
        put(s_at, S_MASK_BL, none)
        if present & BL:
            put(s_at, S_MASK_BL, ball_mask(s[S_CTRLPF], s[S_POS_BL]))
    if dirty & PF:
        put(s_at, S_MASK_PF, playfield_mask(s[S_PF], s[S_REFLECT]))
    s[S_DIRTY] = 0


@inlined
def forget(s_at):
    """Forget masks and rows at the end of a frame: a state shall not depend on when they were last needed."""
    s = as_state(s_at)
    for at in (S_MASK_P0, S_MASK_M0, S_MASK_P1, S_MASK_M1, S_MASK_BL, S_MASK_PF):
        put(s_at, at, (U0, U0, U0))
    s[S_DIRTY], s[S_SETTLED] = P0 | M0 | P1 | M1 | BL | PF, 0


@compiled
def collide(s_at, h0, h1, need):
    """Set the latches in `need` whose objects meet in the pixels h0..h1-1."""
    s = as_state(s_at)
    r0, r1, r2 = below(h1, 0), below(h1, 1), below(h1, 2)
    if h0 > 0:
        r0, r1, r2 = r0 & ~below(h0, 0), r1 & ~below(h0, 1), r2 & ~below(h0, 2)
    hit = 0
    if need & WITH_PF:
        f0, f1, f2 = get(s_at, S_MASK_PF)
        f0, f1, f2 = f0 & r0, f1 & r1, f2 & r2
        if need & CX_P0PF and overlap(*get(s_at, S_MASK_P0), f0, f1, f2):
            hit |= CX_P0PF
        if need & CX_P1PF and overlap(*get(s_at, S_MASK_P1), f0, f1, f2):
            hit |= CX_P1PF
        if need & CX_M0PF and overlap(*get(s_at, S_MASK_M0), f0, f1, f2):
            hit |= CX_M0PF
        if need & CX_M1PF and overlap(*get(s_at, S_MASK_M1), f0, f1, f2):
            hit |= CX_M1PF
        if need & CX_BLPF and overlap(*get(s_at, S_MASK_BL), f0, f1, f2):
            hit |= CX_BLPF
    if need & WITH_BL:
        f0, f1, f2 = get(s_at, S_MASK_BL)
        f0, f1, f2 = f0 & r0, f1 & r1, f2 & r2
        if need & CX_P0BL and overlap(*get(s_at, S_MASK_P0), f0, f1, f2):
            hit |= CX_P0BL
        if need & CX_P1BL and overlap(*get(s_at, S_MASK_P1), f0, f1, f2):
            hit |= CX_P1BL
        if need & CX_M0BL and overlap(*get(s_at, S_MASK_M0), f0, f1, f2):
            hit |= CX_M0BL
        if need & CX_M1BL and overlap(*get(s_at, S_MASK_M1), f0, f1, f2):
            hit |= CX_M1BL
    if need & WITH_P0:
        f0, f1, f2 = get(s_at, S_MASK_P0)
        f0, f1, f2 = f0 & r0, f1 & r1, f2 & r2
        if need & CX_M0P0 and overlap(*get(s_at, S_MASK_M0), f0, f1, f2):
            hit |= CX_M0P0
        if need & CX_M1P0 and overlap(*get(s_at, S_MASK_M1), f0, f1, f2):
            hit |= CX_M1P0
        if need & CX_P0P1 and overlap(*get(s_at, S_MASK_P1), f0, f1, f2):
            hit |= CX_P0P1
    if need & WITH_P1_OR_M0:
        f0, f1, f2 = get(s_at, S_MASK_P1)
        f0, f1, f2 = f0 & r0, f1 & r1, f2 & r2
        if need & CX_M0P1 and overlap(*get(s_at, S_MASK_M0), f0, f1, f2):
            hit |= CX_M0P1
        if need & CX_M1P1 and overlap(*get(s_at, S_MASK_M1), f0, f1, f2):
            hit |= CX_M1P1
        f0, f1, f2 = get(s_at, S_MASK_M0)
        if need & CX_M0M1 and overlap(*get(s_at, S_MASK_M1), f0 & r0, f1 & r1, f2 & r2):
            hit |= CX_M0M1
    s[S_COLLISION] |= hit


@inlined
def expand(mask, shift):
    """Eight pixels of a mask as eight bytes of 00 or FF."""
    return EXPAND[np.int64((mask >> shift) & BYTE)]


@inlined
def draw_pixels(screen_at, buffer, y, h0, h1, bk, pf, p0, p1, f, a, b):
    """Pixels h0..h1-1 of a row from the masks f (playfield colour), a (player 0), b (player 1), all disjoint."""
    screen = as_screen(screen_at)
    first, stop = h0 >> 3, (h1 + 7) >> 3
    left, right = screen[buffer, y, first], screen[buffer, y, stop - 1]
    pf, p0, p1 = pf ^ bk, p0 ^ bk, p1 ^ bk
    fw, aw, bw = f[0], a[0], b[0]
    if first >= 16:
        fw, aw, bw = f[2], a[2], b[2]
    elif first >= 8:
        fw, aw, bw = f[1], a[1], b[1]
    used = fw | aw | bw
    for k in range(first, stop):
        if k == 8:
            fw, aw, bw = f[1], a[1], b[1]
            used = fw | aw | bw
        elif k == 16:
            fw, aw, bw = f[2], a[2], b[2]
            used = fw | aw | bw
        shift = np.uint64(8 * (k & 7))
        word = bk
        if (used >> shift) & BYTE:
            word ^= (expand(fw, shift) & pf) ^ (expand(aw, shift) & p0) ^ (expand(bw, shift) & p1)
        screen[buffer, y, k] = word
    if h0 & 7:
        keep = ~(ALL << np.uint64(8 * (h0 & 7)))
        screen[buffer, y, first] = (left & keep) | (screen[buffer, y, first] & ~keep)
        if first == stop - 1:
            right = screen[buffer, y, first] if not h1 & 7 else (left & keep) | (right & ~keep)
    if h1 & 7:
        keep = ALL << np.uint64(8 * (h1 & 7))
        screen[buffer, y, stop - 1] = (right & keep) | (screen[buffer, y, stop - 1] & ~keep)


@compiled
def clear_pixels(screen_at, buffer, y, h0, h1):
    screen = as_screen(screen_at)
    for k in range(h0 >> 3, (h1 + 7) >> 3):
        keep = U0
        if 8 * k < h0:
            keep = ~(ALL << np.uint64(8 * (h0 - 8 * k)))
        if 8 * k + 8 > h1:
            keep |= ALL << np.uint64(8 * (h1 - 8 * k))
        screen[buffer, y, k] &= keep


@inlined
def layer_words(s_at):
    """The pixels that get the playfield's colour, player 0's and player 1's, three words each, all disjoint.

    Players before playfield, or the other way round, or score mode.
    """
    s = as_state(s_at)
    p00, p01, p02 = get(s_at, S_MASK_P0)
    m00, m01, m02 = get(s_at, S_MASK_M0)
    a0, a1, a2 = p00 | m00, p01 | m01, p02 | m02
    p10, p11, p12 = get(s_at, S_MASK_P1)
    m10, m11, m12 = get(s_at, S_MASK_M1)
    b0, b1, b2 = p10 | m10, p11 | m11, p12 | m12
    pf0, pf1, pf2 = get(s_at, S_MASK_PF)
    bl0, bl1, bl2 = get(s_at, S_MASK_BL)
    f0, f1, f2 = pf0 | bl0, pf1 | bl1, pf2 | bl2
    ctrlpf = s[S_CTRLPF]
    # A quirk: the playfield alone takes score colours even when it has priority.
    if ctrlpf & FIELD_FIRST and not (ctrlpf & SCORE_COLOURS and s[S_PRESENT] == PF):
        a0, a1, a2 = a0 & ~f0, a1 & ~f1, a2 & ~f2
        b0, b1, b2 = b0 & ~f0, b1 & ~f1, b2 & ~f2
    else:
        if ctrlpf & SCORE_COLOURS:
            a0 |= pf0
            a1 |= pf1 & LEFT1
            b1 |= pf1 & ~LEFT1
            b2 |= pf2
            f0, f1, f2 = bl0, bl1, bl2
        f0, f1, f2 = f0 & ~(a0 | b0), f1 & ~(a1 | b1), f2 & ~(a2 | b2)
    return f0, f1, f2, a0, a1, a2, b0 & ~a0, b1 & ~a1, b2 & ~a2


@inlined
def paint_layers(s_at, screen_at, buffer, y, h0, h1, f0, f1, f2, a0, a1, a2, b0, b1, b2):
    s = as_state(s_at)
    draw_pixels(
        screen_at, buffer, y, h0, h1,
        np.uint64(s[S_COLUBK]) * ONES, np.uint64(s[S_COLUPF]) * ONES,
        np.uint64(s[S_COLUP0]) * ONES, np.uint64(s[S_COLUP1]) * ONES,
        (f0, f1, f2), (a0, a1, a2), (b0, b1, b2),
    )  # fmt: skip


@inlined
def repeat_row(screen_at, buffer, y):
    """The row above once more: ten words are read before one is written, because on a GPU no load passes a store."""
    screen = as_screen(screen_at)
    for k in range(0, WORDS, 10):
        a, b, c = screen[buffer, y - 1, k], screen[buffer, y - 1, k + 1], screen[buffer, y - 1, k + 2]
        d, e, f = screen[buffer, y - 1, k + 3], screen[buffer, y - 1, k + 4], screen[buffer, y - 1, k + 5]
        g, h, i = screen[buffer, y - 1, k + 6], screen[buffer, y - 1, k + 7], screen[buffer, y - 1, k + 8]
        j = screen[buffer, y - 1, k + 9]
        screen[buffer, y, k], screen[buffer, y, k + 1], screen[buffer, y, k + 2] = a, b, c
        screen[buffer, y, k + 3], screen[buffer, y, k + 4], screen[buffer, y, k + 5] = d, e, f
        screen[buffer, y, k + 6], screen[buffer, y, k + 7], screen[buffer, y, k + 8] = g, h, i
        screen[buffer, y, k + 9] = j


@compiled
def evaluate(s_at, screen_at, h0, h1, need, paint):
    """Latches in `need`, and pixels if `paint`, of the pixels h0..h1-1 of the current row."""
    s = as_state(s_at)
    blank = s[S_BLANK] and h0 < 8
    if not s[S_VBLANK]:
        if s[S_DIRTY]:
            refresh(s_at)
        if need:
            collide(s_at, h0, h1, need)
    if paint:
        buffer, y = s[S_BUFFER], s[S_ROW]
        if s[S_SETTLED] and h0 == 0 and h1 == PIXELS and not blank:
            repeat_row(screen_at, buffer, y)
            return
        if s[S_VBLANK]:
            clear_pixels(screen_at, buffer, y, h0, h1)
        else:
            paint_layers(s_at, screen_at, buffer, y, h0, h1, *layer_words(s_at))
        if blank:
            clear_pixels(screen_at, buffer, y, h0, min(8, h1))
