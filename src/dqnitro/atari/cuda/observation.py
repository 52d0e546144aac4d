"""The observation on a GPU, for plans of kind INTEGER: a block of threads pools, greys and shrinks one console's
screens.

The same sums as in `observation/resize.py`, in another order: there a row's sums are kept because rows repeat
themselves, here every output pixel has a thread that adds up its own few pixels. A word holds four pixels.
"""

from __future__ import annotations

from numpy import float32, int32

from ..jit.target import as_bytes, as_int32, inlined, wide
from ..observation.resize_plan import WIDTH

MOST_TAPS = 4  # pixels of a row that may contribute to one output
QUADS = WIDTH // 4


@inlined
def shade(lut_at, codes):
    """Four colour codes -> four grey values."""
    lut = as_bytes(lut_at)
    low = lut[codes & 0xFF] | (lut[(codes >> 8) & 0xFF] << 8)
    return low | (lut[(codes >> 16) & 0xFF] << 16) | (lut[(codes >> 24) & 0xFF] << 24)


@inlined
def brighter(a, b):
    """The maximum of two words, byte by byte."""
    v = max(a & 0xFF, b & 0xFF) | (max((a >> 8) & 0xFF, (b >> 8) & 0xFF) << 8)
    return v | (max((a >> 16) & 0xFF, (b >> 16) & 0xFF) << 16) | (max((a >> 24) & 0xFF, (b >> 24) & 0xFF) << 24)


@inlined
def pool(lut_at, now_at, other_at, raw_at, gray_at, stale, quads, me, threads):
    """Pool two screens into one grey picture, `gray`, with a copy in `raw` for the next step.

    `stale`: `raw` is the first screen.
    """
    now, other, raw, gray = as_int32(now_at), as_int32(other_at), as_int32(raw_at), as_int32(gray_at)
    for k in range(me, quads, threads):
        codes = other[k]
        v = shade(lut_at, codes)
        if stale:
            v = brighter(v, raw[k])
        elif now[k] != codes:
            v = brighter(v, shade(lut_at, now[k]))
        raw[k] = v
        gray[k] = v


@wide
def divide(total, by, inverse):
    """total // by and the remainder, for small numbers: a float32 product, corrected where it is off by one."""
    v = int32(float32(total) * inverse)
    rest = int32(total - v * by)
    if rest < 0:
        v, rest = int32(v - 1), int32(rest + by)
    elif rest >= by:
        v, rest = int32(v + 1), int32(rest - by)
    return v, rest


@inlined
def row_sum(gray_at, at, w0, w1, w2, w3):
    """The weighted sum of four neighbours."""
    gray = as_bytes(gray_at)
    return w0 * gray[at] + w1 * gray[at + 1] + w2 * gray[at + 2] + w3 * gray[at + 3]
