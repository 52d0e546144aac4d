"""Fall-backs for macOS and Windows, tried here by taking away what those systems lack. It is not the same as running
there (docs/install.md says what was not).
"""

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

from dqnitro import process_setup
from dqnitro.common import files, host, signals
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.requirements import check_runner
from dqnitro.run.processes import player, shared_memory
from dqnitro.seeds import launcher

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture
def no_proc(monkeypatch):
    """As if there were no /proc."""
    usual = pathlib.Path.open

    def refuse(self, *args, **kwargs):
        if self.as_posix().startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", str(self))
        return usual(self, *args, **kwargs)

    monkeypatch.setattr(pathlib.Path, "open", refuse)


def test_a_run_trains_without_what_only_posix_has(tmp_path):
    """The whole way: signals installed, folder locked, checkpoint written, summary read back."""
    settings = [
        "--recipe", "baseline", "--hidden-units", "16", "--batch-size", "8", "--first-fill-steps", "50",
        "--replay-capacity", "400", "--steps", "200", "--no-video", "--run-dir", str(tmp_path / "run"),
    ]  # fmt: skip
    command = [sys.executable, str(HERE / "windows_like.py"), "train", "CartPole-v1", *settings]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p) for p in sys.path)}
    done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "page.html").exists() and "stopped by --steps" in done.stdout


def test_cpu_and_cores_are_known_without_proc_and_affinity(monkeypatch, no_proc):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert host.cpu_flags() == set() and isinstance(host.cpu_name(), str)
    assert host.usable_cores() == os.cpu_count()
    from dqnitro.atari.jit import parallel_compile

    assert parallel_compile.usable_cores() == os.cpu_count()


def test_the_process_is_prepared_without_proc(monkeypatch, no_proc):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    process_setup.prepare()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


@pytest.mark.parametrize("error", [TypeError, OSError])
def test_freed_memory_goes_back_where_a_process_is_no_library(monkeypatch, error):
    def refuse(name):
        raise error("bad argument type for built-in operation")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    assert process_setup.keep_freed_memory() is False


def test_locks_are_windows_own_or_none(monkeypatch, tmp_path):
    held: set[int] = set()

    def locking(fd, mode, n):
        if held:
            raise PermissionError(13, "Permission denied")
        held.add(fd)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    with (tmp_path / files.LOCK).open("a") as file:
        monkeypatch.setitem(sys.modules, "msvcrt", None)
        assert files.take_lock(file) is None
        monkeypatch.setitem(sys.modules, "msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2))
        assert files.take_lock(file) is True and files.take_lock(file) is False
        assert files.is_locked(tmp_path)


def test_compiling_goes_on_without_locks(monkeypatch, tmp_path):
    from dqnitro.atari.jit.parallel_compile import locked

    monkeypatch.setitem(sys.modules, "fcntl", None)
    with locked(tmp_path, lambda: pytest.fail("there is nobody to wait for")):
        assert not list(tmp_path.iterdir())


def test_a_wait_is_broken_off_without_signals_to_threads(monkeypatch):
    monkeypatch.delattr(signal, "pthread_kill", raising=False)
    monkeypatch.setattr(signals, "PATIENCE_S", 0.05)

    def wait():
        with signals.WAIT:
            signal.raise_signal(signal.SIGINT)
            wait_until(lambda: False)

    with signals.Signals().installed() as installed, pytest.raises(signals.Interrupted):
        wait()
    assert installed.caught == "SIGINT"


@pytest.mark.parametrize("runner", ["processes", "cluster"])
def test_runners_that_need_posix_are_refused_in_one_line(monkeypatch, runner):
    monkeypatch.delattr(os, "register_at_fork", raising=False)
    with pytest.raises(ConfigError, match=f"runner {runner}: its processes need signals and pipes of Linux or macOS"):
        check_runner(Config(runner=runner, slack_steps=64))


def test_a_member_is_told_by_its_input_where_signals_do_not_travel(tmp_path, monkeypatch):
    """It saves (here: leaves a file) and ends; a second word ends one that does not answer."""
    told, up = tmp_path / "told", tmp_path / "up"
    member = (
        "import pathlib, signal, sys, time; from dqnitro.seeds import launcher; launcher.SIGNALS_TRAVEL = False; "
        f"signal.signal(15, lambda *_: (pathlib.Path({str(told)!r}).touch(), sys.exit())); "
        f"launcher.stop_with_parent(); pathlib.Path({str(up)!r}).touch()\n"
        "while True: time.sleep(0.02)"
    )
    deaf = f"import pathlib, time; pathlib.Path({str(up)!r}).touch(); time.sleep(600)"
    monkeypatch.setattr(launcher, "SIGNALS_TRAVEL", False)
    for code, words in ((member, 1), (deaf, 2)):
        team = launcher.Team(lambda s, c=code: [sys.executable, "-c", c], [1], 1, lambda s: tmp_path / "log")
        team.poll()
        wait_until(up.exists)
        up.unlink()
        for _ in range(words):
            team.stop(signal.SIGINT)
        team.members[1].process.wait(60)
        assert told.exists()


def wait_until(true, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def test_memory_is_shared_without_memfd(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    memory = shared_memory.SharedMemory()
    first, second = memory.allocate(4096), memory.map()
    first[7] = 42
    assert second[7] == 42 and np.shares_memory(first, first[7:]) and len(second) == 4096
    memory.close()


def test_a_player_ends_with_its_parent_where_the_kernel_does_not_see_to_it(monkeypatch):
    parents, codes = iter([7, 7, 1]), []
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(time, "sleep", lambda s: None)
    thread = threading.Thread(target=player._outlive_nobody, args=(7,))
    thread.start()
    thread.join(30)
    assert codes == [0]


def test_the_load_may_be_unknown(monkeypatch):
    from dqnitro.lab.race import load_before

    monkeypatch.delattr(os, "getloadavg", raising=False)
    assert load_before() is None
