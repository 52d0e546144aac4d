"""How a run is shown while it trains: a block of lines rewritten in place on a terminal, one line a minute elsewhere,
or JSON lines for machines.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from dqnitro.cli.terminal.progress import Progress, is_terminal
from dqnitro.cli.terminal.wording import duration
from dqnitro.config import Config
from dqnitro.events import NullSink, Snapshot, time_left_s

if TYPE_CHECKING:
    from dqnitro.cli.terminal.estimate import Estimate

LOG_EVERY_S = 60.0
FIRST_LOG_S = 10.0  # the first line comes sooner: it tells that all is well


def speed_text(steps_per_s: float, frames_per_s: float) -> str:
    """Console frames are shown only if there is a console."""
    frames = f"   {frames_per_s:,.0f} console frames/s" if frames_per_s != steps_per_s else ""
    return f"{steps_per_s:,.0f} steps/s{frames}"


def score_text(s: Snapshot, goal: float) -> str:
    """-20.3 (mean of the last 12 games, 12 played), goal 17"""
    aim = "" if math.isinf(goal) else f"goal {goal:g}"
    if s.mean_score is None:
        return "no game finished yet" + (f", {aim}" if aim else "")
    n = min(s.games, 100)
    games = "1 game" if n == 1 else f"the last {n} games"
    if aim and s.mean_score >= goal:
        aim += " reached" if n == 100 else " over 100 games"
    return f"{s.mean_score:.1f} (mean of {games}, {s.games:,} played)" + (f", {aim}" if aim else "")


def time_text(s: Snapshot, config: Config, estimate: Estimate | None) -> str:
    """2:05 min, 1:40 min left; without a limit an estimate that says what it is made of, or nothing."""
    spent, left = duration(s.wall_s), time_left_s(s, config.max_steps, config.max_minutes)
    if left is not None:
        return f"{spent}, {duration(left)} left" + (" at most" if config.stop_at_score < math.inf else "")
    guess = estimate.left_s(s) if estimate else None
    if estimate is None or guess is None:
        return spent
    runs = "a solved run" if estimate.runs == 1 else f"{estimate.runs} solved runs"
    return f"{spent}, perhaps {duration(guess)} left (estimate from {runs})"


def lines(s: Snapshot, config: Config, title: str, estimate: Estimate | None = None) -> list[str]:
    """The block without colour: a test reads what a user sees."""
    players = "" if s.players is None else f"   {s.players} player{'s' * (s.players > 1)}"
    loss = "–" if s.loss is None else f"{s.loss:.4f}"
    filling = s.steps < config.first_fill_steps
    phase = f"filling the replay ({s.steps:,} of {config.first_fill_steps:,} steps)" if filling else f"loss {loss}"
    out = [
        f"{title}   {time_text(s, config, estimate)}",
        f"  score   {score_text(s, config.stop_at_score)}",
        f"  speed   {speed_text(s.steps_per_s, s.frames_per_s)}   {s.updates_per_s:,.1f} updates/s{players}",
        f"  so far  {s.steps:,} steps   {s.updates:,} updates   epsilon {s.epsilon:.3f}   {phase}",
    ]
    shown = {k: v for k, v in s.share.items() if v >= 0.005 or k == "loop"}
    # A GPU works on its own while the host goes on: the shares are the host's and say nothing about the GPU.
    label = "host" if config.runner in ("device", "hybrid") else "time"
    out.append(f"  {label}    " + "   ".join(f"{k} {v:.0%}" for k, v in sorted(shown.items(), key=lambda kv: -kv[1])))
    return out


def one_line(s: Snapshot, config: Config, title: str, estimate: Estimate | None = None) -> str:
    """The same for a log."""
    loss = "" if s.loss is None else f", loss {s.loss:.4f}"
    players = "" if s.players is None else f", {s.players} player{'s' * (s.players > 1)}"
    return (
        f"{title}: {time_text(s, config, estimate)}; score {score_text(s, config.stop_at_score)}; "
        f"{s.steps:,} steps, {s.steps_per_s:,.0f} steps/s, epsilon {s.epsilon:.3f}{loss}{players}"
    )


class Block:
    """Lines that are rewritten in place, with rich; nothing at all if stderr is not a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.live = quiet, not quiet and is_terminal(sys.stderr)
        if self.live:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()

    def show(self, shown: Sequence[str]) -> None:
        from rich.text import Text

        text = Text()
        for i, line in enumerate(shown):
            text.append(line[:10], style="bold" if i == 0 else "dim").append(
                line[10:] + "\n", style="bold" if i == 0 else ""
            )
        self._live.update(text, refresh=True)

    def close(self) -> None:
        if self.live:
            self._live.stop()

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class RunSink(NullSink):
    """A sink of the command line; `say` tells what is being compiled while the run starts."""

    def say(self, text: str) -> None: ...


class StartUp(RunSink):
    """Shows that a run is starting, until its first event: compiling can take a minute."""

    def __init__(self, title: str, every_s: float) -> None:
        self._progress = Progress(f"{title}: preparing (the first start on a machine also compiles)", every_s=every_s)
        self._progress.__enter__()

    def say(self, text: str) -> None:
        self._progress.say(text)

    def snapshot(self, s: Snapshot) -> None:
        self.close()

    def close(self) -> None:
        self._progress.close()


class BlockSink(RunSink):
    """Shows every snapshot in place."""

    def __init__(self, text: Callable[[Snapshot], Sequence[str]]) -> None:
        self._text = text
        self._block: Block | None = None

    def snapshot(self, s: Snapshot) -> None:
        self._block = self._block or Block()
        self._block.show(self._text(s))

    def close(self) -> None:
        if self._block:
            self._block.close()


class LogSink(RunSink):
    """Writes a line of text soon after the start and then one every `every_s` seconds."""

    def __init__(
        self,
        text: Callable[[Snapshot], str],
        every_s: float,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._text, self._every_s, self._stream, self._clock = text, every_s, stream, clock
        self._next = clock() + min(FIRST_LOG_S, every_s)

    def snapshot(self, s: Snapshot) -> None:
        now = self._clock()
        if now >= self._next:
            print(self._text(s), file=self._stream, flush=True)
            self._next = now + self._every_s


def json_line(event: str, **facts: Any) -> str:
    """One object on one line, `event` says which kind; NaN and infinity become null."""
    from dqnitro.common.files import plain

    return json.dumps({"event": event, **plain(facts)})


def make_sinks(config: Config, title: str, args: Any, estimate: Estimate | None = None) -> list[RunSink]:
    """What shows a run, by `--quiet`, `--json-lines` and `--log-every`, on a terminal and elsewhere."""
    every_s = LOG_EVERY_S if args.log_every is None else args.log_every
    sinks: list[RunSink] = []
    if args.json_lines:
        sinks.append(LogSink(lambda s: json_line("progress", **s.to_dict()), every_s, sys.stdout))
    if args.quiet:
        return sinks
    sinks.append(StartUp(title, every_s))
    if is_terminal(sys.stderr):
        sinks.append(BlockSink(lambda s: lines(s, config, title, estimate)))
    elif not args.json_lines:
        sinks.append(LogSink(lambda s: one_line(s, config, title, estimate), every_s, sys.stderr))
    return sinks
