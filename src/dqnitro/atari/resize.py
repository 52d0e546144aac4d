"""OpenCV's area resize, exact to the bit, for what a console shows.

OpenCV weighs pixels in float32, first along a row, then down the columns. Where the scale is a simple fraction
(210x160 to 84x84 is 5/2 and 40/21) the weights are whole numbers over a common total, so an integer sum gives
the same answer, except at exact ties, where float32's rounding errors decide. So: integers everywhere, and the
float32 sequence only for the few pixels (0.2 %) that fall on a tie. Integers also allow sums to be *kept*: a
screen row that equals the row above it, as most do, costs one comparison.

Sizes without such fractions take OpenCV's sequence as it is; sizes larger than the screen take its fixed-point
bilinear path. `plan` decides once, `resize_codes` and `resize_gray` do the work.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

import numpy as np
from numpy import float32, int32, int64, uint8, uint64

from .target import device

COPY, INTEGER, FLOAT, BLOCKS, HALVES, LINEAR = range(6)
WIDTH, WORDS = 160, 20  # a screen row: pixels, and 8-pixel words
MOST_UNITS = 8000  # finer totals come too close to float32's rounding errors
FIXED = 2048  # OpenCV's fixed-point one in the bilinear path


class Taps(NamedTuple):
    """Which source pixels feed each output pixel of one axis, and how much."""

    first: np.ndarray  # int32[n_out]
    taps: np.ndarray  # int32[n_out]
    weight: np.ndarray  # float32[most, n_out]
    units: np.ndarray  # float32[most, n_out], whole numbers summing to `total` for each output
    total: int


class Plan(NamedTuple):
    """How one screen size becomes one picture size; plain arrays, so that compiled code takes it whole."""

    kind: int
    height: int
    out_height: int
    out_width: int
    x_first: np.ndarray
    x_count: np.ndarray
    x_weight: np.ndarray
    x_units: np.ndarray
    y_first: np.ndarray
    y_count: np.ndarray
    y_weight: np.ndarray
    y_units: np.ndarray
    total: int
    touched: np.ndarray  # int32[20, 2]: the outputs that read word k of a row, from..to


def area_taps(n_in: int, n_out: int) -> Taps:
    scale = 1.0 / (n_out / n_in)  # twice rounded, as OpenCV does it
    exact = Fraction(n_in, n_out)
    rows: list[tuple[int, list[float]]] = []
    for d in range(n_out):
        start, end = d * scale, d * scale + scale
        cell = min(scale, n_in - start)
        last = min(floor(end), n_in - 1)
        first = min(ceil(start), last)
        weights = [1.0 / cell] * (last - first)
        begin = first
        if first - start > 1e-3:
            begin, weights = first - 1, [(first - start) / cell, *weights]
        if end - last > 1e-3:
            weights.append(min(min(end - last, 1.0), cell) / cell)
        rows.append((begin, weights))
    most = max(len(w) for _, w in rows)
    weight, units = np.zeros((most, n_out), np.float32), np.zeros((most, n_out), np.float32)
    for d, (_, w) in enumerate(rows):
        weight[: len(w), d] = w
        units[: len(w), d] = np.rint(np.array(w) * exact.numerator)
    first_, count = np.array([b for b, _ in rows], np.int32), np.array([len(w) for _, w in rows], np.int32)
    return Taps(first_, count, weight, units, exact.numerator)


def linear_taps(n_in: int, n_out: int) -> Taps:
    """Two taps an output, in 1/2048: what OpenCV's area mode does when it enlarges."""
    inverse = n_out / n_in
    scale = 1.0 / inverse
    first, units = np.zeros(n_out, np.int32), np.zeros((2, n_out), np.float32)
    for d in range(n_out):
        s = floor(d * scale)
        f = np.float32((d + 1) - (s + 1) * inverse)
        f = np.float32(0) if f <= 0 else np.float32(f - floor(f))
        if s >= n_in - 1:
            s, f = n_in - 1, np.float32(0)
        first[d] = s
        units[:, d] = np.rint([(np.float32(1) - f) * FIXED, f * FIXED])
    return Taps(first, np.full(n_out, 2, np.int32), np.zeros((2, n_out), np.float32), units, FIXED)


