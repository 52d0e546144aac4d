"""Where the wall clock went, from prompt to prompt, and what was compiled in that time."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dqnitro.cli.terminal.wording import duration


def process_start() -> float:
    """When this process was started, as `time.time` counts; now, if the system does not tell."""
    try:
        import psutil

        return min(psutil.Process().create_time(), time.time())
    except Exception:
        return time.time()


class WallClock:
    """Seconds by name; all time since the process was started belongs to one of them."""

    def __init__(self, start: float | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last = process_start() if start is None else start
        self.seconds: dict[str, float] = {}

    def mark(self, name: str) -> None:
        """What passed since the last mark was `name`."""
        now = self._clock()
        self.seconds[name] = self.seconds.get(name, 0.0) + max(0.0, now - self._last)
        self._last = now

    def split(self, name: str, parts: Mapping[str, float]) -> None:
        """Divide what was marked as `name` into known parts; the rest keeps the name."""
        rest = self.seconds.pop(name)
        for part, seconds in parts.items():
            if seconds:
                self.seconds[part] = self.seconds.get(part, 0.0) + seconds
                rest -= seconds
        self.seconds[name] = max(0.0, rest)

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def clock_text(seconds: Mapping[str, float], compiling_s: float) -> str:
    """`41 s in all: imports 3 s, start-up 5 s, ...; 2 s of it compiling`. Parts under half a second are left out."""
    parts = ", ".join(f"{name} {duration(s)}" for name, s in seconds.items() if s >= 0.5)
    compiling = f"; {duration(compiling_s)} of it compiling" if compiling_s >= 0.5 else ""
    return f"{duration(sum(seconds.values()))} from start to end: {parts}{compiling}"


class Compiling:
    """Counts the seconds in which something is compiled for this process, and tells `say` what it is."""

    def __init__(self) -> None:
        self._depth, self._since = 0, 0.0  # a function is compiled within its caller
        self._spans: list[tuple[float, float]] = []  # of Numba

    def _start(self, function: str, say: Callable[[str], None]) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = time.perf_counter()
            say(f"compiling {function}")

    def _end(self, say: Callable[[str], None]) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._spans.append((self._since, time.perf_counter()))
            say("")

    @contextlib.contextmanager
    def watched(self, say: Callable[[str], None]) -> Iterator[Compiling]:
        """Listen while the block runs."""
        from numba.core import event

        from dqnitro.atari.jit import parallel_compile
        from dqnitro.learn.gpu import compile_ahead

        counter, voices = self, Voices(say)
        numba_says = voices.voice()

        class Listener(event.Listener):
            def on_start(self, event: Any) -> None:
                counter._start(event.data["dispatcher"].py_func.__name__, numba_says)

            def on_end(self, event: Any) -> None:
                counter._end(numba_says)

        listener = Listener()
        event.register("numba:compile", listener)
        parallel_compile.show, compile_ahead.show = voices.voice(), voices.voice()
        try:
            yield self
        finally:
            event.unregister("numba:compile", listener)
            parallel_compile.show = compile_ahead.show = None

    @property
    def seconds(self) -> float:
        """What is compiled at the same time counts once."""
        from dqnitro.atari.jit import parallel_compile
        from dqnitro.learn.gpu import compile_ahead

        return covered([*self._spans, *parallel_compile.spans, *compile_ahead.spans]) + torch_compile_s()


class Voices:
    """Several that report at the same time, in one line: each with the last thing it said."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: list[str] = []

    def voice(self) -> Callable[[str], None]:
        place = len(self._said)
        self._said.append("")

        def say(text: str) -> None:
            self._said[place] = text
            self._say("; ".join(filter(None, self._said)))

        return say


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """The seconds that belong to at least one of these spans."""
    total, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def torch_compile_s() -> float:
    """Seconds that torch.compile took in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    try:
        return float(utils.calculate_time_spent()["total_wall_time"]) if utils is not None else 0.0
    except (AttributeError, KeyError):  # it is not a public function
        return 0.0
