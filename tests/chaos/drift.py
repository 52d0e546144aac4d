"""What grows over time: memory, descriptors, threads and disk, in a process that resumes again and again, and in one
that trains without end. `--drift-minutes 60` watches each for an hour; the usual form takes two minutes.

Memory is judged by its slope, because an allocator keeps what it once had. The others may not grow at all.
"""

from __future__ import annotations

import gc
import itertools
import pathlib
import random
import statistics
import threading
import time
from typing import Any

import psutil

from chaos.harness import CONFIG, Kind, Outcome, World, forked, judge
from dqnitro.session import resume, train

MINUTES = [1.0]  # of each of the two
SAMPLES = 60
MEMORY_MB = 6.0  # that the slope may add up to while it is watched; a replay and a network are some 0.1 MB
NAMES = ("descriptors", "threads", "files", "bytes of files")


def state_of(run: pathlib.Path) -> list[float]:
    """Memory in MB, descriptors, threads, files of a run and their bytes. The logs grow, as they should: they are not
    counted.
    """
    me = psutil.Process()
    # Sizes only: what is read here would be memory of the process that is watched, and logs grow.
    kept = {
        str(p.relative_to(run)): p.stat().st_size
        for p in run.rglob("*")
        if p.is_file() and not str(p.relative_to(run)).startswith(("tensorboard", "metrics"))
    }
    size = sum(kept.values()) // 10_000  # scores and times in records have more or fewer digits
    return [me.memory_info().rss / 2**20, me.num_fds(), threading.active_count(), len(kept), size]


def resumes(run: pathlib.Path) -> list[list[float]]:
    """One process trains, saves and resumes, for as long as is asked."""
    train(CONFIG.replace(log_every_s=0.0), run)
    seen, begin = [], time.monotonic()
    for k in itertools.count():
        resume(run, max_steps=60 + 8 * k)
        if k % 5 == 0:
            gc.collect()
            seen.append(state_of(run))
        if time.monotonic() - begin > MINUTES[0] * 60 and len(seen) >= 12:
            return seen
    raise AssertionError


def one_run(run: pathlib.Path) -> list[list[float]]:
    """One run trains and saves, for as long as is asked; a thread looks."""
    seen: list[list[float]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(MINUTES[0] * 60 / SAMPLES):
            try:
                seen.append(state_of(run))
            except FileNotFoundError:  # between two checkpoints
                continue

    thread = threading.Thread(target=look)
    thread.start()
    try:
        train(CONFIG.replace(max_steps=0, max_minutes=MINUTES[0], checkpoint_every_s=0.1, log_every_s=0.05), run)
    finally:
        over.set()
        thread.join()
    return seen


def growth(values: list[float]) -> float:
    """What the slope adds up to from the first value to the last: the median of the slopes of all pairs, which a few
    odd values do not move.
    """
    n = len(values)
    pairs = itertools.combinations(range(n), 2)
    return statistics.median((values[j] - values[i]) / (j - i) for i, j in pairs) * (n - 1)


def judge_growth(seen: list[list[float]], out: Outcome) -> None:
    """Count what grows, without the first quarter."""
    late = seen[len(seen) // 4 :]
    memory, *others = ([row[k] for row in late] for k in range(5))
    if (more := growth(memory)) > MEMORY_MB:
        out.count(
            "lost", f"memory grows: {memory[0]:.1f} to {memory[-1]:.1f} MB in {MINUTES[0]:g} minutes ({more:.1f})"
        )
    half = len(late) // 2
    for name, values in zip(NAMES, others, strict=True):
        if max(values[half:]) > max(values[:half]) and growth(values) > 0:
            out.count("lost", f"{name} grow: {values[0]:g} to {values[-1]:g} in {MINUTES[0]:g} minutes")


def drift(world: World, rng: random.Random, i: int) -> Outcome:
    """Number 0 resumes again and again, number 1 trains without end."""
    out, run = Outcome(), world.new()
    work: Any = (resumes, one_run)[i % 2]
    child = forked(lambda: work(run), times=1 + MINUTES[0])
    judge(child, out, codes=(0,), what="drift")
    if child.code == 0:
        judge_growth(child.value, out)
    world.forget(run)
    return out


KINDS = [Kind("drift", "memory, descriptors, threads and disk over minutes or an hour", drift, 0, 2, seconds=60)]
