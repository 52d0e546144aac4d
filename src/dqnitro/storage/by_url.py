"""Storage at a URL: whatever `fsspec` knows (s3://, gs://, sftp://, memory://, ...)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dqnitro.errors import ConfigError, StorageError
from dqnitro.storage.base import checked, visible

FILE = "file://"
DATA = ".safetensors"  # of a checkpoint: not looked at before its manifest is there


def is_url(text: str | os.PathLike[str]) -> bool:
    return "://" in str(text)


def plain_path(text: str) -> str:
    """A URL of a folder on this machine's disk as its path; any other text as it is."""
    if not text.startswith(FILE):
        return text
    path = text.removeprefix(FILE)
    if not path.startswith("/"):
        raise ConfigError(f"{text} is not the URL of a folder", "file:///path/of/the/folder")
    return path


def storage_at(url: str) -> UrlStorage:
    """The storage that a URL names; ConfigError if this machine has no way to it."""
    try:
        import fsspec
    except ImportError as e:
        raise ConfigError(
            f"{url} needs fsspec, which cannot be imported ({e})", "pip install 'dqnitro[cluster]'"
        ) from e
    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as e:
        raise ConfigError(
            f"{url} cannot be used ({_told(e)})", "pip install the package of this kind of storage: s3fs, gcsfs, ..."
        ) from e
    except Exception as e:  # each kind of storage has its own: no credentials, no such host
        with _quiet_ends():
            e.__traceback__ = None
        raise ConfigError(f"{url} cannot be reached ({_told(e)})", "check address and credentials") from e
    return UrlStorage(url, system, root.rstrip("/"))


@contextlib.contextmanager
def _quiet_ends() -> Iterator[None]:
    """Objects that could not be made complain when they are deleted; what was wrong has been told."""
    usual, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = usual


def _told(e: BaseException) -> str:
    return " ".join(f"{type(e).__name__}: {e}".split())[:300]


class UrlStorage:
    """A folder of a file system of `fsspec`."""

    def __init__(self, url: str, system: Any, root: str) -> None:
        self.url, self._system, self._root = url.rstrip("/"), system, root

    def below(self, name: str) -> UrlStorage:
        """A folder in here."""
        return UrlStorage(f"{self.url}/{checked(name)}", self._system, self._at(name))

    def top(self) -> set[str]:
        """The names of the files and folders that are here."""
        with self._guarded():
            self._system.invalidate_cache()
            try:
                paths = [str(path).rstrip("/") for path in self._system.ls(self._root, detail=False)]
            except FileNotFoundError:
                return set()
        return {name for path in paths if visible(name := path.rpartition("/")[2])}

    def files(self, tops: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        with self._guarded():
            self._system.invalidate_cache()
            for top in tops:
                with contextlib.suppress(FileNotFoundError):
                    for path, facts in self._system.find(self._at(top), detail=True).items():
                        name = path[len(self._root) :].lstrip("/")
                        if visible(name) and facts.get("type") == "file":
                            found[name] = int(facts["size"])
        return found

    def read(self, name: str, at: int, size: int) -> bytes:
        with self._guarded():
            if not size:
                return b""
            with self._system.open(self._at(name), "rb", cache_type="none") as f:
                f.seek(at)
                return f.read(size)

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Not every system shows a file only when it is whole. So it gets its name afterwards, but for the large files
        of a checkpoint, which nobody reads before there is a manifest.
        """
        at = self._at(name)
        folder, _, last = at.rpartition("/")
        begun = at if "/checkpoints/" in f"/{name}" and name.endswith(DATA) else f"{folder}/.{last}.part"
        with self._guarded():
            self._system.makedirs(folder, exist_ok=True)
            with self._system.open(begun, "wb") as f:
                for piece in pieces:
                    f.write(piece)
            if begun != at:
                self._system.mv(begun, at)

    def delete(self, names: Sequence[str]) -> None:
        with self._guarded():
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    self._system.rm_file(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{checked(name)}"

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Whatever a kind of storage raises is one line."""
        try:
            yield
        except (FileNotFoundError, StorageError):
            raise
        except Exception as e:
            raise StorageError(f"{self.url} cannot be used ({_told(e)})", "check the storage and who may write") from e
