"""A benchmark: contenders at one job."""

from __future__ import annotations

from typing import Any

from dqnitro.common.parsing import Interval, interval, mapping, number, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, Scale, bars, ratio_bars
from dqnitro.report.formatting import bounds, rate, spread, times
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.sections.common import SAME
from dqnitro.report.table_cells import interval_cell, number_cell, shown

# Columns that every benchmark's table has; the others are its own.
COLUMNS = ("rate", "rate_low", "rate_high", "ratio", "low", "high", "rounds", "to")
LONG = 40  # characters that a heading has room for
TITLES = {
    "learn": "Learners at the textbook settings", "device": "Forward pass by device",
    "compile": "Compiling the network",
    "amp": "Mixed precision", "collect": "Threads or processes", "replay": "Replay memories",
    "resize": "Resizing frames",
    "envs": "Vector environments", "copies": "Copies to the GPU",
    "console": "The console compared with other environments", "cluster": "What a run pays to Ray",
    "gpu": "The console and the learner on a GPU",
}  # fmt: skip


def title(result: Result) -> str:
    return TITLES.get(result.what) or str(result.data.get("title") or f"Benchmark {result.what}")


def facts(result: Result) -> list[h.Fact]:
    """The fastest contender, and its ratio to what it is compared with."""
    data = result.data
    rated = {
        k: (v, row)
        for k, raw in mapping(data.get("table")).items()
        if (v := number((row := mapping(raw)).get("rate"))) is not None
    }
    if not rated:
        return []
    name, (value, row) = max(rated.items(), key=lambda item: item[1][0])
    out: list[h.Fact] = [("fastest", rate(value), f"{text(data.get('unit'), 'rate')}, {name}")]
    to, ratio = text(row.get("to")) or text(data.get("to")), _ratio(row)
    if ratio is not None and to and to != name:
        out.append(("ratio", times(ratio.mean), f"to {to} {bounds(ratio, times)}".strip()))
    return [*out, ("contenders", str(len(rated)), common.rounds(result).split(";")[0])]


def section(result: Result, name: str, heading: str) -> h.Html:
    """Contenders at one job. Each has its own reference, for most benchmarks the same one."""
    data, unit = result.data, text(result.data.get("unit"), "rate")
    contenders = {k: v for k, raw in mapping(data.get("table")).items() if (v := mapping(raw))}
    headings = {str(k): shown(v) for k, v in mapping(data.get("columns")).items()}
    extra = list(headings) or list(dict.fromkeys(k for v in contenders.values() for k in v if k not in COLUMNS))
    to = text(data.get("to"))
    drawn, rates, lines = [], [], []
    for label, row in contenders.items():
        value, ratio, versus = number(row.get("rate")), _ratio(row), text(row.get("to"), to)
        own = [(headings.get(k, k.replace("_", " ")), row.get(k)) for k in extra]
        if ratio is not None:
            more = [(unit, "–" if value is None else rate(value)), (f"ratio to {versus}", spread(ratio, times))]
            more += [(k, shown(v)) for k, v in own if v is not None]
            end = times(ratio.mean) + ("" if value is None else f" · {rate(value)}")
            drawn.append(Bar(label, ratio, "c6" if label == versus else "c1", end, more, strong=label == versus))
            if value is not None:
                rates.append(Bar(label, _rate(row, value), text=rate(value), more=more))
        cells = [h.Cell(shown(v), v if number(v) is not None else None) for _, v in own]
        same = label == versus and ratio is not None
        lines.append(
            h.Row(
                (
                    h.Cell(label, css="rung"),
                    number_cell(value),
                    h.Cell("1", 1) if same else interval_cell(ratio, times),
                    *cells,
                )
            )
        )
    columns = (
        "contender",
        unit,
        f"× {to}" if to and len(to) <= LONG else "ratio",
        *(headings.get(k, k.replace("_", " ")) for k in extra),
    )
    numeric = [i for i in range(1, len(columns)) if any(r.cells[i].sort is not None for r in lines)]
    said = text(data.get("title"))
    chart = ratio_bars(f"Ratio to {to}" if to else "Ratio", drawn, to)
    if sum(b.strong for b in drawn) > len(drawn) / 2:  # most are their own reference: their rates say more
        chart = bars(f"{unit[:1].upper()}{unit[1:]}", rates, Scale(switch=True))
    return h.section(
        heading,
        h.paragraph(text(data.get("verdict")), "verdict"),
        h.figure(chart, "No contender was measured.", "large"),
        common.folded(
            h.Table(columns, lines, heading, numeric=numeric, wide=range(3, len(columns)), css="compact"),
            SAME if len(columns) <= 3 else "All figures as a table",
        ),
        common.not_measured(mapping(data.get("skipped"))),
        common.repeat(result),
        note=f"{said[:1].upper()}{said[1:]}. {common.rounds(result)}" if said else common.rounds(result),
        name=name,
    )


def _rate(row: dict[str, Any], value: float) -> Interval:
    low, high, n = number(row.get("rate_low")), number(row.get("rate_high")), number(row.get("rounds"))
    if low is None or high is None or n is None:
        return Interval(value, value, value, 1)
    return Interval(value, low, high, int(n))


def _ratio(row: dict[str, Any]) -> Interval | None:
    n = number(row.get("rounds"))
    return interval(
        {"mean": row.get("ratio"), "low": row.get("low"), "high": row.get("high"), "n": 1 if n is None else int(n)}
    )
