"""The folder of a command that starts many runs: one on a disk, or the copy here of one at a URL.

The command shows runs, sums them up and decides what is left to do from their small files. So its copy of a folder at a
URL has everything but the data of checkpoints; those go from node to storage, and from there to the next node.
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
import uuid
from collections.abc import Iterator, Sequence
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

    @property
    def path(self) -> pathlib.Path:
        return self.folder / "home"

    def take(self, name: str) -> None:
        """Bring one file here."""
        self.path.mkdir(exist_ok=True)
        try:
            (self.path / name).write_bytes(b"".join(whole(self.storage, name)))
        except FileNotFoundError as e:
            raise CheckpointError(f"{self.url} has no {name}", "is it the URL that --run-dir was given?") from e

    def keep(self, names: Sequence[str]) -> None:
        for name in names:
            path = self.path / name
            if path.is_file():
                data = path.read_bytes()
                named = renamed(name, data, str(self.path), self.url) if name in NAMING else data
                self.storage.write(name, [named])
                self._kept.add(name)
            elif name in self._kept:
                self.storage.delete([name])

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
        return Collected(self.storage, self.folder / "pieces")

    def named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {k: self.named(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.named(v) for v in value]
        return value.replace(str(self.path), self.url) if isinstance(value, str) else value


def _without_data(name: str) -> bool:
    return checkpoint_of(name) is None or not name.endswith(DATA)


@contextlib.contextmanager
def home_at(url: str | None, must_have: str, resume: bool) -> Iterator[Home]:
    """The folder at a URL (None: on a disk). A new one must not have the file `must_have`, one to resume must."""
    if url is None:
        yield Home()
        return
    storage = storage_at(url)
    with temporary_folder("dqnitro-home-") as folder:
        home = UrlHome(url, storage, folder)
        if resume:
            home.take(must_have)
        elif must_have in storage.files([must_have]):
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
