"""What a step would cost without one piece of its work."""

from __future__ import annotations

from dqnitro.common.parsing import interval, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, ratio_bars
from dqnitro.report.formatting import spread, times
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.table_cells import interval_cell, shown


def title(result: Result) -> str:
    return "What a step costs"


def facts(result: Result) -> list[h.Fact]:
    """The dearest pieces of a step."""
    known = [
        (share, text(r.get("without")))
        for r in rows(result.data.get("rows"))
        if text(r.get("without")) and (share := number(r.get("saves_share"))) is not None
    ]
    dear = sorted(known, reverse=True)[:3]
    return [(name, f"{max(0.0, share):.0%}", "of the time of a step") for share, name in dear]


def section(result: Result, name: str, heading: str) -> h.Html:
    """How much of a step's time each piece of work takes."""
    lines = [r for r in rows(result.data.get("rows")) if not common.is_skipped(r)]
    drawn, cells = [], []
    for r in lines:
        label, ratio, fps = text(r.get("without")), interval(r.get("ratio")), interval(r.get("fps"))
        share = number(r.get("saves_share"))
        saves = "–" if share is None else f"{share:.0%}"
        cells.append(
            h.Row(
                (
                    h.Cell(label or "nothing", css="rung"),
                    interval_cell(fps),
                    interval_cell(ratio, times),
                    h.Cell(saves, share, share=None if share is None else max(0.0, share)),
                    text(r.get("note")),
                )
            )
        )
        if label and ratio is not None:
            more = [
                ("steps a second", spread(fps) if fps else "–"), ("ratio", spread(ratio, times)),
                ("time it takes", saves),
            ]  # fmt: skip
            drawn.append(Bar(f"no {label}", ratio, "c2", "", more))
    chart = ratio_bars("Speed without it", sorted(drawn, key=lambda b: -b.value.mean), "the whole step")
    columns = ("without", "steps/s", "ratio", "share of the time", "what is left out")
    return h.section(
        heading,
        h.figure(chart, "Nothing was measured.", "large"),
        common.folded(h.Table(columns, cells, heading, numeric=(1, 2, 3), wide=(1, 4))),
        common.skipped(rows(result.data.get("rows")), lambda r: shown(r.get("without"))),
        common.repeat(result),
        note="Where the time goes, measured by leaving out one piece of work at a time. "
        "An agent without it does not learn properly; only its speed is compared.",
        name=name,
    )
