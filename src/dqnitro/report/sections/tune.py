"""What `dqnitro tune` tried on this machine and what it chose, recipe by recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dqnitro.common.parsing import interval, items, mapping, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, bars, ratio_bars
from dqnitro.report.formatting import bounds, spread, times
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.table_cells import interval_cell, shown


def title(result: Result) -> str:
    return "Tuned for this machine"


def facts(result: Result) -> list[h.Fact]:
    """What tuning gained, recipe by recipe."""
    evidence = rows(result.data.get("evidence"))
    tried = sum(interval(r.get("ratio")) is not None for r in evidence)
    gains = [
        (f"{recipe}, tuned", times(gain.mean), f"the speed as it is {bounds(gain, times)}".strip())
        for recipe, raw in mapping(result.data.get("recipes")).items()
        if (gain := interval(mapping(raw).get("gain"))) is not None
    ]
    return [*gains, ("tried", str(tried), "changes")] if tried else gains


def section(result: Result, name: str, heading: str) -> h.Html:
    """What was tried on this machine and what was chosen, recipe by recipe."""
    evidence = rows(result.data.get("evidence"))
    parts = []
    for recipe in dict.fromkeys(text(r.get("recipe")) for r in evidence):
        mine = [r for r in evidence if text(r.get("recipe")) == recipe]
        parts += _tuned(recipe, mine, mapping(mapping(result.data.get("recipes")).get(recipe)) or result.data)
    return h.section(
        heading,
        *parts or [h.figure(None, "Nothing was measured.")],
        common.repeat(result),
        note="Each change was measured for a few seconds on this machine. A change is chosen only if it keeps learning "
        "unchanged and its whole interval lies above the speed of the recipe as it is.",
        name=name,
    )


def _tuned(recipe: str, evidence: Sequence[dict[str, Any]], taken: dict[str, Any]) -> list[h.Html]:
    """The chart and the table of one recipe."""
    drawn, cells = [], []
    measured = [r for r in evidence if interval(r.get("fps")) is not None]
    ratios = any(interval(r.get("ratio")) for r in measured)
    for r in measured:
        fps, ratio, chosen = interval(r.get("fps")), interval(r.get("ratio")), r.get("chosen") is True
        assert fps is not None
        knob, promise = text(r.get("knob"), "?").replace("_", " "), text(r.get("promise"))
        value = ratio if ratios else fps
        if value is not None:
            more = [("steps a second", spread(fps)), *([("ratio", spread(ratio, times))] if ratio else [])]
            more += [("promise", promise)] if promise else []
            drawn.append(
                Bar(f"{knob} {shown(r.get('value'))}".strip(), value, "c3" if chosen else "c6", "", more, strong=chosen)
            )
        mark = "chosen" if chosen and ratio is not None else ""
        row = (
            h.Cell(knob, css="rung"),
            shown(r.get("value")),
            interval_cell(fps),
            interval_cell(ratio, times),
            mark,
            promise,
        )
        cells.append(h.Row(row, marked=bool(mark)))
    about = recipe or "the recipe"
    if ratios:
        chart = ratio_bars(f"Ratio to {about} as it is", drawn, "as it is")
    else:
        chart = bars("Steps a second", drawn)
    if chart is not None:
        chart["legend"] = [{"name": n, "color": c, "about": ""} for n, c in (("chosen", "c3"), ("tried", "c6"))]
    chosen = ", ".join(f"{k.replace('_', ' ')} {shown(v)}" for k, v in mapping(taken.get("chosen")).items())
    rungs = ", ".join(map(shown, items(taken.get("rungs"))))
    gain = interval(taken.get("gain"))
    said = f"{about[:1].upper()}{about[1:]}: {chosen or 'no setting was changed'}"
    said += (
        (f"; rungs {rungs}" if rungs else "")
        + (f"; {spread(gain, times)} the speed of the recipe as it is" if gain else "")
        + "."
    )
    columns = ("change", "value", "steps/s", "ratio", "chosen", "promise")
    return [
        h.paragraph(said, "verdict"),
        h.figure(chart, "Nothing was measured.", "large"),
        common.folded(h.Table(columns, cells, about, numeric=(2, 3), wide=(2, 4, 5), css="tried compact")),
        common.not_measured(
            {
                f"{text(r.get('knob'), '?')} {shown(r.get('value'))}": r.get("why") or "no reason given"
                for r in evidence
                if r not in measured
            }
        ),
    ]
