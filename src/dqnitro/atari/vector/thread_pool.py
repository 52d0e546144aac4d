"""Threads that share out batches of consoles. They run compiled code without the GIL (`vector/work_queue.py`).

A thread enters compiled code once and stays there: it sleeps, is woken by a batch, takes consoles until none is left,
and sleeps again, without a line of Python. In `run` the caller is one of the threads, so a single thread needs no
other. Where compiled code cannot sleep (`work_queue.NATIVE`), a thread comes back to Python after every batch and
sleeps there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from . import work_queue

PATIENT_S = 1e-3  # how often a patient caller looks whether a job is done
ASK_AGAIN_S = 50e-6  # without a futex: how often a caller that waits looks whether a job is done


class Places(Protocol):
    """What is handed out: `size` places, of which the first `long` take longer than others, and their arrays.

    The first array has an entry for each place.
    """

    @property
    def size(self) -> int: ...

    @property
    def long(self) -> int: ...

    @property
    def tasks(self) -> tuple[np.ndarray, ...]: ...


class Job:
    """A batch that was handed out."""

    def __init__(self, pool: ThreadPool, number: int) -> None:
        self._pool, self.number = pool, number

    @property
    def done(self) -> bool:
        return self._pool.is_done(self.number)

    def wait(self) -> None:
        """Until all its places are done; may be called more than once."""
        self._pool.wait(self.number)


class ThreadPool:
    """Threads that are started when the first job needs them; one fewer than there are `arguments`.

    `work(control, worker, stay, *arguments[worker])` is compiled. It does places of jobs: with `stay` until the end,
    otherwise until no place is left.

    Threads are numbered from 0, and the caller has the last number: it has the queue of the last thread, but may be at
    work beside it (which is awake for a while after a `start`), so it must not have the same scratch.
    """

    def __init__(
        self,
        work: Any,
        arguments: Sequence[tuple[Any, ...]],
        slots: int,
        first_core: int = -1,
        native: bool = work_queue.NATIVE,
        patient: bool = False,
    ) -> None:
        """`patient`: jobs may take seconds, so the caller waits in Python, where a signal can end the waiting."""
        self.patient = patient
        self.threads, self.first_core, self.native = len(arguments) - 1, first_core, native
        self._work, self._arguments = work, arguments
        self._control, self._slots = work_queue.make_control(self.threads, slots), slots
        self._held: list[object] = [None] * slots  # what compiled code has only addresses of
        self._gate = threading.Semaphore(0)
        self._started: list[threading.Thread] = []
        self._process = os.getpid()
        self._error: BaseException | None = None

    def start(self, batch: Places) -> Job:
        """Hand out a batch and return at once."""
        self._ensure()
        others, before = min(self.threads - 1, batch.size), int(self._control[work_queue.C_PUBLISHED]) - 1
        # The last thread as well, where there is a place for everybody, or where the others may be at the batch before.
        last = batch.size > others or (before >= 0 and not self.is_done(before))
        return Job(self, self._hand_out(batch, others, last))

    def run(self, batch: Places) -> None:
        """Hand out a batch, with the caller in the place of the last thread, and wait."""
        if self.patient:
            self.start(batch).wait()
            return
        others = min(self.threads, batch.size) - 1
        if others > 0:
            self._ensure()
        job = self._hand_out(batch, others, last=False)
        self._work(self._control, self.threads, False, *self._arguments[self.threads])
        self.wait(job)

    def is_done(self, job: int) -> bool:
        newer = int(self._control[work_queue.C_PUBLISHED]) - job > self._slots  # its slot was needed again, so it is
        return newer or work_queue.unfinished(self._control, job) <= 0

    def wait(self, job: int) -> None:
        self._settle(job)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        if self._process == os.getpid() and self._started:
            published = int(self._control[work_queue.C_PUBLISHED])
            for job in range(max(0, published - self._slots), published):
                self._settle(job)
            work_queue.close(self._control)
            self._gate.release(len(self._started))
            # At the very end of the interpreter a thread cannot come back from compiled code to be joined.
            for thread in [] if sys.is_finalizing() else self._started:
                if thread is not threading.current_thread():  # a collection may end the pool from anywhere
                    thread.join()
        self._started = []

    def _settle(self, job: int) -> None:
        """Wait for a job whose slot is still its own, and let go of what it held."""
        if int(self._control[work_queue.C_PUBLISHED]) - job > self._slots:
            return
        if self.patient:
            try:
                while not self.is_done(job):
                    time.sleep(PATIENT_S)
            except BaseException:  # Ctrl-C: what no thread has begun is left undone
                work_queue.abandon(self._control)
                raise
        elif self.native:
            work_queue.wait(self._control, job)
        else:
            while not self.is_done(job):
                time.sleep(ASK_AGAIN_S)
        self._held[job % self._slots] = None

    def _hand_out(self, batch: Places, others: int, last: bool) -> int:
        if self._error is not None:
            raise self._error
        job = int(self._control[work_queue.C_PUBLISHED])
        if job >= self._slots:
            self.wait(job - self._slots)  # the job that had this slot before
        self._held[job % self._slots] = batch
        if self.native:
            work_queue.publish(self._control, batch.tasks, batch.long, others, last)
        else:
            work_queue.publish(self._control, batch.tasks, batch.long, 0, False)
            for _ in range(others + last):
                self._gate.release()
        return job

    def _ensure(self) -> None:
        if self._process != os.getpid():  # a fork takes along no threads
            self._process, self._started = os.getpid(), []
        if not self._started:
            self._control[work_queue.C_CLOSING] = 0
        for k in range(len(self._started), self.threads):
            thread = threading.Thread(target=self._loop, args=(k,), name=f"atari-{k}", daemon=True)
            self._started.append(thread)
            thread.start()

    def _loop(self, worker: int) -> None:
        if self.first_core >= 0 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {(self.first_core + worker) % (os.cpu_count() or 1)})
        try:
            while self._control[work_queue.C_CLOSING] == 0:
                if not self.native:
                    self._gate.acquire()
                self._work(self._control, worker, self.native, *self._arguments[worker])
        except BaseException as error:  # reaches the caller through `wait`
            self._error = error
            work_queue.abandon(self._control)
