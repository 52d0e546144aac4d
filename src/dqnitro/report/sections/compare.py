"""Two runs, or two groups of runs: is the difference real?"""

from __future__ import annotations

from dqnitro.common.parsing import interval, items, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, bars
from dqnitro.report.formatting import bounds, spread
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import COLORS
from dqnitro.report.table_cells import interval_cell


def title(result: Result) -> str:
    return "Two runs compared"


def facts(result: Result) -> list[h.Fact]:
    """The scores side by side, and how sure the difference is."""
    out = [
        ("mean score", f"{s.mean:.4g}", f"{text(r.get('name'), '?')} {bounds(s, lambda v: f'{v:.4g}')}".strip())
        for r in rows(result.data.get("runs"))[:3]
        if (s := interval(r.get("scores")))
    ]
    p = number(result.data.get("p_value"))
    return out if p is None else [*out, ("p", f"{p:.3g}", "rank test of the scores")]


def section(result: Result, name: str, heading: str) -> h.Html:
    """Is the difference real?"""
    runs = rows(result.data.get("runs"))
    scores = [
        Bar(text(r.get("name"), "?"), s, COLORS[i % 6], f"{s.mean:.4g}")
        for i, r in enumerate(runs)
        if (s := interval(r.get("scores")))
    ]
    speeds = [
        Bar(text(r.get("name"), "?"), s, COLORS[i % 6]) for i, r in enumerate(runs) if (s := interval(r.get("fps")))
    ]
    p, difference = number(result.data.get("p_value")), interval(result.data.get("difference"))
    facts = []
    if difference is not None:
        facts.append(f"difference {spread(difference, lambda v: f'{v:.3g}')}")
    if p is not None:
        facts.append(f"p = {p:.3g} (rank test)")
    cells = [
        h.Row(
            (
                h.Cell(text(r.get("name"), "?"), css="rung"),
                interval_cell(interval(r.get("scores")), lambda v: f"{v:.4g}"),
                interval_cell(interval(r.get("fps"))),
            )
        )
        for r in runs
    ]
    said = [f"<li>{h.esc(s)}</li>" for raw in items(result.data.get("sentences")) if (s := text(raw))]
    verdict = text(result.data.get("verdict"))
    return h.section(
        heading,
        common.bullets(said) or h.paragraph(verdict, "verdict"),
        h.pair(
            h.figure(bars("Score", scores, say=lambda v: f"{v:.4g}"), "No score was measured."),
            h.figure(bars("Steps a second", speeds), "No speed was measured."),
        ),
        common.folded(h.Table(("run", "score", "steps/s"), cells, heading, numeric=(1, 2), css="compact")),
        common.repeat(result),
        note="" if "p =" in verdict else "; ".join(facts),
        name=name,
    )
