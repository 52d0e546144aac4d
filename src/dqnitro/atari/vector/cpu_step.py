"""All that one console does in a batch, on a CPU: its step or its new game, the observation, the results."""

from __future__ import annotations

from numpy import int32, uint8

from ..chips.layout import S_BUFFER, S_EPISODE_FRAMES, S_TOTAL_FRAMES
from ..games.table_language import G_LIVES
from ..jit.target import compiled, spliced
from .agent_step import (
    E_RESET,
    E_SLOT,
    LOOK,
    O_CHANNELS,
    O_FRAME_BYTES,
    O_SAME_STEP,
    O_STACK,
    R_EPISODE_FRAMES,
    R_FRAMES,
    R_LIVES,
    R_REWARD,
    RESET,
    SEEDED_RESET,
    STALE,
    STEP,
    WHOLE,
    ConsoleArrays,
    Generators,
    Setup,
    get_ready,
    play,
    show,
    show_stale,
    stack_into,
    start,
)
from .reset_cache import Whole, keep_start, start_from
from .screen_store import K_NOW, K_OTHER, keep_generators, pack, recall, take_generators, unpack


@spliced
def serve(b, tasks, memory, shared, scratch):
    """Place b of a batch: its console carries out a command; its stack goes to `obs`, the rest to `results`.

    Frames that are drawn are drawn whole, so consoles can share a thread's `screens`; in a few games they keep their
    own. The third screen is for a frame that is shown before it is finished.
    """
    m, command, seed = tasks.ids[b], tasks.commands[b], tasks.seeds[b]
    setup = Setup(shared.rom, shared.program, shared.prop, shared.ntsc, shared.options, shared.sticky)
    p, luts, o = shared.plan, shared.luts, shared.options
    channels, stack = o[O_CHANNELS], o[O_STACK]
    s, ram, g, e = memory.state[m], memory.ram[m], memory.rules[m], memory.episode[m]
    mt, frames = memory.rng_actions[m], memory.frames[m]
    screen, spare, keeps = scratch.screens[:2], scratch.screens[2], len(memory.kept) > 0
    raw, source = scratch.raw if keeps else memory.raw[m], scratch.source if keeps else memory.source[m]
    console = ConsoleArrays(s, ram, scratch.log, screen, spare, g, mt, e)
    reward, terminated, truncated = 0, False, False
    if command == STEP and e[E_RESET]:
        command = RESET
    if command == STEP:
        if keeps:
            # all of them: a frame that is left unfinished in this step shows what its buffer held before
            unpack(memory.where[m], memory.rows[m], screen)
        action = shared.action_set[tasks.actions[b]]
        reward, terminated, truncated, view, other = play(console, setup, action, tasks.strengths[b])
        before = e[E_SLOT]
        slot = (before + 1) % stack
        e[E_SLOT] = slot
        pooled = spare if other == 2 else screen[other]
        if view == WHOLE:
            show(p, luts, screen[s[S_BUFFER]], pooled, raw, source, scratch.resize, frames[slot], channels)
        elif view == STALE:
            # after this picture, as after one that is shown again, no step asks for it before a whole one was shown
            if keeps:
                recall(memory.kept[m], memory.where[m], memory.rows[m], luts, raw, source, channels)
            show_stale(p, luts, pooled, raw, source, frames[slot], channels)
        else:
            for x in range(o[O_FRAME_BYTES]):
                frames[slot, x] = frames[before, x]
        if keeps:
            memory.kept[m, K_NOW], memory.kept[m, K_OTHER] = s[S_BUFFER], other if view == WHOLE else s[S_BUFFER]
        if o[O_SAME_STEP] and e[E_RESET]:
            stack_into(frames, slot, tasks.final_obs[b])
            command = RESET
    if command in (RESET, SEEDED_RESET):
        seed = seed if command == SEEDED_RESET else -1
        rngs = Generators(
            scratch.generators[0] if keeps else memory.rng_machine[m],
            scratch.generators[1] if keeps else memory.rng_noops[m],
        )
        if keeps:
            take_generators(memory.kept[m], seed, rngs.machine, rngs.noops)
        whole = Whole(s, ram, g, rngs.machine, screen)
        if seed < 0 or not start_from(shared.start, whole, seed, mt, rngs.noops):
            start(console, setup, rngs, seed)
            if seed >= 0:
                keep_start(shared.start, whole, mt)
        get_ready(console, setup, rngs)
        for k in range(stack - 1):
            for x in range(o[O_FRAME_BYTES]):
                frames[k, x] = uint8(0)
        now = screen[s[S_BUFFER]]
        show(p, luts, now, now, raw, source, scratch.resize, frames[stack - 1], channels)
        if keeps:
            keep_generators(memory.kept[m], rngs.machine, rngs.noops)
            memory.kept[m, K_NOW], memory.kept[m, K_OTHER] = s[S_BUFFER], s[S_BUFFER]
    if keeps and command != LOOK:
        pack(scratch.screens, memory.kept[m], memory.where[m], memory.rows[m])
    stack_into(frames, e[E_SLOT], tasks.obs[b])
    results = tasks.results
    results[R_REWARD, b] = int32(reward)
    results[R_LIVES, b] = g[G_LIVES]
    results[R_FRAMES, b] = int32(s[S_TOTAL_FRAMES])
    results[R_EPISODE_FRAMES, b] = int32(s[S_EPISODE_FRAMES])
    tasks.flags[0, b], tasks.flags[1, b] = terminated, truncated


@compiled
def run(tasks, memory, shared, scratch):
    """A whole batch, one place after the other: what `worker.work` does with many threads.

    It takes arrays, not addresses, so indices can be checked.
    """
    for b in tasks.order:
        serve(b, tasks, memory, shared, scratch)
