"""Runs that differ only in their seed, as one curve with a band."""

from __future__ import annotations

import functools
import json
import math
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dqnitro.report.charts import X_AXES, Chart, running_mean, short
from dqnitro.report.formatting import plural
from dqnitro.store.read_run import Run

GRID = 160  # points of a median over runs
# From this many seeds on, lowest to highest holds the true median at least 95 times of 100, whatever the distribution.
MANY = 6
WHAT_BANDS_ARE = (
    f"Curves show the median over seeds, bands the range; with {MANY} or more seeds, the 95% interval of the median."
)
COLORS = ("c1", "c2", "c3", "c4", "c5", "c6")
# Settings that decide how long a run goes on and what it writes, but not how it learns.
NOT_LEARNING = frozenset(
    {
        "seed", "max_steps", "max_minutes", "stop_at_score", "checkpoint_every_s", "log_every_s", "eval_every_steps",
        "games_per_eval", "eval_epsilon",
    }
)  # fmt: skip

Line = tuple[Sequence[float], Sequence[float]]  # x (rising), y


@dataclass(frozen=True)
class Group:
    """Runs of one game whose configs differ only in the seed."""

    env_id: str
    label: str
    runs: list[Run]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """In the order of their first run. Groups of one recipe are told apart by the settings in which they differ."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(json.dumps([run.env_id, run.recipe, _learning(run)], sort_keys=True), []).append(run)
    groups = list(found.values())
    out = []
    for members in groups:
        first = members[0]
        alike = [g[0] for g in groups if (g[0].env_id, g[0].recipe) == (first.env_id, first.recipe)]
        out.append(Group(first.env_id, ", ".join([first.recipe, *_differences(first, alike)]), members))
    return out


def _learning(run: Run) -> dict[str, Any]:
    return {k: v for k, v in run.config.items() if k not in NOT_LEARNING}


def _differences(run: Run, alike: Sequence[Run]) -> list[str]:
    names = [k for k in run.config if k not in NOT_LEARNING and any(o.config.get(k) != run.config[k] for o in alike)]
    told = [f"{k} {json.dumps(run.config[k])}".replace('"', "") for k in names[:3]]
    return [*told, f"and {len(names) - 3} more"] if len(names) > 3 else told


def band(lines: Sequence[Line], held: Sequence[bool] | None = None) -> dict[str, list[float]] | None:
    """Median over lines on a common grid, with a band where there are several (WHAT_BANDS_ARE).

    A held line keeps its last value (a run that was solved and stopped). Otherwise the median ends with the first line
    that ends: a median of the remaining lines would jump.
    """
    pairs = [(line, h) for line, h in zip(lines, held or [False] * len(lines), strict=True) if len(line[0]) > 1]
    if not pairs:
        return None
    lines = [line for line, _ in pairs]
    ends = [line[0][-1] for line, keep in pairs if not keep] or [max(line[0][-1] for line in lines)]
    start, end = max(line[0][0] for line in lines), min(ends)
    if end <= start:
        return None
    xs = [start + (end - start) * i / (GRID - 1) for i in range(GRID)]
    table = [[_at(line, x) for line in lines] for x in xs]
    out = {"x": xs, "y": [statistics.median(values) for values in table]}
    n = len(lines)
    if n > 1:
        edges = [_edges(values) for values in table]
        out |= {"low": [low for low, _ in edges], "high": [high for _, high in edges]}
    return out


def _edges(values: Sequence[float]) -> tuple[float, float]:
    """The order statistics between which the true median lies with 95%; of few values the lowest and the highest."""
    ranked, left_out = sorted(values), _ranks_outside(len(values))
    return ranked[left_out], ranked[-1 - left_out]


@functools.cache
def _ranks_outside(n: int) -> int:
    """How many values may be left out on each side: fewer than k of n lie below the median with the probability of
    fewer than k heads in n throws of a coin, which must stay under 2.5%.
    """
    k, tail = 0, 1
    while 40 * (tail + math.comb(n, k + 1)) <= 2**n:
        k, tail = k + 1, tail + math.comb(n, k + 1)
    return k


def _at(line: Line, x: float) -> float:
    """The line's value there: straight between its points, its last one after the end."""
    xs, ys = line
    i = bisect_left(xs, x)
    if i == 0:
        return ys[0]
    if i == len(xs):
        return ys[-1]
    part = (x - xs[i - 1]) / (xs[i] - xs[i - 1]) if xs[i] > xs[i - 1] else 1.0
    return ys[i - 1] + part * (ys[i] - ys[i - 1])


def median_curves(
    title: str, groups: Mapping[str, Sequence[Mapping[str, Line]]], held: Mapping[str, Sequence[bool]] | None = None,
    axes: Mapping[str, str] = X_AXES, **options: Any,
) -> Chart | None:  # fmt: skip
    """One curve a group; a group is a list of runs, each a line per axis."""
    series = []
    for i, (name, members) in enumerate(groups.items()):
        curves = {}
        for axis in axes:
            shown = band([m[axis] for m in members], (held or {}).get(name))
            if shown is not None:
                curves[axis] = {k: [short(v, 7) for v in values] for k, values in shown.items()}
        if len(curves) == len(axes):
            count = f" ({plural(len(members), 'seed')})" if len(members) > 1 else ""
            style = "line" if i < len(COLORS) else "line dash"
            series.append({"name": f"{name}{count}", "style": style, "color": COLORS[i % 6], "curves": curves})
    if not series:
        return None
    return {"kind": "xy", "title": title, "axes": dict(axes), "series": series, **options}


def learning_curves(groups: Sequence[Group]) -> Chart | None:
    """Mean score of the last 100 games of every group of one game, over wall clock and over steps."""
    lines: dict[str, list[dict[str, Line]]] = {}
    held: dict[str, list[bool]] = {}
    for group in groups:
        for run in group.runs:
            g = run.metrics.game
            keep = [i for i, s in enumerate(g["score"]) if s == s]
            means = running_mean([g["score"][i] for i in keep], 100)
            lines.setdefault(group.label, []).append({a: ([g[a][i] for i in keep], means) for a in X_AXES})
            held.setdefault(group.label, []).append(run.state == "solved")
    bars = {run.bar for group in groups for run in group.runs if run.bar is not None}
    marks = [{"y": bar, "label": f"solved at {bar:g}"} for bar in sorted(bars)]
    return median_curves("Mean score of the last 100 games", lines, held, marks=marks, y="points")
