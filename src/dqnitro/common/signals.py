"""Ctrl-C, SIGTERM and SIGHUP: remembered, so that a run can save before it stops, whatever it is waiting for.

Signals().installed()   the loop checks `caught` after each tick; a second signal ends the process
signals.starting()      nothing to save yet: the first signal ends the process
with WAIT: ...          what may never end (an environment's step, another process): a signal that has not been answered
                        after PATIENCE_S breaks it off with Interrupted
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

NUMBERS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
ALWAYS = (signal.SIGINT, signal.SIGTERM)  # also in a shell's background, where SIGINT is ignored
PATIENCE_S = 5.0


def signal_name(number: int) -> str:
    """SIGKILL, or the number of a signal that has no name, as some real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


PR_SET_PDEATHSIG = 1


def end_with_parent() -> bool:
    """From now on the kernel ends this process with the one that started it, even if it is stopped or stuck. Only Linux
    does: elsewhere False.
    """
    return sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) == 0


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
                _to_main_thread(number)

    def end(self) -> None:
        with self._lock:
            self._ended = True
        if self._timer is not None:
            self._timer.cancel()


class Signals:
    """Remembers the first signal, which the loop checks after each tick. A second one ends the process.

    There is one at a time: installing another inside it gives the one that is there.
    """

    _current: Signals | None = None

    def __init__(self) -> None:
        self.caught: str | None = None
        self._number = 0
        self._nudge = _Nudge()
        self._leave: Callable[[], None] | None = None  # while the run starts: removes what was begun
        self._terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def _on(self, number: int, _frame: Any) -> None:
        first = self.caught is None
        if first:
            self.caught, self._number = signal.Signals(number).name, number
            if self.caught == "SIGHUP":
                self._leave_terminal()
        if self._leave is not None:
            self._end_start()
        elif first:
            self._nudge.after(PATIENCE_S, number)
        elif self._nudge.sent:
            self._nudge.sent = False
            if WAIT.on:
                raise Interrupted(self.caught)
            self._nudge.after(PATIENCE_S, number)
        else:
            self._nudge.end()
            end_now(number)

    @staticmethod
    def heard(name: str) -> None:
        """Another process of this run has caught a signal: as if it had come here."""
        if (current := Signals._current) is not None and current.caught is None:
            current.caught = name

    def _leave_terminal(self) -> None:
        """The terminal is gone: whatever is still printed there would fail, and with it the saving."""
        with open(os.devnull, "w") as nowhere:
            for fd in self._terminals:
                os.dup2(nowhere.fileno(), fd)

    def _end_start(self) -> None:
        timer = threading.Timer(PATIENCE_S, self._last_resort, (self._leave,))
        timer.daemon = True
        timer.start()
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + self._number)

    def _last_resort(self, leave: Callable[[], None]) -> None:
        if self._leave is leave:
            try:
                leave()
            finally:
                os._exit(128 + self._number)

    @contextlib.contextmanager
    def installed(self) -> Iterator[Signals]:
        if threading.current_thread() is not threading.main_thread():
            yield self  # Python delivers signals to the main thread only
            return
        if Signals._current is not None:
            yield Signals._current
            return
        Signals._current = self
        # What `nohup` ignores stays ignored. A handler that is not Python's could not be put back.
        now = {n: signal.getsignal(n) for n in NUMBERS}
        old = {n: h for n, h in now.items() if h is not None and (n in ALWAYS or h != signal.SIG_IGN)}
        try:
            for number in old:
                signal.signal(number, self._on)
            yield self
        finally:
            self._nudge.end()
            Signals._current = None
            for number, handler in old.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def starting(self, leave: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Until there is something to save, the first signal ends the process.

        Python cannot raise in the middle of compiled code, and what it raises in a callback is dropped. If the start is
        still under way after PATIENCE_S, `leave` is called (it removes what was begun) and the process ends.
        """
        self._leave = leave
        try:
            if self.caught:
                self._end_start()
            yield
        finally:
            self._leave = None


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """For commands that save nothing: SIGTERM and SIGHUP end the block as an exception does, and what it made for
    itself is removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: Any) -> None:
        sys.exit(128 + number)

    usual = [n for n in NUMBERS if n != signal.SIGINT and signal.getsignal(n) == signal.SIG_DFL]
    for number in usual:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in usual:
            signal.signal(number, signal.SIG_DFL)


def _to_main_thread(number: int) -> None:
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:  # Windows: the handler runs as soon as the main thread is back in Python
        _thread.interrupt_main(signal.Signals(number))


def end_now(number: int) -> None:
    """As if nobody had ever handled this signal."""
    if number == signal.SIGINT:
        signal.signal(number, signal.default_int_handler)
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
