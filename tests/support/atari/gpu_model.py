"""The console as a GPU runs it, in plain Python: the same rewritten functions, with numbers that wrap at 32 bits.

Loaded as ``cuda.py`` does it, under another package name with another `target`: so both versions live in one process
and can be stepped side by side without a GPU. What is left out is the compiler, and that a warp has more than one
machine.
"""

from __future__ import annotations

import ast
import importlib
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import dqnitro.atari
from dqnitro.atari.chips.layout import LOG_SIZE, P_PROGRAM, P_TOGETHER, S_MASK_P0, S_PADDLE0, S_SIZE
from dqnitro.atari.console import Console
from dqnitro.atari.cuda.microcode import microcode
from dqnitro.atari.cuda.rewrite_branches import as_trees
from dqnitro.atari.cuda.rewrite_int32 import as_narrow

FOLDER = Path(dqnitro.atari.__file__).parent
PACKAGE = "dqnitro.atari.on_paper"
HAPPENED: Counter[str] = Counter()  # calls by function


def narrow_modules() -> set[str]:
    """What target_cuda, which only a machine with numba-cuda can import, makes narrow."""
    for node in ast.parse((FOLDER / "cuda" / "target.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "NARROW":
            return ast.literal_eval(node.value)
    raise AssertionError("target_cuda has no NARROW")


def narrow32(value: Any) -> int:
    """As int32: the low 32 bits, with a sign."""
    return ((int(value) + 2**31) & 0xFFFFFFFF) - 2**31


class Numbers(list[int]):
    """An array of int32: what is stored wraps, what is read is a number that computes with more bits."""

    def __setitem__(self, k: Any, value: Any) -> None:
        super().__setitem__(int(k), narrow32(value))


def _same(x: Any) -> Any:
    return x


def _target() -> types.ModuleType:
    target: Any = types.ModuleType(f"{PACKAGE}.target")
    narrow = narrow_modules()

    def compiled(function: Any) -> Any:
        name = function.__name__
        function = as_trees(function)
        if function.__module__.rpartition(".")[2] in narrow:
            function = as_narrow(function, narrow32)

        def counted(*arguments: Any) -> Any:
            HAPPENED[name] += 1
            return function(*arguments)

        return counted

    def get_word(s: Any, at: int) -> Any:
        upper = at + S_SIZE - S_MASK_P0
        return np.uint64((int(s[at]) & 0xFFFFFFFF) | ((int(s[upper]) & 0xFFFFFFFF) << 32))

    def put_word(s: Any, at: int, word: Any) -> None:
        s[at], s[at + S_SIZE - S_MASK_P0] = narrow32(word), narrow32(int(word) >> 32)

    def meet(lanes: int) -> None:
        HAPPENED["meet"] += 1

    def byte_at(ram: Any, k: int, table: Any, place: int, in_rom: bool) -> int:
        return int(table[place]) & 0xFF if in_rom else int(ram[k])

    arrays = ("as_state", "as_log", "as_ram", "as_bytes", "as_words", "as_int32", "as_screen")
    for name in (*arrays, "address", "wide"):
        setattr(target, name, _same)
    for name in ("compiled", "inlined", "spliced", "unit"):
        setattr(target, name, compiled)
    target.get_word, target.put_word, target.meet, target.together = get_word, put_word, meet, lambda: 1
    target.byte_at, target.byte_of = byte_at, lambda number, shift: (number >> shift) & 0xFF
    target.lower, target.upper = narrow32, lambda number: narrow32(int(number) >> 32)
    target.TRANSLATES, target.call_program, target.call_translated = False, None, None
    target.MEETS, target.mul32, target.add32 = True, None, None  # the resize is not played here
    return target


def load() -> Any:
    """Its `environment` module."""
    if PACKAGE not in sys.modules:
        package = types.ModuleType(PACKAGE)
        package.__path__ = [str(FOLDER)]
        sys.modules[PACKAGE] = package
        sys.modules[f"{PACKAGE}.jit.target"] = _target()
        sys.modules[f"{PACKAGE}.chips.cpu_fast"] = importlib.import_module(f"{PACKAGE}.cuda.cpu_dispatch")
    return importlib.import_module(f"{PACKAGE}.games.environment")


class OnPaper:
    """One machine that goes on where a console of one machine stands."""

    def __init__(self, console: Console, together: bool) -> None:
        self.environment = load()
        self.console = console
        state = console._state[0]
        self.s = Numbers([narrow32(v) for v in (*state, *(state[S_MASK_P0:S_PADDLE0] >> 32))])
        self.prop = Numbers(console._prop.tolist())
        self.prop[P_TOGETHER] = together
        self.prop[P_PROGRAM] = 0  # paper cannot call machine code
        self.ram, self.screen, self.g, self.mt = (
            x[0].copy() for x in (console._ram, console._screen, console._g, console._mt)
        )
        self.dec = microcode(console.rom.image, console._prop) if together else console._dec
        self.log = np.zeros(LOG_SIZE, np.int64)

    def act(self, action: int, draw: bool) -> int:
        c = self.console
        with np.errstate(over="ignore"):
            chips = self.environment.Chips(
                self.s, self.ram, c.rom.image, self.dec, self.prop, self.log, self.screen
            )  # fmt: skip
            play = self.environment.Play(c._game, self.g, self.mt)
            return self.environment.act(chips, play, action, c._sticky, int(draw))

    def compare(self) -> None:
        """Every number of the machine, the masks from their halves."""
        state = self.console._state[0]
        upper = np.array(self.s[S_SIZE:], np.int64) << 32
        mine = np.array(self.s[:S_SIZE], np.int64)
        mine[S_MASK_P0:S_PADDLE0] = (mine[S_MASK_P0:S_PADDLE0] & 0xFFFFFFFF) | upper
        np.testing.assert_array_equal(mine, state, "state")
        for name, x, y in (
            ("ram", self.ram, self.console._ram), ("screen", self.screen, self.console._screen),
            ("rules", self.g, self.console._g), ("rng", self.mt, self.console._mt),
        ):  # fmt: skip
            np.testing.assert_array_equal(x, y[0], name)
