"""Times to solve, row by row of the notes: curves over wall clock and steps, and a table beside theirs."""

from __future__ import annotations

from typing import Any

from dqnitro.common.parsing import interval, mapping, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.charts import X_AXES
from dqnitro.report.formatting import duration, times
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import WHAT_BANDS_ARE, median_curves
from dqnitro.report.table_cells import interval_cell, number_cell

COLUMNS = (
    "row", "steps/s", "Δ", "time to solve", "Δ", "solved", "notes: steps/s", "Δ", "minutes", "Δ",
)  # fmt: skip
MARK = "* Steps of real runs at the row's own rate, which was measured alone. Without a star: measured by the clock."


def title(result: Result) -> str:
    return "Times to solve"


def percent(value: float) -> str:
    return f"{value:+.0%}"


def time_of(row: dict[str, Any]) -> str:
    """12 min 30 s (11 min 2 s to 14 min 10 s) *"""
    minutes = mapping(row.get("minutes"))
    median, low, high = (number(minutes.get(k)) for k in ("median", "low", "high"))
    if median is None:
        return ""
    spread = "" if low is None or high is None or low == high else f" ({duration(60 * low)} to {duration(60 * high)})"
    return duration(60 * median) + spread + ("" if row.get("how") == "whole" else " *")


def _row(row: dict[str, Any]) -> h.Row:
    notes = mapping(row.get("notes"))
    solved, of = number(row.get("solved")), number(row.get("of"))
    return h.Row((
        h.Cell(text(row.get("name"), "?"), css="rung"),
        interval_cell(interval(row.get("fps"))),
        number_cell(number(row.get("delta_fps")), percent),
        h.Cell(time_of(row), number(mapping(row.get("minutes")).get("median"))),
        number_cell(number(row.get("delta_minutes")), percent),
        "" if solved is None or of is None else f"{solved:g} of {of:g}",
        number_cell(number(notes.get("fps")), lambda v: f"{v:g}"),
        number_cell(number(notes.get("delta_fps")), percent),
        number_cell(number(notes.get("minutes")), lambda v: f"{v:.1f}"),
        number_cell(number(notes.get("delta_minutes")), percent),
    ))  # fmt: skip


def facts(result: Result) -> list[h.Fact]:
    """The first row, the fastest one, and what lies between."""
    known = [
        (median, r)
        for r in rows(result.data.get("rows"))
        if (median := number(mapping(r.get("minutes")).get("median"))) is not None
    ]
    if not known:
        return []
    first, best = known[0], min(known, key=lambda pair: pair[0])
    told = dict.fromkeys((text(r.get("name"), "?"), time_of(r)) for _, r in (first, best))
    out = [(f"{name}: median time to solve", told.split(" (")[0], told) for name, told in told]
    return [*out, ("ratio", times(first[0] / best[0]), "of these times")] if best[0] > 0 and best != first else out


def section(result: Result, name: str, heading: str) -> h.Html:
    lines = rows(result.data.get("rows"))
    groups: dict[str, list[dict[str, Any]]] = {}
    for curve in rows(result.data.get("curves")):
        points = [p for p in rows(curve.get("points")) if all(number(p.get(k)) is not None for k in (*X_AXES, "score"))]
        line = {axis: ([p[axis] for p in points], [p["score"] for p in points]) for axis in X_AXES}
        groups.setdefault(text(curve.get("value"), "?"), []).append(line)
    curves = median_curves("Score", groups)
    table = h.Table(list(COLUMNS), [_row(r) for r in lines], heading, numeric=tuple(range(1, 10)), css="compact")
    return h.section(
        heading,
        h.axis_switch(X_AXES, f"{name}-axis") if curves else h.Html(),
        h.figure(curves, "No game ended, so there is no curve.", "large"),
        h.table(table) if lines else h.Html(),
        h.paragraph(MARK, "note"),
        common.repeat(result),
        note=f"Median and range over seeds. {WHAT_BANDS_ARE}",
        name=name,
    )
