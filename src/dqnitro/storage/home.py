"""The folder of a command that starts many runs: one on a disk, or the copy here of one at a URL.

The command shows runs, sums them up and decides what is left to do from their small files. So its copy of a folder at a
URL has everything but the data of checkpoints; those go from node to storage, and from there to the next node.
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dqnitro.common.files import temporary_folder
from dqnitro.errors import CheckpointError, ConfigError, StorageError
from dqnitro.storage.base import LocalStorage, whole
from dqnitro.storage.by_url import DATA, UrlStorage, storage_at
from dqnitro.storage.mailbox import Collected, Served
from dqnitro.storage.mirror import MANIFEST, NAMING, SHOWN, Mirror, checkpoint_of, renamed

LOOK_S = 0.5


class Home:
    """A folder on a disk: nothing has to be brought anywhere."""

    url = ""

    @property
    def path(self) -> pathlib.Path | None:
        """The copy, if there is one."""
        return None

    def folder_of(self, path: pathlib.Path) -> str:
        """The URL of a folder of the copy; empty without one."""
        return ""

    def names(self, paths: Iterable[pathlib.Path]) -> list[str]:
        """Paths in the copy as names in the folder; none without a copy."""
        return []

    def fetch(self, tops: Sequence[str]) -> None:
        """Bring what there is of these runs here, without the data of checkpoints."""

    def keep(self, names: Sequence[str]) -> None:
        """Bring files of the folder to the URL; those that were brought there and are gone here are deleted there."""

    @contextlib.contextmanager
    def followed(self, tops: Sequence[str]) -> Iterator[None]:
        """Meanwhile the files of these runs that a display reads are brought here; afterwards the others."""
        yield

    def served(self, root: pathlib.Path) -> Served:
        """Where files that come by messages go: those of runs below `root`."""
        return LocalStorage(root)

    def named(self, value: Any) -> Any:
        """A result in which paths are those that the user knows."""
        return value


class UrlHome(Home):
    """The copy here of a folder at a URL, in a temporary folder."""

    def __init__(self, url: str, storage: UrlStorage, folder: pathlib.Path) -> None:
        self.url, self.storage, self.folder = url.rstrip("/"), storage, folder
        self._kept: set[str] = set()
        self._fetching = threading.Lock()
        self.path.mkdir()

    @property
    def path(self) -> pathlib.Path:
        return self.folder / "home"

    def take(self, name: str) -> None:
        """Bring one file here."""
        try:
            (self.path / name).write_bytes(b"".join(whole(self.storage, name)))
        except FileNotFoundError as e:
            raise CheckpointError(f"{self.url} has no {name}", "is it the URL that --run-dir was given?") from e

    def keep(self, names: Sequence[str]) -> None:
        for name in names:
            path = self.path / name
            if path.is_file():
                data = path.read_bytes()
                known = path.name in NAMING
                named = renamed(path.name, data, str(self.path), self.url) if known else data
                self.storage.write(name, [named])
                self._kept.add(name)
            elif name in self._kept:
                self.storage.delete([name])

    def folder_of(self, path: pathlib.Path) -> str:
        name = path.resolve().relative_to(self.path).as_posix()
        return self.url if name == "." else f"{self.url}/{name}"

    def names(self, paths: Iterable[pathlib.Path]) -> list[str]:
        return [path.relative_to(self.path).as_posix() for path in paths]

    def fetch(self, tops: Sequence[str]) -> None:
        with self._fetching:
            Mirror(self.path, self.storage, tops).fetch(_without_data)

    @contextlib.contextmanager
    def followed(self, tops: Sequence[str]) -> Iterator[None]:
        over, mirror = threading.Event(), Mirror(self.path, self.storage, tops)

        def follow() -> None:
            while not over.wait(LOOK_S):
                if mirror.due():
                    with (
                        self._fetching,
                        contextlib.suppress(StorageError, OSError),
                    ):  # the display waits; the runs have their own way
                        mirror.fetch(lambda name: name.endswith(SHOWN) or name.endswith(f"/{MANIFEST}"))

        thread = threading.Thread(target=follow, daemon=True, name="copy of the folder")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self.fetch(tops)

    def served(self, root: pathlib.Path) -> Served:
        name = root.resolve().relative_to(self.path).as_posix()
        return Collected(self.storage if name == "." else self.storage.below(name), self.folder / "pieces" / name)

    def named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self.named(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.named(v) for v in value]
        return value.replace(str(self.path), self.url) if isinstance(value, str) else value


def _without_data(name: str) -> bool:
    return checkpoint_of(name) is None or not name.endswith(DATA)


@contextlib.contextmanager
def home_at(url: str | None, must_have: str, resume: bool | None) -> Iterator[Home]:
    """The folder at a URL (None: on a disk). A new one must not have the file `must_have`, one to resume must.

    `resume` None: whichever it is. Then one without that file must be empty.
    """
    if url is None:
        yield Home()
        return
    storage = storage_at(url)
    with temporary_folder("dqnitro-home-") as folder:
        home = UrlHome(url, storage, folder)
        begun = must_have in (there := storage.top())
        if resume or (resume is None and begun):
            home.take(must_have)
        elif resume is None and there:
            raise ConfigError(f"{url} is not empty and has no {must_have}", "give a new place with --state")
        elif begun:
            raise ConfigError(f"{url} is not empty", f"continue it with --resume {url}, or take another --run-dir")
        _try_out(url, storage)
        yield home


def _try_out(url: str, storage: UrlStorage) -> None:
    probe = f"probe-{uuid.uuid4().hex}"
    try:
        storage.write(probe, [b"may be deleted"])
        storage.delete([probe])
    except FileNotFoundError as e:  # a bucket or a disk that does not exist
        raise StorageError(f"{url} cannot be used ({e})", "make the bucket or the folder above first") from e
