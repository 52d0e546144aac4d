"""A search over several settings and games: the points of every trial, the best first."""

from __future__ import annotations

from typing import Any

from dqnitro.common.parsing import Interval, items, mapping, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, bars
from dqnitro.report.formatting import plural
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.table_cells import number_cell, shown

MOST_BARS = 16


def title(result: Result) -> str:
    return f"Search over {plural(len(mapping(result.data.get('space'))), 'setting')}"


def told(row: dict[str, Any]) -> str:
    return ", ".join(f"{k} {shown(v)}" for k, v in mapping(row.get("settings")).items())


def is_own(result: Result, row: dict[str, Any]) -> bool:
    return bool(own := mapping(result.data.get("own"))) and mapping(row.get("settings")) == own


def facts(result: Result) -> list[h.Fact]:
    """The best trial, the recipe's own settings, and how many there were."""
    lines = [(p, r) for r in rows(result.data.get("rows")) if (p := number(r.get("points"))) is not None]
    unit = text(result.data.get("unit"), "points")
    out: list[h.Fact] = []
    if lines:
        best, row = max(lines, key=lambda pair: pair[0])
        out.append((f"best {unit}", f"{best:.3g}", told(row)))
    if own := [p for p, r in lines if is_own(result, r)]:
        out.append(("the recipe as it is", f"{own[0]:.3g}", f"recipe {text(result.data.get('recipe'))}"))
    return [
        *out,
        ("trials", str(len(rows(result.data.get("rows")))), plural(len(items(result.data.get("games"))), "game")),
    ]


def section(result: Result, name: str, heading: str) -> h.Html:
    lines, unit = rows(result.data.get("rows")), text(result.data.get("unit"), "points")
    known = [(r, p) for r in lines if (p := number(r.get("points"))) is not None]
    chart = [
        Bar(
            told(r),
            Interval(p, p, p, 1),
            "c2" if is_own(result, r) else "c1",
            f"{p:.3g}",
            [("trial", shown(r.get("trial")))],
        )
        for r, p in known[:MOST_BARS]
    ]
    cells = [
        h.Row(
            (
                h.Cell(shown(r.get("trial")), number(r.get("trial")), "rung"),
                told(r),
                number_cell(number(r.get("points")), lambda v: f"{v:.3g}"),
                ", ".join(f"{game} {shown(score)}" for game, score in mapping(r.get("scores")).items()),
                number_cell(number(r.get("steps")), lambda v: f"{v:,.0f}"),
                text(r.get("state")),
            )
        )
        for r in lines
        if r.get("state") != "skipped"
    ]
    columns = ["trial", "settings", unit, "scores", "steps", "state"]
    out = {f"trial {shown(r.get('trial'))} ({told(r)})": r.get("why") for r in lines if r.get("state") == "skipped"}
    return h.section(
        heading,
        h.figure(bars(unit[:1].upper() + unit[1:], chart, say=lambda v: f"{v:.3g}"), "No trial came to its end."),
        common.folded(h.Table(columns, cells, heading, numeric=(0, 2, 4), css="compact")),
        common.not_measured(out),
        common.repeat(result),
        note="Each bar is a trial, the best first; the recipe's own settings have a colour of their own.",
        name=name,
    )
