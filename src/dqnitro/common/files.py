"""Small tools for files and names: atomic JSON, what a disk refuses, time stamps, file names."""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from dqnitro.errors import ConfigError, StorageError

# What a device or a quota does to any file, as opposed to a wrong path.
STORAGE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})


def storage_errno(error: BaseException) -> int | None:
    """The errno of a failed write, also where a library tells it in words only (safetensors does); None: another kind
    of error.
    """
    if isinstance(error, OSError):
        number = error.errno
    else:
        found = re.search(r"os error (\d+)", str(error)) if type(error).__name__ == "SafetensorError" else None
        number = int(found[1]) if found else None
    return number if number in STORAGE_ERRNOS else None


def storage_error(error: BaseException, where: object) -> StorageError | None:
    """One line about a write that the device refused; None: the error is of another kind."""
    number = storage_errno(error)
    if number is None:
        return None
    if number in (errno.ENOSPC, errno.EDQUOT):
        what = "is full" if number == errno.ENOSPC else "has no quota left"
        return StorageError(
            f"the disk of {where} {what}; the last complete checkpoint is kept",
            "free some space, then `--resume` the run",
        )
    return StorageError(
        f"cannot write to {where} ({os.strerror(number)}); the last complete checkpoint is kept",
        "check the disk, then `--resume` the run",
    )


@contextlib.contextmanager
def writing(where: object) -> Iterator[None]:
    """What the device refuses in here becomes a StorageError; every other error passes."""
    try:
        yield
    except StorageError:
        raise
    except Exception as e:
        if problem := storage_error(e, where):
            raise problem from e
        raise


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Atomic: what is written to the temporary file that this yields takes the place of `path`, or nothing does."""
    tmp = _beside(path)
    try:
        with writing(path.parent):
            yield tmp
            tmp.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            tmp.unlink(missing_ok=True)
        raise


def check_writable(path: pathlib.Path) -> None:
    """Raise ConfigError if a file cannot be written here. Nothing is left behind, and a file that is there stays.

    A device or a pipe is refused as well: `replacing` would put a file in its place.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            os.stat(path)  # tells of a name that is too long and of a folder that is a file
        if path.is_dir():
            raise ConfigError(f"{path} is a folder", f"name a file in it, such as {path / 'result.json'}")
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is a device or a pipe, not a file", "name a file")
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
        probe = _beside(folder / path.name)
        with probe.open("x"):
            pass
        probe.unlink()
    except ValueError as e:
        if isinstance(e, ConfigError):
            raise
        raise ConfigError(f"cannot write to {str(path)!a} ({e})", "name another file") from e
    except OSError as e:
        raise ConfigError(f"cannot write {short(path)} ({e.strerror})", "name another file") from e


def short(path: object) -> str:
    """A path in an error message; one with a name that is too long for the file system is cut."""
    text = str(path)
    return text if len(text) <= 200 else f"{text[:80]}...{text[-80:]}"


def _beside(path: pathlib.Path) -> pathlib.Path:
    """The temporary file from which a file is made."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def write_json(path: pathlib.Path, data: Any) -> None:
    with replacing(path) as tmp:
        tmp.write_text(json.dumps(data, indent=1, default=str) + "\n")


SEAL = "checksum"


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with a checksum over all that is in it, so that a flipped digit is noticed."""
    data = json.loads(json.dumps({k: v for k, v in data.items() if k != SEAL}, default=str))  # as a reader will find it
    return {**data, SEAL: _checksum(data)}


def seal_holds(data: dict[str, Any]) -> bool:
    """Whether an object is as it was written. One of an older version, without a checksum, counts as whole."""
    return SEAL not in data or data[SEAL] == _checksum({k: v for k, v in data.items() if k != SEAL})


def _checksum(data: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=16).hexdigest()


def plain(value: Any) -> Any:
    """JSON-ready: named tuples become objects, tuples lists, and numbers that are not finite null (JSON has no NaN)."""
    if (fields := getattr(value, "_asdict", None)) is not None:  # an Interval
        return {k: plain(v) for k, v in fields().items()}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, pathlib.Path):
        return str(value)
    return value


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def file_stem(env_id: str) -> str:
    """The name of a game or environment, safe for a file name."""
    return "".join(ch if ch.isalnum() or ch in "_-" else "-" for ch in env_id)


def remove_temporaries(folder: pathlib.Path) -> None:
    """Delete what processes that are gone left half written (`replacing`)."""
    for path in folder.glob(".*"):
        named = re.fullmatch(r"\.(?:.+\.(\d+)|(\d+)\..+)", path.name)
        if named and not _is_alive(int(named[1] or named[2])):
            with contextlib.suppress(OSError):
                path.unlink()


def _is_alive(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid)


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[pathlib.Path]:
    """A folder of this process, below TMPDIR. What processes that were killed have left is removed."""
    for old in pathlib.Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        pid = old.name.removeprefix(prefix).partition("-")[0]
        if pid.isdigit() and not _is_alive(int(pid)):
            shutil.rmtree(old, ignore_errors=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-")).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


LOCK = ".lock"  # the file of a run folder that the process which trains it holds


def take_lock(file: IO[str]) -> bool | None:
    """Lock an open file: True, or False where another process holds it, or None where there are no locks."""
    try:
        import fcntl
    except ImportError:
        return _take_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def hold_lock(path: pathlib.Path) -> IO[str] | None:
    """Make a lock file and hold its lock, or None if another process holds it.

    The operating system frees it when the file is closed or the process ends, however it ends. On a file system without
    locks nothing is locked.
    """
    file = path.open("a")
    if take_lock(file) is False:
        file.close()
        return None
    return file


class HeldLock:
    """The lock of a run folder for a run whose process is on another machine: who looks here sees that it is trained.

    The folder appears with the first file that travels, so it is asked again and again.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._file: IO[str] | None = None

    def look(self) -> None:
        """Take it, if the folder is there by now and nobody has it."""
        if self._file is None and self._folder.is_dir():
            with contextlib.suppress(OSError):
                self._file = hold_lock(self._folder / LOCK)

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _take_on_windows(file: IO[str]) -> bool | None:
    try:
        import msvcrt
    except ImportError:
        return None
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True


def is_locked(folder: pathlib.Path) -> bool:
    """Whether a process is training the run in this folder now."""
    try:
        with (folder / LOCK).open() as file:
            return take_lock(file) is False
    except OSError:  # there never was a lock
        return False


@contextlib.contextmanager
def alone_in(folder: pathlib.Path) -> Iterator[None]:
    """One command at a time works on the runs of a folder; ConfigError for another one.

    The folder is made; if nothing comes into it, it goes again.
    """
    made = next((p for p in (*reversed(folder.parents), folder) if not p.exists()), None)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with alone_with(folder / LOCK, folder):
            yield
    finally:
        if [p.name for p in folder.iterdir()] == [LOCK] and made is not None:
            (folder / LOCK).unlink()
            while True:
                folder.rmdir()
                if folder == made:
                    break
                folder = folder.parent


@contextlib.contextmanager
def alone_with(path: pathlib.Path, shown: pathlib.Path | None = None) -> Iterator[None]:
    """The same with one file, which is made."""
    if (file := hold_lock(path)) is None:
        raise ConfigError(f"another command is at work on {shown or path}", "wait for it, or give another --state")
    with file:
        yield
