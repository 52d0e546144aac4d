"""Where compiled code is kept between starts: Numba's cache files, with a checksum, and never a reason to fail.

* Where no folder can be written (a read-only installation without a home), code is compiled at every start.
* A file that is empty, cut off or changed counts as missing: the code is compiled again and the file replaced.
* A disk that is full keeps nothing.

Each of them is told in one line. The console (`jit/target.py`) and the learner's own kernels keep their code here.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

F = TypeVar("F", bound=Callable[..., Any])

NUMBA: Any = numba  # with the names that its type stubs lack
_MAGIC = b"dqnitro1"
_DIGEST = 32  # bytes of SHA-256
_PICKLE = b"\x80"  # how a file without a checksum begins, as Numba itself writes them
HINT = "hint: set NUMBA_CACHE_DIR to a folder that can be written"


@functools.cache
def say_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Damaged(Exception):
    """The content of a cache file is not what was written."""


def sealed(content: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(content).digest() + content


def opened(path: str) -> bytes:
    """The content of a sealed file. FileNotFoundError: there is none, or it was written without a checksum."""
    content = Path(path).read_bytes()
    head = len(_MAGIC) + _DIGEST
    if content.startswith(_MAGIC) and hashlib.sha256(content[head:]).digest() == content[len(_MAGIC) : head]:
        return content[head:]
    if content.startswith(_PICKLE):
        raise FileNotFoundError(path)
    raise Damaged(path)


class SealedFile(IndexDataCacheFile):
    """The index of a function's versions and their code; what cannot be read is as good as missing."""

    def _load_index(self) -> dict[Any, str]:
        try:
            version, stamp, overloads = pickle.loads(opened(self._index_path))
        except FileNotFoundError:
            return {}
        except Exception as error:  # damaged, or not readable for us
            self._say(error)
            return {}
        return overloads if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        content = self._dump((self._version, self._source_stamp, overloads))
        with self._open_for_write(self._index_path) as file:
            file.write(sealed(content))

    def _load_data(self, name: str) -> Any:
        try:
            return pickle.loads(opened(self._data_path(name)))
        except FileNotFoundError:
            raise
        except Exception as error:
            self._say(error)
            raise FileNotFoundError(name) from error  # Numba's word for a miss

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(sealed(content))

    def _say(self, error: Exception) -> None:
        why = "is damaged" if isinstance(error, Damaged) else f"cannot be read ({type(error).__name__})"
        say_once(f"dqnitro: compiled code in {self._cache_path} {why}; compiling it again")


class SealedCache(FunctionCache):
    """The cache of one function. `stamp` tells when it is out of date (default: the time stamp of its file)."""

    def __init__(self, function: Any, stamp: str = "") -> None:
        super().__init__(function)  # RuntimeError: no folder can be written
        stamp = stamp or self._impl.locator.get_source_stamp()
        self._cache_file = SealedFile(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # whole, but not for this Numba or this machine
            say_once(f"dqnitro: compiled code in {self._cache_path} is of no use here ({error}); compiling it again")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            say_once(
                f"dqnitro: cannot keep compiled code in {self._cache_path} ({error.strerror}): the next start compiles "
                f"it again. {HINT}"
            )


def keep(code: Any, function: Any, stamp: str = "") -> bool:
    """Let compiled code go to the cache; False where there is no folder for it."""
    try:
        code._cache = SealedCache(function, stamp)
    except RuntimeError:  # neither the source's folder nor the user's cache folder can be written
        say_once(f"dqnitro: no folder to keep compiled code in: every start compiles. {HINT}")
        return False
    return True


def kept(**options: Any) -> Callable[[F], F]:
    """A decorator: `numba.njit` with these options, kept between starts."""

    def decorate(function: F) -> F:
        dispatcher: Any = numba.njit(**options)(function)
        if not NUMBA.config.DISABLE_JIT:
            keep(dispatcher, function)
        return dispatcher

    return decorate
