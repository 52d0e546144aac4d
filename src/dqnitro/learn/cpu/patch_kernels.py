"""Compiled kernels of `patch_dedup`: they number the distinct patches of a batch and move rows to and from patches.

A convolution sees a picture patch by patch, and in a batch of Atari pictures most patches occur many times: of the
12,800 that Pong's first layer sees in 32 stacks about 800 differ. Equal patches have equal outputs, whatever the
weights are. So two patches of the next layer are equal if the numbers of the outputs below them are, and the kernels
number one layer after the other without any arithmetic in floats.

Numbering is a lookup in a hash table with open addressing: `table[hash]` is a number or -1, and a slot that holds
another key sends the search to the next slot. Keys are compared whole, never by their hash alone: two patches get one
number only if every byte agrees.

NumPy does not have bfloat16: its rows come as uint16, the upper half of a float32's bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dqnitro.atari.jit.code_cache import kept

# Odd factors that mix the bits of a hash: 2**64 divided by the golden ratio, and the factor of degski's hash.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIXER = np.uint64(0xD6E8FEB86659FD93)
# Shifts, as uint64: so Numba stays in uint64.
_15 = np.uint64(15)
_16 = np.uint64(16)
_32 = np.uint64(32)
_40 = np.uint64(40)
# Four bfloat16 in a word: the lowest bit of each, and all bits of one.
_LOWEST_BITS = np.uint64(0x0001000100010001)
_ALL_BITS = np.uint64(0xFFFF)
# One odd factor for every word of a key; fixed, so that a run is the same run every time.
FACTORS = np.random.default_rng(20).integers(1, 2**62, 64, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
LARGEST = 1 << 16  # how many numbers fit into 16 bits


compiled: Any = kept(nogil=True, error_model="numpy")


@compiled
def number_blocks(
    words: np.ndarray, factors: np.ndarray, table: np.ndarray, keys: np.ndarray, ids: np.ndarray, n: int
) -> int:
    """Number the blocks of 4x4 pixels. `words` (B, H, W/2): two pixels of four frames are 64 bits; `ids` (B, H/4, W/4).

    `n` numbers are there already, from other pictures; 0 empties the table. Returns how many there are now.
    """
    mask = np.uint64(len(table) - 1)
    if n == 0:
        table[:] = -1
    c0, c1, c2, c3 = factors[0], factors[1], factors[2], factors[3]
    c4, c5, c6, c7 = factors[4], factors[5], factors[6], factors[7]
    for b in range(ids.shape[0]):
        for y in range(ids.shape[1]):
            r0, r1, r2, r3 = words[b, 4 * y], words[b, 4 * y + 1], words[b, 4 * y + 2], words[b, 4 * y + 3]
            for x in range(ids.shape[2]):
                # A block is eight words, two in each of its four rows. Eight variables stay in registers.
                i = 2 * x
                a0, a1, a2, a3, a4, a5, a6, a7 = (
                    r0[i], r0[i + 1], r1[i], r1[i + 1], r2[i], r2[i + 1], r3[i], r3[i + 1]
                )  # fmt: skip
                h = a0 * c0 + a1 * c1 + a2 * c2 + a3 * c3 + a4 * c4 + a5 * c5 + a6 * c6 + a7 * c7
                h = (h ^ (h >> _32)) * _GOLDEN
                at = (h >> _40) & mask
                while True:  # until the slot is free or has this block
                    found = table[at]
                    if found < 0:
                        table[at] = found = n
                        n += 1
                        k = keys[found]
                        k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7] = a0, a1, a2, a3, a4, a5, a6, a7
                        break
                    k = keys[found]
                    low = (k[0] ^ a0) | (k[1] ^ a1) | (k[2] ^ a2) | (k[3] ^ a3)
                    if low | (k[4] ^ a4) | (k[5] ^ a5) | (k[6] ^ a6) | (k[7] ^ a7) == 0:
                        break
                    at = (at + np.uint64(1)) & mask
                ids[b, y, x] = found
    return n


@compiled
def number_squares(
    below: np.ndarray, apart: int, table: np.ndarray, keys: np.ndarray, ids: np.ndarray, firsts: np.ndarray
) -> int:
    """Number the 2x2 squares of numbers under 65,536, `apart` from each other. `firsts[n]` is the flat place where
    number n was seen first. Returns how many there are.
    """
    mask = np.uint64(len(table) - 1)
    n = 0
    place = 0
    table[:] = -1
    for b in range(ids.shape[0]):
        for y in range(ids.shape[1]):
            upper, lower = below[b, apart * y], below[b, apart * y + 1]
            for x in range(ids.shape[2]):
                # Four numbers of 16 bits are the whole key.
                i = apart * x
                left = np.uint64(upper[i]) | (np.uint64(upper[i + 1]) << _16)
                right = np.uint64(lower[i]) | (np.uint64(lower[i + 1]) << _16)
                key = left | (right << _32)
                h = key * _GOLDEN
                at = (((h ^ (h >> _32)) * _MIXER) >> _40) & mask
                while True:  # until the slot is free or has this square
                    found = table[at]
                    if found < 0:
                        table[at] = found = n
                        keys[found], firsts[found] = key, place
                        n += 1
                        break
                    if keys[found] == key:
                        break
                    at = (at + np.uint64(1)) & mask
                ids[b, y, x] = found
                place += 1
    return n


@compiled
def number_patches(
    below: np.ndarray,
    size: int,
    stride: int,
    factors: np.ndarray,
    table: np.ndarray,
    ids: np.ndarray,
    firsts: np.ndarray,
) -> int:
    """Number the patches of `size` x `size` numbers, `stride` apart, whatever their size. Returns how many there are.

    A key is too long to be stored: a patch is compared with the place where the number was seen first.
    """
    mask = np.uint64(len(table) - 1)
    n = 0
    place = 0
    table[:] = -1
    height, width = ids.shape[1], ids.shape[2]
    for b in range(ids.shape[0]):
        for y in range(height):
            for x in range(width):
                # Hash the patch.
                h = np.uint64(0)
                for i in range(size):
                    row = below[b, y * stride + i]
                    for j in range(size):
                        h += np.uint64(row[x * stride + j]) * factors[i * size + j]
                at = (((h ^ (h >> _32)) * _MIXER) >> _40) & mask
                while True:  # until the slot is free or has this patch
                    found = table[at]
                    if found < 0:
                        table[at] = found = n
                        firsts[found] = place
                        n += 1
                        break
                    # The slot is taken: compare with the patch that took it.
                    first = firsts[found]
                    fb = first // (height * width)
                    fy = first // width % height
                    fx = first % width
                    differs = np.uint32(0)
                    for i in range(size):
                        mine, other = below[b, y * stride + i], below[fb, fy * stride + i]
                        for j in range(size):
                            differs |= mine[x * stride + j] ^ other[fx * stride + j]
                    if differs == 0:
                        break
                    at = (at + np.uint64(1)) & mask
                ids[b, y, x] = found
                place += 1
    return n


@compiled
def number_layers(
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    factors: np.ndarray,
    table: np.ndarray,
    short: np.ndarray,
    squares: np.ndarray,
    places: np.ndarray,
    ids: tuple[np.ndarray, ...],
    firsts: tuple[np.ndarray, ...],
    counts: np.ndarray,
) -> None:
    """Number every layer above the blocks. `ids[0]` are the blocks' numbers; `ids[i + 1]` and `firsts[i]` are written
    for the patches of convolution i. `table`, `short`, `squares` and `places` are scratch.

    One call for all layers, so that a thread can do it without the GIL in between.
    """
    for i in range(len(sizes)):
        below, mine, first = ids[i], ids[i + 1], firsts[i]
        batch = below.shape[0]
        height, width = below.shape[1] // 2, below.shape[2] // 2
        if counts[i] <= LARGEST and sizes[i] == 2:
            counts[i + 1] = number_squares(below, strides[i], table, short, mine, first)
        elif counts[i] <= LARGEST and sizes[i] == 4 and strides[i] == 2 and batch * height * width <= LARGEST:
            # A 4x4 patch is a 2x2 square of 2x2 squares: twice 64 bits to compare instead of 512.
            halved = squares[: batch * height * width].reshape((batch, height, width))
            number_squares(below, 2, table, short, halved, places)
            counts[i + 1] = number_squares(halved, 1, table, short, mine, first)
        else:
            counts[i + 1] = number_patches(below, sizes[i], strides[i], factors, table, mine, first)


@compiled
def bytes_to_bf16(bytes_in: np.ndarray, out: np.ndarray) -> None:
    """Exact: bytes have eight bits, and so has bfloat16's mantissa, so the lower half of the float32 is 0."""
    for n in range(len(bytes_in)):
        for i in range(bytes_in.shape[1]):
            out[n, i] = np.uint16(np.float32(bytes_in[n, i]).view(np.uint32) >> np.uint32(16))


