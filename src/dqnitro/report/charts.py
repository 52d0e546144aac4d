"""Data to charts: plain dictionaries that page.js draws. No chart knows about runs beyond the columns it is given.

Three kinds: `xy` (curves and dots over one of several x axes), `stack` (bars of parts that make a whole), `strip`
(single values with their mean and interval). A chart without data is None, and the page says why.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dqnitro.store.read_run import Columns, Run

Chart = dict[str, Any]

LINE_POINTS = 1_200  # more than a wide screen has pixels for; both extremes of every stretch are among them
DOT_POINTS = 2_400
X_AXES = {"wall_s": "wall clock", "steps": "steps"}

# What each phase is, in the order of a step; other phases come after these.
PHASES = {
    "act": "choosing actions",
    "env": "playing the game",
    "sample": "sampling the replay",
    "learn": "updating the network",
    "store": "storing transitions",
    "loop": "overhead of the loop",
}


@dataclass(frozen=True)
class Series:
    """One curve: y against every x axis at once, so that the page can switch by itself."""

    name: str
    style: str  # line, dots
    x: Mapping[str, Sequence[float]]
    y: Sequence[float]
    color: str = "c1"  # a class of page.css: c1 to c6

    def to_dict(self) -> dict[str, Any]:
        keep = [i for i, v in enumerate(self.y) if math.isfinite(v)]
        y = [self.y[i] for i in keep]
        # Extremes alone would draw a cloud of dots as two bands with nothing between.
        shown = downsample(y, DOT_POINTS, between=4) if self.style == "dots" else downsample(y, LINE_POINTS)
        keep = [keep[i] for i in shown]
        x = {axis: [short(values[i], 9) for i in keep] for axis, values in self.x.items()}
        return {
            "name": self.name, "style": self.style, "color": self.color, "x": x,
            "y": [short(self.y[i]) for i in keep], "of": len(y),
        }  # fmt: skip


def downsample(values: Sequence[float], limit: int, between: int = 0) -> list[int]:
    """Indices to show: at most `limit` (at least 4 + between), among them the first, the last, the extremes of every
    stretch, and `between` more of it at equal distances.

    Averages would hide what a reader looks for in a curve: the best game, the spike of the loss.
    """
    n = len(values)
    if n <= limit:
        return list(range(n))
    buckets = max(1, (limit - 2) // (2 + between))
    keep = {0, n - 1}
    for b in range(buckets):
        stretch = range(b * n // buckets, (b + 1) * n // buckets)
        keep.add(min(stretch, key=values.__getitem__))
        keep.add(max(stretch, key=values.__getitem__))
        keep.update(stretch[k * len(stretch) // between] for k in range(between) if stretch)
    return sorted(keep)


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """The mean of the last `window` values, of fewer at the start. Exact sums: a long run must not drift."""
    out, last, total = [], deque[float](), 0.0
    for i, v in enumerate(values):
        last.append(v)
        total += v
        if len(last) > window:
            total -= last.popleft()
        if i % 4096 == 0:
            total = math.fsum(last)
        out.append(total / len(last))
    return out


def xy(title: str, series: Sequence[Series], axes: Mapping[str, str] = X_AXES, **options: Any) -> Chart | None:
    """Curves over the x axes that all series share.

    Options: y (the unit of the values), marks [{y, label}], scale ("log"), zero (y starts at 0), until {axis: x} (how
    far an axis reaches at least).
    """
    drawn = [s for s in (one.to_dict() for one in series) if s["y"]]
    if not drawn:
        return None
    shared = {k: label for k, label in axes.items() if all(k in s["x"] for s in drawn)}
    return {"kind": "xy", "title": title, "axes": shared, "series": drawn, **options}


def stack(
    title: str, rows: Mapping[str, Mapping[str, float]], about: Mapping[str, str], unit: str = ""
) -> Chart | None:
    """Horizontal bars of parts. `about` gives the order and says what each part is."""
    names = [p for p in about if any(p in parts for parts in rows.values())]
    names += sorted({p for parts in rows.values() for p in parts} - set(names))
    bars = [
        {"label": label, "parts": [{"name": n, "value": short(parts.get(n, 0.0))} for n in names]}
        for label, parts in rows.items()
        if sum(parts.values()) > 0
    ]
    if not bars:
        return None
    legend = [{"name": n, "about": about.get(n, ""), "color": f"c{i % 6 + 1}"} for i, n in enumerate(names)]
    return {"kind": "stack", "title": title, "rows": bars, "legend": legend, "unit": unit}


def strip(title: str, values: Sequence[float], mean: float, low: float, high: float, name: str = "value") -> Chart:
    """Single values on a line, with the mean and its interval."""
    if len(values) > DOT_POINTS:
        values = sorted(values)
        values = [values[i] for i in downsample(values, DOT_POINTS)]
    shown = [short(v) for v in values]
    return {"kind": "strip", "title": title, "values": shown, "mean": mean, "low": low, "high": high, "name": name}


def short(value: float, digits: int = 5) -> float:
    """No more digits than a chart can show: it keeps the page small."""
    v = float(f"{value:.{digits}g}")
    return int(v) if v.is_integer() and abs(v) < 1e15 else v


def _x(columns: Columns) -> dict[str, list[float]]:
    return {axis: columns[axis] for axis in X_AXES}


def _until(run: Run) -> dict[str, Any]:
    """All curves of a run end where the run ends, so that charts below each other line up."""
    if run.wall_s is None or run.steps is None:
        return {}
    return {"until": {"wall_s": short(run.wall_s), "steps": run.steps}}


def learning_curve(run: Run) -> Chart | None:
    g = run.metrics.game
    keep = [i for i, s in enumerate(g["score"]) if math.isfinite(s)]
    g = {name: [values[i] for i in keep] for name, values in g.items()}
    series = [
        Series("score of a game", "dots", _x(g), g["score"], "c6"),
        Series("smoothed", "line", _x(g), g["avg_reward"], "c2"),
        Series("mean of the last 100", "line", _x(g), running_mean(g["score"], 100), "c1"),
    ]
    if run.evaluations:
        at = {"wall_s": [e.wall_s for e in run.evaluations], "steps": [float(e.steps) for e in run.evaluations]}
        series.append(Series("evaluation: fresh games", "line", at, [e.mean for e in run.evaluations], "c3"))
    marks = [{"y": run.bar, "label": f"solved at {run.bar:g}"}] if run.bar is not None else []
    return xy("Score", series, marks=marks, y="points", **_until(run))


def loss_curve(run: Run) -> Chart | None:
    c = run.metrics.loss
    series = [
        Series("loss", "dots", _x(c), c["loss"], "c6"),
        Series("smoothed", "line", _x(c), c["avg_loss"], "c1"),
    ]
    finite = [v for v in c["loss"] if math.isfinite(v)]
    # A loss falls by orders of magnitude or stays within one; only the first is read better in powers of ten.
    wide = bool(finite) and min(finite) > 0 and max(finite) / min(finite) > 30
    return xy("Loss", series, scale="log" if wide else "linear", zero=not wide, y="loss", **_until(run))


def epsilon_curve(run: Run) -> Chart | None:
    p = run.metrics.progress
    return xy(
        "Epsilon", [Series("chance of a random action", "line", _x(p), p["epsilon"], "c3")], zero=True, y="probability",
        **_until(run),
    )  # fmt: skip


def speed_curve(run: Run) -> Chart | None:
    """From the first update on: filling the replay is many times faster and would set the scale."""
    p = run.metrics.progress
    learning = [i for i, updates in enumerate(p["updates"]) if updates > 0]
    filled = learning[0] if len(learning) > 1 else 0
    filled += filled > 0  # the second in which the filling ended is still partly that
    steps0, wall0 = (p["steps"][filled - 1], p["wall_s"][filled - 1]) if filled else (0, 0.0)
    p = {name: values[filled:] for name, values in p.items()}
    whole = [
        (steps - steps0) / (wall - wall0) if wall > wall0 else math.nan
        for steps, wall in zip(p["steps"], p["wall_s"], strict=True)
    ]
    series = [
        Series("at the moment", "line", _x(p), p["steps_per_s"], "c6"),
        Series("since the first update" if filled else "since the start", "line", _x(p), whole, "c1"),
    ]
    return xy("Steps a second", series, zero=True, y="steps/s", **_until(run))


def time_shares(run: Run) -> Chart | None:
    """Wall clock per step, by phase; shares alone where the speed is unknown."""
    title = "Where the host's time goes" if asynchronous(run) else "Where the time goes"
    if not run.steps_per_s:
        return stack(title, {"share": run.share}, PHASES)
    unit, scale = ("ms", 1e3) if run.steps_per_s < 50 else ("µs", 1e6)
    per_step = {k: v * scale / run.steps_per_s for k, v in run.share.items()}
    return stack(title, {"one step": per_step}, PHASES, unit)


def asynchronous(run: Run) -> bool:
    """Whether the GPU works on its own while the host goes on: the phases then say what the host did, and no more."""
    return run.config.get("runner") in ("device", "hybrid")


def evaluation(run: Run) -> Chart | None:
    e = run.evaluation
    return None if e is None else strip("Fresh games", e["scores"], e["mean"], e["low"], e["high"], "score of a game")
