"""OpenCV's area resize, exact to the bit, for the screens of a console.

OpenCV weights pixels in float32, first along a row, then down the columns. Where the scale is a simple fraction
(210x160 to 84x84 is 5/2 and 40/21) the weights are integers over a common total, so an integer sum gives the same
result, except at exact ties, where float32's rounding errors decide. So integers are used everywhere, and OpenCV's
order of operations only for the few pixels (0.2 %) that fall on a tie.

Integers also allow sums to be *kept*, and screens repeat themselves. A row that equals the row above costs one
comparison; in other rows only the 8-pixel words that differ are computed; and the contribution of a word to the sums
of its row is remembered, because the same words come back in other rows, frames and consoles.

Other sizes take OpenCV's own order of operations (`observation/resize_opencv.py`); `plan` in
`observation/resize_plan.py` decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint8, uint64

from ..jit.target import compiled, inlined
from .resize_opencv import float_pixel, resize_gray
from .resize_plan import INTEGER, LANES, WIDTH, WORDS, Plan, plan

__all__ = ["Plan", "Scratch", "make_scratch", "plan", "resize_codes", "resize_gray"]

ENTRIES_BITS = 5
ENTRIES = 1 << ENTRIES_BITS
MIX, MIX_SHIFT = uint64(0x9E3779B97F4A7C15), uint64(64 - ENTRIES_BITS)


class Scratch(NamedTuple):
    """Scratch memory of one thread, and the words that it remembers: ENTRIES for each of the 20 places of a row."""

    columns: np.ndarray  # float32[out_width]: weighted sum of rows
    sums: np.ndarray  # float32[out_width + LANES]: sums along the current row
    shares: np.ndarray  # float32[20, LANES]: what each word of the current row adds to `sums`
    keys: np.ndarray  # uint64[channels, 20, ENTRIES]: remembered words
    grays: np.ndarray  # uint64[channels, 20, ENTRIES + 1]: their grey values; the last entry is scratch
    known: np.ndarray  # float32[channels, 20, ENTRIES + 1, LANES]: their shares


def make_scratch(p: Plan, luts: np.ndarray) -> Scratch:
    """`luts`: uint8[channels, 256], the grey value of each colour code."""
    channels = len(luts)
    s = Scratch(
        np.zeros(p.out_width, np.float32),
        np.zeros(p.out_width + LANES, np.float32),
        np.zeros((WORDS, LANES), np.float32),
        np.zeros((channels, WORDS, ENTRIES), np.uint64),
        np.zeros((channels, WORDS, ENTRIES + 1), np.uint64),
        np.zeros((channels, WORDS, ENTRIES + 1, LANES), np.float32),
    )
    black = np.zeros((1, WIDTH), np.uint8)
    if p.kind == INTEGER:  # keys start as the word 0, so every entry must describe that word
        for c in range(channels):
            for k in range(WORDS):
                for e in range(ENTRIES):
                    learn(p.touched, p.pixel_out, p.pixel_units, black, black, 0, k, luts[c], s.grays[c], s.known[c], e)
    return s


@inlined
def learn(touched, pixel_out, pixel_units, a, b, y, k, lut, grays, known, e):
    """Compute entry e for the brighter of two words at place k of row y: grey values, and share of the row's sums."""
    for j in range(LANES):
        known[k, e, j] = float32(0.0)
    g = uint64(0)
    for x in range(8 * k, 8 * k + 8):
        v = max(lut[a[y, x]], lut[b[y, x]])
        g |= uint64(v) << uint64(8 * (x - 8 * k))
        to = pixel_out[x] - touched[k, 0]
        known[k, e, to] += pixel_units[0, x] * float32(v)
        if pixel_units[1, x] > float32(0.0):
            known[k, e, to + 1] += pixel_units[1, x] * float32(v)
    grays[k, e] = g


@inlined
def row_differs(a64, b64, y):
    """Does row y differ from row y - 1?

    Without branches and without a constant length, so that LLVM makes vector code.
    """
    a, a_above, b, b_above = a64[y], a64[y - 1], b64[y], b64[y - 1]
    d = uint64(0)
    for k in range(a64.shape[1]):
        d |= (a[k] ^ a_above[k]) | (b[k] ^ b_above[k])
    return d != 0


@inlined
def update_sums(touched, pixel_out, pixel_units, y, a, a64, b, b64, lut, raw, sums, shares, keys, grays, known):
    """Bring `sums` (and the grey values in `raw`) from row y - 1 to y, word by word."""
    for k in range(WORDS):
        w = a64[y, k]
        if y > 0 and w == a64[y - 1, k] and b64[y, k] == b64[y - 1, k]:
            continue
        if w == b64[y, k]:
            e = int64((w * MIX) >> MIX_SHIFT)
            if keys[k, e] != w:
                keys[k, e] = w
                learn(touched, pixel_out, pixel_units, a, a, y, k, lut, grays, known, e)
        else:
            e = int64(ENTRIES)
            learn(touched, pixel_out, pixel_units, a, b, y, k, lut, grays, known, e)
        to = touched[k, 0]
        for j in range(LANES):
            sums[to + j] += known[k, e, j] - shares[k, j]
            shares[k, j] = known[k, e, j]
        raw[y, k] = grays[k, e]


