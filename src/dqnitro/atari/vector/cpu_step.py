"""All that one machine does in a batch, on a CPU: its step or its new game, the observation, the results."""

from __future__ import annotations

from numpy import int32, uint8

from ..chips.layout import S_BUFFER, S_EPISODE_FRAMES, S_TOTAL_FRAMES
from ..games.table_language import G_LIVES
from ..jit.target import compiled, spliced
from .agent_step import (
    E_OVER,
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
    get_ready,
    play,
    show,
    show_stale,
    stack_into,
    start,
)
from .reset_cache import keep_start, start_from
from .screen_store import K_NOW, K_OTHER, keep_generators, pack, recall, take_generators, unpack


@spliced
def serve(b, m, command, seed, action, strength, memory, game, room, obs, final_obs, results, terminated, truncated):
    """Place b of a batch: machine m carries out a command; its stack goes to `obs`, the rest to column b of the results.

    `memory`, `game`, `room`: memory of the machines, what they share, a thread's working space, in the order of `run`.
    Frames that are drawn are drawn whole, so machines can share a thread's `screens`; in a few games they keep their own.
    The third one is for a frame that is shown before it is finished.
    """
    state, ram_, g_, mt_, mt_machine_, mt_noops_, e_, frames_, raw_, source_, kept_, where_, rows_ = memory
    rom, dec, prop, ntsc, o, sticky, action_set, p, luts, first = game
    log, scratch, screens, raw1, source1, mt1 = room
    channels, stack = o[O_CHANNELS], o[O_STACK]
    s, ram, g, e, mt, frames = state[m], ram_[m], g_[m], e_[m], mt_[m], frames_[m]
    screen, spare, keeps = screens[:2], screens[2], len(kept_) > 0
    raw, source = raw1 if keeps else raw_[m], source1 if keeps else source_[m]
    reward, ended, cut = 0, False, False
    if command == STEP and e[E_OVER]:
        command = RESET
    if command == STEP:
        if keeps:
            # all of them: a frame that is left unfinished in this step shows what its buffer held before
            unpack(where_[m], rows_[m], screen)
        reward, ended, cut, view, other = play(
            s, ram, rom, dec, prop, log, screen, spare, g, mt, e, o, sticky, action_set[action], strength
        )
        before = e[E_SLOT]
        slot = (before + 1) % stack
        e[E_SLOT] = slot
        pooled = spare if other == 2 else screen[other]
        if view == WHOLE:
            show(p, luts, screen[s[S_BUFFER]], pooled, raw, source, scratch, frames[slot], channels)
        elif view == STALE:
            # after this picture, as after one that is shown again, no step asks for it before a whole one was shown
            if keeps:
                recall(kept_[m], where_[m], rows_[m], luts, raw, source, channels)
            show_stale(p, luts, pooled, raw, source, frames[slot], channels)
        else:
            for x in range(o[O_FRAME_BYTES]):
                frames[slot, x] = frames[before, x]
        if keeps:
            kept_[m, K_NOW], kept_[m, K_OTHER] = s[S_BUFFER], other if view == WHOLE else s[S_BUFFER]
        if o[O_SAME_STEP] and e[E_OVER]:
            stack_into(frames, slot, final_obs)
            command = RESET
    if command in (RESET, SEEDED_RESET):
        seed = seed if command == SEEDED_RESET else -1
        mt_machine, mt_noops = mt1[0] if keeps else mt_machine_[m], mt1[1] if keeps else mt_noops_[m]
        if keeps:
            take_generators(kept_[m], seed, mt_machine, mt_noops)
        if seed < 0 or not start_from(first, seed, s, ram, g, mt_machine, mt, mt_noops, screen):
            start(s, ram, rom, dec, prop, ntsc, log, screen, g, mt, mt_machine, mt_noops, o, sticky, seed)
            if seed >= 0:
                keep_start(first, s, ram, g, mt_machine, mt, screen)
        get_ready(s, ram, rom, dec, prop, log, screen, g, mt, mt_machine, mt_noops, e, o, sticky)
        for k in range(stack - 1):
            for x in range(o[O_FRAME_BYTES]):
                frames[k, x] = uint8(0)
        now = screen[s[S_BUFFER]]
        show(p, luts, now, now, raw, source, scratch, frames[stack - 1], channels)
        if keeps:
            keep_generators(kept_[m], mt_machine, mt_noops)
            kept_[m, K_NOW], kept_[m, K_OTHER] = s[S_BUFFER], s[S_BUFFER]
    if keeps and command != LOOK:
        pack(screens, kept_[m], where_[m], rows_[m])
    stack_into(frames, e[E_SLOT], obs)
    results[R_REWARD, b] = int32(reward)
    results[R_LIVES, b] = g[G_LIVES]
    results[R_FRAMES, b] = int32(s[S_TOTAL_FRAMES])
    results[R_EPISODE_FRAMES, b] = int32(s[S_EPISODE_FRAMES])
    terminated[b], truncated[b] = ended, cut


@compiled
def run(
    order, ids, commands, seeds, actions, strengths,
    state, ram_, g_, mt_, mt_machine_, mt_noops_, e_, frames_, raw_, source_, kept_, where_, rows_,
    rom, dec, prop, ntsc, o, sticky, action_set, p, luts, first,
    log, scratch, screens, raw1, source1, mt1,
    obs, final_obs, results, terminated, truncated,
):  # fmt: skip
    """A whole batch, one place after the other: what `crew.work` does with many threads. It takes arrays, so indices can be checked."""
    memory = (state, ram_, g_, mt_, mt_machine_, mt_noops_, e_, frames_, raw_, source_, kept_, where_, rows_)
    game, room = (
        (rom, dec, prop, ntsc, o, sticky, action_set, p, luts, first),
        (log, scratch, screens, raw1, source1, mt1),
    )
    for b in order:
        serve(
            b, ids[b], commands[b], seeds[b], actions[b], strengths[b], memory, game, room,
            obs[b], final_obs[b], results, terminated, truncated,
        )  # fmt: skip
