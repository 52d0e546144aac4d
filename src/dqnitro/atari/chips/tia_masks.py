"""Shapes of the TIA's six objects as sets of pixels: 160 bits in three 64-bit words, bit h = pixel h.

A few shifts give a whole line of an object, so collisions are ANDs and no loop over pixels is needed.
"""

from __future__ import annotations

import numpy as np

from ..jit.target import inlined
from .tia_registers import COPIES, DOUBLE_SIZE, QUADRUPLE_SIZE

U0, U1, U4, U7, U8, U16, U32, U63 = (np.uint64(v) for v in (0, 1, 4, 7, 8, 16, 32, 63))
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
LOW32 = np.uint64(0xFFFFFFFF)
U48 = np.uint64(48)
NIBBLES = np.uint64(15)
SPREAD24 = np.uint64(24)
SPREAD12 = np.uint64(12)
SPREAD6 = np.uint64(6)
SPREAD3 = np.uint64(3)
SPREAD_A = np.uint64(0x000000FF000000FF)
SPREAD_B = np.uint64(0x000F000F000F000F)
SPREAD_C = np.uint64(0x0303030303030303)
SPREAD_D = np.uint64(0x1111111111111111)

# Offsets of the second and third copy by NUSIZ & 7 (0 = there is none).
SECOND = np.array([0, 16, 32, 16, 64, 0, 32, 0], np.int64)
THIRD = np.array([0, 0, 0, 32, 0, 0, 64, 0], np.int64)
# A byte with its bits in the opposite order: GRP and PF1 have their leftmost pixel in bit 7.
REVERSED = np.array([int(f"{v:08b}"[::-1], 2) for v in range(256)], np.int64)
# Byte -> eight bytes of 00 or FF: eight pixels of a word.
EXPAND = np.array(
    [sum(0xFF << (8 * b) for b in range(8) if v >> b & 1) for v in range(256)],
    np.uint64,
)


@inlined
def rotate(low, high, position):
    """A pattern of up to 128 bits, moved right by `position` pixels on the circle of 160."""
    shift = np.uint64(position & 63)
    a = low << shift
    b = ((low >> U1) >> (U63 - shift)) | (high << shift)
    c = (high >> U1) >> (U63 - shift)
    if position < 64:
        return a | (c >> U32), b, c & LOW32
    if position < 128:
        return (b >> U32) | (c << U32), a | (c >> U32), b & LOW32
    return (a >> U32) | (b << U32), b >> U32, a & LOW32


@inlined
def spread4(bits):
    """16 bits -> 64 bits, each one four times."""
    x = np.uint64(bits)
    x = (x | (x << SPREAD24)) & SPREAD_A
    x = (x | (x << SPREAD12)) & SPREAD_B
    x = (x | (x << SPREAD6)) & SPREAD_C
    x = (x | (x << SPREAD3)) & SPREAD_D
    return x * NIBBLES


@inlined
def copies(pattern, mode, suppress):
    """The pattern and its copies; `suppress` removes the first one."""
    low, high = pattern, U0
    if suppress:
        low = U0
    second = SECOND[mode]
    if second:
        if second == 64:
            high = pattern
        else:
            low |= pattern << np.uint64(second)
        third = THIRD[mode]
        if third:
            if third == 64:
                high = pattern
            else:
                low |= pattern << np.uint64(third)
    return low, high


@inlined
def player_mask(shape, nusiz, suppress, position):
    """`shape`: the graphics byte with its leftmost pixel in bit 0. Wide players start one pixel later."""
    mode = nusiz & COPIES
    if mode == DOUBLE_SIZE or mode == QUADRUPLE_SIZE:
        wide = spread4(shape)
        if mode == DOUBLE_SIZE:
            wide &= np.uint64(0x3333333333333333)
            wide = (wide | (wide >> np.uint64(2))) & np.uint64(0x0F0F0F0F0F0F0F0F)
            wide = (wide | (wide >> U4)) & np.uint64(0x00FF00FF00FF00FF)
            wide = (wide | (wide >> U8)) & np.uint64(0x0000FFFF0000FFFF)
        low, high = wide << U1, U0
        if suppress:
            low = U0
    else:
        low, high = copies(np.uint64(shape), mode, suppress)
    return rotate(low, high, position)


@inlined
def missile_mask(nusiz, stretch, position):
    size = ((nusiz >> 4) & 3) | stretch
    pattern = (U1 << np.uint64(1 << size)) - U1
    low, high = copies(pattern, nusiz & COPIES, 0)
    return rotate(low, high, position)


@inlined
def ball_mask(ctrlpf, position):
    return rotate((U1 << np.uint64(1 << ((ctrlpf >> 4) & 3))) - U1, U0, position)


@inlined
def playfield_mask(bits, reflect):
    """`bits`: 20 playfield bits, leftmost in bit 0; the right half repeats or mirrors the left one."""
    low, high = spread4(bits & 0xFFFF), spread4(bits >> 16)
    if reflect:
        bits = (REVERSED[bits & 0xFF] << 12) | (REVERSED[(bits >> 8) & 0xFF] << 4) | (REVERSED[bits >> 16] >> 4)
    right_low, right_high = spread4(bits & 0xFFFF), spread4(bits >> 16)
    return low, high | (right_low << U16), (right_low >> U48) | (right_high << U16)


@inlined
def below(h, word):
    """The pixels of one word (0, 1, 2) that lie left of pixel h."""
    n = h - 64 * word
    if n <= 0:
        return U0
    if n >= 64:
        return ALL
    return (U1 << np.uint64(n)) - U1


@inlined
def overlap(a0, a1, a2, b0, b1, b2):
    return ((a0 & b0) | (a1 & b1) | (a2 & b2)) != U0
