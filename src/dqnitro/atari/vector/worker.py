"""What a thread of `AtariVec` does: machines of a batch, one after the other, as long as there are any left."""

from __future__ import annotations

import numpy as np
from numpy import int64

from ..jit.target import _pointer as pointer
from ..jit.target import address, carray, compiled
from .agent_step import O_FRAME_BYTES, O_STACK, R_SIZE
from .cpu_step import serve
from .work_queue import J_DATA, J_LEFT, J_SIZE, finish, next_job, slot_at, take

# Addresses of a job, in the order in which `place` takes the arrays.
(D_ORDER, D_IDS, D_COMMANDS, D_SEEDS, D_ACTIONS, D_STRENGTHS, D_OBS, D_FINAL, D_RESULTS, D_FLAGS, D_SIZE) = range(11)
assert J_DATA + D_SIZE <= J_LEFT


@compiled
def place(control, job, order, ids, commands, seeds, actions, strengths, obs, final_obs, results, flags):
    """Write where a batch's arrays are into the slot of a job. Somebody has to keep the arrays until it is done."""
    at = (slot_at(control, job) - address(control)) // 8 + J_DATA
    control[at + D_ORDER], control[at + D_IDS] = address(order), address(ids)
    control[at + D_COMMANDS], control[at + D_SEEDS] = address(commands), address(seeds)
    control[at + D_ACTIONS], control[at + D_STRENGTHS] = address(actions), address(strengths)
    control[at + D_OBS], control[at + D_FINAL] = address(obs), address(final_obs)
    control[at + D_RESULTS], control[at + D_FLAGS] = address(results), address(flags)


@compiled
def work(
    control, me, stay,
    state, ram_, g_, mt_, mt_machine_, mt_noops_, e_, frames_, raw_, source_, kept_, where_, rows_,
    rom, dec, prop, ntsc, o, sticky, action_set, p, luts, first_start,
    log, scratch, screens, raw1, source1, mt1,
):  # fmt: skip
    """Serve places of jobs until none is left; with `stay` sleep then, and go on, until `close`."""
    memory = (state, ram_, g_, mt_, mt_machine_, mt_noops_, e_, frames_, raw_, source_, kept_, where_, rows_)
    game, room = (
        (rom, dec, prop, ntsc, o, sticky, action_set, p, luts, first_start),
        (log, scratch, screens, raw1, source1, mt1),
    )
    row = o[O_STACK] * o[O_FRAME_BYTES]
    job = next_job(control, me, int64(0), stay)
    while job >= 0:
        slot = slot_at(control, job)
        first = (slot - address(control)) // 8
        k = take(control, slot, me)
        while k >= 0:
            # only now: the numbers of a slot belong to the place that was taken from it
            n, at = control[first + J_SIZE], first + J_DATA
            b = carray(pointer(control[at + D_ORDER]), (n,), np.int64)[k]
            results = carray(pointer(control[at + D_RESULTS]), (R_SIZE, n), np.int32)
            flags = carray(pointer(control[at + D_FLAGS]), (2, n), np.bool_)
            serve(
                b,
                carray(pointer(control[at + D_IDS]), (n,), np.int32)[b],
                carray(pointer(control[at + D_COMMANDS]), (n,), np.int64)[b],
                carray(pointer(control[at + D_SEEDS]), (n,), np.int64)[b],
                carray(pointer(control[at + D_ACTIONS]), (n,), np.int64)[b],
                carray(pointer(control[at + D_STRENGTHS]), (n,), np.float32)[b],
                memory, game, room,
                carray(pointer(control[at + D_OBS] + b * row), (row,), np.uint8),
                carray(pointer(control[at + D_FINAL] + b * row), (row,), np.uint8),
                results, flags[0], flags[1],
            )  # fmt: skip
            finish(slot)
            k = take(control, slot, me)
        job = next_job(control, me, job, stay)
