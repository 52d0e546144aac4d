"""Compiled code that is kept between starts: damage, full disks and missing folders cost a compile, never a start."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core import caching, types
from numba.core.ccallback import CFunc

from dqnitro.atari.jit import code_cache

SRC = Path(code_cache.__file__).parents[3]


def triple(x):
    return 3 * x


def start():
    """What a process does at its start: a dispatcher that knows only what is in the cache."""
    return code_cache.kept(nogil=True)(triple)


def start_unit():
    """The same for a unit of the console, with a stamp of its own."""
    code = CFunc(triple, ((types.int64,), types.int64), locals={}, options={"nopython": True})
    code_cache.keep(code, triple, "stamp of the console")
    code.compile()
    return code


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    code_cache.say_once.cache_clear()
    return tmp_path


DAMAGE = {
    "empty": lambda b: b"",
    "cut off": lambda b: b[: len(b) // 2],
    "only its head": lambda b: b[:20],
    "garbage": lambda b: bytes(range(256)) * 4,
    "one bit": lambda b: b[:-100] + bytes([b[-100] ^ 4]) + b[-99:],
    "zeros": lambda b: bytes(len(b)),
    "longer": lambda b: b + b"x",
}


@pytest.mark.parametrize("kind", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("make", [start, start_unit])
def test_a_damaged_file_is_noticed_told_once_and_replaced(make, damage, kind, folder, capsys):
    def hits(code) -> int:
        if isinstance(code, CFunc):
            assert code.ctypes(7) == 21
            return code.cache_hits
        assert code(7) == 21
        return sum(code.stats.cache_hits.values())

    assert hits(make()) == 0 and hits(make()) == 1
    (path,) = folder.rglob(f"*{kind}")
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert capsys.readouterr().err == ""
    assert hits(make()) == 0, "the damaged file was used"
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "is damaged; compiling it again" in said
    assert hits(make()) == 1, "the file was not replaced"
    assert {p.suffix for p in folder.rglob("*") if p.is_file()} == {".nbi", ".nbc"}, "a temporary file is left"


def test_files_of_numba_itself_are_replaced_without_a_word(folder, capsys):
    plain = numba.njit(triple)
    plain.enable_caching()
    assert plain(7) == 21
    assert start()(7) == 21
    assert sum(start().stats.cache_hits.values()) == 0 and capsys.readouterr().err == ""


def test_another_stamp_is_another_source(folder):
    start_unit()
    code = CFunc(triple, ((types.int64,), types.int64), locals={}, options={"nopython": True})
    code_cache.keep(code, triple, "stamp of another version")
    code.compile()
    assert code.cache_hits == 0 and start_unit().cache_hits == 0


def test_a_full_disk_keeps_nothing_and_says_so(folder, monkeypatch, capsys):
    @contextlib.contextmanager
    def full(self, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield

    monkeypatch.setattr(caching.IndexDataCacheFile, "_open_for_write", full)
    assert start()(7) == 21
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "No space left" in said and "NUMBA_CACHE_DIR" in said


def test_without_a_folder_code_is_compiled_at_every_start(folder, monkeypatch, capsys):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    assert start()(7) == 21 and start()(7) == 21
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "every start compiles" in said and "NUMBA_CACHE_DIR" in said


def test_the_learner_compiles_where_nothing_can_be_written():
    """All of the learner's kernels in a process without any folder for compiled code."""
    code = """
from numba.core import caching
caching.CacheImpl._locator_classes = []  # a wheel in a read-only folder, and no home
import numpy as np
from dqnitro.learn.cpu import one_pass_adam, patch_kernels
from dqnitro.replay import frames_numba
ids = np.zeros((1, 1, 1), np.int32)
words = np.zeros((1, 4, 2), np.uint64)
n = patch_kernels.number_blocks(
    words, patch_kernels.FACTORS, np.zeros(8, np.int32), np.zeros((8, 8), np.uint64), ids, 0
)
print(n, one_pass_adam.step_float32.__name__, frames_numba.stacks.__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(SRC)}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "step_float32", "stacks"], done.stderr
    assert done.stderr.count("\n") == 1 and "NUMBA_CACHE_DIR" in done.stderr
