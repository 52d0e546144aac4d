"""Translated programs for a GPU, run on a CPU beside the interpreter: every number of the state after every frame."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from dqnitro.atari.chips.cpu_run import STEP, T_PROGRAM
from dqnitro.atari.chips.layout import S_CYCLES, S_LEFT, S_LOGGED, S_ORIGIN, S_TOUCH
from dqnitro.atari.jit.target import CHECKED
from support.atari.cuda_twin import made
from support.atari.fuzz_random_roms import SIZES
from support.atari.translated import KINDS, SOME, interpreted, play_both, written_program

pytestmark = pytest.mark.skipif(CHECKED, reason="translated programs take addresses, which cannot be checked")


@pytest.mark.parametrize("game", KINDS)
def test_games_of_every_cartridge_are_equal(game):
    console = interpreted(game=game)
    for together in (False, True):
        play_both(console, made(console.rom, together, SOME), frames=60)


@pytest.mark.parametrize("kind", SIZES)
def test_random_bytes_are_equal(kind):
    random = np.random.default_rng(list(SIZES).index(kind))
    image = random.integers(0, 256, SIZES[kind], np.uint8)
    image[np.isin(image, range(0x02, 0x100, 0x10))] = 0x85  # no opcode that stops the CPU
    console = interpreted(rom=image.tobytes(), cartridge=kind)
    play_both(console, made(console.rom, together=False, most=250), frames=12, seed=1)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("together", [False, True])
def test_random_instructions_are_equal(seed, together):
    console = interpreted(rom=written_program(np.random.default_rng(seed)), cartridge="4K")
    play_both(console, made(console.rom, together, 600), frames=40, seed=seed)


def test_a_program_plays_long_stretches_alone():
    """One that returned at once would be equal as well."""
    console = interpreted(game="breakout")
    program = made(console.rom, together=False)
    s, ram, image, _, prop, log, screen = console._chips(0)
    s[[S_CYCLES, S_ORIGIN, S_LOGGED, S_TOUCH]], s[S_LEFT] = 0, 25_000
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7)(int(program.table[T_PROGRAM]))
    assert call(program.address, *(array.ctypes.data for array in (s, ram, image, prop, log, screen))) == STEP
    assert 25_000 - s[S_LEFT] > 800
