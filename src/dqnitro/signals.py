"""Ctrl-C and SIGTERM: remembered, so that a run can save before it stops."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Signals:
    """Remembers the first SIGINT or SIGTERM, which the loop checks after each tick. A second one ends the process."""

    def __init__(self) -> None:
        self.caught: str | None = None

    def _on(self, number: int, _frame: Any) -> None:
        self.caught = signal.Signals(number).name
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

    @contextlib.contextmanager
    def installed(self) -> Iterator[Signals]:
        if threading.current_thread() is not threading.main_thread():
            yield self  # Python delivers signals to the main thread only
            return
        old = {s: signal.signal(s, self._on) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for s, handler in old.items():
                signal.signal(s, handler)
