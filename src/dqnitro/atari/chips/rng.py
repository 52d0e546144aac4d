"""The 32-bit Mersenne twister (MT19937), as ale-py draws from it.

A generator is a uint32 array of `MT_SIZE`: 624 words, the index of the next one, and how often they were renewed. A
game draws two numbers per frame, so all 624 words are renewed at once every 312 frames (about 1 microsecond). A
generator that is rarely used can be stored as its seed and its number of draws (`mt_drawn`, `mt_restore`).
"""

from __future__ import annotations

from numpy import int64, uint32, uint64

from ..jit.target import compiled

MT_N, MT_M = 624, 397
MT_TWISTS = MT_N + 1
MT_SIZE = MT_N + 2
TWO_TO_32 = 4294967296.0


@compiled
def mt_seed(mt, seed):
    """Standard seeding with one 32-bit number."""
    x = int64(seed) & 0xFFFFFFFF
    mt[0] = uint32(x)
    for k in range(1, MT_N):
        x = (1812433253 * (x ^ (x >> 30)) + k) & 0xFFFFFFFF
        mt[k] = uint32(x)
    mt[MT_N], mt[MT_TWISTS] = uint32(MT_N), uint32(0)


@compiled
def mt_drawn(mt):
    """Numbers drawn since it was seeded."""
    return MT_N * (int64(mt[MT_TWISTS]) - 1) + int64(mt[MT_N])


@compiled
def mt_restore(mt, seed, draws):
    """Bring a generator to its state after `mt_seed` and `draws` draws: 2 microseconds, and one more per 624 draws."""
    mt_seed(mt, seed)
    if draws > 0:
        twists = (draws - 1) // MT_N + 1
        for _ in range(twists):
            mt_twist(mt)
        mt[MT_N] = uint32(draws - MT_N * (twists - 1))


@compiled
def mt_twist(mt):
    for k in range(MT_N):
        y = (int64(mt[k]) & 0x80000000) | (int64(mt[(k + 1) % MT_N]) & 0x7FFFFFFF)
        v = int64(mt[(k + MT_M) % MT_N]) ^ (y >> 1)
        if y & 1:
            v ^= 0x9908B0DF
        mt[k] = uint32(v)
    mt[MT_N], mt[MT_TWISTS] = uint32(0), uint32(int64(mt[MT_TWISTS]) + 1)


@compiled
def mt_next(mt):
    """The next raw 32-bit number, as a non-negative int64 (signed and unsigned do not mix well in Numba)."""
    at = int64(mt[MT_N])
    if at >= MT_N:
        mt_twist(mt)
        at = 0
    y = int64(mt[at])
    mt[MT_N] = uint32(at + 1)
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    y ^= y >> 18
    return y & 0xFFFFFFFF


@compiled
def mt_double(mt):
    """A number in [0, 1): the raw draw divided by 2**32."""
    return mt_next(mt) / TWO_TO_32


@compiled
def mt_below(mt, n):
    """An integer in [0, n): multiply and shift, with the rejection that makes it unbiased."""
    bound = uint64(n)
    mask = uint64(0xFFFFFFFF)
    product = uint64(mt_next(mt)) * bound
    low = product & mask
    if low < bound:
        threshold = (uint64(4294967296) - bound) % bound
        while low < threshold:
            product = uint64(mt_next(mt)) * bound
            low = product & mask
    return int64(product >> uint64(32))
