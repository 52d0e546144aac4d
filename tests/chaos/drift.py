"""What grows over time: memory, descriptors, threads and files, over runs that are made, saved, resumed and closed."""

from __future__ import annotations

import gc
import os
import random
import threading

import psutil

from chaos.harness import CONFIG, Kind, Outcome, World, forked, judge, snapshot
from dqnitro.session import resume, train

ROUNDS = 40
MEMORY_MB = 30.0  # what an allocator may keep; a leak of one replay and network a round would be more


def drift(world: World, rng: random.Random, i: int) -> Outcome:
    """One process trains, saves and resumes again and again; after a few rounds nothing may grow."""
    out, run = Outcome(), world.new()

    def work() -> list[list[float]]:
        train(CONFIG.replace(log_every_s=0.0), run)
        seen = []
        for k in range(ROUNDS):
            resume(run, max_steps=60 + 8 * k)
            gc.collect()
            me = psutil.Process()
            files = len([p for p in snapshot(run) if not p.startswith("tensorboard")])  # it starts a file per resume
            seen.append(
                [me.memory_info().rss / 2**20, len(os.listdir("/proc/self/fd")), threading.active_count(), files]
            )
        return seen

    child = forked(work, limit_s=600)
    judge(child, out, codes=(0,), what="drift")
    if child.code == 0:
        early, late = child.value[ROUNDS // 4], child.value[-1]
        for name, a, b, room in zip(
            ("MB of memory", "descriptors", "threads", "files"), early, late, (MEMORY_MB, 0, 0, 0), strict=True
        ):
            if b > a + room:
                out.count("lost", f"{name}: {a:g} after {ROUNDS // 4} rounds, {b:g} after {ROUNDS}")
    world.forget(run)
    return out


KINDS = [Kind("drift", f"memory, descriptors, threads and files over {ROUNDS} resumes", drift, short=0, long=2)]
