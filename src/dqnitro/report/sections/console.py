"""The console compared with other vector environments, game by game."""

from __future__ import annotations

from dqnitro.common.parsing import interval, mapping, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, ratio_bars
from dqnitro.report.formatting import bounds, game_name, plural, rate, spread, times
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.table_cells import interval_cell


def title(result: Result) -> str:
    return "The console compared with other environments"


def facts(result: Result) -> list[h.Fact]:
    """The geometric mean over games by threads, and on how many games it is faster."""
    means = mapping(result.data.get("geomean"))
    out = [
        (f"{plural(int(threads), 'thread')}", times(mean.mean), f"the faster peer {bounds(mean, times)}".strip())
        for threads, raw in means.items()
        if threads.isdigit() and (mean := interval(raw)) is not None
    ]
    ratios = [
        ratio
        for r in rows(result.data.get("rows"))
        if (ratio := interval(mapping(r.get("ratios")).get(text(r.get("faster_peer")))))
    ]
    faster = sum(r.low > 1 for r in ratios)
    return [*out, ("faster", f"{faster} of {len(ratios)}", "comparisons, by their whole interval")] if ratios else out


def section(result: Result, name: str, heading: str) -> h.Html:
    """The console and the fastest of the other vector environments, game by game."""
    drawn: dict[int, list[Bar]] = {}
    lines, whole = [], []
    for row in rows(result.data.get("rows")):
        threads, game = int(number(row.get("threads")) or 0), text(row.get("game"), "?")
        peer = text(row.get("faster_peer"))
        ratio, rates = interval(mapping(row.get("ratios")).get(peer)), mapping(row.get("rates"))
        if ratio is not None:
            drawn.setdefault(threads, []).append(Bar(game_name(game), ratio, "c1"))
        speeds = [(label, v) for label, raw in rates.items() if (v := number(raw)) is not None]
        told = "; ".join(f"{label} {rate(v)}" for label, v in speeds)
        lines.append(
            h.Row(
                (h.Cell(game_name(game), css="rung"), h.Cell(threads, threads), interval_cell(ratio, times), peer, told)
            )
        )
    for threads, raw in mapping(result.data.get("geomean")).items():
        if (mean := interval(raw)) is not None:
            whole.append(
                f"{spread(mean, times)} with {threads} {'thread' if threads == '1' else 'threads'} (geometric "
                f"mean of {mean.n} games)"
            )
    charts = [
        h.figure(ratio_bars(f"{plural(n, 'thread')}: ratio to the faster peer", some, ""), "")
        for n, some in drawn.items()
    ]
    columns = ("game", "threads", "ratio", "faster peer", "steps a second")
    return h.section(
        heading,
        h.paragraph(". ".join(whole) + "." if whole else "", "verdict"),
        h.pair(*charts) if charts else h.Html(),
        common.folded(
            h.Table(columns, lines, heading, filter_label="filter games", numeric=(1, 2), wide=(3, 4), css="long"),
            "All figures as a table",
        ),
        common.repeat(result),
        note=common.rounds(result),
        name=name,
    )
