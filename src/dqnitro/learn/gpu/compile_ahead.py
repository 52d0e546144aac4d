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
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from dqnitro.common.host import usable_cores

# As in `atari.jit.parallel_compile`: a program with a display sets `show`, and finds in `spans` when it was compiling.
show: Callable[[str], None] | None = None
spans: list[tuple[float, float]] = []


_only_compile: ContextVar[bool] = ContextVar("only_compile", default=False)


class Kernel:
    """A Triton kernel, started as usual (`kernel[grid](arguments)`); within `compile_at_once` it is only compiled."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        return functools.partial(self._kernel.warmup, grid=grid) if _only_compile.get() else self._kernel[grid]


class Kernels:
    """The kernels of a module."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Kernel:
        return Kernel(getattr(self._module, name))


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
    """Compile all that `passes` would start, as many kernels at a time as there are cores; how many were new. None is
    started, so what comes out of the passes is rubbish. An older Triton compiles kernels one by one when they start.
    """
    import triton
    from triton import knobs

    if (mode := getattr(triton, "AsyncCompileMode", None)) is None:
        return 0
    counter, usual, began = Counter(), knobs.compilation.listener, time.perf_counter()
    knobs.compilation.listener = counter
    token = _only_compile.set(True)
    try:
        with ThreadPoolExecutor(usable_cores(), "triton") as pool, mode(pool):
            passes()
    finally:
        _only_compile.reset(token)
        knobs.compilation.listener = usual
        if counter.new:
            spans.append((began, time.perf_counter()))
        if show is not None:
            show("")
    return counter.new
