"""A run on a node that does not see the run's folder: it trains in a scratch folder, whose files are brought away."""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
import shutil
import time
import uuid
from typing import NamedTuple

from dqnitro.errors import StorageError
from dqnitro.storage.base import Storage
from dqnitro.storage.mirror import Mirror

PREFIX = "dqnitro-run-"
PATIENCE_S = 300.0  # with a storage that fails, before the run is stopped: nothing would protect it any more
AGAIN_S = 5.0


class Away(NamedTuple):
    """What a node has to know of a folder that it does not see."""

    root: str  # its path on the machine of the command, as it stands in the arguments of the run
    tops: tuple[str, ...]  # the run's files below it, its own folder first
    inputs: dict[str, bytes]  # what the run reads
    shown_as: str  # the name of the folder for its user
    url: str = ""  # where files go; empty: to the command, by messages

    def moved(self, text: str, scratch: pathlib.Path) -> str:
        """A path below the folder as one below the scratch folder; other texts stay."""
        if text == self.root or text.startswith(self.root + "/"):
            return str(scratch) + text[len(self.root) :]
        return text


class Courier:
    """Brings the files of one run from its scratch folder to a storage, again and again."""

    def __init__(self, away: Away, storage: Storage, scratch: pathlib.Path) -> None:
        self._away, self._scratch = away, scratch
        # By messages nobody else can write: the command asks one process for the files of a run.
        owner = f"{platform.node()}-{os.getpid()}-{uuid.uuid4().hex}" if away.url else ""
        self._mirror = Mirror(scratch, storage, away.tops, owner=owner, shown_as=away.shown_as)
        self._failing_since: float | None = None

    def begin(self) -> None:
        """Bring the newest checkpoint here, with all that belongs to it."""
        self._mirror.fetch()
        for name, data in self._away.inputs.items():
            (self._scratch / name).write_bytes(data)

    def look(self) -> None:
        """Send what is new, if it is time. A storage may fail for a while; StorageError if it lasts."""
        if not self._mirror.due():
            return
        try:
            self._mirror.publish()
            self._failing_since = None
        except (StorageError, OSError) as e:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since > PATIENCE_S:
                raise StorageError(f"files of the run cannot be stored: {e}") from e

    def end(self, tries: int = 3) -> None:
        """The run has ended: send the rest."""
        for left in reversed(range(tries)):
            try:
                self._mirror.publish(everything=True)
                return self._mirror.release()
            except (StorageError, OSError):
                if not left:
                    raise
                time.sleep(AGAIN_S)

    def end_alone(self) -> None:
        """The same where the cluster is gone, as far as that can be done without it."""
        if self._away.url:
            with contextlib.suppress(Exception):
                self.end(tries=1)
        shutil.rmtree(self._scratch, ignore_errors=True)
