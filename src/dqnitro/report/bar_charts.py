"""Bars with intervals, and parts of a whole in rows: the charts of the lab's results, as dictionaries that bars.js
draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqnitro.common.parsing import Interval
from dqnitro.report.charts import PHASES, Chart, short, stack
from dqnitro.report.formatting import Say, rate, times

# promise -> (colour, what it means)
PROMISES = {
    "exact": ("c3", "the same run, bit for bit"),
    "close": ("c1", "the same run except for rounding"),
    "learning": ("c2", "learning itself changes"),
    "baseline": ("c6", "the textbook DQN"),
}
UNKNOWN_COLOR = "c4"


@dataclass(frozen=True)
class Bar:
    """One row: a value with its interval, and the details shown under the pointer."""

    label: str
    value: Interval
    color: str = "c1"
    text: str = ""  # at the end of the bar
    more: Sequence[tuple[str, str]] = ()
    target: str = ""  # the row of a table that a click opens
    strong: bool = False
    faint: bool = False  # measured, but not part of what the chart is about

    def to_dict(self, say: Say) -> dict[str, Any]:
        v = self.value
        more = self.more or [("mean", say(v.mean)), ("95% interval", f"{say(v.low)} to {say(v.high)}"), ("n", str(v.n))]
        return {
            "label": self.label, "value": short(v.mean), "low": short(v.low), "high": short(v.high),
            "color": self.color,
            "text": self.text or say(v.mean), "more": [list(m) for m in more], "target": self.target,
            "strong": self.strong, "faint": self.faint,
        }  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """How bars are laid out: where they begin, which value is marked, whether a log scale is offered."""

    origin: float = 0.0
    base: tuple[float, str] | None = None  # value and name of the reference
    tick: str = ""  # behind the numbers of the axis
    switch: bool = False
    legend: Sequence[tuple[str, str, str]] = field(default_factory=tuple)  # name, colour, meaning


PLAIN = Scale()


def bars(title: str, rows: Sequence[Bar], scale: Scale = PLAIN, say: Say = rate) -> Chart | None:
    """Horizontal bars, in the order given. A log scale is chosen where one bar would dwarf the others."""
    if not rows:
        return None
    values = [b.value.mean for b in rows]
    positive = min(b.value.low for b in rows) > 0 and (scale.base is None or scale.base[0] > 0)
    wide = positive and scale.switch and max(values) / min(values) > 20
    return {
        "kind": "bars", "title": title, "rows": [b.to_dict(say) for b in rows], "origin": scale.origin,
        "tick": scale.tick,
        "base": None if scale.base is None else {"value": short(scale.base[0]), "label": scale.base[1]},
        "scale": "log" if wide else "linear", "scales": positive and scale.switch,
        "legend": [{"name": n, "color": c, "about": a} for n, c, a in scale.legend],
    }  # fmt: skip


def ratio_bars(title: str, rows: Sequence[Bar], to: str) -> Chart | None:
    """Ratios to one contender: bars begin at 1. Where they span decades, a log scale is offered."""
    values = [b.value.mean for b in rows]
    wide = bool(values) and min(values) > 0 and max(values) / min(values) > 20
    return bars(title, rows, Scale(origin=1.0, base=(1.0, to), tick="×", switch=wide), times)


def promise_legend(promises: Sequence[str]) -> list[tuple[str, str, str]]:
    known = [(f"{p}: {about}", color, about) for p, (color, about) in PROMISES.items() if p in promises]
    return known + [(p, UNKNOWN_COLOR, "") for p in dict.fromkeys(promises) if p not in PROMISES]


def promise_color(promise: str) -> str:
    return PROMISES.get(promise, (UNKNOWN_COLOR, ""))[0]


def time_stacks(title: str, parts: Mapping[str, tuple[Mapping[str, float], float | None]]) -> Chart | None:
    """Where the time of a step goes, one row per contender: (shares, steps a second). Only shares if a speed is
    unknown.
    """
    speeds = [speed for _, speed in parts.values()]
    if speeds and all(speeds):
        fastest = max(s for s in speeds if s)
        unit, k = ("ms", 1e3) if fastest < 2_000 else ("µs", 1e6)
        rows = {name: {p: v * k / speed for p, v in share.items()} for name, (share, speed) in parts.items() if speed}
    else:
        unit, rows = "", {name: share for name, (share, _) in parts.items()}
    chart = stack(title, rows, PHASES, unit)
    return None if chart is None else {**chart, "kind": "stacks", "amount": "time per step"}
