"""Every rank says once a second that it is alive, and watches the others: one that is killed, stopped or cut off is
noticed within seconds, also by a rank that waits for a GPU and would wait for ever.

A rank that dies closes its connections, which the others' next message notices at once. This is for the rest: a process
that was stopped (SIGSTOP), a machine that is gone, a GPU that waits inside a CUDA graph for another.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dqnitro.errors import RankLost

if TYPE_CHECKING:
    from dqnitro.distributed.world import Place

BEAT_S = 1.0
PATIENCE_S = 20.0  # while the run is under way
CALL_S = 10.0  # of the store, at most
START_PATIENCE_S = 600.0  # compilers hold Python's lock for long


class Watch:
    """A thread beside a rank. `store` is shared by all ranks; this thread needs a connection of its own."""

    def __init__(self, here: Place, store: Any, leave: Callable[[int, str], None] | None = None) -> None:
        self._here, self._store = here, store
        self._leave = leave or self._end
        self.patience_s = START_PATIENCE_S
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """The run is over: others may leave before this one does. Python must not end while the thread is in a call of
        the store, which aborts the process.
        """
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(CALL_S)

    def _watch(self) -> None:
        seen = {rank: (-1, time.monotonic()) for rank in range(self._here.size) if rank != self._here.rank}
        beat = 0
        while not self._over.wait(BEAT_S):
            beat += 1
            try:
                self._store.set(f"beat/{self._here.rank}", str(beat))
                for rank in seen:
                    seen[rank] = self._look(rank, *seen[rank])
            except RuntimeError:  # the store lives with rank 0, or with torchrun on its machine
                self._lost(0, "its store does not answer")
                return
            late = [rank for rank, (_, since) in seen.items() if time.monotonic() - since > self.patience_s]
            if late:
                self._lost(late[0], f"no sign of life for {self.patience_s:.0f} s")
                return

    def _look(self, rank: int, last: int, since: float) -> tuple[int, float]:
        key = f"beat/{rank}"
        if not self._store.check([key]):
            return last, since
        now = int(self._store.get(key))
        return (now, time.monotonic()) if now != last else (last, since)

    def _lost(self, rank: int, why: str) -> None:
        # A rank that ends properly closes its watch; one that fails is about to say so itself.
        if not self._over.wait(BEAT_S):
            self._leave(rank, why)

    def _end(self, rank: int, why: str) -> None:
        """Nothing to save, and nobody who could be asked: the last checkpoint stands."""
        error = RankLost(f"rank {rank} of {self._here.size} was lost ({why})")
        speaks = self._here.rank == (1 if rank == 0 else 0)
        if speaks or self._here.launched:
            sys.stderr.write(f"\ndqnitro train: {error}\n")
            sys.stderr.flush()
        os._exit(error.exit_code)
