"""Learning curves of settings that were tried side by side."""

from __future__ import annotations

from dqnitro.common.parsing import items, mapping, number, text
from dqnitro.report import html as h
from dqnitro.report.charts import Series, xy
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import COLORS

TRIAL_AXES = {"steps": "steps", "updates": "updates"}


def title(result: Result) -> str:
    told = text(result.data.get("title")) or text(result.data.get("note")).split(",")[0].split(":")[0]
    return told if told and len(told) < 60 else "Settings tried side by side"


def facts(result: Result) -> list[h.Fact]:
    """How many settings were tried, and the best last score."""
    last = {
        str(label): p[-1][2]
        for label, raw in mapping(result.data.get("curve")).items()
        if (p := [x for x in items(raw) if isinstance(x, list) and len(x) == 3 and number(x[2]) is not None])
    }
    if not last:
        return []
    best = max(last, key=lambda label: last[label])
    return [("settings", str(len(last)), "side by side"), ("highest at the end", f"{last[best]:.4g}", best)]


def section(result: Result, name: str, heading: str) -> h.Html:
    """Curves of settings that were tried side by side: [steps, updates, score] each."""
    series = []
    for i, (label, raw) in enumerate(mapping(result.data.get("curve")).items()):
        points = [
            p for p in items(raw) if isinstance(p, list) and len(p) == 3 and all(number(v) is not None for v in p)
        ]
        if points:
            x = {"steps": [p[0] for p in points], "updates": [p[1] for p in points]}
            style = "line" if i < len(COLORS) else "line dash"
            series.append(Series(str(label), style, x, [p[2] for p in points], COLORS[i % 6]))
    unit = text(result.data.get("unit"), "mean score of the last games")
    chart = xy(unit[:1].upper() + unit[1:], series, TRIAL_AXES, y="points")
    parts = [
        h.axis_switch(TRIAL_AXES, f"{name}-axis") if chart else h.Html(),
        h.figure(chart, "No curve is stored.", "large"),
    ]
    about = text(result.data.get("note"))
    return h.section(heading, h.join(*parts), common.repeat(result), note=about, name=name)
