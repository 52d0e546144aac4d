"""Real pseudo-terminals and pipes for tests, and what arrives at their other end."""

from __future__ import annotations

import contextlib
import os
import threading


class Reader:
    """Collects what is written to one end of a terminal or pipe; `wait_for` returns once it contains a text."""

    def __init__(self, fd: int) -> None:
        self.text, self._changed = "", threading.Condition()
        self._fd = fd
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # a terminal whose other end was closed
            while data := os.read(self._fd, 4096):
                with self._changed:
                    self.text += data.decode()
                    self._changed.notify_all()

    def wait_for(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.text, timeout=30), self.text
