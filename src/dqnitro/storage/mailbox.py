"""Storage on another machine that nobody can call: it asks for work and does it.

A command that reached a cluster through `ray://` is not a node of it, so nothing on a node can call it. But it can call
the nodes. `Mailbox` lies on the node: code there that needs the storage puts a request into it and waits;
the other side takes the request, with its answer to the one before, and `serve`s it.
"""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from dqnitro.errors import StorageError
from dqnitro.storage.base import LocalStorage, Storage, whole

OPERATIONS = ("files", "read", "put", "delete")
WAIT_S = 10.0  # for a request, before the other side is told that there is none
SILENCE_S = 600.0  # of the other side, which may have many runs to write and a slow disk


class Request(NamedTuple):
    number: int
    operation: str
    arguments: tuple[Any, ...]


class Answer(NamedTuple):
    number: int
    value: Any
    error: Exception | None = None


class Served(Protocol):
    """A storage that takes files piece by piece."""

    def files(self, tops: Sequence[str]) -> dict[str, int]: ...
    def read(self, name: str, at: int, size: int) -> bytes: ...
    def put(self, name: str, at: int, piece: bytes, last: bool) -> None: ...
    def delete(self, names: Sequence[str]) -> None: ...


class Collected:
    """A storage that takes files only whole, so their pieces are collected on this disk first."""

    def __init__(self, storage: Storage, folder: pathlib.Path) -> None:
        self._storage, self._pieces = storage, LocalStorage(folder)
        self.files, self.read, self.delete = storage.files, storage.read, storage.delete

    def put(self, name: str, at: int, piece: bytes, last: bool) -> None:
        self._pieces.put(name, at, piece, last)
        if last:
            self._storage.write(name, whole(self._pieces, name))
            self._pieces.delete([name])


def serve(storage: Served, request: Request | None) -> Answer | None:
    """Do what is asked for."""
    if request is None:
        return None
    if request.operation not in OPERATIONS:
        return Answer(request.number, None, ValueError(f"storage has no operation {request.operation!r}"))
    try:
        return Answer(request.number, getattr(storage, request.operation)(*request.arguments))
    except FileNotFoundError as e:
        return Answer(request.number, None, FileNotFoundError(str(e)))
    except StorageError as e:
        return Answer(request.number, None, e)
    except Exception as e:  # a full disk is the problem of the run, which ends with it
        return Answer(request.number, None, StorageError(f"cannot write the run folder ({type(e).__name__}: {e})"))


class Mailbox:
    """The node's end: one request at a time."""

    def __init__(self) -> None:
        self._turn, self._changed = threading.Lock(), threading.Condition()
        self._number = 0
        self._request: Request | None = None
        self._answer: Answer | None = None

    def call(self, operation: str, *arguments: Any) -> Any:
        """Ask, and wait for the answer."""
        with self._turn, self._changed:
            self._number += 1
            self._request, self._answer = Request(self._number, operation, arguments), None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._answer is not None, SILENCE_S)
            answer, self._request = self._answer, None
        if answer is None:
            raise StorageError(f"the command does not take files of the run: silent for {SILENCE_S:.0f} s")
        if answer.error is not None:
            raise answer.error
        return answer.value

    def exchange(self, answer: Answer | None, wait_s: float = WAIT_S) -> Request | None:
        """Called by the other side: takes its answer, and returns the next request or, after a while, None."""
        with self._changed:
            if answer is not None and self._request is not None and answer.number == self._request.number:
                self._answer, self._request = answer, None
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._request is not None, wait_s)
            return self._request


class MailboxStorage:
    """A `LocalStorage` of another machine."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def files(self, tops: Sequence[str]) -> dict[str, int]:
        return self._call("files", tuple(tops))

    def read(self, name: str, at: int, size: int) -> bytes:
        return self._call("read", name, at, size)

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        at, last = 0, b""
        for piece in pieces:
            if last:
                self._call("put", name, at, last, False)
                at += len(last)
            last = piece
        self._call("put", name, at, last, True)

    def delete(self, names: Sequence[str]) -> None:
        self._call("delete", tuple(names))
