"""One line of progress on stderr: rewritten in place on a terminal, at most one line a minute through a pipe.

As a context manager it also draws by itself, in a thread, since much of what takes long is a single call: compiling, or
one long game. That costs some 50 microseconds, twice a second on a terminal and once a minute elsewhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from dqnitro.cli.terminal.wording import duration

REDRAW_S = 0.1  # of a terminal, at most
TICK_S = 0.5  # between two lines that a terminal gets without a report
FIRST_LINE_S = 3.0  # after which a log gets its first line, if nothing was reported
PIPE_S = 60.0  # between two lines of a log
CLEAR = "\r\x1b[K"


def is_terminal(stream: TextIO) -> bool:
    """Whether a line can be rewritten in place."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Progress:
    """`fresh games: 12 of 30, 3 s, 5 s left`. Use it as a context manager: at the end the line is removed.

    `total` may be 0 (unknown), and may be set later. Through a pipe the first report is printed, then one every
    `every_s`, a minute unless told otherwise.
    """

    def __init__(
        self,
        what: str,
        total: int = 0,
        *,
        quiet: bool = False,
        every_s: float = PIPE_S,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._stream = sys.stderr if stream is None else stream
        self._quiet, self._every_s, self._in_place = quiet, every_s, is_terminal(self._stream)
        self._shown_at = -PIPE_S
        self._drawn = False
        self._ended, self._lock = threading.Event(), threading.RLock()
        self._thread: threading.Thread | None = None
        self.begin(what, total)

    def begin(self, what: str, total: int = 0) -> None:
        """The next piece of work, counted and timed from here."""
        self.what, self.total, self._done, self._more = what, total, 0, ""
        self._began = self._clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def __call__(self, done: int = 0, more: str = "") -> None:
        """Report that `done` of the total are finished; `more` is added in words."""
        self._done, self._more = done, more
        finished = bool(self.total) and done >= self.total
        due = self._clock() - self._shown_at >= (REDRAW_S if self._in_place else self._every_s)
        if due or (finished and self._in_place):
            self._draw()

    def advance(self, n: int = 1) -> None:
        """Report that `n` more are finished."""
        self(self._done + n, self._more)

    def say(self, more: str) -> None:
        """Report in words what is being done now."""
        self(self._done, more)

    def text(self, done: int, more: str = "") -> str:
        """The line, without control characters."""
        spent = self.seconds
        parts = [f"{done:,} of {self.total:,}" if self.total else f"{done:,}" if done else "", duration(spent)]
        if self.total and 0 < done < self.total:
            parts.append(f"{duration(spent / done * (self.total - done))} left")
        return f"{self.what}: " + ", ".join(p for p in (*parts, more) if p)

    def _draw(self) -> None:
        if self._quiet:
            return
        with self._lock:
            if self._ended.is_set():
                return
            self._shown_at, text = self._clock(), self.text(self._done, self._more)
            if self._in_place:
                width = shutil.get_terminal_size().columns  # a line that wraps cannot be rewritten
                self._stream.write(f"{CLEAR}{text[: width - 1]}")
                self._drawn = True
            else:
                self._stream.write(text + "\n")
            self._stream.flush()

    def _follow(self) -> None:
        """Draw while nothing is reported; ends when nobody reads it any more."""
        every = TICK_S if self._in_place else self._every_s
        wait = every if self._in_place else min(FIRST_LINE_S, every)
        while not self._ended.wait(wait):
            wait = every - (self._clock() - self._shown_at)
            if wait > 0.001:
                continue
            try:
                self._draw()
            except (OSError, ValueError):
                return
            wait = every

    def close(self) -> None:
        """Remove the line before something else is printed."""
        with self._lock:
            self._ended.set()
            if self._drawn:
                self._stream.write(CLEAR)
                self._stream.flush()
                self._drawn = False
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
