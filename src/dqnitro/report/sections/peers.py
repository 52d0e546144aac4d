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
COLUMNS: dict[str, tuple[str, Say]] = {
    "cpu_s": ("CPU time", duration), "wall_s": ("wall clock", duration), "steps": ("steps", "{:,.0f}".format),
    "mean_score": ("mean score", "{:.1f}".format),
}  # fmt: skip


def title(result: Result) -> str:
    return f"{game_name(result.game)} beside other trainers"


def facts(result: Result) -> list[h.Fact]:
    """The median time of each contender, and how many of its seeds solved it."""
    key = _clock(result)
    words = f"{'median CPU time' if key == 'cpu_s' else 'median'}, "
    return [(name, _time(group, key), words + _solved(group)) for name, group in _groups(result).items()]


def section(result: Result, name: str, heading: str) -> h.Html:
    """Seconds of each contender's seeds, and all runs."""
    groups, key = _groups(result), _clock(result)
    chart = [
        Bar(who, _span(times), COLORS[i % 6], f"{_time(group, key)}, {_solved(group)}")
        for i, (who, group) in enumerate(groups.items())
        if (times := _numbers(group, key))
    ]
    lines = [
        h.Row((
            h.Cell(who, css="rung"), shown(r.get("seed")), shown(r.get("solved")),
            *(number_cell(number(r.get(column)), say) for column, (_, say) in COLUMNS.items()),
        ))
        for who, group in groups.items()
        for r in group
    ]  # fmt: skip
    bar, games = number(result.data.get("bar")), number(result.data.get("games"))
    rule = f"Solved: the mean score of the last {games:.0f} training games reaches {bar:g}. " if bar and games else ""
    head = ("trainer", "seed", "solved", *(words for words, _ in COLUMNS.values()))
    clock = "CPU time" if key == "cpu_s" else "Seconds"
    return h.section(
        heading,
        h.figure(bars(f"{clock} until solved, or until the limit; lines: fastest and slowest seed", chart,
                      say=duration), "No run is stored."),
        h.table(h.Table(head, lines, heading, numeric=(3, 4, 5, 6))) if lines else h.Html(),
        common.repeat(result),
        note=f"{rule}{_ends(result)}{text(result.data.get('note'))}".strip(),
        name=name,
    )  # fmt: skip


def _clock(result: Result) -> str:
    """What was limited and is compared: CPU time, or the wall clock in results of older versions."""
    return "wall_s" if "limit_s" in result.data else "cpu_s"


def _ends(result: Result) -> str:
    steps, wall = number(result.data.get("max_steps")), number(result.data.get("limit_s"))
    cpu = number(result.data.get("limit_cpu_s"))
    limits = [
        *([f"{steps:,.0f} steps"] if steps else []), *([f"{duration(cpu)} of CPU time"] if cpu else []),
        *([duration(wall)] if wall else []),
    ]  # fmt: skip
    return f"A run ends unsolved after {' or '.join(limits)}. " if limits else ""


def _groups(result: Result) -> dict[str, list[dict[str, Any]]]:
    out: dict[str, list[dict[str, Any]]] = {}
    for r in rows(result.data.get("rows")):
        out.setdefault(text(r.get("contender"), "?"), []).append(r)
    return out


def _numbers(group: list[dict[str, Any]], key: str) -> list[float]:
    return [v for r in group if (v := number(r.get(key))) is not None]


def _span(values: list[float]) -> Interval:
    return Interval(statistics.median(values), min(values), max(values), len(values))


def _time(group: list[dict[str, Any]], key: str) -> str:
    """The median time; with "over" if the median run did not solve it."""
    times = _numbers(group, key)
    if not times:
        return "?"
    most = 2 * sum(r.get("solved") is True for r in group) > len(group)
    return duration(statistics.median(times)) if most else f"over {duration(statistics.median(times))}"


def _solved(group: list[dict[str, Any]]) -> str:
    return f"{sum(r.get('solved') is True for r in group)} of {plural(len(group), 'seed')} solved"
