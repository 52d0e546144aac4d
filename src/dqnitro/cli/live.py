"""The live display: a few lines that are rewritten in place. Nothing is shown when stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from dqnitro.config import Config
from dqnitro.events import NullSink, Snapshot, time_left_s


def duration(seconds: float) -> str:
    """12 s, 3:05 min, 2:07:30 h."""
    s = round(seconds)
    if s < 60:
        return f"{s} s"
    if s < 3600:
        return f"{s // 60}:{s % 60:02d} min"
    return f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d} h"


def speed_text(steps_per_s: float, frames_per_s: float) -> str:
    """Console frames are shown only if there is a console."""
    frames = f"   {frames_per_s:,.0f} console frames/s" if frames_per_s != steps_per_s else ""
    return f"{steps_per_s:,.0f} steps/s{frames}"


def score_text(value: float | None) -> str:
    return "no game finished yet" if value is None else f"{value:.1f}"


def lines(s: Snapshot, config: Config, title: str) -> list[str]:
    """The lines without colour: a test reads what a user sees."""
    left = time_left_s(s, config.max_steps, config.max_minutes)
    goal = "" if config.stop_at_score == float("inf") else f" of {config.stop_at_score:g}"
    loss = "–" if s.loss is None else f"{s.loss:.4f}"
    filling = s.steps < config.first_fill_steps
    phase = f"filling the replay ({s.steps:,} of {config.first_fill_steps:,} steps)" if filling else f"loss {loss}"
    out = [
        f"{title}   {duration(s.wall_s)}" + (f", {duration(left)} left" if left is not None else ""),
        f"  score   {score_text(s.mean_score)}{goal} (mean of the last {min(s.games, 100)} games, {s.games:,} played)",
        f"  speed   {speed_text(s.steps_per_s, s.frames_per_s)}   {s.updates_per_s:,.1f} updates/s",
        f"  so far  {s.steps:,} steps   {s.updates:,} updates   epsilon {s.epsilon:.3f}   {phase}",
    ]
    shown = {k: v for k, v in s.share.items() if v >= 0.005 or k == "loop"}
    out.append("  time    " + "   ".join(f"{k} {v:.0%}" for k, v in sorted(shown.items(), key=lambda kv: -kv[1])))
    return out


class Block:
    """Lines that are rewritten in place, with rich; nothing at all if stderr is not a terminal."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.live = quiet, not quiet and sys.stderr.isatty()
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


class LiveSink(NullSink):
    """Shows every snapshot in place."""

    def __init__(self, config: Config, title: str) -> None:
        self._config, self._title, self._block = config, title, Block()

    def snapshot(self, s: Snapshot) -> None:
        self._block.show(lines(s, self._config, self._title))

    def close(self) -> None:
        self._block.close()


def make_sink(config: Config, title: str, quiet: bool) -> Any:
    """A live display on a terminal, nothing elsewhere."""
    return NullSink() if quiet or not sys.stderr.isatty() else LiveSink(config, title)
