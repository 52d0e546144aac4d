"""Learning curves of settings that were tried side by side."""

from __future__ import annotations

import re

from dqnitro.common.parsing import items, mapping, number, text
from dqnitro.report import html as h
from dqnitro.report.charts import Series, xy
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import COLORS, Line, median_curves

SEED = re.compile(r", seed \d+$")  # at the end of a setting's name
TRIAL_AXES = {"steps": "steps", "updates": "updates"}


def title(result: Result) -> str:
    told = text(result.data.get("title")) or text(result.data.get("note")).split(",")[0].split(":")[0]
    return told if told and len(told) < 60 else "Settings tried side by side"


def facts(result: Result) -> list[h.Fact]:
    """How many settings were tried, and the best last score."""
    last = {label: points[-1][2] for label, points in _curves(result).items()}
    if not last:
        return []
    best = max(last, key=lambda label: last[label])
    settings = len({SEED.sub("", label) for label in last})
    return [("settings", str(settings), "side by side"), ("highest at the end", f"{last[best]:.4g}", best)]


def _curves(result: Result) -> dict[str, list[list[float]]]:
    """[steps, updates, score] of every setting that has any."""
    found = {
        str(label): [p for p in items(raw) if isinstance(p, list) and len(p) == 3 and None not in map(number, p)]
        for label, raw in mapping(result.data.get("curve")).items()
    }
    return {label: points for label, points in found.items() if points}


def section(result: Result, name: str, heading: str) -> h.Html:
    """Curves of settings that were tried side by side; seeds of one setting are one curve with a band."""
    unit = text(result.data.get("unit"), "mean score of the last games")
    heading_of_chart, curves = unit[:1].upper() + unit[1:], _curves(result)
    groups: dict[str, list[dict[str, Line]]] = {}
    for label, points in curves.items():
        scores = [p[2] for p in points]
        line: dict[str, Line] = {"steps": ([p[0] for p in points], scores), "updates": ([p[1] for p in points], scores)}
        groups.setdefault(SEED.sub("", label), []).append(line)
    if len(groups) < len(curves):
        chart = median_curves(heading_of_chart, groups, axes=TRIAL_AXES, y="points")
    else:
        series = [
            Series(name, "line" if i < len(COLORS) else "line dash", {a: line[a][0] for a in TRIAL_AXES},
                   line["steps"][1], COLORS[i % 6])
            for i, (name, (line,)) in enumerate(groups.items())
        ]  # fmt: skip
        chart = xy(heading_of_chart, series, TRIAL_AXES, y="points")
    parts = [
        h.axis_switch(TRIAL_AXES, f"{name}-axis") if chart else h.Html(),
        h.figure(chart, "No curve is stored.", "large"),
    ]
    about = text(result.data.get("note"))
    return h.section(heading, h.join(*parts), common.repeat(result), note=about, name=name)