def plan(height: int, out_height: int, out_width: int) -> Plan:
    """The plan for `height` x 160 -> `out_height` x `out_width`."""
    if out_height < 1 or out_width < 1:
        raise ValueError(f"an image of {out_height}x{out_width} has no pixels. hint: both sides must be positive")
    shrinks = out_height <= height and out_width <= WIDTH
    if shrinks:
        x, y = area_taps(WIDTH, out_width), area_taps(height, out_height)
    else:
        x, y = linear_taps(WIDTH, out_width), linear_taps(height, out_height)
    if (out_height, out_width) == (height, WIDTH):
        kind = COPY
    elif not shrinks:
        kind = LINEAR
    elif height % out_height == 0 and WIDTH % out_width == 0:
        kind = HALVES if (height // out_height, WIDTH // out_width) == (2, 2) else BLOCKS
    elif x.total * y.total <= MOST_UNITS:
        kind = INTEGER
    else:
        kind = FLOAT
    touched = np.zeros((WORDS, 2), np.int32)
    for k in range(WORDS):
        hit = np.flatnonzero((x.first < 8 * k + 8) & (x.first + x.taps > 8 * k))
        touched[k] = (hit[0], hit[-1] + 1) if len(hit) else (0, 0)
    total = x.total * y.total
    return Plan(kind, height, out_height, out_width, *x[:4], *y[:4], total, touched)


@device
def round_half_even(v):
    """A non-negative float to the nearest integer, ties to even; at most 255."""
    n = int64(v)
    rest = v - n
    if rest > 0.5 or (rest == 0.5 and n & 1):
        n += 1
    return min(n, 255)


@device
def gray_row(y, a, b, lut, row):
    """One row of two screens as the brighter of both in each pixel."""
    for x in range(WIDTH):
        row[x] = max(lut[a[y, x]], lut[b[y, x]])


@device
def row_differs(a64, b64, y):
    """Is row y another one than row y - 1? No branch inside and no constant length, so it becomes vector code."""
    a, a_above, b, b_above = a64[y], a64[y - 1], b64[y], b64[y - 1]
    d = uint64(0)
    for k in range(a64.shape[1]):
        d |= (a[k] ^ a_above[k]) | (b[k] ^ b_above[k])
    return d != 0


@device
def update_row(a, a64, b, b64, y, lut, raw, row):
    """Bring the grey `row` from screen row y - 1 to y, and keep it in `raw`; returns first << 8 | last changed word."""
    low, high = WORDS, 0
    for k in range(WORDS):
        if y == 0 or a64[y, k] != a64[y - 1, k] or b64[y, k] != b64[y - 1, k]:
            low, high = min(low, k), k
            if a64[y, k] == b64[y, k]:
                for x in range(8 * k, 8 * k + 8):
                    v = lut[a[y, x]]
                    raw[x] = v
                    row[x] = float32(v)
            else:
                for x in range(8 * k, 8 * k + 8):
                    v = max(lut[a[y, x]], lut[b[y, x]])
                    raw[x] = v
                    row[x] = float32(v)
    return low << 8 | high


@device
def row_sums(first, count, units, row, low, high, sums):
    """Horizontal sums of the outputs `low`..`high` of a row of grey values."""
    if units.shape[0] == 3:
        for x in range(low, high):
            f = first[x]
            sums[x] = units[0, x] * row[f] + units[1, x] * row[f + 1] + units[2, x] * row[f + 2]
    else:
        for x in range(low, high):
            s = float32(0.0)
            for t in range(count[x]):
                s += units[t, x] * row[first[x] + t]
            sums[x] = s


@device
def finish_row(total, columns, out, at, step):
    """Sums of one output row to bytes; returns whether any of them is a tie, which the caller settles.

    Every number is whole and below 2**24, so float32 holds it exactly and sixteen fit a vector register. Two
    loops, because a byte store and a reduction in one loop keep LLVM from using vectors (68 against 25 ns).
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


@device
def float_pixel(p, dy, x, raw, source):
    """One output pixel in OpenCV's float32 sequence, from rows `source[y]` of a grey picture."""
    total = float32(0.0)
    for j in range(p.y_count[dy]):
        y = source[p.y_first[dy] + j]
        s = float32(0.0)
        for t in range(p.x_count[x]):
            s = float32(s + float32(float32(raw[y, p.x_first[x] + t]) * p.x_weight[t, x]))
        s = float32(p.y_weight[j, dy] * s)
        total = s if j == 0 else float32(total + s)
    return round_half_even(total)


@device
def settle_ties(p, dy, columns, raw, source, out, at, step):
    total = p.total
    for x in range(p.out_width):
        if (2 * int64(columns[x]) + total) % (2 * total) == 0:
            out[at + step * x] = uint8(float_pixel(p, dy, x, raw, source))


@device
def repeat_row(out, at, stride, step):
    """Copy the output row above."""
    for x in range(0, stride, step):
        out[at + x] = out[at + x - stride]


@device
def start_column(u, sums, columns):
    for x in range(len(columns)):
        columns[x] = u * sums[x]


@device
def add_column(u, sums, columns):
    for x in range(len(columns)):
        columns[x] += u * sums[x]


@device
def resize_codes(p, a, a64, b, b64, lut, raw, source, row, sums, columns, out, at, step):
    """The brighter of two screens of colour codes (pass one twice for a single one), resized into `out`.

    `raw` and `source` keep the grey picture: row y of it is `raw[source[y]]`, only rows that differ from the one
    above are written. `out` is a flat array; pixel (y, x) goes to `at + step * (y * width + x)`.
    """
    if p.kind != INTEGER:
        for y in range(p.height):
            gray_row(y, a, b, lut, raw[y])
            source[y] = y
        resize_other(p, raw, out, at, step)
        return
    # Unpacked once: handing the whole plan to a helper copies it and counts references to its arrays.
    x_first, x_count, x_units, touched = p.x_first, p.x_count, p.x_units, p.touched
    y_first, y_count, y_units = p.y_first, p.y_count, p.y_units
    total, stride = float32(p.total), p.out_width * step
    dy, last, quiet = 0, 0, False
    for y in range(p.height):
        first = y_first[dy]
        if y == 0 or row_differs(a64, b64, y):
            here = raw[y]
            if y > 0:
                above = raw[last]
                for x in range(len(above)):
                    here[x] = above[x]
            if quiet and y > first:
                # The rows of this output so far were skipped; they are all alike.
                u = y_units[0, dy]
                for j in range(1, y - first):
                    u += y_units[j, dy]
                start_column(u, sums, columns)
            words = update_row(a, a64, b, b64, y, lut, here, row)
            low, high = touched[words >> 8, 0], touched[words & 255, 1]
            row_sums(x_first, x_count, x_units, row, low, high, sums)
            last, quiet = y, False
        source[y] = last
        ends = y == first + y_count[dy] - 1
        if quiet:
            # Nothing changed since the output row above, which had no tie: the same bytes again.
            if ends:
                repeat_row(out, at + dy * stride, stride, step)
                dy += 1
            continue
        u = y_units[y - first, dy]
        if first == y:
            start_column(u, sums, columns)
        else:
            add_column(u, sums, columns)
        if ends:
            tie = finish_row(total, columns, out, at + dy * stride, step)
            if tie:
                settle_ties(p, dy, columns, raw, source, out, at + dy * stride, step)
            quiet = last <= first and not tie
            dy += 1
            if dy < p.out_height and y_first[dy] == y:
                start_column(y_units[0, dy], sums, columns)


@device
def resize_gray(p, raw, source, row, sums, columns, out, at, step):
    """A grey picture (row y is `raw[source[y]]`) resized into `out`; the rare path, written for clearness."""
    if p.kind != INTEGER:
        resize_other(p, raw, out, at, step)
        return
    for dy in range(p.out_height):
        for j in range(p.y_count[dy]):
            here = raw[source[p.y_first[dy] + j]]
            for x in range(WIDTH):
                row[x] = float32(here[x])
            row_sums(p.x_first, p.x_count, p.x_units, row, 0, p.out_width, sums)
            if j == 0:
                start_column(p.y_units[j, dy], sums, columns)
            else:
                add_column(p.y_units[j, dy], sums, columns)
        to = at + dy * p.out_width * step
        if finish_row(float32(p.total), columns, out, to, step):
            settle_ties(p, dy, columns, raw, source, out, to, step)


@device
def resize_other(p, raw, out, at, step):
    """Sizes that the integer scheme does not cover; needs every row of `raw` written."""
    for dy in range(p.out_height):
        for x in range(p.out_width):
            to = at + step * (dy * p.out_width + x)
            if p.kind == COPY:
                out[to] = raw[dy, x]
            elif p.kind == FLOAT:
                out[to] = uint8(float_other(p, dy, x, raw))
            elif p.kind == LINEAR:
                out[to] = uint8(linear_pixel(p, dy, x, raw))
            else:
                out[to] = uint8(block_pixel(p, dy, x, raw))


@device
def float_other(p, dy, x, raw):
    total = float32(0.0)
    for j in range(p.y_count[dy]):
        s = float32(0.0)
        for t in range(p.x_count[x]):
            s = float32(s + float32(float32(raw[p.y_first[dy] + j, p.x_first[x] + t]) * p.x_weight[t, x]))
        s = float32(p.y_weight[j, dy] * s)
        total = s if j == 0 else float32(total + s)
    return round_half_even(total)


@device
def block_pixel(p, dy, x, raw):
    """Whole blocks of pixels: an integer sum, rounded once; blocks of 2x2 round halves up."""
    ny, nx = p.height // p.out_height, WIDTH // p.out_width
    s = 0
    for j in range(ny):
        for t in range(nx):
            s += raw[dy * ny + j, x * nx + t]
    if p.kind == HALVES:
        return (s + 2) >> 2
    return round_half_even(float32(float32(s) * float32(float32(1.0) / float32(nx * ny))))


@device
def linear_pixel(p, dy, x, raw):
    """Bilinear in fixed point, with the two truncations of OpenCV's vertical pass."""
    s0, s1 = p.x_first[x], min(p.x_first[x] + 1, WIDTH - 1)
    y0, y1 = p.y_first[dy], min(p.y_first[dy] + 1, p.height - 1)
    a0, a1 = int64(p.x_units[0, x]), int64(p.x_units[1, x])
    b0, b1 = int64(p.y_units[0, dy]), int64(p.y_units[1, dy])
    top = raw[y0, s0] * a0 + raw[y0, s1] * a1
    bottom = raw[y1, s0] * a0 + raw[y1, s1] * a1
    v = ((b0 * (top >> 4)) >> 16) + ((b1 * (bottom >> 4)) >> 16)
    return min((v + 2) >> 2, 255)
