"""The console compiled ahead, in a process of its own."""

import subprocess
import sys
import threading

import pytest

from dqnitro.atari import compile_early as process
from dqnitro.atari.jit import compile_early, parallel_compile


class Sleeper:
    """A process that does nothing."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], text=True)

    def __call__(self, name: str, **options: object) -> "subprocess.Popen[str]":
        return self.process


@pytest.fixture
def nothing_begun(tmp_path, monkeypatch):
    monkeypatch.setenv("DQNITRO_CACHE", str(tmp_path))
    monkeypatch.setattr(parallel_compile, "early", None)


def test_it_begins_once_and_ends_with_the_program(nothing_begun, monkeypatch):
    pytest.importorskip("fcntl", reason="it needs the locks of Linux or macOS")
    sleeper = Sleeper()
    monkeypatch.setattr(parallel_compile, "start_module", sleeper)
    assert compile_early.begin() and compile_early.under_way()
    assert not compile_early.begin(), "one is enough"
    compile_early.end(sleeper.process)
    assert sleeper.process.wait(60) != 0 and not compile_early.under_way()


def test_a_mark_says_that_there_is_nothing_to_compile(nothing_begun, monkeypatch):
    monkeypatch.setattr(parallel_compile, "start_module", lambda *a, **k: pytest.fail("started"))
    compile_early.keep_mark()
    assert compile_early.mark().is_file() and not compile_early.begin()


def test_a_mark_is_of_one_version_at_one_place(nothing_begun, monkeypatch, tmp_path):
    here = compile_early.mark()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert compile_early.mark() != here
    monkeypatch.setattr(compile_early, "ATARI", tmp_path)
    (tmp_path / "x.py").write_text("changed = 1")
    assert compile_early.mark() not in (here, None)


def test_a_folder_that_cannot_be_written_costs_only_the_mark(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DQNITRO_CACHE", str(tmp_path / "file" / "below"))
    compile_early.keep_mark()


def test_the_process_loads_the_console_and_leaves_the_mark(nothing_begun, monkeypatch):
    monkeypatch.setattr(parallel_compile, "end_with_parent", lambda: None)
    process.main()
    assert compile_early.mark().is_file()


def test_who_waits_for_another_process_is_told_again_and_again(tmp_path):
    pytest.importorskip("fcntl", reason="it needs the locks of Linux or macOS")
    told: list[str] = []
    held, waited, free = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with parallel_compile.locked(tmp_path):
            held.set()
            free.wait(60)

    def waiting() -> None:
        told.append("waiting")
        if len(told) == 4:
            free.set()

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    with parallel_compile.locked(tmp_path, lambda: told.append("once"), waiting):
        waited.set()
    holder.join()
    assert waited.is_set() and told[:4] == ["once", "waiting", "waiting", "waiting"] and told.count("once") == 1
