"""A second thread for the target network's pass, which needs nothing that the online network's pass makes.

Matrix products of this size are too small for two cores: both are woken for each, and what one core writes the other
has to fetch. Two whole passes at the same time, one on each core, share nothing but the batch.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

Wait = Callable[[], Any]


class SideThread:
    """Calls functions in a thread of its own, in the order in which they were started, with one of torch's threads each
    and without gradients.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def start(self, f: Callable[..., Any], *args: Any) -> Wait:
        """Start `f(*args)` and return a function that waits for its value, or raises its error, as often as it is
        called.

        The caller has to wait for everything that it starts: otherwise an error would be lost.
        """
        if self._pid != os.getpid():  # threads do not survive a fork
            self._pid = os.getpid()
            self._calls = queue.SimpleQueue()
            # A daemon: between two updates it only waits, so the process may end without it.
            threading.Thread(target=_work, args=(self._calls,), name="dqnitro-side-thread", daemon=True).start()
        answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def call() -> None:
            try:
                answer.put((f(*args), None))
            except BaseException as e:
                answer.put((None, e))

        known: list[tuple[Any, BaseException | None]] = []

        def wait() -> Any:
            if not known:
                known.append(answer.get())
            value, error = known[0]
            if error is not None:
                raise error
            return value

        self._calls.put(call)
        return wait


@torch.no_grad()
def _work(calls: queue.SimpleQueue[Callable[[], None]]) -> None:
    torch.set_num_threads(1)  # torch counts the threads of each thread that calls it
    while True:
        call = calls.get()
        call()
        del call  # or its arguments would live until the next call comes
