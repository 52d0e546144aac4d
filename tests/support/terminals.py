"""Real pseudo-terminals and pipes for tests, and what arrives at their other end."""

from __future__ import annotations

import contextlib
import os
import pty
import sys
import threading
from collections.abc import Iterator

from dqnitro.events import Snapshot


class Reader:
    """Collects what is written to one end of a terminal or pipe; `wait_for` returns once it contains a text."""

    def __init__(self, fd: int) -> None:
        self.text, self._changed = "", threading.Condition()
        self._fd = fd
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # a terminal whose other end was closed
            while data := os.read(self._fd, 4096):
                with self._changed:
                    self.text += data.decode()
                    self._changed.notify_all()
        os.close(self._fd)

    def wait_for(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.text, timeout=30), self.text


@contextlib.contextmanager
def stderr_to(kind: str) -> Iterator[Reader]:
    """sys.stderr is a real terminal or pipe for a while. Afterwards the reader has everything."""
    here, there = pty.openpty() if kind == "terminal" else os.pipe()
    reader, before = Reader(here), sys.stderr
    with os.fdopen(there, "w") as stream:
        sys.stderr = stream
        try:
            yield reader
        finally:
            sys.stderr = before
    reader.thread.join(timeout=30)


def snapshot(**changes) -> Snapshot:
    """A moment of a run, as the live block gets it."""
    return Snapshot(**({
        "wall_s": 125.0, "steps": 50_000, "updates": 10_000, "games": 150, "epsilon": 0.51, "steps_per_s": 400.0,
        "frames_per_s": 1600.0, "updates_per_s": 100.0, "mean_score": -3.25, "last_score": 1.0, "loss": 0.0123,
        "share": {"act": 0.1, "env": 0.2, "sample": 0.05, "learn": 0.62, "store": 0.02, "loop": 0.01},
    } | changes))  # fmt: skip
