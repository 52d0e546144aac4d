"""OpenCV's area resize in its own order of operations: any size, and the ties of the fast path."""

from __future__ import annotations

from numpy import float32, int64, uint8

from ..jit.target import add32, compiled, mul32
from .resize_plan import COPY, FLOAT, HALVES, INTEGER, LINEAR, WIDTH


@compiled
def round_half_even(v):
    """A non-negative float to the nearest integer, ties to even; at most 255."""
    n = int64(v)
    rest = v - n
    if rest > 0.5 or (rest == 0.5 and n & 1):
        n += 1
    return min(n, 255)


@compiled
def float_pixel(p, dy, x, raw, source):
    """One output pixel in float32, first along the rows, then down; row y of the picture is `raw[source[y]]`."""
    total = float32(0.0)
    for j in range(p.y_taps[dy]):
        y = source[p.y_first[dy] + j]
        s = float32(0.0)
        for t in range(p.x_taps[x]):
            s = add32(s, mul32(float32(raw[y, p.x_first[x] + t]), p.x_weight[t, x]))
        s = mul32(p.y_weight[j, dy], s)
        total = s if j == 0 else add32(total, s)
    return round_half_even(total)


@compiled
def block_pixel(p, dy, x, raw, source):
    """Whole blocks of pixels: an integer sum, rounded once; blocks of 2x2 round halves up."""
    ny, nx = p.height // p.out_height, WIDTH // p.out_width
    s = 0
    for j in range(ny):
        for t in range(nx):
            s += raw[source[dy * ny + j], x * nx + t]
    if p.kind == HALVES:
        return (s + 2) >> 2
    return round_half_even(float32(float32(s) * float32(float32(1.0) / float32(nx * ny))))


@compiled
def linear_pixel(p, dy, x, raw, source):
    """Bilinear in fixed point, with the two truncations of OpenCV's vertical pass."""
    s0, s1 = p.x_first[x], min(p.x_first[x] + 1, WIDTH - 1)
    y0, y1 = source[p.y_first[dy]], source[min(p.y_first[dy] + 1, p.height - 1)]
    a0, a1 = int64(p.x_units[0, x]), int64(p.x_units[1, x])
    b0, b1 = int64(p.y_units[0, dy]), int64(p.y_units[1, dy])
    top = raw[y0, s0] * a0 + raw[y0, s1] * a1
    bottom = raw[y1, s0] * a0 + raw[y1, s1] * a1
    v = ((b0 * (top >> 4)) >> 16) + ((b1 * (bottom >> 4)) >> 16)
    return min((v + 2) >> 2, 255)


@compiled
def resize_gray(p, raw, source, out, at, step):
    """A grey picture (row y is `raw[source[y]]`) resized into every `step`-th byte of `out`, from `at` on."""
    kind = p.kind
    for dy in range(p.out_height):
        for x in range(p.out_width):
            if kind == COPY:
                v = int64(raw[source[dy], x])
            elif kind in (FLOAT, INTEGER):
                v = float_pixel(p, dy, x, raw, source)
            elif kind == LINEAR:
                v = linear_pixel(p, dy, x, raw, source)
            else:
                v = block_pixel(p, dy, x, raw, source)
            out[at + step * (dy * p.out_width + x)] = uint8(v)
