"""A second thread for the half of an update that does not wait for the other half: each has half of the cores.

Matrix products of this size are too small for two cores: both are woken for each, and one waits for the other. Two of them at the
same time, a core each, take little longer than one.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

Wait = Callable[[], Any]
Start = Callable[..., Wait]


def now(f: Callable[..., Any], *args: Any) -> Wait:
    """Nothing beside: done at once, by the caller."""
    value = f(*args)
    return lambda: value


class Beside:
    """Gives `start` where a wrapper has switched it on and torch has two threads or more; otherwise `now`."""

    def __init__(self) -> None:
        self.on = False
        self._pid = 0
        self._todo: queue.SimpleQueue[tuple[int, Callable[[], None]]] = queue.SimpleQueue()

    @contextlib.contextmanager
    def halves(self) -> Iterator[Start]:
        """Inside, torch has half of its threads here and the other half beside. Whatever was started has to be waited for."""
        threads = torch.get_num_threads()
        if not self.on or threads < 2:
            yield now
            return
        torch.set_num_threads(threads - threads // 2)
        try:
            yield lambda f, *args: self._start(threads // 2, f, *args)
        finally:
            torch.set_num_threads(threads)

    def _start(self, threads: int, f: Callable[..., Any], *args: Any) -> Wait:
        if self._pid != os.getpid():  # threads do not live on in a fork
            self._pid, self._todo = os.getpid(), queue.SimpleQueue()
            # A daemon: between two updates it only waits, and nobody has to end it.
            threading.Thread(target=_work, args=(self._todo,), name="dqnitro-beside", daemon=True).start()
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def call() -> None:
            try:
                answer.put((f(*args), None))
            except BaseException as e:
                answer.put((None, e))

        def wait() -> Any:
            value, error = answer.get()
            if error is not None:
                raise error
            return value

        self._todo.put((threads, call))
        return wait


@torch.no_grad()
def _work(todo: queue.SimpleQueue[tuple[int, Callable[[], None]]]) -> None:
    have = 0
    while True:
        threads, call = todo.get()
        if threads != have:  # torch counts the threads of each thread that calls it
            torch.set_num_threads(threads)
            have = threads
        call()
        del call  # or its arguments would live until the next one comes
