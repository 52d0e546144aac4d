"""Translated programs beside the interpreter: every number of the state, RAM and screen after every frame."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dqnitro.atari import AtariVec
from dqnitro.atari.chips.cpu_run import STEP, T_PROGRAM
from dqnitro.atari.chips.layout import P_PROGRAM, S_CYCLES, S_LATCH, S_LEFT, S_LOGGED, S_ORIGIN, S_TOUCH
from dqnitro.atari.cuda import program as cuda_program
from dqnitro.atari.games import roms
from dqnitro.atari.jit import code_cache, dependencies
from dqnitro.atari.jit.target import CHECKED
from dqnitro.atari.translate import program
from support.atari.fuzz_random_roms import SIZES
from support.atari.translated import KINDS, SOME, interpreted, play_both, written_program

pytestmark = pytest.mark.skipif(CHECKED, reason="translated programs take addresses, which cannot be checked")


def translated(rom: roms.Rom, most: int = SOME) -> program.Program:
    return program.Program(*program.make(rom, most))


@pytest.mark.parametrize("game", KINDS)
def test_games_of_every_cartridge_are_equal(game):
    console = interpreted(game=game)
    assert console.rom.cartridge == KINDS[game]
    play_both(console, translated(console.rom), frames=120)


def test_a_program_plays_long_stretches_alone():
    """A frame of Breakout is one call; a program that returned at once would be exact as well, and slow."""
    console = interpreted(game="breakout")
    made = translated(console.rom, most=6000)
    for _ in range(3):
        s, ram, image, _, prop, log, screen = console._chips(0)
        s[[S_CYCLES, S_ORIGIN, S_LOGGED, S_TOUCH]], s[S_LEFT] = 0, 25_000
        call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7)(int(made.table[T_PROGRAM]))
        arrays = (s, ram, image, prop, log, screen)
        assert call(made.address, *(array.ctypes.data for array in arrays)) == STEP
        assert 25_000 - s[S_LEFT] > 800
        console.act(0)


@pytest.mark.parametrize("kind", SIZES)
def test_random_bytes_are_equal(kind):
    """Jumps into the middle of instructions, code in RAM, banks switched anywhere, dead CPUs."""
    random = np.random.default_rng(list(SIZES).index(kind))
    for _ in range(3):
        image = random.integers(0, 256, SIZES[kind], np.uint8)
        image[np.isin(image, range(0x02, 0x100, 0x10))] = 0x85  # no opcode that stops the CPU
        console = interpreted(rom=image.tobytes(), cartridge=kind)
        play_both(console, translated(console.rom, 250), frames=12, seed=1)


@pytest.mark.parametrize("seed", range(3))
def test_random_instructions_are_equal(seed):
    """All documented and undocumented operations, in binary and decimal mode, on all chips."""
    image = written_program(np.random.default_rng(seed))
    console = interpreted(rom=image, cartridge="4K")
    play_both(console, translated(console.rom, 600), frames=40, seed=seed)


# ---- files and threads


PATH = program._path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for programs, and a process that has none yet."""
    monkeypatch.setattr(program, "_path", lambda name: tmp_path / f"dqnitro-program-{name}.bin")
    monkeypatch.setattr(program, "_PROGRAMS", program.Programs())
    code_cache.say_once.cache_clear()
    return tmp_path


LOOP = bytes((0xE6, 0x80, 0x4C, 0x00, 0xF0)) + bytes(0xFF7) + bytes((0x00, 0xF0, 0x00, 0xF0))  # INC 80, JMP F000


def small(first: int = 0xE6) -> roms.Rom:
    return roms.build("small", bytes((first,)) + LOOP[1:], "4K")


def asked(rom: roms.Rom, setting: str = program.WAIT) -> int:
    prop = rom.prop.copy()
    program.Request(rom, prop, setting=setting)
    return int(prop[P_PROGRAM])


def files(folder: Any) -> list[Any]:
    return sorted(folder.rglob("dqnitro-program-*.bin"))


