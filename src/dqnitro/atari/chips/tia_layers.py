# ruff: noqa: F403, F405
"""A row composed of layers: the pixels of the playfield's colour, player 0's and player 1's, three words each.

The segments of a row become layers that are painted once, unless a colour changes.
"""

from __future__ import annotations

import numpy as np

from ..jit.target import as_screen, as_state, compiled, inlined
from .layout import *
from .tia_masks import U0, below
from .tia_scanline import BYTE, ONES, clear_pixels, expand, paint_layers


@inlined
def eight_words(screen_at, buffer, row, at, count, bk, pf, p0, p1, f, a, b):
    """64 pixels, or the last 32, in words of eight."""
    screen = as_screen(screen_at)
    if f | a | b == U0:
        for k in range(count):
            screen[buffer, row, at + k] = bk
        return
    for k in range(count):
        screen[buffer, row, at + k] = bk ^ (expand(f, np.uint64(8 * k)) & pf)
    if a | b:
        for k in range(count):
            shift = np.uint64(8 * k)
            if ((a | b) >> shift) & BYTE:
                screen[buffer, row, at + k] ^= (expand(a, shift) & p0) ^ (expand(b, shift) & p1)


@compiled
def paint_row(s_at, screen_at, row, f0, f1, f2, a0, a1, a2, b0, b1, b2):
    """A whole row from its layers."""
    s = as_state(s_at)
    buffer = s[S_BUFFER]
    bk = np.uint64(s[S_COLUBK]) * ONES
    pf = (np.uint64(s[S_COLUPF]) * ONES) ^ bk
    p0 = (np.uint64(s[S_COLUP0]) * ONES) ^ bk
    p1 = (np.uint64(s[S_COLUP1]) * ONES) ^ bk
    eight_words(screen_at, buffer, row, 0, 8, bk, pf, p0, p1, f0, a0, b0)
    eight_words(screen_at, buffer, row, 8, 8, bk, pf, p0, p1, f1, a1, b1)
    eight_words(screen_at, buffer, row, 16, 4, bk, pf, p0, p1, f2, a2, b2)


@compiled
def paint_part(s_at, screen_at, row, h0, h1, f0, f1, f2, a0, a1, a2, b0, b1, b2):
    buffer = as_state(s_at)[S_BUFFER]
    paint_layers(s_at, screen_at, buffer, row, h0, h1, f0, f1, f2, a0, a1, a2, b0, b1, b2)


@inlined
def paint_apart(s_at, screen_at, row, h0, h1, composed):
    """The pixels h0..h1-1 of a row from the layers composed for it."""
    s = as_state(s_at)
    if s[S_VBLANK]:
        clear_pixels(screen_at, s[S_BUFFER], row, h0, h1)
    elif h0 == 0 and h1 == PIXELS:
        paint_row(s_at, screen_at, row, *composed)
    else:
        paint_part(s_at, screen_at, row, h0, h1, *composed)
    if s[S_BLANK] and h0 < 8:
        clear_pixels(screen_at, s[S_BUFFER], row, h0, min(8, h1))
        if h1 >= 8:
            s[S_BLANK] = 0


@inlined
def within(h0, h1, words):
    """Layers or masks without the pixels left of h0 and from h1 on."""
    r0, r1, r2 = below(h1, 0) & ~below(h0, 0), below(h1, 1) & ~below(h0, 1), below(h1, 2) & ~below(h0, 2)
    f0, f1, f2, a0, a1, a2, b0, b1, b2 = words
    return f0 & r0, f1 & r1, f2 & r2, a0 & r0, a1 & r1, a2 & r2, b0 & r0, b1 & r1, b2 & r2


@inlined
def join_words(x, y):
    x0, x1, x2, x3, x4, x5, x6, x7, x8 = x
    y0, y1, y2, y3, y4, y5, y6, y7, y8 = y
    return x0 | y0, x1 | y1, x2 | y2, x3 | y3, x4 | y4, x5 | y5, x6 | y6, x7 | y7, x8 | y8
