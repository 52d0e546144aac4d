"""One line of progress on stderr: rewritten in place on a terminal, at most one line a minute through a pipe."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from dqnitro.cli.live import duration

REDRAW_S = 0.1  # of a terminal
PIPE_S = 60.0  # between two lines of a log


class Progress:
    """`fresh games: 12 of 30, 3 s, 5 s left`. Use it as a context manager: at the end the line is removed.

    `total` may be 0 (unknown), and may be set later. Through a pipe the first report is printed, then one a minute.
    """

    def __init__(
        self,
        what: str,
        total: int = 0,
        *,
        quiet: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self.total, self._clock = what, total, clock
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._in_place = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began, self._shown_at = clock(), -PIPE_S
        self._drawn = False

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def __call__(self, done: int = 0, more: str = "") -> None:
        """Report that `done` of the total are finished; `more` is added in words."""
        now = self._clock()
        finished = bool(self.total) and done >= self.total
        if self._quiet or now - self._shown_at < (REDRAW_S if self._in_place else PIPE_S):
            if self._quiet or not (finished and self._in_place):
                return
        self._shown_at = now
        self._write(self.text(done, more))

    def text(self, done: int, more: str = "") -> str:
        """The line, without control characters."""
        spent = self.seconds
        parts = [f"{done:,} of {self.total:,}" if self.total else f"{done:,}" if done else "", duration(spent)]
        if self.total and 0 < done < self.total:
            parts.append(f"{duration(spent / done * (self.total - done))} left")
        return f"{self.what}: " + ", ".join(p for p in (*parts, more) if p)

    def _write(self, text: str) -> None:
        if self._in_place:
            width = shutil.get_terminal_size().columns
            self._stream.write(f"\r\x1b[K{text[: width - 1]}")
            self._drawn = True
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Remove the line before something else is printed."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