@inlined
def weigh(fresh, u, sums, columns):
    """Add a row's sums, `u` times, to the columns."""
    if fresh:
        for x in range(len(columns)):
            columns[x] = u * sums[x]
    else:
        for x in range(len(columns)):
            columns[x] += u * sums[x]


@inlined
def finish_row(total, columns, out, at, step):
    """An output row from its columns; returns whether any pixel is a tie, which the caller resolves.

    Every number is an integer below 2**24, so float32 is exact and sixteen fit a vector register. Two loops,
    because a byte store and a reduction in one loop keep LLVM from using vectors (68 against 25 ns).
    """
    half, inverse = float32(0.5) * total, float32(1.0) / total
    if step == 1:
        here = out[at : at + len(columns)]
        for x in range(len(columns)):
            here[x] = uint8(int32((columns[x] + half) * inverse))
    else:
        for x in range(len(columns)):
            out[at + step * x] = uint8(int32((columns[x] + half) * inverse))
    tie = int32(0)
    for x in range(len(columns)):
        v = columns[x] + half
        rest = v - float32(int32(v * inverse)) * total
        tie |= int32(rest == float32(0.0)) | int32(rest == total)
    return tie != 0


@compiled
def settle_ties(p, dy, columns, raw, source, out, at, step):
    total = p.total
    for x in range(p.out_width):
        if (2 * int64(columns[x]) + total) % (2 * total) == 0:
            out[at + step * x] = uint8(float_pixel(p, dy, x, raw, source))


@inlined
def repeat_row(out, at, stride, step):
    """Copy the output row above."""
    if step == 1:
        above, here = out[at - stride : at], out[at : at + stride]
        for x in range(stride):
            here[x] = above[x]
    else:
        for x in range(0, stride, step):
            out[at + x] = out[at + x - stride]


@compiled
def resize_codes(p, a, a64, b, b64, lut, c, raw, source, scratch, out, at, step):
    """The brighter of two screens of colour codes (pass one twice for a single one), resized into `out`.

    `lut` is channel c's grey value of each code. `raw` and `source` keep the grey picture: row y of it is
    `raw[source[y]]`, only rows that differ from the one above are written. `out` is a flat array; pixel (y, x) goes
    to `at + step * (y * width + x)`.
    """
    if p.kind != INTEGER:
        for y in range(p.height):
            for x in range(WIDTH):
                raw[y, x] = max(lut[a[y, x]], lut[b[y, x]])
            source[y] = y
        resize_gray(p, raw, source, out, at, step)
        return
    # Unpacked once: handing the whole plan to a helper copies it and counts references to its arrays.
    y_first, y_taps, y_units = p.y_first, p.y_taps, p.y_units
    touched, pixel_out, pixel_units = p.touched, p.pixel_out, p.pixel_units
    columns, sums, shares = scratch.columns, scratch.sums, scratch.shares
    keys, grays, known = scratch.keys[c], scratch.grays[c], scratch.known[c]
    total, stride, raw64 = float32(p.total), p.out_width * step, raw.view(np.uint64)
    for x in range(len(sums)):
        sums[x] = float32(0.0)
    for k in range(WORDS):
        for j in range(LANES):
            shares[k, j] = float32(0.0)
    dy, last = int64(0), 0
    fresh, owed = True, float32(0.0)  # `columns` is empty; the weight of rows like this one that is not yet added
    same = -1  # if the output row above had no tie and all its screen rows were alike: the first of those
    for y in range(p.height):
        first = y_first[dy]
        if y == 0 or row_differs(a64, b64, y):
            if owed > float32(0.0):
                weigh(fresh, owed, sums, columns)
                fresh, owed = False, float32(0.0)
            here = raw[y]
            if y > 0:
                above = raw[last]
                for x in range(len(above)):
                    here[x] = above[x]
            update_sums(
                touched, pixel_out, pixel_units, y, a, a64, b, b64, lut, raw64, sums, shares, keys, grays, known
            )
            last = y
        source[y] = last
        owed += y_units[y - first, dy]
        if y < first + y_taps[dy] - 1:
            continue
        to = at + dy * stride
        if last <= same:
            repeat_row(out, to, stride, step)
        else:
            weigh(fresh, owed, sums, columns)
            tie = finish_row(total, columns, out, to, step)
            if tie:
                settle_ties(p, dy, columns, raw, source, out, to, step)
            same = first if last <= first and not tie else -1
        dy += 1
        fresh, owed = True, float32(0.0)
        if dy < p.out_height and y_first[dy] == y:
            owed = y_units[0, dy]
