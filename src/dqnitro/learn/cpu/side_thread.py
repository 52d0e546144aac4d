"""A second thread for the target network's pass, which waits for nothing that the online network's pass makes.

Products of this size are too small for two cores: both are woken for each, and what one core writes the other has to fetch. Two
whole passes at the same time, a core each, share nothing but the batch.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

Wait = Callable[[], Any]


class Beside:
    """Calls functions in a thread of its own, one after the other, each with one thread of torch and without gradients."""

    def __init__(self) -> None:
        self._pid = 0
        self._todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def start(self, f: Callable[..., Any], *args: Any) -> Wait:
        """Returns at once; call what it returns to have the value, or the error, as often as wanted. Whatever was started has to be waited for."""
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

        known: list[tuple[Any, BaseException | None]] = []

        def wait() -> Any:
            if not known:
                known.append(answer.get())
            value, error = known[0]
            if error is not None:
                raise error
            return value

        self._todo.put(call)
        return wait


@torch.no_grad()
def _work(todo: queue.SimpleQueue[Callable[[], None]]) -> None:
    torch.set_num_threads(1)  # torch counts the threads of each thread that calls it
    while True:
        call = todo.get()
        call()
        del call  # or its arguments would live until the next one comes
