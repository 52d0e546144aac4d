# ruff: noqa: F403, F405
"""A trial run by the reference: where does a program jump to through pointers, returns and hot spots?

No analysis of the code can tell, so some seconds of play without rules do: power-on, the switch RESET, then all actions
in turn. What it does not reach is found by following the code (`discover.py`) or stays with the interpreter.
"""

from __future__ import annotations

import numpy as np

from ..chips.controls import RESET_DOWN, centre_paddles, press, release
from ..chips.cpu_opcodes import BRK, IND, JMP, MODE, OP, RTI, RTS
from ..chips.cpu_reference import step_unit
from ..chips.cpu_run import place_of
from ..chips.frame import begin, power, reset
from ..chips.layout import *
from ..chips.memory_map import A12
from ..chips.rng import MT_SIZE, mt_seed
from ..chips.tia import replay_unit
from ..games.roms import Rom
from ..jit.target import address, compiled

BEFORE, PRESSED, AFTER = 60, 4, 240  # frames: from power-on, with RESET pressed, of play
HOLD = 8  # frames of play with the same action


@compiled
def jumps_anywhere(opcode):
    op = OP[opcode]
    return op == RTS or op == RTI or op == BRK or (op == JMP and MODE[opcode] == IND)


@compiled
def trace_frame(s, ram, rom, prop, log, screen, seen):
    """One frame by the reference. `seen`, by place: the program counters that indirect jumps led to."""
    console = address(s), address(ram), address(rom), address(prop), address(log), address(screen)
    begin(s, ram, prop, 0)
    while s[S_LEFT] > 0 and s[S_DEAD] == 0 and s[S_STOP] == 0:
        inside = s[S_PC] & A12 != 0
        bank, slices = s[S_BANK], s[S_SLICE0] + (s[S_SLICE1] << 16) + (s[S_SLICE2] << 32)
        anywhere = not inside or jumps_anywhere(rom[place_of(s, prop)])
        s[S_LEFT] -= 1
        step_unit(*console)
        switched = s[S_BANK] != bank or s[S_SLICE0] + (s[S_SLICE1] << 16) + (s[S_SLICE2] << 32) != slices
        if s[S_PC] & A12 and (anywhere or switched or s[S_STOP]):
            place = place_of(s, prop)
            if seen[place] == 0:
                seen[place] = s[S_PC]
    replay_unit(console[0], console[3], console[4], 3 * s[S_TOUCH], console[5])
    s[S_LINES] = (s[S_CYCLES] - s[S_ORIGIN]) // LINE_CYCLES
    if s[S_PARTIAL] == 0:
        s[S_LAST_LINES] = s[S_LINES]


@compiled
def explore(s, ram, rom, prop, log, screen, mt, seen):
    mt_seed(mt, 0)
    power(s, ram, mt)
    release(s, prop)
    centre_paddles(s, prop)
    reset(s, ram, rom, prop, log, screen, mt)
    seen[place_of(s, prop)] = s[S_PC]
    for k in range(BEFORE + PRESSED + AFTER):
        action = (k // HOLD * 7) % 18 if k >= BEFORE + PRESSED else 0
        press(s, prop, action, RESET_DOWN if BEFORE <= k < BEFORE + PRESSED else 0)
        trace_frame(s, ram, rom, prop, log, screen, seen)


def arrays(rom: Rom) -> tuple[np.ndarray, ...]:
    """What `explore` takes."""
    return (
        np.zeros(S_SIZE, np.int64), np.zeros(256, np.uint8), rom.image, rom.prop, np.zeros(LOG_SIZE, np.int64),
        np.zeros((2, ROWS, WORDS), np.uint64), np.zeros(MT_SIZE, np.uint32), np.zeros(rom.image.size, np.int32),
    )  # fmt: skip


def entries(rom: Rom) -> list[tuple[int, int]]:
    """Places that a program reached indirectly, with their program counters."""
    console = arrays(rom)
    explore(*console)
    seen = console[-1]
    return [(int(place), int(seen[place])) for place in np.flatnonzero(seen)]
