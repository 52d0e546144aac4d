"""A run folder on this disk and its copy in a storage.

`publish` first looks for the newest complete checkpoint and holds on to its files, then sends what else changed, then
that checkpoint with its manifest last, and only then removes older ones. So at any moment the storage has one whole
checkpoint (if there ever was one), and the other files are at least as new: as after a kill on one machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dqnitro.common.files import seal_holds, sealed
from dqnitro.storage.base import PIECE_BYTES, Storage, below, whole

CHECKPOINTS, MANIFEST, SUMMARY = "checkpoints", "manifest.json", "summary.json"
NAMING = (SUMMARY, "page.html")  # files with the path of their folder in them
SHOWN = ("metrics.jsonl", SUMMARY, ".log")  # what a display reads while a run goes on
STAGED = ".staged"
TRIES = 5  # to find a run folder between two checkpoints, and a storage between two changes
SHARE = 0.1  # of the time may go into bringing files to the storage
LEAST_S = 2.0


class Superseded(Exception):
    """Another process trains this run now; nothing more is written."""


class Stamp(NamedTuple):
    """Tells whether a file changed."""

    size: int
    time_ns: int
    inode: int

    @staticmethod
    def of(path: pathlib.Path) -> Stamp:
        s = path.stat()
        return Stamp(s.st_size, s.st_mtime_ns, s.st_ino)


def checkpoint_of(name: str) -> str | None:
    """The folder of the checkpoint that a file belongs to: `s1/checkpoints/000000000500`."""
    parts = name.split("/")
    at = parts.index(CHECKPOINTS) if CHECKPOINTS in parts[:-2] else -1
    return "/".join(parts[: at + 2]) if at >= 0 else None


def current(names: Mapping[str, int]) -> set[str]:
    """Of the files of a storage those that count: of checkpoints only the newest complete one of each run."""
    complete: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in names:
        folder = checkpoint_of(name)
        if folder is not None and name == f"{folder}/{MANIFEST}":
            run, _, number = folder.rpartition("/")
            complete[run] = max(complete.get(run, ((), "")), (_order(number), folder))
    newest = {folder for _, folder in complete.values()}
    return {n for n in names if (folder := checkpoint_of(n)) is None or folder in newest}


def _order(number: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else -1 for part in number.split("."))


class Mirror:
    """The files `tops` of a folder, and their copies."""

    def __init__(
        self, folder: pathlib.Path, storage: Storage, tops: Sequence[str], *, owner: str = "",
        shown_as: str = "",
    ) -> None:  # fmt: skip
        """`owner`: a name that this mirror claims the run with, where others could write as well. `shown_as`: what
        takes the place of this folder's path in summaries.
        """
        self._folder, self._storage, self._tops = folder, storage, tuple(tops)
        self._owner, self._shown_as = owner, shown_as
        self._sent: dict[str, Stamp] = {}
        self._there: set[str] | None = None
        self._cost_s, self._ended = 0.0, 0.0

    # ---- from the storage

    def fetch(self, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Make this folder what the storage has, as far as it is wanted."""
        if self._owner:
            self._storage.write(self._owned(), [self._owner.encode()])
        with self._timed():
            for attempt in range(TRIES):
                try:
                    return self._fetch(wanted)
                except FileNotFoundError:  # another process published in between
                    if attempt == TRIES - 1:
                        raise

    def _fetch(self, wanted: Callable[[str], bool]) -> None:
        sizes = self._storage.files(self._tops)
        names = sorted((n for n in current(sizes) if wanted(n)), key=_manifest_last)
        for name in names:
            path = self._folder / name
            if checkpoint_of(name) and path.is_file() and path.stat().st_size == sizes[name]:
                self._sent[name] = Stamp.of(path)
                continue  # a checkpoint's files never change
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.part")
            with part.open("wb") as f:
                for piece in whole(self._storage, name):
                    f.write(piece)
            part.replace(path)
            self._sent[name] = Stamp.of(path)
        for name in self._here().keys() - set(names):
            if wanted(name):
                (self._folder / name).unlink(missing_ok=True)
        self._there = set(sizes)

    def due(self) -> bool:
        """Whether enough time has passed since files were last brought here or there."""
        return time.monotonic() - self._ended >= max(LEAST_S, self._cost_s / SHARE)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self._ended = time.monotonic()
            self._cost_s = self._ended - begun

    # ---- to the storage

    def publish(self, everything: bool = False) -> None:
        """Bring what is new to the storage: a new checkpoint with all that belongs to it, otherwise what displays read.
        `everything`: the run has ended.
        """
        with self._timed():
            self._check_owner()
            held = self._hold()
            try:
                self._send(held, everything)
            finally:
                for folder in held.values():
                    shutil.rmtree(folder, ignore_errors=True)

    def release(self) -> None:
        """The run has ended: nobody owns it."""
        if self._owner:
            self._storage.delete([self._owned()])

    def _send(self, held: dict[str, pathlib.Path], everything: bool) -> None:
        if self._there is None:
            self._there = set(self._storage.files(self._tops))
        is_new = any(f"{folder}/{MANIFEST}" not in self._sent for folder in held)
        here = {n: p for n, p in self._here().items() if checkpoint_of(n) is None}
        for name, path in here.items():
            if is_new or everything or name.endswith(SHOWN):
                self._send_file(name, path)
        for folder, path in held.items():
            files = {f"{folder}/{p.name}": p for p in path.iterdir()}
            for name in sorted(files, key=_manifest_last):
                self._check_owner()
                self._send_file(name, files[name])
                here[name] = files[name]
        if is_new or everything:
            # Without a checkpoint of its own a run never removes one.
            kept = {n for n in self._there if checkpoint_of(n)} if not held else set()
            gone = self._there - here.keys() - kept
            self._storage.delete(sorted(gone, key=lambda n: (not n.endswith(MANIFEST), n)))
            self._there -= gone
            self._sent = {n: s for n, s in self._sent.items() if n in here}

    def _send_file(self, name: str, path: pathlib.Path) -> None:
        try:
            stamp = Stamp.of(path)
            before = self._sent.get(name)
            if before == stamp or (before is not None and checkpoint_of(name)):
                return
            self._storage.write(name, self._pieces(path, stamp.size))
        except FileNotFoundError:  # the run removed it
            if path.exists():
                raise
            return
        self._sent[name] = stamp
        assert self._there is not None
        self._there.add(name)

    def _pieces(self, path: pathlib.Path, size: int) -> Iterator[bytes]:
        """What a file has now; one that grows is cut where it ended when it was looked at."""
        if path.name in NAMING and self._shown_as:
            yield renamed(path.name, path.read_bytes(), str(self._folder), self._shown_as)
            return
        with path.open("rb") as f:
            while size > 0 and (piece := f.read(min(size, PIECE_BYTES))):
                size -= len(piece)
                yield piece

    # ---- this folder

    def _here(self) -> dict[str, pathlib.Path]:
        return below(self._folder, self._tops)

    def _hold(self) -> dict[str, pathlib.Path]:
        """The newest complete checkpoint of every run here, as links that stay when the run removes it."""
        held = {}
        for top in self._tops:
            for attempt in range(TRIES):
                names = {n: 0 for n in self._here() if checkpoint_of(n) and n.startswith(f"{top}/")}
                folder = next((f for n in current(names) if (f := checkpoint_of(n))), None)
                if folder is None:
                    break
                try:
                    held[folder] = self._linked(folder)
                    break
                except FileNotFoundError:  # removed a moment ago, so there is a newer one
                    if attempt == TRIES - 1:
                        raise
        return held

    def _linked(self, folder: str) -> pathlib.Path:
        staged = self._folder / STAGED / folder
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        for path in (self._folder / folder).iterdir():
            try:
                os.link(path, staged / path.name)
            except FileNotFoundError:
                raise
            except OSError:  # a disk without links
                shutil.copy2(path, staged / path.name)
        if not (staged / MANIFEST).is_file():
            raise FileNotFoundError(folder)
        return staged

    # ---- who may write

    def _owned(self) -> str:
        return f"{self._tops[0]}.owner"

    def _check_owner(self) -> None:
        if not self._owner:
            return
        with contextlib.suppress(FileNotFoundError):
            if self._storage.read(self._owned(), 0, 1000) == self._owner.encode():
                return
        raise Superseded(f"{self._tops[0]} is trained by another process")


def renamed(name: str, data: bytes, folder: str, shown_as: str) -> bytes:
    """A summary or a page with the place that a user knows, instead of the folder in which it was written."""
    text = data.replace(json.dumps(folder)[1:-1].encode(), json.dumps(shown_as)[1:-1].encode())
    if name != SUMMARY:
        return text
    try:
        if not seal_holds(json.loads(data)):
            return data
        return (json.dumps(sealed(json.loads(text)), indent=1) + "\n").encode()
    except (ValueError, TypeError, AttributeError):  # damaged, and to be seen as such
        return data


def _manifest_last(name: str) -> tuple[bool, str]:
    """The order in which files of checkpoints are written: what they make complete comes last."""
    return name.endswith(f"/{MANIFEST}"), name
