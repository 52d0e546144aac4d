"""The observation on a card, for plans of whole numbers: a block of threads pools, greys and shrinks one machine's screens.

The same sums as `observation/resize.py`, in another order: there a row's sums are kept because rows repeat themselves, here every
output pixel has a thread that adds up its own few pixels. Four pixels travel in a word.
"""

from __future__ import annotations

from numpy import float32, int32

from ..jit.target import as_bytes, as_int32, inlined, wide
from ..observation.resize_plan import WIDTH

MOST_TAPS = 4  # pixels of a row that may feed one output
QUADS = WIDTH // 4


@inlined
def shade(lut_at, codes):
    """Four colour codes -> four grey values."""
    lut = as_bytes(lut_at)
    low = lut[codes & 0xFF] | (lut[(codes >> 8) & 0xFF] << 8)
    return low | (lut[(codes >> 16) & 0xFF] << 16) | (lut[(codes >> 24) & 0xFF] << 24)


@inlined
def brighter(a, b):
    """The larger one of each of four bytes."""
    v = max(a & 0xFF, b & 0xFF) | (max((a >> 8) & 0xFF, (b >> 8) & 0xFF) << 8)
    return v | (max((a >> 16) & 0xFF, (b >> 16) & 0xFF) << 16) | (max((a >> 24) & 0xFF, (b >> 24) & 0xFF) << 24)


@inlined
def pool(lut_at, now_at, other_at, raw_at, gray_at, stale, quads, me, threads):
    """Two screens into one grey picture: in `gray`, and in `raw`, where the next step may look. `stale`: raw is the first one."""
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
    """total // by, and the rest, of small numbers: a product in float32 that may be off by one, put right."""
    v = int32(float32(total) * inverse)
    rest = int32(total - v * by)
    if rest < 0:
        v, rest = int32(v - 1), int32(rest + by)
    elif rest >= by:
        v, rest = int32(v + 1), int32(rest - by)
    return v, rest


@inlined
def row_sum(gray_at, at, w0, w1, w2, w3):
    """Four neighbours, weighed."""
    gray = as_bytes(gray_at)
    return w0 * gray[at] + w1 * gray[at + 1] + w2 * gray[at + 2] + w3 * gray[at + 3]
