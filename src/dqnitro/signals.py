"""Ctrl-C, SIGTERM and SIGHUP: remembered, so that a run can save before it stops, whatever it is waiting for.

starting()              nothing to save yet: the first signal ends the process
Signals().installed()   the loop checks `caught` after each tick; a second signal ends the process
with WAIT: ...          what may never end (an environment's step, another process): a signal that has not been answered
                        after PATIENCE_S breaks it off with Interrupted
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

NUMBERS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
ALWAYS = (signal.SIGINT, signal.SIGTERM)  # also in a shell's background, where SIGINT is ignored
PATIENCE_S = 5.0


class Interrupted(BaseException):
    """A wait was broken off, because a signal asked to stop. What was waited for has changed nothing yet."""


class _Wait:
    """`with WAIT:` around a call that may never end, and that changes nothing of the run until it has ended.

    It costs 0.3 microseconds.
    """

    def __init__(self) -> None:
        self.on = False

    def __enter__(self) -> None:
        # Python delivers signals to the main thread: only its waits can be broken off.
        self.on = threading.current_thread() is threading.main_thread()

    def __exit__(self, *exc: object) -> None:
        self.on = False


WAIT = _Wait()


class _Nudge:
    """Sends a signal to the main thread once more, some seconds later, from a thread of its own."""

    def __init__(self) -> None:
        self._lock, self._timer, self._ended = threading.Lock(), None, False
        self.sent = False  # the next signal is ours

    def after(self, seconds: float, number: int) -> None:
        self._timer = threading.Timer(seconds, self._send, (number,))
        self._timer.daemon = True
        self._timer.start()

    def _send(self, number: int) -> None:
        with self._lock:  # never once the handlers are gone
            if not self._ended:
                self.sent = True
                signal.pthread_kill(threading.main_thread().ident or 0, number)

    def end(self) -> None:
        with self._lock:
            self._ended = True
        if self._timer is not None:
            self._timer.cancel()


class Signals:
    """Remembers the first signal, which the loop checks after each tick. A second one ends the process."""

    def __init__(self) -> None:
        self.caught: str | None = None
        self._nudge = _Nudge()
        self._terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def _on(self, number: int, _frame: Any) -> None:
        if self.caught is None:
            self.caught = signal.Signals(number).name
            if self.caught == "SIGHUP":
                self._leave_terminal()
            self._nudge.after(PATIENCE_S, number)
        elif self._nudge.sent:
            self._nudge.sent = False
            if WAIT.on:
                raise Interrupted(self.caught)
            self._nudge.after(PATIENCE_S, number)
        else:
            self._nudge.end()
            end_now(number)

    def _leave_terminal(self) -> None:
        """The terminal is gone: whatever is still printed there would fail, and with it the saving."""
        with open(os.devnull, "w") as nowhere:
            for fd in self._terminals:
                os.dup2(nowhere.fileno(), fd)

    @contextlib.contextmanager
    def installed(self) -> Iterator[Signals]:
        with _handled(self._on, NUMBERS):
            try:
                yield self
            finally:
                self._nudge.end()


@contextlib.contextmanager
def starting(leave: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Until there is something to save, the first signal ends the process.

    Python cannot raise in the middle of compiled code, and what it raises in a callback is dropped. If the start is
    still under way after PATIENCE_S, `leave` is called (it removes what was begun) and the process ends.
    """
    under_way = threading.Event()
    under_way.set()

    def last_resort(number: int) -> None:
        if under_way.is_set():
            try:
                leave()
            finally:
                os._exit(128 + number)

    def on(number: int, _frame: Any) -> None:
        timer = threading.Timer(PATIENCE_S, last_resort, (number,))
        timer.daemon = True
        timer.start()
        end_now(number) if number == signal.SIGINT else sys.exit(128 + number)

    # A program that handles a signal itself keeps its handler.
    usual = (signal.default_int_handler, signal.SIG_DFL)
    with _handled(on, [n for n in NUMBERS if signal.getsignal(n) in usual]):
        try:
            yield
        finally:
            under_way.clear()


def end_now(number: int) -> None:
    """As if nobody had ever handled this signal."""
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@contextlib.contextmanager
def _handled(handler: Callable[[int, Any], None], numbers: Any) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    # What `nohup` ignores stays ignored. A handler that is not Python's could not be put back.
    kept = [
        n for n in numbers if signal.getsignal(n) is None or (n not in ALWAYS and signal.getsignal(n) == signal.SIG_IGN)
    ]
    old = {n: signal.signal(n, handler) for n in numbers if n not in kept}
    try:
        yield
    finally:
        for n, before in old.items():
            signal.signal(n, before)
