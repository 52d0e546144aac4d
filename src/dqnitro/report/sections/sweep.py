"""One setting over several values: curves over both axes, speed and score by value."""

from __future__ import annotations

from typing import Any

from dqnitro.common.parsing import interval, items, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, bars
from dqnitro.report.charts import X_AXES
from dqnitro.report.formatting import bounds, plural, rate
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import WHAT_BANDS_ARE, median_curves
from dqnitro.report.table_cells import interval_cell, number_cell, shown


def title(result: Result) -> str:
    return f"Sweep over {result.data.get('setting', 'a setting')}"


def facts(result: Result) -> list[h.Fact]:
    """The values with the best score and the highest speed."""
    lines = [r for r in rows(result.data.get("rows")) if not common.is_skipped(r)]
    setting, out = text(result.data.get("setting"), "value"), []
    for label, key, say in (("best score", "score", lambda v: f"{v:.4g}"), ("steps a second", "fps", rate)):
        known = [(v, r) for r in lines if (v := interval(r.get(key)))]
        if known:
            best, row = max(known, key=lambda pair: pair[0].mean)
            out.append((label, say(best.mean), f"{setting} {shown(row.get('value'))} {bounds(best, say)}".strip()))
    return [*out, ("values", str(len(lines)), f"{plural(len(items(result.data.get('seeds'))) or 1, 'seed')} each")]


def section(result: Result, name: str, heading: str) -> h.Html:
    """One setting over values: curves over both axes, speed and score by value."""
    setting, lines = text(result.data.get("setting"), "value"), rows(result.data.get("rows"))
    groups: dict[str, list[dict[str, Any]]] = {}
    for curve in rows(result.data.get("curves")):
        points = [p for p in rows(curve.get("points")) if all(number(p.get(k)) is not None for k in (*X_AXES, "score"))]
        line = {axis: ([p[axis] for p in points], [p["score"] for p in points]) for axis in X_AXES}
        groups.setdefault(f"{setting} {shown(curve.get('value'))}", []).append(line)
    curves = median_curves("Score", groups, y="points")
    speed = [
        Bar(shown(r.get("value")), fps, "c1")
        for r in lines
        if not common.is_skipped(r) and (fps := interval(r.get("fps")))
    ]
    scores = [Bar(shown(r.get("value")), s, "c2", f"{s.mean:.4g}") for r in lines if (s := interval(r.get("score")))]
    cells = [
        h.Row(
            (
                h.Cell(shown(r.get("value")), r.get("value") if number(r.get("value")) is not None else None, "rung"),
                interval_cell(interval(r.get("fps"))),
                interval_cell(interval(r.get("score")), lambda v: f"{v:.4g}"),
                number_cell(number(r.get("samples_per_step")), lambda v: f"{v:.3g}"),
                text(r.get("why")),
            )
        )
        for r in lines
        if not common.is_skipped(r)
    ]
    seeds = len(items(result.data.get("seeds")))
    note = WHAT_BANDS_ARE if seeds > 1 else "One seed, so there is no band."
    columns = [setting, "steps/s", "score", "samples/step", "remark"]
    if not any(row.cells[-1] for row in cells):
        columns.pop()
        cells = [h.Row(row.cells[:-1]) for row in cells]
    return h.section(
        heading,
        h.axis_switch(X_AXES, f"{name}-axis") if curves else h.Html(),
        h.figure(curves, "No game ended, so there is no curve.", "large"),
        h.pair(
            h.figure(bars("Steps a second", speed), "No speed was measured."),
            h.figure(bars("Score at the end", scores, say=lambda v: f"{v:.4g}"), "No score was measured."),
        ),
        common.folded(h.Table(columns, cells, heading, numeric=(1, 2, 3), css="compact")),
        common.skipped(lines, lambda r: f"{setting} {shown(r.get('value'))}"),
        common.repeat(result),
        note=note,
        name=name,
    )
