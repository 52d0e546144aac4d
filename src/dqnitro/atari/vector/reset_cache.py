"""The start of a game after power-on, worked out once for an environment.

A seeded reset switches power off and on, and starts the game twice: two hundred frames. Nothing in them depends on
the seed: the console's own generator always begins the same way, and power-on forgets everything else. Only where
actions choose a game's variant (berzerk, double_dunk) are numbers drawn from the seeded generator meanwhile; those
games start from power-on each time. Other resets are not of this kind: RAM keeps what the last game left there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy import int64

from ..chips.layout import ROWS, S_SIZE, WORDS
from ..chips.rng import MT_SIZE, mt_drawn, mt_seed
from ..games.table_language import G_SIZE
from ..jit.target import CHECKED, address, compiled
from .work_queue import atomic_load, atomic_store

EMPTY, TAKEN, READY = range(3)


class Whole(NamedTuple):
    """All of a console that a start decides."""

    state: np.ndarray
    ram: np.ndarray
    rules: np.ndarray
    generator: np.ndarray
    screen: np.ndarray


class Start(NamedTuple):
    """A console at the start, for all threads of an environment."""

    flag: np.ndarray  # EMPTY, TAKEN by a thread that writes it (or found that it cannot be kept), READY
    console: Whole


def make_start() -> Start:
    console = Whole(
        np.zeros(S_SIZE, np.int64), np.zeros(256, np.uint8), np.zeros(G_SIZE, np.int32),
        np.zeros(MT_SIZE, np.uint32), np.zeros((2, ROWS, WORDS), np.uint64),
    )  # fmt: skip
    return Start(np.zeros(1, np.int64), console)


def _get(flag):
    return atomic_load(address(flag))


def _set(flag, value):
    atomic_store(address(flag), value)


def _get_alone(flag):
    return flag[0]


def _set_alone(flag, value):
    flag[0] = value


def _claimed_typed(typing_context: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        place = builder.inttoptr(arguments[0], word.as_pointer())
        done = builder.cmpxchg(place, ir.Constant(word, EMPTY), ir.Constant(word, TAKEN), "seq_cst", "seq_cst")
        return builder.zext(builder.extract_value(done, 1), word)

    return types.int64(types.int64), build


_claimed: Any = intrinsic(_claimed_typed)


def _claim(flag):
    return _claimed(address(flag)) != 0


def _claim_alone(flag):
    """One thread, and arrays whose indices are checked."""
    free = flag[0] == EMPTY
    flag[0] = TAKEN
    return free


get_flag: Any = compiled(_get_alone if CHECKED else _get)
set_flag: Any = compiled(_set_alone if CHECKED else _set)
claim: Any = compiled(_claim_alone if CHECKED else _claim)


@compiled
def copy_rows(of, to, rows):
    """Flat, so that it becomes one call of the fastest copy there is."""
    a, b = of.reshape(of.size), to.reshape(to.size)
    for k in range(rows * WORDS):
        b[k] = a[k]


@compiled
def copy_console(of, to):
    """(One function for both ways: each more is a fifth of a second of compiling.)"""
    for k in range(S_SIZE):
        to.state[k] = of.state[k]
    for k in range(256):
        to.ram[k] = of.ram[k]
    for k in range(G_SIZE):
        to.rules[k] = of.rules[k]
    for k in range(MT_SIZE):
        to.generator[k] = of.generator[k]
    for b in range(2):
        copy_rows(of.screen[b], to.screen[b], ROWS)


@compiled
def start_from(start, console, seed, mt, mt_noops):
    """Put a console at the start, seeded; False: the start is not known yet."""
    if get_flag(start.flag) != READY:
        return False
    copy_console(start.console, console)
    mt_seed(mt, seed)
    mt_seed(mt_noops, seed)
    return True


@compiled
def keep_start(start, console, mt):
    """Remember the start of a console, if no other thread does and no number was drawn from its seeded generator."""
    if get_flag(start.flag) != EMPTY or not claim(start.flag) or mt_drawn(mt) > 0:
        return
    copy_console(console, start.console)
    set_flag(start.flag, int64(READY))
