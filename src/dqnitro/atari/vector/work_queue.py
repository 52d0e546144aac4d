"""Handing out the consoles of a batch to threads: compiled, without the GIL, no Python while a batch is under way.

All that threads share is one array of numbers, `control`. A batch is a *job* in one of its slots: how many places are
not handed out yet, how many are not finished yet, and addresses of the arrays it is about. A thread takes one place at
a time by an atomic subtraction, because consoles differ: one that starts a new game runs a hundred frames while the
others run four. Places come in *queues*: first those that take long, which every thread takes from; then one queue for
each thread, so that a console stays with the core that has it in its cache; a thread whose own queue is empty helps the
others with theirs. Threads without work sleep in the kernel (a futex), and one system call wakes as many as a batch
needs.

Why a slot may be used again while a slow thread still looks at it: the only thing that thread does without having a
place is that subtraction. Before the slot is filled again it yields nothing, after that a place of the new job, whose
numbers were written before. So nothing but the place that was taken decides what a thread works on.

Where the kernel has no futex, threads sleep in Python instead (see `vector/thread_pool.py`).
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literal_unroll
from numba.core import types
from numba.extending import intrinsic
from numpy import int64

from ..jit.target import address, compiled

# Words of `control`. What different threads write all the time lies in cache lines of its own (16 words, because they
# are fetched in pairs).
LINE = 16
C_PUBLISHED, C_THREADS, C_SLOTS, C_STRIDE, C_CLOSING = range(5)  # jobs so far; ...; words of a slot; threads shall end
C_LAST = LINE  # see `next_job`
C_WORDS = 2 * LINE
J_UNFINISHED, J_WAITED, J_SIZE, J_LONG, J_DATA = 0, 1, LINE, LINE + 1, LINE + 2  # from J_DATA on: addresses
J_LEFT = 3 * LINE  # of the first queue; a line for each

_SYSCALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
NATIVE = sys.platform == "linux" and _SYSCALL > 0
_WAIT, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE of this process alone


def make_control(threads: int, slots: int) -> np.ndarray:
    """Shared numbers of some threads with room for that many jobs at a time; begins at a cache line."""
    stride = J_LEFT + LINE * (threads + 1)
    room = np.zeros(C_WORDS + slots * stride + LINE, np.int64)
    skip = -(room.ctypes.data // 8) % LINE
    control = room[skip : skip + C_WORDS + slots * stride]
    control[C_THREADS], control[C_SLOTS], control[C_STRIDE] = threads, slots, stride
    return control


def _add_typed(typing_context: Any, at: Any, amount: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", place, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), build


def _load_typed(typing_context: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.load_atomic(place, "seq_cst", 8, typ=ir.IntType(64))

    return types.int64(types.int64), build


def _store_typed(typing_context: Any, at: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        builder.store_atomic(arguments[1], place, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), build


atomic_add: Any = intrinsic(_add_typed)  # returns the value before
atomic_load: Any = intrinsic(_load_typed)
atomic_store: Any = intrinsic(_store_typed)
_syscall: Any = types.ExternalFunction("syscall", types.int64(*(types.int64,) * 7))


def _sleep(at, value):
    """Until another thread wakes this word, if it still has that value; may also return for no reason."""
    _syscall(int64(_SYSCALL), at, int64(_WAIT), value & 0xFFFFFFFF, int64(0), int64(0), int64(0))


def _wake(at, threads):
    """At most that many of the threads that sleep on this word."""
    _syscall(int64(_SYSCALL), at, int64(_WAKE), threads, int64(0), int64(0), int64(0))


def _nothing(at, number):
    """There is no futex here: Python wakes, and asks again and again."""


sleep: Any = compiled(_sleep if NATIVE else _nothing)
wake: Any = compiled(_wake if NATIVE else _nothing)


@compiled
def slot_at(control, job):
    """Address of the slot of a job."""
    return address(control) + 8 * (C_WORDS + (job % control[C_SLOTS]) * control[C_STRIDE])


@compiled
def end_of(queue, threads, long, size):
    """Queue 0 has the first `long` places, the others share the rest."""
    return long + queue * (size - long) // threads


@compiled
def publish(control, arrays, long, others, last):
    """Hand out a job: as many places as the first of the `arrays` has entries, of which the first `long` take long.

    Wakes `others` threads but the last one, and the `last`, if it is needed. The job that had the slot before is done.
    Threads find the addresses of the arrays in the slot, so the caller has to keep them until the job is done.
    """
    at, slot, threads = address(control), slot_at(control, control[C_PUBLISHED]), control[C_THREADS]
    words, size = (slot - at) // 8, len(arrays[0])
    word = words + J_DATA
    for array in literal_unroll(arrays):
        control[word] = address(array)
        word += 1
    control[words + J_SIZE], control[words + J_LONG] = size, long
    atomic_store(slot + 8 * J_WAITED, int64(0))
    atomic_store(slot + 8 * J_UNFINISHED, int64(size))
    begin = int64(0)
    for queue in range(threads + 1):
        end = end_of(queue, threads, long, size)
        atomic_store(slot + 8 * (J_LEFT + LINE * queue), end - begin)
        begin = end
    atomic_add(at + 8 * C_PUBLISHED, int64(1))
    if others > 0:
        wake(at + 8 * C_PUBLISHED, int64(others))
    if last:
        atomic_add(at + 8 * C_LAST, int64(1))
        wake(at + 8 * C_LAST, int64(1))


@compiled
def any_left(control, job):
    slot, most = slot_at(control, job), int64(0)
    for queue in range(control[C_THREADS] + 1):
        most = max(most, atomic_load(slot + 8 * (J_LEFT + LINE * queue)))
    return most > 0


@compiled
def next_job(control, me, seen, stay):
    """The first job from number `seen` on that may have places left; sleeps until there is one, or gives -1: go.

    Without `stay`: -1 when there is none. The last thread sleeps on a word of its own, because where the caller works
    as well (`me` is then one more) it takes that thread's part.
    """
    at = address(control)
    bed = at + 8 * (C_LAST if me >= control[C_THREADS] - 1 else C_PUBLISHED)
    while True:
        asleep = atomic_load(bed)
        published = atomic_load(at + 8 * C_PUBLISHED)
        job = max(seen, published - control[C_SLOTS])
        while job < published:
            if any_left(control, job):
                return job
            job += 1
        if not stay or atomic_load(at + 8 * C_CLOSING) != 0:
            return int64(-1)
        seen = published
        sleep(bed, asleep)


@compiled
def take(control, slot, me):
    """A place of the job that no other thread gets; -1: all are taken."""
    threads = control[C_THREADS]
    own = min(me, threads - 1)
    for k in range(threads + 1):
        queue = 0 if k == 0 else 1 + (own + k - 1) % threads
        word = slot + 8 * (J_LEFT + LINE * queue)
        if atomic_load(word) > 0:
            left = atomic_add(word, int64(-1))
            if left > 0:
                # only now: the numbers of a slot belong to the place that was taken from it
                return end_of(queue, threads, atomic_load(slot + 8 * J_LONG), atomic_load(slot + 8 * J_SIZE)) - left
    return int64(-1)


@compiled
def finish(slot):
    """A place is done; the last one wakes the threads that wait for the job."""
    if atomic_add(slot + 8 * J_UNFINISHED, int64(-1)) == 1 and atomic_load(slot + 8 * J_WAITED) != 0:
        wake(slot + 8 * J_UNFINISHED, int64(1 << 30))


@compiled
def unfinished(control, job):
    """Places of a job that are not done."""
    return atomic_load(slot_at(control, job) + 8 * J_UNFINISHED)


@compiled
def wait(control, job):
    """Until a job is done, asleep."""
    word = slot_at(control, job) + 8 * J_UNFINISHED
    while True:
        left = atomic_load(word)
        if left <= 0:
            return
        atomic_store(word + 8 * (J_WAITED - J_UNFINISHED), int64(1))
        sleep(word, left)


@compiled
def abandon(control):
    """Give up: every place that is left counts as done, so that no thread waits for ever."""
    job = next_job(control, int64(0), int64(0), False)
    while job >= 0:
        slot = slot_at(control, job)
        while take(control, slot, int64(0)) >= 0:
            finish(slot)
        job = next_job(control, int64(0), job, False)


@compiled
def close(control):
    """Threads end when no job has places left.

    Counts as a job without places: a thread about to sleep must see a change.
    """
    at = address(control)
    atomic_store(at + 8 * C_CLOSING, int64(1))
    for word in (at + 8 * C_PUBLISHED, at + 8 * C_LAST):
        atomic_add(word, int64(1))
        wake(word, int64(1 << 30))
