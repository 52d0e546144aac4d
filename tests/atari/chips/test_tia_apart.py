# ruff: noqa: F403, F405
"""Two ways through the TIA's log, for one console alone and for those of a warp, compared with the plain one in plain
Python: random stores, byte by byte.
"""

from __future__ import annotations

import functools
import importlib

import numpy as np
import pytest

from dqnitro.atari.chips import tia_registers as r
from dqnitro.atari.chips.layout import *
from dqnitro.atari.chips.tia import LOGGED
from dqnitro.atari.chips.tia_motion import MOTION
from support.atari import gpu_model, plain_tia

HEIGHT = 10
FIRST = 3  # line of row 0
REGISTERS = [reg for reg in range(64) if LOGGED[reg]]
USUAL = [r.GRP0, r.GRP1, r.PF0, r.PF1, r.PF2, r.ENABL, r.ENAM0, r.HMOVE, r.COLUP0, r.COLUPF, r.NUSIZ0, r.RESP0, r.CXCLR]


def module(name):
    gpu_model.load()
    return importlib.import_module(f"{gpu_model.PACKAGE}.chips.{name}")


def stores(random, lines):
    """Stores at any cycle: close together as no program does it, and far apart; most repeat one of few values."""
    cycle, few = 0, [*random.integers(0, 256, 4).tolist(), 0, 0, 2, 0xFF]
    gaps = [0, 1, 2, 3, 3, 3, 4, 5, 8, 20] if random.random() < 0.5 else [3, 3, 5, 6, 30, 76, 200]
    usual = random.choice(USUAL, 6).tolist()
    while (cycle := cycle + int(random.choice(gaps))) < LINE_CYCLES * lines:
        if random.random() < 0.2:  # a strobe early in the line, as programs do it
            cycle += -cycle % LINE_CYCLES + int(random.integers(4))
        reg = int(random.choice(usual if random.random() < 0.8 else REGISTERS))
        yield cycle, reg, int(random.choice(few) if random.random() < 0.9 else random.integers(256))


def console(random, draw):
    s = np.zeros(2 * S_SIZE, np.int64)
    s[S_START] = s[S_DRAWN] = s[S_LINE_START] = LINE_CLOCKS * FIRST
    s[S_END] = s[S_START] + LINE_CLOCKS * HEIGHT
    s[S_DIRTY], s[S_DRAW] = 63, draw
    s[S_POS_P0 : S_POS_BL + 1] = random.integers(0, PIXELS, 5)
    s[S_HM_P0 : S_HM_BL + 1] = random.integers(0, 16, 5) * random.integers(0, 2, 5)
    prop = np.zeros(P_SIZE, np.int64)
    prop[P_HEIGHT], prop[P_HMOVE_BLANKS] = HEIGHT, random.random() < 0.7
    screen = random.integers(0, 2**63, (2, ROWS, WORDS), np.uint64)
    return gpu_model.Numbers(s.tolist()), prop, screen


def play(replay, tia, log, cuts, s, prop, screen):
    """The log in pieces: after each the TIA catches up, or only makes room."""
    begun = 0
    for end, catches_up in cuts:
        piece = np.array([tia.log_entry(*entry) for entry in log[begun:end]] + [0], np.int64)
        s[S_LOGGED] = end - begun
        replay(s, prop, piece, 3 * log[end - 1][0] if catches_up else 0, screen)
        begun = end


@pytest.mark.parametrize("draw", [0, 1], ids=["unseen", "drawn"])
@pytest.mark.parametrize("seed", range(12))
def test_any_stores_leave_the_same_picture_and_latches(seed, draw):
    tia, apart, scanline, tia_store = (module(name) for name in ("tia", "tia_apart", "tia_scanline", "tia_store"))
    for k in range(4):
        random = np.random.default_rng([seed, k])
        log = list(stores(random, FIRST + HEIGHT + 2))
        ends = sorted({*random.integers(1, len(log), random.integers(0, 5)).tolist(), len(log)})
        cuts = [(end, end == len(log) or random.random() < 0.6) for end in ends]
        consoles = []
        for replay in (functools.partial(plain_tia.replay, tia, tia_store), tia.replay_together, apart.replay_apart):
            s, prop, screen = console(np.random.default_rng([seed, k, 1]), draw)
            with np.errstate(over="ignore"):
                play(replay, tia, log, cuts, s, prop, screen)
                scanline.forget(s)
            consoles.append((s, screen))
        (plain, picture), *others = consoles
        for s, screen in others:
            assert list(s) == list(plain), [k for k in range(S_SIZE) if s[k] != plain[k]]
            np.testing.assert_array_equal(screen, picture)


def test_the_table_of_motions_is_what_hmove_does():
    motion = module("tia_motion").motion
    assert [motion(cycle, nibble) for cycle in range(LINE_CYCLES) for nibble in range(16)] == MOTION.tolist()
