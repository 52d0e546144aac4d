"""A recipe with one rung left out at a time."""

from __future__ import annotations

from dqnitro.common.parsing import interval, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, promise_color, promise_legend, ratio_bars
from dqnitro.report.formatting import bounds, rate, spread, times
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.table_cells import interval_cell, shown


def title(result: Result) -> str:
    return f"{result.data['recipe']} without one rung" if result.data.get("recipe") else "Without one rung"


def facts(result: Result) -> list[h.Fact]:
    """The whole recipe, and the rung that it would miss most."""
    measured = [r for r in rows(result.data.get("rows")) if not common.is_skipped(r)]
    whole = [fps for r in measured if not text(r.get("without")) and (fps := interval(r.get("fps")))]
    left = {text(r.get("without")): v for r in measured if text(r.get("without")) and (v := interval(r.get("ratio")))}
    recipe = text(result.data.get("recipe"), "the recipe")
    out = [("steps a second", rate(f.mean), f"{recipe}, whole {bounds(f)}".strip()) for f in whole[:1]]
    if left:
        name, ratio = min(left.items(), key=lambda item: item[1].mean)
        out.append(("missed most", name, f"{spread(ratio, times)} the speed without it"))
        small = sum(v.low <= 1 <= v.high for v in left.values())
        out.append(("within the noise", f"{small} of {len(left)}", "rungs: their interval contains 1"))
    return out


def section(result: Result, name: str, heading: str) -> h.Html:
    """One rung left out at a time."""
    lines = rows(result.data.get("rows"))
    recipe = text(result.data.get("recipe"), "the recipe")
    drawn, cells = [], []
    for r in lines:
        ratio, fps, label = interval(r.get("ratio")), interval(r.get("fps")), text(r.get("without"))
        if common.is_skipped(r):
            continue
        promise = text(r.get("promise"))
        cells.append(
            h.Row(
                (
                    h.Cell(label or f"nothing ({recipe})", css="rung"),
                    interval_cell(fps),
                    interval_cell(ratio, times),
                    promise or "–",
                )
            )
        )
        if label and ratio is not None:
            more = [("steps a second without it", spread(fps) if fps else "–"), ("ratio", spread(ratio, times))]
            drawn.append(Bar(f"without {label}", ratio, promise_color(promise) if promise else "c1", "", more))
    legend = promise_legend([p for r in lines if (p := text(r.get("promise"))) and text(r.get("without"))])
    chart = ratio_bars(f"Speed without it, ratio to {recipe}", sorted(drawn, key=lambda b: b.value.mean), recipe)
    if chart is not None:
        chart["legend"] = [{"name": n, "color": c, "about": a} for n, c, a in legend]
    return h.section(
        heading,
        h.figure(chart, "Nothing was measured.", "large"),
        common.folded(
            h.Table(("without", "steps/s", f"× {recipe}", "promise"), cells, heading, numeric=(1, 2), css="compact")
        ),
        common.skipped(lines, lambda r: f"without {shown(r.get('without'))}"),
        common.repeat(result),
        note="The whole recipe compared with the recipe without one of its rungs. "
        "The further left a bar reaches, the more that rung contributes.",
        name=name,
    )
