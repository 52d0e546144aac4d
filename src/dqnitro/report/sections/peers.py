"""The time to solve an environment, beside other trainers."""

from __future__ import annotations

import statistics
from typing import Any

from dqnitro.common.parsing import Interval, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, bars
from dqnitro.report.formatting import Say, duration, game_name, plural
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import COLORS
from dqnitro.report.table_cells import number_cell, shown

# What a row tells, and how.
COLUMNS: dict[str, Say] = {
    "wall_s": duration, "cpu_s": duration, "steps": "{:,.0f}".format, "mean_score": "{:.1f}".format,
}  # fmt: skip


def title(result: Result) -> str:
    return f"{game_name(result.game)} beside other trainers"


def facts(result: Result) -> list[h.Fact]:
    """The median time of each contender, and how many of its seeds solved it."""
    return [(name, _time(group), _solved(group)) for name, group in _groups(result).items()]


def section(result: Result, name: str, heading: str) -> h.Html:
    """Seconds of each contender's seeds, and all runs."""
    groups = _groups(result)
    chart = [
        Bar(who, _span(times), COLORS[i % 6], f"{_time(group)}, {_solved(group)}")
        for i, (who, group) in enumerate(groups.items())
        if (times := _numbers(group, "wall_s"))
    ]
    lines = [
        h.Row((
            h.Cell(who, css="rung"), shown(r.get("seed")), shown(r.get("solved")),
            *(number_cell(number(r.get(key)), say) for key, say in COLUMNS.items()),
        ))
        for who, group in groups.items()
        for r in group
    ]  # fmt: skip
    bar, games = number(result.data.get("bar")), number(result.data.get("games"))
    rule = f"Solved: the mean score of the last {games:.0f} training games reaches {bar:g}. " if bar and games else ""
    limit = number(result.data.get("limit_s"))
    ends = f"A run ends unsolved after {duration(limit)}. " if limit else ""
    head = ("trainer", "seed", "solved", "time", "CPU time", "steps", "mean score")
    return h.section(
        heading,
        h.figure(bars("Seconds until solved, or until the limit; lines: fastest and slowest seed", chart, say=duration),
                 "No run is stored."),
        h.table(h.Table(head, lines, heading, numeric=(3, 4, 5, 6))) if lines else h.Html(),
        common.repeat(result),
        note=f"{rule}{ends}{text(result.data.get('note'))}".strip(),
        name=name,
    )  # fmt: skip


def _groups(result: Result) -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for r in rows(result.data.get("rows")):
        out.setdefault(text(r.get("contender"), "?"), []).append(r)
    return out


def _numbers(group: list[dict[str, Any]], key: str) -> list[float]:
    return [v for r in group if (v := number(r.get(key))) is not None]


def _span(values: list[float]) -> Interval:
    return Interval(statistics.median(values), min(values), max(values), len(values))


def _time(group: list[dict[str, Any]]) -> str:
    """The median time; with "over" if the median run did not solve it."""
    times = _numbers(group, "wall_s")
    if not times:
        return "?"
    most = 2 * sum(r.get("solved") is True for r in group) > len(group)
    return duration(statistics.median(times)) if most else f"over {duration(statistics.median(times))}"


def _solved(group: list[dict[str, Any]]) -> str:
    return f"{sum(r.get('solved') is True for r in group)} of {plural(len(group), 'seed')} solved"
