"""Compile Triton's kernels all at once, before the first of them is started.

Triton compiles a kernel when it is first started, so an update of twenty kernels would wait for one compiler after the
other. Here the update runs once with a launcher that starts nothing: each kernel goes to a thread (most of a compiler's
time is spent outside Python), and all of them are in Triton's cache when the update runs for the first time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dqnitro.common.host import usable_cores

Launch = Callable[[Any, tuple[int, ...]], Callable[..., Any]]  # kernel and grid; then the arguments

# As in `atari.jit.parallel_compile`: a program with a display sets `show`, and finds in `spans` when it was compiling.
show: Callable[[str], None] | None = None
spans: list[tuple[float, float]] = []


def start(kernel: Any, grid: tuple[int, ...]) -> Callable[..., Any]:
    """What starts a kernel."""
    return kernel[grid]


def only_compile(kernel: Any, grid: tuple[int, ...]) -> Callable[..., Any]:
    """What asks for a kernel that fits the arguments, and starts nothing."""
    return functools.partial(kernel.warmup, grid=grid)


class Counter:
    """Counts kernels that Triton's cache did not have, while they are compiled."""

    def __init__(self) -> None:
        self.new, self._began = 0, time.perf_counter()

    def __call__(self, *, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        if cache_hit:
            return
        self.new += 1
        self.say()

    def say(self) -> None:
        if show is not None:
            kernels = f"{self.new} kernel{'' if self.new == 1 else 's'}"
            show(f"compiling the kernels of the update: {kernels}, {time.perf_counter() - self._began:.0f} s")


def compile_at_once(passes: Callable[[], None]) -> int:
    """Compile what `passes` asks for with `only_compile`, as many kernels at a time as there are cores; how many were
    new. An older Triton compiles them one by one when they are started.
    """
    import triton
    from triton import knobs

    if (mode := getattr(triton, "AsyncCompileMode", None)) is None:
        return 0
    counter, usual, began = Counter(), knobs.compilation.listener, time.perf_counter()
    knobs.compilation.listener = counter
    try:
        with ThreadPoolExecutor(usable_cores(), "triton") as pool, mode(pool):
            passes()
    finally:
        knobs.compilation.listener = usual
        if counter.new:
            spans.append((began, time.perf_counter()))
        if show is not None:
            show("")
    return counter.new
