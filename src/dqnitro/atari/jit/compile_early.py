"""Compile the console in a process of its own while a program still imports and prepares other things.

`begin` starts that process (`python -m dqnitro.atari.compile_early`) unless a mark says that this version was compiled
on this machine before. Whoever needs the console waits for the lock of `parallel_compile`, as for any other process
that compiles, and then loads it from Numba's cache. The process ends with the program that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

from . import parallel_compile

ATARI = Path(__file__).parents[1]


def cache_folder() -> Path:
    """Where this package keeps what it has compiled outside Numba's cache."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("DQNITRO_CACHE") or Path(root) / "dqnitro")


def mark() -> Path:
    """The file that says: compiled. Its name depends on the sources, the compiler, the machine and where code is kept.

    It saves a process, no more: if the mark is wrong, the console is compiled when it is needed.
    """
    digest = hashlib.sha256()
    for path in sorted(ATARI.rglob("*.py")):
        digest.update(path.read_bytes())
    facts = (
        ATARI, sys.version, platform.node(), platform.machine(), importlib.metadata.version("numba"),
        os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("DQNITRO_BOUNDSCHECK"), os.environ.get("NUMBA_DISABLE_JIT"),
    )  # fmt: skip
    digest.update(repr(facts).encode())
    return cache_folder() / f"console-{digest.hexdigest()[:24]}"


def begin() -> bool:
    """Start to compile, unless that was done before or cannot be done here; whether it was started."""
    if parallel_compile.early is not None or not parallel_compile.can_start_python():
        return False
    if importlib.util.find_spec("fcntl") is None:  # no locks: two processes would compile the same
        return False
    try:
        if mark().exists():
            return False
        process = parallel_compile.start_module(
            "dqnitro.atari.compile_early", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, importlib.metadata.PackageNotFoundError):
        return False
    parallel_compile.early = process
    atexit.register(end, process)
    return True


def end(process: subprocess.Popen[str]) -> None:
    """Leave nothing behind when the program ends before it."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)


def under_way() -> bool:
    """Whether the process that `begin` has started is still at work."""
    return parallel_compile.early is not None and parallel_compile.early.poll() is None


def keep_mark() -> None:
    with contextlib.suppress(OSError):  # no folder: the process is started again, and finds nothing to do
        path = mark()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
