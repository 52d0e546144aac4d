"""What a thread of `AtariVec` does: consoles of a batch, one after the other, as long as there are any left."""

from __future__ import annotations

import numpy as np
from numpy import int64

from ..jit.target import address, carray, compiled, pointer, spliced
from .agent_step import O_FRAME_BYTES, O_STACK, R_SIZE
from .arrays import Memory, Scratch, Shared, Tasks
from .cpu_step import serve
from .work_queue import J_DATA, J_LEFT, J_SIZE, finish, next_job, slot_at, take

# Addresses of a job, in the order of `Tasks`.
(D_ORDER, D_IDS, D_COMMANDS, D_SEEDS, D_ACTIONS, D_STRENGTHS, D_OBS, D_FINAL, D_RESULTS, D_FLAGS, D_SIZE) = range(11)
assert J_DATA + D_SIZE <= J_LEFT


@spliced
def tasks_of(control, first, row):
    """The arrays of the job whose slot begins at word `first`; an observation has `row` bytes."""
    n, at = control[first + J_SIZE], first + J_DATA
    return Tasks(
        carray(pointer(control[at + D_ORDER]), (n,), np.int64),
        carray(pointer(control[at + D_IDS]), (n,), np.int32),
        carray(pointer(control[at + D_COMMANDS]), (n,), np.int64),
        carray(pointer(control[at + D_SEEDS]), (n,), np.int64),
        carray(pointer(control[at + D_ACTIONS]), (n,), np.int64),
        carray(pointer(control[at + D_STRENGTHS]), (n,), np.float32),
        carray(pointer(control[at + D_OBS]), (n, row), np.uint8),
        carray(pointer(control[at + D_FINAL]), (n, row), np.uint8),
        carray(pointer(control[at + D_RESULTS]), (R_SIZE, n), np.int32),
        carray(pointer(control[at + D_FLAGS]), (2, n), np.bool_),
    )


@compiled
def work(control, me, stay, memory_, shared_, scratch_):
    """Serve places of jobs until none is left; with `stay` sleep then, and go on, until `close`.

    The arrays are those of `Memory`, `Shared` and `Scratch`, in plain tuples.
    """
    memory, shared, scratch = Memory(*memory_), Shared(*shared_), Scratch(*scratch_)
    row = shared.options[O_STACK] * shared.options[O_FRAME_BYTES]
    job = next_job(control, me, int64(0), stay)
    while job >= 0:
        slot = slot_at(control, job)
        first = (slot - address(control)) // 8
        k = take(control, slot, me)
        while k >= 0:
            # only now: the numbers of a slot belong to the place that was taken from it
            tasks = tasks_of(control, first, row)
            serve(tasks.order[k], tasks, memory, shared, scratch)
            finish(slot)
            k = take(control, slot, me)
        job = next_job(control, me, job, stay)
