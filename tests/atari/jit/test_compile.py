"""First use: parts compiled by several processes, one at a time in one folder, and what happens when that fails."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.caching import NullCache

from dqnitro.atari import compile_units
from dqnitro.atari.games import game_table, roms
from dqnitro.atari.jit import dependencies, target
from dqnitro.atari.jit import parallel_compile as first_use

TINY = """
import numba
from numba.core import caching
caching.CacheImpl._locator_classes = []  # no folder can be written
from dqnitro.atari.jit import target
twice = target._unit(eval("lambda x: 2 * x"))
again = target.compiled(eval("lambda x: x + 1"))
print(again(20), numba.njit(lambda: twice(21))())
"""


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True)


class FakeHelper:
    """Does `can` parts, then fails."""

    made: list[FakeHelper]
    can: list[int]

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.left = self.can.pop()
        self.failed = False
        self.made.append(self)

    def compile(self, part: str) -> float | None:
        if self.left == 0:
            self.failed = True
            return None
        self.left -= 1
        self.parts.append(part)
        return 1.5

    def end(self) -> str:
        return "out of memory" if self.failed else ""


@pytest.fixture
def fakes(monkeypatch):
    """Run `work` with helpers that can do so many parts each."""

    def run(*can: int) -> tuple[dict[str, float], list[str]]:
        monkeypatch.setattr(FakeHelper, "can", list(can), raising=False)
        monkeypatch.setattr(FakeHelper, "made", [], raising=False)
        monkeypatch.setattr(first_use, "Helper", FakeHelper)
        said: list[str] = []
        return first_use.work(first_use.PARTS, len(can), said.append), said

    return run


@pytest.mark.parametrize("can", [(99,), (99, 99, 99)], ids=str)
def test_every_part_is_handed_out_once(can, fakes):
    seconds, said = fakes(*can)
    handed = [p for helper in FakeHelper.made for p in helper.parts]
    assert sorted(handed) == sorted(seconds) == sorted(first_use.PARTS)
    assert set(seconds.values()) == {1.5} and said == []


def test_the_parts_are_counted_where_a_program_wants_them_shown(fakes, monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr(first_use, "show", shown.append)
    fakes(99, 99)
    assert shown[-1] == "" and shown[-2].startswith("compiling the console: 6 of 6 parts, ")


@pytest.mark.parametrize(("can", "done"), [((2,), 2), ((0, 0), 0), ((0, 1, 0), 1)], ids=str)
def test_what_failed_helpers_leave_is_said_once(can, done, fakes):
    seconds, said = fakes(*can)
    assert len(seconds) == done
    assert len(said) == 1 and "out of memory" in said[0]


def test_a_program_with_python_inside_does_not_start_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(first_use, "Helper", lambda: pytest.fail("started"))
    said: list[str] = []
    assert first_use.compile_together(tmp_path, lambda: True, said.append) == {}
    assert len(said) == 1 and "once" in said[0]


def test_a_helper_compiles_into_the_cache_in_another_process(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    helper = first_use.Helper()
    assert helper.process.pid != os.getpid()
    assert (helper.compile("decode") or 0) > 0
    assert helper.compile("no such part") is None
    assert "no such part" in helper.end() and helper.process.returncode
    kept = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbc")}
    assert kept == {"cpu_predecode.decode_image", "cpu_predecode.fuse", "trace.explore"}, (
        "what others call, and nothing of what these call"
    )


def test_a_version_that_another_part_made_is_kept_as_well(tmp_path, monkeypatch):
    (tmp_path / "small.py").write_text("def half(x):\n    return x // 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    half: Any = target.compiled(importlib.import_module("small").half)
    half._cache = NullCache()
    assert half(8) == 4 and not list(tmp_path.rglob("*.nbc"))
    assert compile_units.kept(half)(9) == 4 and len(list(tmp_path.rglob("*.nbc"))) == 1


def test_the_stamp_of_a_module_follows_every_way_to_import_another(tmp_path):
    files = {
        "top.py": "from . import a, b\nfrom .pkg import c\nfrom .pkg.d import *\n\ndef f():\n    from . import lazy\n",
        "a.py": "from .deep import x\n", "b.py": "import os\n", "deep.py": "x = 1\n", "lazy.py": "",
        "pkg/__init__.py": "", "pkg/c.py": "from ..up import y\n", "pkg/d.py": "from . import e\n", "pkg/e.py": "",
        "up.py": "y = 2\n", "other.py": "",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = dependencies.closure([tmp_path / "top.py"], lambda p: p.read_bytes() if p.exists() else None)
    names = {str(path.relative_to(tmp_path)) for path in found}
    assert names == set(files) - {"lazy.py", "other.py"}


def test_a_helper_that_is_killed_is_a_helper_that_failed():
    helper = first_use.Helper()
    os.kill(helper.process.pid, signal.SIGKILL)
    assert helper.compile("decode") is None
    assert helper.end() == "exit code -9"


def test_the_parts_are_all_units_and_all_that_python_calls():
    code = (
        "from dqnitro.atari.jit import target; units = target.compile_later(); from dqnitro.atari.games import "
        "environment; "
        "print(*units)"
    )
    done = python(code)
    units = set(done.stdout.split())
    assert units == {p for p in first_use.PARTS if p.endswith("_unit")} | set(first_use.PROGRAM), done.stderr
    assert {"program", "step", "decode", "console"} < set(first_use.PARTS)


def test_a_second_process_waits_and_then_finds_the_cache_full(tmp_path):
    pytest.importorskip("fcntl", reason="locks of this kind exist on POSIX only")
    said: list[str] = []
    waits, result = threading.Event(), []

    def second() -> None:
        def say(text: str) -> None:
            said.append(text)
            waits.set()

        result.append(first_use.compile_together(tmp_path, lambda: False, say))

    with first_use.locked(tmp_path, lambda: pytest.fail("nobody holds it yet")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(20) and not result
    thread.join(20)
    assert result == [{}] and len(said) == 1 and "another process" in said[0]


def test_without_any_folder_to_write_to_everything_still_runs_and_says_so():
    done = python(TINY)
    assert done.stdout.split() == ["21", "42"], done.stderr
    assert done.stderr.count("hint: set NUMBA_CACHE_DIR") == 1 and "Traceback" not in done.stderr


def test_without_a_compiler_no_unit_is_compiled():
    code = (
        "from dqnitro.atari.jit import target; print(target.unit is target.compiled, target.compiled(lambda "
        "x: x + 1)(0))"
    )
    for env in ({"NUMBA_DISABLE_JIT": "1"}, {"NUMBA_DISABLE_JIT": "1", "DQNITRO_BOUNDSCHECK": "1"}):
        done = python(code, **env)
        assert done.stdout.split() == ["True", "1"], done.stderr


def test_one_compiled_version_serves_all_games():
    """A 2K image is built, not read, which once made its array of another type: twelve seconds of compiling."""
    from dqnitro.atari import AtariVec
    from dqnitro.atari.vector import worker

    kinds = {
        (r.image.dtype, r.image.flags.writeable, r.image.flags.c_contiguous) for r in map(roms.load, game_table.GAMES)
    }
    assert kinds == {(np.dtype(np.uint8), False, True)}
    for game, grayscale in (("pong", True), ("asteroids", False), ("tetris", True), ("air_raid", True)):
        envs = AtariVec(game, 1, num_threads=1, grayscale=grayscale)
        envs.reset(seed=1)
        envs.close()
    assert len(worker.work.signatures) == 1  # type: ignore[attr-defined]


def test_what_is_compiled_beforehand_is_what_python_calls():
    """A list that no longer fits would cost the first user half a minute more, without a word."""
    from dqnitro.atari import AtariVec, Console

    envs = AtariVec("pong", 2, num_threads=1)
    envs.reset(seed=1)
    envs.send(np.zeros(2, np.int64))
    assert isinstance(envs._flight[0].job.done, bool)
    envs.recv()
    envs.close()
    Console("pong").act(0)
    for function, arguments in compile_units.step_calls() + compile_units.console_calls():
        listed = tuple(function.typeof_pyval(a) for a in arguments)
        assert listed in function.signatures, f"{function.__name__} was called with {function.signatures}"
