"""Which screen pixels contribute to which pixel of the resized picture, and how much: computed once per size."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

import numpy as np

COPY, INTEGER, FLOAT, BLOCKS, HALVES, LINEAR = range(6)
WIDTH, WORDS = 160, 20  # a screen row: pixels, and 8-pixel words
LANES = 8  # outputs that one word may contribute to in the integer scheme
MOST_UNITS = 8000  # with larger totals float32's rounding errors could decide more than ties
FIXED = 2048  # 1.0 in OpenCV's fixed-point bilinear resize


class Taps(NamedTuple):
    """Which source pixels contribute to each output pixel along one axis, and how much."""

    first: np.ndarray  # int32[n_out]
    taps: np.ndarray  # int32[n_out]: how many
    weight: np.ndarray  # float32[most, n_out]
    units: np.ndarray  # float32[most, n_out], integers whose sum is `total` for each output
    total: int


class Plan(NamedTuple):
    """How to resize one screen size to one picture size; plain arrays, so that it can be passed to compiled code."""

    kind: int
    height: int
    out_height: int
    out_width: int
    x_first: np.ndarray
    x_taps: np.ndarray
    x_weight: np.ndarray
    x_units: np.ndarray
    y_first: np.ndarray
    y_taps: np.ndarray
    y_weight: np.ndarray
    y_units: np.ndarray
    total: int
    touched: np.ndarray  # int32[20, 2]: the outputs that read word k of a row, from..to
    pixel_out: np.ndarray  # int32[160]: the first output that reads a pixel; at most the next one reads it too
    pixel_units: np.ndarray  # float32[2, 160]: how much of it they take


def area_taps(n_in: int, n_out: int) -> Taps:
    scale = 1.0 / (n_out / n_in)  # rounded twice, as OpenCV does it
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
    begins, counts = np.array([b for b, _ in rows], np.int32), np.array([len(w) for _, w in rows], np.int32)
    return Taps(begins, counts, weight, units, exact.numerator)


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
    make = area_taps if shrinks else linear_taps
    x, y = make(WIDTH, out_width), make(height, out_height)
    touched = _touched(x)
    if (out_height, out_width) == (height, WIDTH):
        kind = COPY
    elif not shrinks:
        kind = LINEAR
    elif height % out_height == 0 and WIDTH % out_width == 0:
        kind = HALVES if (height // out_height, WIDTH // out_width) == (2, 2) else BLOCKS
    elif x.total * y.total <= MOST_UNITS and np.diff(touched).max() <= LANES:
        kind = INTEGER
    else:
        kind = FLOAT
    pixel_out, pixel_units = np.zeros(WIDTH, np.int32), np.zeros((2, WIDTH), np.float32)
    if kind == INTEGER:
        for d in range(out_width - 1, -1, -1):
            for t in range(x.taps[d]):
                pixel = x.first[d] + t
                # seen from the right: a pixel that an output further right reads as well becomes its second half
                pixel_units[1, pixel] = pixel_units[0, pixel]
                pixel_out[pixel], pixel_units[0, pixel] = d, x.units[t, d]
    total = x.total * y.total
    return Plan(kind, height, out_height, out_width, *x[:4], *y[:4], total, touched, pixel_out, pixel_units)


def _touched(x: Taps) -> np.ndarray:
    touched = np.zeros((WORDS, 2), np.int32)
    for k in range(WORDS):
        hit = np.flatnonzero((x.first < 8 * k + 8) & (x.first + x.taps > 8 * k))
        touched[k] = (hit[0], hit[-1] + 1) if len(hit) else (0, 0)
    return touched
