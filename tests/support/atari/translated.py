"""Translated programs beside the interpreter: two consoles from one state, and programs of random instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from dqnitro.atari.chips.cpu_opcodes import LENGTH, MODE, NAMES, REL
from dqnitro.atari.chips.layout import P_PROGRAM, S_LATCH
from dqnitro.atari.console import Console
from dqnitro.atari.translate import program

# One game of each kind of cartridge.
KINDS = {
    "pong": "2K", "space_invaders": "4K", "beam_rider": "F8", "double_dunk": "F6", "montezuma_revenge": "E0",
    "robotank": "FE", "elevator_action": "F8SC", "darkchambers": "F6SC", "pitfall2": "DPC",
}  # fmt: skip
SOME = 500  # instructions: a part of most games, so both ways of running are used in every frame


def assert_equal(a: Console, b: Console, when: str) -> None:
    for one in (a, b):
        one._state[:, S_LATCH] = 0  # only a program outside the cartridge sees it, and then the reference has set it
    different = np.flatnonzero((a._state != b._state).any(0))
    assert not different.size, f"{when}: numbers {different.tolist()} of the state differ"
    assert np.array_equal(a._ram, b._ram), f"{when}: RAM differs"
    assert np.array_equal(a._screen, b._screen), f"{when}: the screen differs"


def play_both(console: Console, made: program.Program, frames: int, seed: int = 0) -> None:
    """Two consoles from one state, one of them translated; every seventh frame the two change places."""
    other = Console.__new__(Console)
    vars(other).update({k: v.copy() if isinstance(v, np.ndarray) else v for k, v in vars(console).items()})
    random = np.random.default_rng(seed)
    pair = [console, other]
    for k in range(frames):
        if k % 7 == 0:
            pair.reverse()
        pair[0]._prop[P_PROGRAM], pair[1]._prop[P_PROGRAM] = made.address, 0
        action, draw = int(random.integers(18)), bool(random.integers(2))
        for one in pair:
            one.act(action, draw)
        assert_equal(pair[0], pair[1], f"frame {k}")


def interpreted(**arguments: Any) -> Console:
    console = Console(**arguments)
    console.translation.interpret()
    return console


def written_program(random: np.random.Generator) -> bytes:
    """A ROM of documented instructions with operands in RAM, TIA, RIOT and ROM, that ends frames now and then."""
    code = bytearray()
    unusable = {"JAM", "BRK", "RTI", "RTS", "JMP", "JSR", "PHA", "PHP", "PLA", "PLP", "TXS", "SHS", "LAS"}
    usable = [c for c in range(256) if NAMES[c] not in unusable]
    while len(code) < 1100:
        opcode = int(random.choice(usable))
        length = int(LENGTH[MODE[opcode]])
        low = int(
            random.choice(
                np.array([random.integers(0, 0x2D), random.integers(0x80, 0x100), random.integers(0x80, 0x98)])
            )
        )
        high = int(random.choice(np.array([0, 0, 2, 0xF0 + random.integers(15), 0x10])))
        if MODE[opcode] == REL:
            low = int(random.integers(0, 6))
        code += bytes((opcode, low, high)[:length])
        if random.random() < 0.03:
            code += bytes((0x85, 0x02))  # STA WSYNC
        if random.random() < 0.02:
            code += bytes((0x48, 0x08, 0x28, 0x68))  # PHA, PHP, PLP, PLA
        if random.random() < 0.01:
            code += bytes((0xA9, 2, 0x85, 0, 0x85, 2, 0x85, 2, 0xA9, 0, 0x85, 0))  # VSYNC on, two lines, off
    end = 0xF000 + len(code)
    code += bytes((0xA2, 0xFF, 0x9A, 0x4C, 0x00, 0xF0))  # LDX #FF, TXS, JMP F000
    code += bytes([0x60] * (4096 - len(code)))
    code[0xFFC:0x1000] = bytes((end & 0xFF, end >> 8, end & 0xFF, end >> 8))
    return bytes(code)
