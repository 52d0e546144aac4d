"""Functions in 32-bit numbers: what is narrowed, what is left alone, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

from dqnitro.atari.cuda.rewrite_branches import as_trees
from dqnitro.atari.cuda.rewrite_int32 import as_narrow

SEVEN = 7


def narrow32(value):
    return ((int(value) + 2**31) & 0xFFFFFFFF) - 2**31


def numbers(a, b):
    c = a * b + 3
    d = SEVEN
    d += c
    e, f = -d, 1 if c > 5 else ~c
    a -= 1
    return (c << 2) ^ e, f + a, d


def with_arrays(s_at, k):
    values = s_at
    values[k] += 5
    total = 0
    for i in range(3):
        total += values[i]
    return total


def a_chain(h, x):
    if h == 0:
        x += 2**31
    elif h == 1:
        x -= 1
    elif h == 2:
        x = x << 3
    elif h == 3:
        x = 9
    elif h == 4:
        x ^= 1
    elif h == 5:
        x = -x
    return x


@pytest.mark.parametrize("a", [0, 5, -9, 20_000])
@pytest.mark.parametrize("b", [1, -2, 20_000])
def test_numbers_that_fit_come_out_as_before(a, b):
    assert as_narrow(numbers, narrow32)(a, b) == numbers(a, b)


def test_every_kept_number_goes_through_the_narrow_type():
    seen = []
    narrow = as_narrow(numbers, lambda v: seen.append(v) or v)
    assert narrow(4, 5) == numbers(4, 5)
    for value in (4, 5, 20, 23, 7, 30, -30, 1, 3, 92):
        assert value in seen, f"{value} stayed wide"


def masks_words(a):
    return (1 << 60) + a, a


def with_masks(a):
    masks = masks_words(a)
    typed = np.int64(a)
    return masks, typed


def test_masks_stay_wide_and_typed_numbers_do_not():
    seen = []
    masks, typed = as_narrow(with_masks, lambda v: seen.append(v) or v)(5)
    assert masks == ((1 << 60) + 5, 5) and not any(value is masks for value in seen)
    assert typed == 5 and any(isinstance(value, np.int64) for value in seen)


def test_numbers_that_do_not_fit_wrap():
    assert as_narrow(numbers, narrow32)(2**20, 2**12)[2] == narrow32(2**32 + 10)


def test_arrays_and_addresses_are_left_alone():
    values = [1, 2, 3]
    assert as_narrow(with_arrays, narrow32)(values, 1) == 11 and values == [1, 7, 3]


def test_a_tree_is_narrowed_as_a_tree():
    both = as_narrow(as_trees(a_chain), narrow32)
    assert "h < " in vars(both)["__source__"], "halving is kept"
    for h in range(-1, 7):
        for x in (0, 5, 2**31 - 1):
            assert both(h, x) == narrow32(a_chain(h, x))
