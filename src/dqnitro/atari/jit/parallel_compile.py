"""Compile the console on its first use, on all cores at once, into Numba's cache.

The parts refer to each other by symbol only, so each can be compiled without the others. The process that finds the
cache empty starts one helper process per core (`python -m dqnitro.atari.compile_units`), gives them one part after
another through a pipe, the most expensive first, and then loads everything from the cache. A part that no helper could
compile is compiled where it is needed, as if there were no helpers. A lock keeps a second process from doing the same
work: it waits, and finds the cache full.

While it compiles, a line on a terminal counts the parts and the seconds; a program with a display of its own sets
`show` to get that line, and finds in `spans` when it waited for the compiler.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

# The most expensive first, so that the last to finish are small.
PARTS = ("program", "step", "replay_unit", "one_frame_unit", "decode", "console")
PROGRAM = (
    "step_unit",
    "frame_unit",
    "start_unit",
    "power_unit",
)  # they share the bus: one part, which compiles it once
ASK_TO_STOP_S = 5.0
LOOK_S = 0.5  # between two drawings of the progress
WAIT_S = 0.1  # between two looks at another process's lock
show: Callable[[str], None] | None = None
spans: list[tuple[float, float]] = []
early: subprocess.Popen[str] | None = None  # a process of this program that compiles ahead (`compile_early`)


def usable_cores() -> int:
    """Cores that this process may use: fewer than the machine has in a container, or after `taskset`."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def locked(
    folder: Path, on_wait: Callable[[], None] = lambda: None, waiting: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Let one process at a time into the block. The operating system frees the lock of a process that dies. `on_wait`
    is called once before a wait, `waiting` again and again meanwhile.
    """
    try:
        import fcntl
    except ImportError:  # this system has no such locks: at worst two processes compile the same
        yield
        return
    try:
        file = open(folder / "dqnitro-compile.lock", "w")  # noqa: SIM115 - closed by the `with` below
    except OSError:  # a full disk: as without locks
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            on_wait()
            _wait_for(file, waiting)
        yield


def _wait_for(file: IO[str], waiting: Callable[[], None]) -> None:
    import fcntl

    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            time.sleep(WAIT_S)
        except OSError:  # a file system without locks
            return
        else:
            return


def can_start_python() -> bool:
    """Whether `sys.executable` is Python: a frozen application would start itself."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def start_module(name: str, **options: Any) -> subprocess.Popen[str]:
    """`python -m NAME` with this package on its path."""
    root = str(Path(__file__).parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen([sys.executable, "-m", name], text=True, env=environment, **options)


def end_with_parent() -> None:
    """In a process that `start_module` has started: do not outlive it, however it ends. Only Linux can do that."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Helper:
    """A process that compiles the parts that it is given."""

    def __init__(self) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `end`
        self.process = start_module(
            "dqnitro.atari.compile_units", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors
        )

    def compile(self, part: str) -> float | None:
        """CPU seconds that the part took, or None if the helper failed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            print(part, file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline().split()
        except OSError:  # the helper died before it could read
            return None
        return float(answer[1]) if answer[:1] == [part] else None

    def end(self) -> str:
        """Close the helper; returns why it failed, or an empty string."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(ASK_TO_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        self.errors.close()
        return (said or [f"exit code {self.process.returncode}"])[-1] if self.process.returncode else ""


def compile_together(folder: Path, missing: Callable[[], bool], say: Callable[[str], None]) -> dict[str, float]:
    """Compile all parts into the cache. Returns the CPU seconds of each part; parts whose helper failed are missing."""

    began = time.perf_counter()

    def on_wait() -> None:
        if early is None:
            say("dqnitro: another process is compiling the console; waiting for it ...")

    def waiting() -> None:
        _draw(f"compiling the console (half a minute or so): {time.perf_counter() - began:.0f} s")

    with locked(folder, on_wait, waiting):
        _draw("")
        spans.append((began, time.perf_counter()))
        if not missing():
            return {}
        n = min(usable_cores(), len(PARTS))
        cores = f"{n} cores" if n > 1 else "one core"
        say(f"dqnitro: compiling the console, once: {len(PARTS)} parts on {cores} (about half a minute on two) ...")
        if not can_start_python():
            return {}
        began = time.perf_counter()
        done = work(PARTS, n, say)
        spans.append((began, time.perf_counter()))
        if len(done) == len(PARTS):
            say(f"dqnitro: compiled the console in {time.perf_counter() - began:.0f} s")
        return done


def _draw(text: str) -> None:
    """Rewrite a line of the terminal, if there is one and nobody else shows the progress."""
    if show is not None:
        show(text)
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def work(parts: tuple[str, ...], helpers: int, say: Callable[[str], None]) -> dict[str, float]:
    """Let helpers compile the parts. Returns the CPU seconds of those that are done."""
    todo = deque(parts)
    done: dict[str, float] = {}
    began = time.perf_counter()

    def draw() -> None:
        _draw(f"compiling the console: {len(done)} of {len(parts)} parts, {time.perf_counter() - began:.0f} s")

    def serve(helper: Helper) -> None:
        while todo:
            try:
                part = todo.popleft()
            except IndexError:  # another thread was faster
                return
            seconds = helper.compile(part)
            if seconds is None:
                return
            done[part] = seconds

    try:
        started = [Helper() for _ in range(helpers)]
    except OSError as problem:
        say(f"dqnitro: compiling in one process ({problem})")
        return done
    threads = [threading.Thread(target=serve, args=(h,), daemon=True) for h in started]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                draw()
                thread.join(LOOK_S)
        draw()
    except BaseException:
        for helper in started:
            helper.process.kill()
        raise
    finally:
        _draw("")
        failures = [why for why in [helper.end() for helper in started] if why]
    if failures:
        say(f"dqnitro: compiling the rest in one process ({failures[0]})")
    return done
