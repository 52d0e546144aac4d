"""Threads that share out batches: every place once, whatever the numbers; sleeping, waking, errors, closing.

The work is a stand-in, compiled in a second: it writes down who served which place of which job.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numba
import numpy as np
import pytest
from numpy import int64

from dqnitro.atari.jit.target import carray, pointer
from dqnitro.atari.vector import work_queue
from dqnitro.atari.vector.thread_pool import ThreadPool
from dqnitro.atari.vector.work_queue import J_DATA, J_SIZE, address, finish, next_job, slot_at, take

KINDS = [
    pytest.param(True, id="futex", marks=pytest.mark.skipif(not work_queue.NATIVE, reason="no futex on this system")),
    pytest.param(False, id="python"),
]
MEET = -2


@numba.njit(nogil=True)
def serve(control, me, stay, labour):
    """Notes how often a place was served, by whom and when; `labour`: turns to keep busy, or minus the number of
    threads that have to meet.
    """
    ticks, met, first = (
        address(control) + 8 * (work_queue.C_LAST + 1),
        address(control) + 8 * (work_queue.C_LAST + 2),
        True,
    )
    job = next_job(control, me, int64(0), stay)
    while job >= 0:
        slot = slot_at(control, job)
        at = (slot - address(control)) // 8 + J_DATA
        k = take(control, slot, me)
        while k >= 0:
            n = control[at - J_DATA + J_SIZE]
            notes = carray(pointer(control[at + 1]), (3, n), np.int64)
            for _ in range(labour):
                work_queue.atomic_add(ticks, int64(0))
            if labour < 0 and first:  # so many threads have to come, or it takes some ten seconds
                first = False
                work_queue.atomic_add(met, int64(1))
                for _ in range(2_000_000_000):
                    if work_queue.atomic_load(met) >= -labour:
                        break
            notes[0, k] += 1
            notes[1, k] = me
            notes[2, k] = work_queue.atomic_add(ticks, int64(1))
            finish(slot)
            k = take(control, slot, me)
        job = next_job(control, me, job, stay)


class Notes:
    """A batch of `size` places."""

    def __init__(self, size: int, long: int = 0) -> None:
        self.size, self.long = size, long
        self.notes = np.zeros((3, size), np.int64)
        self.tasks = (np.arange(size), self.notes)

    def check(self) -> None:
        assert (self.notes[0] == 1).all(), f"served so often: {self.notes[0]}"


def pool_of(threads: int, slots: int = 2, native: bool = True, labour: int = 50, work: Any = serve) -> ThreadPool:
    return ThreadPool(work, [(labour,)] * (threads + 1), slots, native=native)


@pytest.mark.parametrize("native", KINDS)
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_place_is_served_once(threads: int, native: bool) -> None:
    pool = pool_of(threads, native=native)
    for size in (1, 2, 3, 5, 8, 31, 64):
        for long in {0, 1, size // 2, size}:
            batch = Notes(size, long)
            pool.run(batch)
            batch.check()
            batch = Notes(size, long)
            pool.start(batch).wait()
            batch.check()
    pool.close()


@pytest.mark.parametrize("native", KINDS)
def test_thousands_of_batches_one_behind_the_other(native: bool) -> None:
    """Slots are used again at once, while threads are still on their way to sleep; many sizes, up to four batches at a
    time.
    """
    pool, rng = pool_of(3, slots=4, native=native, labour=3), np.random.default_rng(0)
    flight: list[tuple[Notes, Any]] = []
    rounds = 3000 if native else 300
    for _ in range(rounds):
        batch = Notes(int(rng.integers(1, 12)))
        flight.append((batch, pool.start(batch)))
        if len(flight) == 4 or rng.random() < 0.5:
            done, job = flight.pop(0)
            job.wait()
            assert job.done
            done.check()
        if rng.random() < 0.2:
            batch = Notes(int(rng.integers(1, 12)))
            pool.run(batch)
            batch.check()
    for batch, job in flight:
        job.wait()
        job.wait()  # may be called again
        batch.check()
    pool.close()


def test_long_ones_come_first_and_own_ones_before_others() -> None:
    """One thread alone shows the order: long places, its own queue, then those of the others."""
    control = work_queue.make_control(3, 1)
    batch = Notes(11, long=2)
    work_queue.publish(control, batch.tasks, batch.long, 0, False)
    serve(control, 1, False, 0)
    batch.check()
    assert np.argsort(batch.notes[2]).tolist() == [0, 1, 5, 6, 7, 8, 9, 10, 2, 3, 4]


def test_work_of_two_threads_is_shared() -> None:
    """A thread that waited for the GIL would leave all places to the other."""
    pool = pool_of(2, labour=MEET)
    batch = Notes(16)
    pool.run(batch)
    batch.check()
    # Which ones depends on the machine: threads that have only just been started may be there before the caller.
    assert len(set(batch.notes[1].tolist())) > 1
    pool.close()


def test_small_batches_under_way_together_wake_as_many_as_they_need() -> None:
    pool = pool_of(4, slots=9, labour=2 * MEET)
    batches = [Notes(1) for _ in range(8)]
    for job in [pool.start(batch) for batch in batches]:
        job.wait()
    assert {int(batch.notes[1, 0]) for batch in batches} == {0, 1, 2, 3}
    pool.close()


@pytest.mark.parametrize("native", KINDS)
def test_nobody_has_the_number_of_another_who_is_at_work(native: bool) -> None:
    """The number says which scratch memory to use. After a `start` the last thread is still awake when the caller
    works.
    """
    pool, busy, seen = pool_of(2, native=native, labour=20), [0, 0, 0], []

    def watched(control: np.ndarray, worker: int, stay: bool, labour: int) -> None:
        busy[worker] += 1
        seen.append(busy[worker])
        serve(control, worker, stay, labour)
        busy[worker] -= 1

    pool._work = watched
    for _ in range(200):
        pool.start(Notes(4)).wait()
        pool.run(Notes(4))
    pool.close()
    assert max(seen) == 1 and busy == [0, 0, 0]


def test_a_single_place_wakes_nobody() -> None:
    pool = pool_of(4)
    batch = Notes(1)
    pool.run(batch)
    batch.check()
    assert not pool._started
    pool.close()


@pytest.mark.parametrize("native", KINDS)
def test_sleeping_threads_use_no_time(native: bool) -> None:
    pool = pool_of(2, native=native)
    pool.start(Notes(8)).wait()
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1
    pool.close()


@pytest.mark.parametrize("native", KINDS)
def test_an_error_in_a_thread_reaches_the_caller(native: bool) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("inside")

    pool = pool_of(2, native=native, work=fail)
    with pytest.raises(ZeroDivisionError, match="inside"):
        pool.start(Notes(8)).wait()
    with pytest.raises(ZeroDivisionError, match="inside"):  # nobody is left to do it
        pool.start(Notes(8))
    pool.close()


@pytest.mark.parametrize("native", KINDS)
def test_threads_end_and_begin_again(native: bool) -> None:
    before = threading.active_count()
    pool = pool_of(3, native=native)
    for _ in range(20):
        batch = Notes(9)
        pool.start(batch)
        pool.close()  # waits for what is under way
        batch.check()
        assert threading.active_count() == before
    pool.close()


def test_what_is_under_way_is_held_until_it_is_done() -> None:
    """Compiled code has addresses only: the arrays of a batch that the caller forgot must stay."""
    pool = pool_of(1, labour=2_000_000)
    pool.start(Notes(4))
    assert isinstance(pool._held[0], Notes)
    pool.close()
    assert pool._held == [None, None]


def test_a_job_whose_slot_was_used_again_is_done() -> None:
    pool = pool_of(2, slots=1)
    first = pool.start(Notes(5))
    second = pool.start(Notes(5))
    assert first.done
    first.wait()
    second.wait()
    pool.close()
