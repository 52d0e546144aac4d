"""The other experiments on a page: one function a kind of result, each a chart, a table, a sentence and the command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dqnitro.report.bar_charts import Bar, Scale, bars, promise_color, promise_legend, ratio_bars
from dqnitro.report.charts import X_AXES
from dqnitro.report.formatting import game_name, plural, rate, spread, times
from dqnitro.report.html import (
    Cell,
    Html,
    Row,
    Table,
    axis_switch,
    command,
    esc,
    figure,
    pair,
    paragraph,
    section,
    table,
)
from dqnitro.report.parsing import Interval, interval, items, mapping, number, rows, text
from dqnitro.report.read_result import Result
from dqnitro.report.seed_groups import WHAT_BANDS_ARE, mean_curves
from dqnitro.report.table_cells import interval_cell, number_cell, shown

# Columns that every benchmark's table has; the others are its own.
BENCH_COLUMNS = ("rate", "rate_low", "rate_high", "ratio", "low", "high", "rounds", "to")
LONG = 40  # characters that a heading has room for


def _repeat(result: Result) -> Html:
    return command("repeat", result.command) if result.command else Html()


def _not_measured(reasons: dict[str, Any]) -> Html:
    said = "".join(f"<li><b>{esc(name)}</b> {esc(shown(why))}</li>" for name, why in reasons.items())
    return Html(f'<div class="left-out"><p>Not measured</p><ul>{said}</ul></div>') if said else Html()


def _skipped(result_rows: Sequence[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> Html:
    return _not_measured({name(r): r.get("why") or "no reason given" for r in result_rows if _is_skipped(r)})


def _is_skipped(row: dict[str, Any]) -> bool:
    return row.get("state") == "skipped" or interval(row.get("fps")) is None


def bench(result: Result, name: str, title: str) -> Html:
    """Contenders at one job. Each has its own reference, for most benchmarks the same one."""
    data, unit = result.data, text(result.data.get("unit"), "rate")
    contenders = {k: v for k, raw in mapping(data.get("table")).items() if (v := mapping(raw))}
    headings = {str(k): shown(v) for k, v in mapping(data.get("columns")).items()}
    extra = list(headings) or list(dict.fromkeys(k for v in contenders.values() for k in v if k not in BENCH_COLUMNS))
    to = text(data.get("to"))
    drawn, rates, lines = [], [], []
    for who, row in contenders.items():
        value, ratio, versus = number(row.get("rate")), _ratio(row), text(row.get("to"), to)
        own = [(headings.get(k, k.replace("_", " ")), row.get(k)) for k in extra]
        if ratio is not None:
            more = [(unit, "–" if value is None else rate(value)), (f"ratio to {versus}", spread(ratio, times))]
            more += [(k, shown(v)) for k, v in own if v is not None]
            end = times(ratio.mean) + ("" if value is None else f" · {rate(value)}")
            drawn.append(Bar(who, ratio, "c6" if who == versus else "c1", end, more, strong=who == versus))
            if value is not None:
                rates.append(Bar(who, _rate(row, value), text=rate(value), more=more))
        cells = [Cell(shown(v), v if number(v) is not None else None) for _, v in own]
        same = who == versus and ratio is not None
        lines.append(
            Row(
                (
                    Cell(who, css="rung"),
                    number_cell(value),
                    Cell("1", 1) if same else interval_cell(ratio, times),
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
    if sum(b.strong for b in drawn) > len(drawn) / 2:  # most are compared with nobody: how fast each is says more
        chart = bars(f"{unit[:1].upper()}{unit[1:]}", rates, Scale(switch=True))
    return section(
        title,
        paragraph(text(data.get("verdict")), "verdict"),
        figure(chart, "No contender was measured.", "large"),
        table(Table(columns, lines, title, numeric=numeric, wide=range(3, len(columns)), css="compact"))
        if lines
        else Html(),
        _not_measured(mapping(data.get("skipped"))),
        _repeat(result),
        note=f"{said[:1].upper()}{said[1:]}. {_rounds(result)}" if said else _rounds(result),
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


def _rounds(result: Result) -> str:
    n, seconds = number(result.data.get("rounds")), number(result.data.get("seconds"))
    if n is None or seconds is None:
        return ""
    return f"Contenders took turns: {plural(int(n), 'round')} of {seconds:g} s each; 95% intervals over the rounds."


def console(result: Result, name: str, title: str) -> Html:
    """The console beside other vector environments, game by game."""
    drawn: dict[int, list[Bar]] = {}
    lines, whole = [], []
    for row in rows(result.data.get("rows")):
        threads, game = int(number(row.get("threads")) or 0), text(row.get("game"), "?")
        peer = text(row.get("faster_peer"))
        ratio, rates = interval(mapping(row.get("ratios")).get(peer)), mapping(row.get("rates"))
        if ratio is not None:
            drawn.setdefault(threads, []).append(Bar(game_name(game), ratio, "c1"))
        speeds = [(who, v) for who, raw in rates.items() if (v := number(raw)) is not None]
        told = "; ".join(f"{who} {rate(v)}" for who, v in speeds)
        lines.append(
            Row((Cell(game_name(game), css="rung"), Cell(threads, threads), interval_cell(ratio, times), peer, told))
        )
    for threads, raw in mapping(result.data.get("geomean")).items():
        if (mean := interval(raw)) is not None:
            whole.append(
                f"{spread(mean, times)} with {threads} {'thread' if threads == '1' else 'threads'} (geometric mean of {mean.n} games)"
            )
    charts = [
        figure(ratio_bars(f"{plural(n, 'thread')}: ratio to the faster peer", some, ""), "")
        for n, some in drawn.items()
    ]
    columns = ("game", "threads", "ratio", "faster peer", "steps a second")
    return section(
        title,
        paragraph(". ".join(whole) + "." if whole else "", "verdict"),
        pair(*charts) if charts else Html(),
        table(Table(columns, lines, title, filter_label="filter games", numeric=(1, 2), wide=(3, 4), css="long"))
        if lines
        else Html(),
        _repeat(result),
        note=_rounds(result),
        name=name,
    )


def sweep(result: Result, name: str, title: str) -> Html:
    """One setting over values: curves over both axes, speed and score by value."""
    setting, lines = text(result.data.get("setting"), "value"), rows(result.data.get("rows"))
    groups: dict[str, list[dict[str, Any]]] = {}
    for curve in rows(result.data.get("curves")):
        points = [p for p in rows(curve.get("points")) if all(number(p.get(k)) is not None for k in (*X_AXES, "score"))]
        line = {axis: ([p[axis] for p in points], [p["score"] for p in points]) for axis in X_AXES}
        groups.setdefault(f"{setting} {shown(curve.get('value'))}", []).append(line)
    curves = mean_curves("Score", groups)
    speed = [
        Bar(shown(r.get("value")), fps, "c1") for r in lines if not _is_skipped(r) and (fps := interval(r.get("fps")))
    ]
    scores = [Bar(shown(r.get("value")), s, "c2", f"{s.mean:.4g}") for r in lines if (s := interval(r.get("score")))]
    cells = [
        Row(
            (
                Cell(shown(r.get("value")), r.get("value") if number(r.get("value")) is not None else None, "rung"),
                interval_cell(interval(r.get("fps"))),
                interval_cell(interval(r.get("score")), lambda v: f"{v:.4g}"),
                number_cell(number(r.get("samples_per_step")), lambda v: f"{v:.3g}"),
                text(r.get("why")),
            )
        )
        for r in lines
        if not _is_skipped(r)
    ]
    seeds = len(items(result.data.get("seeds")))
    note = WHAT_BANDS_ARE if seeds > 1 else "One seed, so no band."
    columns = [setting, "steps/s", "score", "samples/step", "remark"]
    if not any(row.cells[-1] for row in cells):
        columns.pop()
        cells = [Row(row.cells[:-1]) for row in cells]
    return section(
        title,
        axis_switch(X_AXES, f"{name}-axis") if curves else Html(),
        figure(curves, "No game ended, so there is no curve.", "large"),
        pair(
            figure(bars("Steps a second", speed), "No speed was measured."),
            figure(bars("Score at the end", scores, say=lambda v: f"{v:.4g}"), "No score was measured."),
        ),
        table(Table(columns, cells, title, numeric=(1, 2, 3), css="compact")) if cells else Html(),
        _skipped(lines, lambda r: f"{setting} {shown(r.get('value'))}"),
        _repeat(result),
        note=note,
        name=name,
    )


def ablate(result: Result, name: str, title: str) -> Html:
    """One rung left out at a time."""
    lines = rows(result.data.get("rows"))
    recipe = text(result.data.get("recipe"), "the recipe")
    drawn, cells = [], []
    for r in lines:
        ratio, fps, who = interval(r.get("ratio")), interval(r.get("fps")), text(r.get("without"))
        if _is_skipped(r):
            continue
        promise = text(r.get("promise"))
        cells.append(
            Row(
                (
                    Cell(who or f"nothing ({recipe})", css="rung"),
                    interval_cell(fps),
                    interval_cell(ratio, times),
                    promise or "–",
                )
            )
        )
        if who and ratio is not None:
            more = [("steps a second without it", spread(fps) if fps else "–"), ("ratio", spread(ratio, times))]
            drawn.append(Bar(f"without {who}", ratio, promise_color(promise) if promise else "c1", "", more))
    legend = promise_legend([p for r in lines if (p := text(r.get("promise"))) and text(r.get("without"))])
    chart = ratio_bars(f"Speed without it, ratio to {recipe}", sorted(drawn, key=lambda b: b.value.mean), recipe)
    if chart is not None:
        chart["legend"] = [{"name": n, "color": c, "about": a} for n, c, a in legend]
    return section(
        title,
        figure(chart, "Nothing was measured.", "large"),
        table(Table(("without", "steps/s", f"× {recipe}", "promise"), cells, title, numeric=(1, 2), css="compact"))
        if cells
        else Html(),
        _skipped(lines, lambda r: f"without {shown(r.get('without'))}"),
        _repeat(result),
        note="The whole recipe, and the recipe with one rung left out: the further left a bar reaches, the more that rung gives.",
        name=name,
    )


def cost(result: Result, name: str, title: str) -> Html:
    """What a step would cost without one part of the work."""
    lines = [r for r in rows(result.data.get("rows")) if not _is_skipped(r)]
    drawn, cells = [], []
    for r in lines:
        who, ratio, fps = text(r.get("without")), interval(r.get("ratio")), interval(r.get("fps"))
        share = number(r.get("saves_share"))
        saves = "–" if share is None else f"{share:.0%}"
        cells.append(
            Row(
                (
                    Cell(who or "nothing", css="rung"),
                    interval_cell(fps),
                    interval_cell(ratio, times),
                    Cell(saves, share, share=None if share is None else max(0.0, share)),
                    text(r.get("note")),
                )
            )
        )
        if who and ratio is not None:
            more = [
                ("steps a second", spread(fps) if fps else "–"), ("ratio", spread(ratio, times)), ("time it takes", saves),
            ]  # fmt: skip
            drawn.append(Bar(f"no {who}", ratio, "c2", "", more))
    chart = ratio_bars("Speed without it", sorted(drawn, key=lambda b: -b.value.mean), "the whole step")
    columns = ("without", "steps/s", "ratio", "share of the time", "what is left out")
    return section(
        title,
        figure(chart, "Nothing was measured.", "large"),
        table(Table(columns, cells, title, numeric=(1, 2, 3), wide=(1, 4))) if cells else Html(),
        _skipped(rows(result.data.get("rows")), lambda r: shown(r.get("without"))),
        _repeat(result),
        note="Where the time goes, asked by leaving work out. Nothing learns well without these parts; it only shows what they cost.",
        name=name,
    )


def tune(result: Result, name: str, title: str) -> Html:
    """What was tried on this machine, and what was taken, recipe by recipe."""
    evidence = rows(result.data.get("evidence"))
    parts = []
    for recipe in dict.fromkeys(text(r.get("recipe")) for r in evidence):
        mine = [r for r in evidence if text(r.get("recipe")) == recipe]
        parts += _tuned(recipe, mine, mapping(mapping(result.data.get("recipes")).get(recipe)) or result.data)
    return section(
        title,
        *parts or [figure(None, "Nothing was measured.")],
        _repeat(result),
        note="A few seconds of each knob on this machine. A knob is taken only where it leaves learning as it is and its interval "
        "is above what was there before.",
        name=name,
    )


def _tuned(recipe: str, evidence: Sequence[dict[str, Any]], taken: dict[str, Any]) -> list[Html]:
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
        mark = "taken" if chosen and ratio is not None else ""
        row = (
            Cell(knob, css="rung"),
            shown(r.get("value")),
            interval_cell(fps),
            interval_cell(ratio, times),
            mark,
            promise,
        )
        cells.append(Row(row, marked=bool(mark)))
    about = recipe or "the recipe"
    if ratios:
        chart = ratio_bars(f"Ratio to {about} as it is", drawn, "as it is")
    else:
        chart = bars("Steps a second", drawn)
    if chart is not None:
        chart["legend"] = [{"name": n, "color": c, "about": ""} for n, c in (("taken", "c3"), ("tried", "c6"))]
    chosen = ", ".join(f"{k.replace('_', ' ')} {shown(v)}" for k, v in mapping(taken.get("chosen")).items())
    rungs = ", ".join(map(shown, items(taken.get("rungs"))))
    gain = interval(taken.get("gain"))
    said = f"{about[:1].upper()}{about[1:]}: {chosen or 'no setting was changed'}"
    said += (f"; rungs {rungs}" if rungs else "") + (f"; {spread(gain, times)} as before" if gain else "") + "."
    columns = ("knob", "value", "steps/s", "ratio", "taken", "promise")
    return [
        paragraph(said, "verdict"),
        figure(chart, "Nothing was measured.", "large"),
        table(Table(columns, cells, about, numeric=(2, 3), wide=(2, 4, 5), css="tried compact")) if cells else Html(),
        _not_measured(
            {
                f"{text(r.get('knob'), '?')} {shown(r.get('value'))}": r.get("why") or "no reason given"
                for r in evidence
                if r not in measured
            }
        ),
    ]