def test_a_program_is_made_once_and_loaded_later(folder, monkeypatch, capsys):
    assert asked(small(), setting="1") == 0  # nothing is there, and nothing is made for an environment that is new
    assert files(folder) == []
    assert asked(small()) != 0
    assert "translating small" in capsys.readouterr().err
    assert len(files(folder)) == 1
    monkeypatch.setattr(program, "_PROGRAMS", program.Programs())
    monkeypatch.setattr(program.Programs, "_make", None)  # may not be called
    assert asked(small(), setting="1") != 0
    assert asked(small(0xC6), setting="1") == 0  # another ROM
    assert asked(small(), setting=program.OFF) == 0


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b[:100] + b"?" + b[101:], lambda b: b"", lambda b: b"x"]
)
def test_a_damaged_file_is_made_again(folder, monkeypatch, capsys, damage):
    asked(small())
    (path,) = files(folder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    monkeypatch.setattr(program, "_PROGRAMS", program.Programs())
    assert asked(small(), setting="1") == 0
    assert "is of no use" in capsys.readouterr().err
    assert asked(small()) != 0
    assert path.read_bytes()[:8] == whole[:8] and len(path.read_bytes()) == len(whole)


def test_what_another_process_has_made_meanwhile_is_loaded(folder, monkeypatch):
    asked(small())
    (path,) = files(folder)
    monkeypatch.setattr(program, "make", lambda rom: 1 / 0)
    assert program._made(small(), path, child=False).address != 0


def test_without_a_folder_a_program_lives_in_memory(folder, monkeypatch, capsys):
    def no_folder(function):
        raise RuntimeError("no locator")

    monkeypatch.setattr(program, "_path", PATH)
    assert PATH("some") is not None
    monkeypatch.setattr(program, "FunctionCache", no_folder)
    assert PATH("some") is None
    assert asked(small()) == asked(small(), setting="1") != 0
    assert files(folder) == []


def test_a_full_disk_is_told_and_survived(folder, monkeypatch, capsys):
    def full(self, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    assert asked(small()) != 0
    assert "No space left" in capsys.readouterr().err


def test_a_rom_that_cannot_be_translated_stays_interpreted(folder, monkeypatch, capsys):
    monkeypatch.setattr(program, "make", lambda rom: 1 / 0)
    assert asked(small()) == 0
    assert "stays interpreted" in capsys.readouterr().err
    assert asked(small()) == 0  # and is not tried again


def test_machines_and_versions_have_programs_of_their_own(monkeypatch):
    name = program.key(small())
    assert name == program.key(small()) != program.key(small(0xC6))
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "another")
    assert name != program.key(small())
    monkeypatch.undo()
    monkeypatch.setattr("llvmlite.__version__", "0.0")
    assert name != program.key(small())


def test_consoles_get_a_program_when_they_have_played_much(folder, monkeypatch):
    monkeypatch.setattr(program, "HOT_FRAMES", 100)
    rom = small()
    prop, also = rom.prop.copy(), rom.prop.copy()
    request = program.Request(rom, prop, setting="1")
    request.played(99)
    assert not request.settled and prop[P_PROGRAM] == 0
    request.played(1)
    assert request.settled
    program.Request(rom, also, setting=program.WAIT)  # asks for the same while it is made
    for thread in threading.enumerate():
        if thread.name == "translate-small":
            thread.join(600)
    assert prop[P_PROGRAM] == also[P_PROGRAM] != 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_keeps_the_programs_of_its_parent(folder, monkeypatch):
    """A child's consoles have their addresses; a program that was freed there would be a crash."""
    monkeypatch.setattr(program, "make", lambda rom, make=program.make: make(rom, SOME))
    env = AtariVec("pong", 2, num_threads=1)
    env.translation.translate()
    assert env.translation.granted
    env.reset(seed=1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            gc.collect()
            env.step([0, 1])
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_an_environment_goes_on_with_the_program(folder, monkeypatch):
    """The switch in the middle of play changes nothing that an agent sees."""
    monkeypatch.setattr(program, "make", lambda rom, make=program.make: make(rom, SOME))
    plain, switched = (AtariVec("pong", 2, num_threads=1) for _ in range(2))
    for env in (plain, switched):
        env.translation.interpret()
        env.reset(seed=1)
    for k in range(60):
        if k == 20:
            switched.translation.translate()
            assert switched.translation.granted and not plain.translation.granted
        actions = np.array([k % 6, (k // 5) % 6])
        for one, two in zip(plain.step(actions)[:4], switched.step(actions)[:4], strict=True):
            assert np.array_equal(one, two)
    state, other = plain.get_state(), switched.get_state()
    state["state"][:, S_LATCH] = other["state"][:, S_LATCH] = 0
    assert all(np.array_equal(state[name], other[name]) for name in state)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_does_not_wait_for_its_parents_thread():
    code = (
        "import os\n"
        "from dqnitro.atari.translate import program\n"
        "program._PROGRAMS._lock.acquire()\n"
        "if os.fork() == 0:\n"
        "    with program._PROGRAMS._lock:\n"
        "        os._exit(0)\n"
        "assert os.wait()[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_kept_program_depends_on_every_module_of_the_translator():
    folder = Path(program.__file__).parent
    others = {"__init__.py", "child.py", "measure.py"}  # nothing of a program comes from them
    for module in (program, cuda_program):
        found = dependencies.closure([Path(module.__file__)], lambda p: p.read_bytes() if p.exists() else None)
        assert {p.name for p in found if p.parent == folder} == {p.name for p in folder.glob("*.py")} - others
