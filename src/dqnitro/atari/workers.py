"""Threads that share out a batch of machines. The work releases the GIL, so they run at the same time.

A batch is cut into chunks that threads take one by one, because machines differ: one that starts a new game
runs a hundred frames while the others run four. Handing a batch to a sleeping thread costs 10 to 20
microseconds; a single thread therefore works in the caller.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue

CHUNKS_PER_THREAD = 4


class Job:
    """One batch: `work(worker, lo, hi)` for all chunks of `range(n)`."""

    def __init__(self, work: Callable[[int, int, int], None], n: int, threads: int) -> None:
        self._work: Callable[[int, int, int], None] | None = work
        self.n = n
        self.size = max(1, n // (threads * CHUNKS_PER_THREAD)) if threads > 1 else n
        self.chunks = -(-n // self.size)
        self._take, self._finish = count(), count()  # next() on a count is atomic under the GIL
        self._done = threading.Lock()
        self._done.acquire()
        self.error: BaseException | None = None

    def run(self, worker: int) -> None:
        """Take chunks until none is left."""
        while (k := next(self._take)) < self.chunks:
            try:
                if self.error is None and self._work is not None:
                    self._work(worker, k * self.size, min((k + 1) * self.size, self.n))
            except BaseException as error:  # reaches the caller through `wait`
                self.error = error
            finally:
                if next(self._finish) == self.chunks - 1:
                    self._work = None  # a thread that comes late must not hold on to the arrays of the batch
                    self._done.release()

    def wait(self) -> None:
        """Until all chunks are done; may be called more than once."""
        with self._done:
            pass
        if self.error is not None:
            raise self.error


class Workers:
    """`threads` threads, started when the first job needs them."""

    def __init__(self, threads: int, first_core: int = -1) -> None:
        self.threads, self.first_core = threads, first_core
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started: list[threading.Thread] = []

    def start(self, job: Job) -> None:
        """Hand the job to the threads and return at once."""
        self._ensure()
        for _ in range(min(self.threads, job.chunks)):
            self._jobs.put(job)

    def run(self, job: Job) -> None:
        """Do the job with the caller as one of the threads."""
        if self.threads > 1 and job.chunks > 1:
            self._ensure()
            for _ in range(min(self.threads, job.chunks) - 1):
                self._jobs.put(job)
        job.run(self.threads)  # the caller's own number: pool threads are 0..threads-1
        job.wait()

    def close(self) -> None:
        for _ in self._started:
            self._jobs.put(None)
        for thread in self._started:
            thread.join()
        self._started = []

    def _ensure(self) -> None:
        for k in range(len(self._started), self.threads):
            thread = threading.Thread(target=self._loop, args=(k,), name=f"atari-{k}", daemon=True)
            self._started.append(thread)
            thread.start()

    def _loop(self, worker: int) -> None:
        if self.first_core >= 0 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {(self.first_core + worker) % (os.cpu_count() or 1)})
        while (job := self._jobs.get()) is not None:
            job.run(worker)