@compiled
def gather_rows(
    rows: np.ndarray,
    ids: np.ndarray,
    firsts: np.ndarray,
    size: int,
    stride: int,
    height: int,
    width: int,
    out: np.ndarray,
) -> None:
    """`out[n]` is the patch seen first at `firsts[n]`: the rows that its numbers name, one after the other, through a
    ReLU. Rows of `out` beyond `firsts` become 0.

    Rows come as words of four bfloat16. Where a sign bit is set, the ReLU makes its 16 bits 0, for all four at once.
    """
    for n in range(len(firsts)):
        first = firsts[n]
        b = first // (height * width)
        y = first // width % height
        x = first % width
        # A product with 0xFFFF copies a sign, moved to the lowest bit of its number, into all 16 bits.
        for i in range(size):
            for j in range(size):
                row, to = rows[ids[b, y * stride + i, x * stride + j]], out[n, i * size + j]
                for c in range(len(row)):
                    to[c] = row[c] & ~(((row[c] >> _15) & _LOWEST_BITS) * _ALL_BITS)
    out[len(firsts) :] = 0


@compiled
def spread(rows: np.ndarray, ids: np.ndarray, out: np.ndarray) -> None:
    """`out[b, channel, place]` is the row whose number is at that place, through a ReLU: the pictures that the hidden
    layers read.
    """
    for b in range(ids.shape[0]):
        for place in range(ids.shape[1]):
            row = rows[ids[b, place]]
            for c in range(len(row)):
                out[b, c, place] = row[c] if row[c] < np.uint16(0x8000) else np.uint16(0)


