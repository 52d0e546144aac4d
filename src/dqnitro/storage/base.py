"""What a place for run folders has to do, and the plain one: a folder on a disk."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

PIECE_BYTES = 16 << 20  # of a file that is read or written in one go: a replay may have gigabytes


class Storage(Protocol):
    """Files below one root. Names are relative and have forward slashes; hidden files are nobody's business."""

    def files(self, tops: Sequence[str]) -> dict[str, int]:
        """Name and size of every file that is, or is below, one of these names of the root."""
        ...

    def read(self, name: str, at: int, size: int) -> bytes:
        """A piece of a file, empty behind its end; FileNotFoundError if there is none of that name."""
        ...

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """A file with this content, in the place of one that is there. It is seen whole or not at all."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove files, in this order; those that are not there are no error."""
        ...


def checked(name: str) -> str:
    """A name that leads to no other place; ValueError otherwise. Names come from other machines."""
    parts = name.split("/")
    if any(p in ("", ".", "..") or "\\" in p or "\0" in p for p in parts) or ":" in parts[0]:
        raise ValueError(f"not a name of a file in a run folder: {name!r}")
    return name


def visible(name: str) -> bool:
    return not any(part.startswith(".") for part in name.split("/"))


def below(root: pathlib.Path, tops: Iterable[str]) -> dict[str, pathlib.Path]:
    """The files of a folder that are, or are below, one of these names. A run may be writing there meanwhile."""
    found = {}
    for top in tops:
        paths = [pathlib.Path(folder) / name for folder, _, names in os.walk(root / top) for name in names]
        for path in [root / top] if (root / top).is_file() else paths:
            name = path.relative_to(root).as_posix()
            if visible(name):
                found[name] = path
    return found


def whole(storage: Storage, name: str) -> Iterator[bytes]:
    """The pieces of a file."""
    at = 0
    while piece := storage.read(name, at, PIECE_BYTES):
        yield piece
        at += len(piece)


class LocalStorage:
    """A folder on a disk of this machine."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def files(self, tops: Sequence[str]) -> dict[str, int]:
        found = {}
        for name, path in below(self.root, [checked(top) for top in tops]).items():
            with contextlib.suppress(FileNotFoundError):  # a run is writing in here
                found[name] = path.stat().st_size
        return found

    def read(self, name: str, at: int, size: int) -> bytes:
        with (self.root / checked(name)).open("rb") as f:
            f.seek(at)
            return f.read(size)

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        at = 0
        for piece in pieces:
            self.put(name, at, piece, last=False)
            at += len(piece)
        self.put(name, at, b"", last=True)

    def put(self, name: str, at: int, piece: bytes, last: bool) -> None:
        """`write` piece by piece; the file appears with the last one."""
        path = self.root / checked(name)
        part = path.with_name(f".{path.name}.part")
        if at == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("r+b" if at else "wb") as f:
            f.seek(at)
            f.write(piece)
            if last:
                f.flush()
                os.fsync(f.fileno())
        if last:
            part.replace(path)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            path = self.root / checked(name)
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder == self.root or self.root not in folder.parents:
                    break
                for rest in folder.glob(".*.part"):  # of a write that never ended
                    rest.unlink(missing_ok=True)
                try:
                    folder.rmdir()
                except OSError:  # not empty
                    break
