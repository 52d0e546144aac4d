"""A fault at every n-th file operation of every kind of save, and disks that are really full.

Files are opened, written, flushed, renamed and removed through functions of `os` and `io`; here each of them counts its
calls below the run's folder and at the n-th one fails as a device would, or dies as with kill -9. safetensors writes in
compiled code: its calls count as one operation, which leaves half a file.
"""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import pathlib
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

from chaos.harness import CONFIG, END_LATE, KILLED, Kind, Outcome, World, config_of, forked, judge, named
from dqnitro.config import Config
from dqnitro.session import resume, train
from dqnitro.store.run_folder import RunFolder

ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EDQUOT": errno.EDQUOT, "kill": 0}
# Checkpoints after every tick, so that a session has several saves.
SAVES: dict[str, tuple[bool, Callable[..., Any]]] = {
    "first": (False, lambda run, config=CONFIG: train(config, run)),
    "normal": (True, lambda run, config=CONFIG: resume(run, max_steps=50, checkpoint_every_s=1e-9)),
    "repeated": (True, lambda run, config=CONFIG: resume(run)),
}


class Saboteur:
    """Counts file operations below a folder; number `at` fails."""

    def __init__(self, folder: pathlib.Path, at: int = 0, number: int = 0) -> None:
        self.folder, self.at, self.number, self.calls = str(folder), at, number, 0

    def here(self, *paths: Any) -> bool:
        return any(isinstance(p, str | os.PathLike) and str(p).startswith(self.folder) for p in paths)

    def next(self, path: Any, half: Callable[[], Any] = lambda: None) -> None:
        """Count an operation; at the chosen one do half of it and fail."""
        self.calls += 1
        if self.calls != self.at:
            return
        half()
        if not self.number:
            os._exit(KILLED)
        raise OSError(self.number, os.strerror(self.number), str(path))

    def install(self) -> None:
        for name in ("rename", "replace", "mkdir", "unlink", "rmdir", "remove"):
            setattr(os, name, self._counted(getattr(os, name)))
        for name in ("fsync", "ftruncate"):
            setattr(os, name, self._always(getattr(os, name)))
        io.open = builtins.open = self._open(io.open)  # type: ignore[assignment]
        import safetensors.numpy
        import safetensors.torch

        for module in (safetensors.numpy, safetensors.torch):
            module.save_file = self._save(module.save_file)

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.here(*args) or "dir_fd" in kwargs:
                self.next(args[0])
            return real(*args, **kwargs)

        return call

    def _always(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *args: Any) -> Any:
            self.next(fd)
            return real(fd, *args)

        return call

    def _open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if not self.here(file) or not set(mode) & set("wax+"):
                return real(file, mode, *args, **kwargs)
            self.next(file)
            return Watched(real(file, mode, *args, **kwargs), self)

        return call

    def _save(self, real: Callable[..., Any]) -> Callable[..., Any]:
        from safetensors import SafetensorError

        def call(tensors: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            real(tensors, path, *args, **kwargs)
            data = pathlib.Path(path).read_bytes()
            try:
                self.next(path, lambda: pathlib.Path(path).write_bytes(data[: len(data) // 2]))
            except OSError as e:
                raise SafetensorError(f"I/O error: {e.strerror} (os error {e.errno})") from None

        return call


class Watched:
    """A file whose writes, flushes, cuts and end count as operations."""

    def __init__(self, file: Any, saboteur: Saboteur) -> None:
        self._file, self._saboteur = file, saboteur

    def write(self, data: Any) -> Any:
        self._saboteur.next(self._file.name, lambda: self._file.write(data[: len(data) // 2]) and self._file.flush())
        return self._file.write(data)

    def flush(self) -> None:
        self._saboteur.next(self._file.name)
        self._file.flush()

    def truncate(self, size: int | None = None) -> int:
        self._saboteur.next(self._file.name)
        return self._file.truncate(size)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


_operations: dict[str, int] = {}


def operations(world: World, save: str, name: str) -> int:
    """How many file operations this kind of save has."""
    if (key := f"{save} {name}") not in _operations:
        stored, work = SAVES[save]
        run = world.copy(name) if stored else world.new()

        def count() -> int:
            saboteur = Saboteur(run)
            saboteur.install()
            work(run, config_of(name))
            return saboteur.calls

        child = forked(count)
        assert child.code == 0 and child.value > 20, child.text
        _operations[key] = child.value
        world.forget(run)
    return _operations[key]


def fault_in_a_save(world: World, rng: random.Random, i: int, name: str = "inline") -> Outcome:
    """Number i is operation i of the kinds of save, each with every error, one after the other."""
    out = Outcome()
    save = list(SAVES)[i % len(SAVES)]
    error = list(ERRORS)[i // len(SAVES) % len(ERRORS)]
    n = operations(world, save, name)
    at = i // (len(SAVES) * len(ERRORS)) * 7 % n + 1  # 7: a short campaign sees all parts of a save
    stored, work = SAVES[save]
    run = world.copy(name) if stored else world.new()

    def sabotaged() -> None:
        Saboteur(run, at, ERRORS[error]).install()
        work(run, config_of(name))

    child = forked(sabotaged)
    what = f"{error} at operation {at} of a {save} save"
    judge(child, out, codes=(0, 2) if error != "kill" else (0, KILLED), what=what)
    if child.code == 2 and (run / "config.json").exists() and RunFolder(run).state() == "running":
        out.count("lost", f"{what}: it says that it is running")
    if (run / "config.json").exists() or stored:
        world.check_resumes(run, out, name, may_be_new=not stored)
    world.forget(run)
    return named(out, what)


def full_disk(world: World, rng: random.Random, i: int) -> Outcome:
    """A disk that is really full: a small file system where one may be mounted, a limit on file sizes elsewhere."""
    out = Outcome()
    size = rng.randrange(1, 400_000)
    run = world.new()
    run.parent.mkdir(exist_ok=True)
    mounted = i % 2 == 0 and _mount(run.parent, size)

    def work() -> None:
        if not mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size // 4, size // 4))
        train(CONFIG.replace(checkpoint_every_s=1e-9), run)

    child = forked(work)
    what = f"{'a file system' if mounted else 'files'} of at most {size if mounted else size // 4:,} bytes"
    judge(child, out, codes=(0, 2), what=what)
    if mounted:
        subprocess.run(["mount", "-o", "remount,size=50m", str(run.parent)], check=True)
    if (run / "config.json").exists():
        world.check_resumes(run, out, may_be_new=True)
    if mounted:
        subprocess.run(["umount", str(run.parent)], check=True)
    world.forget(run)
    return named(out, what)


def _mount(folder: pathlib.Path, size: int) -> bool:
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0


def killed_at_random(world: World, rng: random.Random, i: int, name: str = "inline") -> Outcome:
    """kill -9 at a random moment of a run that saves after every tick, then again while it is resumed."""
    out, run = Outcome(faults=0), world.new()
    kept = False
    for attempt in range(2):
        delay = rng.expovariate(1 / (0.12 if name == "inline" else 0.4))

        def strike(pid: int, delay: float = delay) -> None:
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)

        if not kept and run.exists():
            world.forget(run)
            run = world.new()
        work = functools.partial(_go_on if kept else _begin, run, config_of(name))
        child = forked(work, strike)
        out.faults += child.code == -signal.SIGKILL
        judge(child, out, codes=(0, -signal.SIGKILL), what=f"kill -9 number {attempt + 1} after {delay:.3f} s")
        was, kept = kept, any((run / "checkpoints").glob("[0-9]*/manifest.json"))
        if was and not kept:
            out.count("lost", "there was a checkpoint")
    if (run / "config.json").exists():
        world.check_resumes(run, out, name, may_be_new=not kept, steps=END_LATE)
    world.forget(run)
    return out


def _begin(run: pathlib.Path, config: Config) -> None:
    train(config.replace(max_steps=END_LATE, checkpoint_every_s=1e-9), run)


def _go_on(run: pathlib.Path, config: Config) -> None:
    resume(run, max_steps=END_LATE, checkpoint_every_s=1e-9)


KINDS = [
    Kind(
        "save",
        "ENOSPC, EIO, EDQUOT or a kill at an operation of a save",
        fault_in_a_save,
        short=90,
        long=400,
        seconds=0.6,
    ),
    Kind("full disk", "a small file system, or a limit on file sizes", full_disk, short=10, long=20),
    Kind("kill -9", "twice, at random moments, of runner inline", killed_at_random, short=15, long=80, seconds=0.6),
]