@compiled
def bf16_to_float(bits: np.uint16) -> np.float32:
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@compiled
def to_bf16(value: np.float32) -> np.uint16:
    """Rounded to nearest, ties to even. NaN is not handled: the learner stops at a loss that is not finite."""
    bits = np.float32(value).view(np.uint32)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@compiled
def widen(bits: np.ndarray, out: np.ndarray, scale: np.float32) -> None:
    """bfloat16 to float32, times `scale`."""
    for n in range(len(bits)):
        for i in range(bits.shape[1]):
            out[n, i] = bf16_to_float(bits[n, i]) * scale


@compiled
def spread_backward(gradient: np.ndarray, ids: np.ndarray, total: np.ndarray) -> None:
    """Backward pass of `spread` without its ReLU: every place adds its gradient to the row that it was given."""
    total[:] = 0
    for b in range(ids.shape[0]):
        for place in range(ids.shape[1]):
            row = total[ids[b, place]]
            for c in range(len(row)):
                row[c] += bf16_to_float(gradient[b, c, place])


@compiled
def gather_rows_backward(
    gradient: np.ndarray,
    ids: np.ndarray,
    firsts: np.ndarray,
    size: int,
    stride: int,
    height: int,
    width: int,
    total: np.ndarray,
) -> None:
    """Backward pass of `gather_rows` without its ReLU: a patch adds its gradient to the rows that it consists of."""
    total[:] = 0
    for n in range(len(firsts)):
        first = firsts[n]
        b = first // (height * width)
        y = first // width % height
        x = first % width
        for i in range(size):
            for j in range(size):
                row, part = total[ids[b, y * stride + i, x * stride + j]], gradient[n, i * size + j]
                for c in range(len(row)):
                    row[c] += bf16_to_float(part[c])


@compiled
def relu_backward(total: np.ndarray, outputs: np.ndarray, out: np.ndarray, bias: np.ndarray) -> None:
    """Gradients before the ReLU, rounded to bfloat16, and their sum, the gradient of the bias. Rows of `out` beyond
    `total` become 0.
    """
    bias[:] = 0
    for n in range(len(total)):
        for c in range(total.shape[1]):
            value = total[n, c] if np.int16(outputs[n, c]) > 0 else np.float32(0.0)
            out[n, c] = to_bf16(value)
            bias[c] += value
    out[len(total) :] = 0
