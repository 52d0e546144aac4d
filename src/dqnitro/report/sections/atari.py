"""Many games under one protocol: scores beside published ones, curves game by game, and a grid of videos."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from dqnitro.common.parsing import interval, items, mapping, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.charts import Chart
from dqnitro.report.formatting import game_name, plural, rate
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import WHAT_BANDS_ARE, median_curves
from dqnitro.report.table_cells import interval_cell, number_cell

AXES = {"frames": "console frames"}
LEAST_FRAMES = 10e6  # of published curves, where ours are shorter
BESIDE = ("DQN", "Rainbow", "IQN Impala")
COLUMNS = (
    "game", "training", "fresh games", "human = 1", "frames", "minutes", "frames a second",
    *(f"{name} then" for name in BESIDE), *(f"{name} 200 M" for name in BESIDE),
)  # fmt: skip
IN_ALL = ("in all", "million frames", "games", "median", "interquartile mean", "above human", "Atari-5")
EMBED_BYTES = 1_000_000  # of a video: a grid has many


def title(result: Result) -> str:
    return f"Atari in {_amount(result.data.get('minutes'))} minutes a game"


def facts(result: Result) -> list[tuple[str, str, str]]:
    """The big numbers of a page: of fresh games where they were played."""
    ours = mapping(result.data.get("in_all"))
    which = next((w for w in ("fresh", "training") if mapping(ours.get(w))), None)
    if which is None:
        return []
    found = mapping(ours.get(which))
    n, above, five = (number(found.get(k)) for k in ("n", "above_human", "atari5"))
    middle, iqm = (number(mapping(found.get(k)).get("value")) for k in ("median", "iqm"))
    out = [("Atari-5", f"{five:.0f}%", "estimate of the median of 57 games")] if five is not None else []
    out += [("median", f"{middle:.2f}", f"human = 1, {which} games")] if middle is not None else []
    out += [("interquartile mean", f"{iqm:.2f}", f"human = 1, {which} games")] if iqm is not None else []
    out += [("above human", f"{above:g} of {n:g}", "games")] if above is not None and n is not None else []
    return out


def _amount(value: Any) -> str:
    found = number(value)
    return "?" if found is None else f"{found:g}"


def score(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _row(row: Mapping[str, Any]) -> h.Row:
    known = mapping(row.get("published"))
    frames = number(row.get("frames"))
    return h.Row((
        h.Cell(game_name(text(row.get("game"), "?")), css="rung"),
        interval_cell(interval(row.get("training"))),
        interval_cell(interval(row.get("fresh"))),
        number_cell(number(row.get("human_normalized")), lambda v: f"{v:.2f}"),
        number_cell(frames, lambda v: f"{v / 1e6:.1f} M"),
        number_cell(number(row.get("minutes")), lambda v: f"{v:.1f}"),
        number_cell(number(row.get("frames_per_s")), rate),
        *(number_cell(number(mapping(known.get(n)).get(at)), score) for at in ("at", "end") for n in BESIDE),
    ))  # fmt: skip


def _spread(value: Any) -> str:
    found, seeds = mapping(value), interval(mapping(value).get("seeds"))
    middle = number(found.get("value"))
    if middle is None:
        return ""
    return f"{middle:.2f}" + (f" ({seeds.low:.2f} to {seeds.high:.2f})" if seeds else "")


def _in_all(name: str, frames: float | None, found: Mapping[str, Any], marked: bool = False) -> h.Row:
    n, above = number(found.get("n")), number(found.get("above_human"))
    cells = (
        h.Cell(name, css="rung"),
        number_cell(frames, lambda v: f"{v:.1f}".removesuffix(".0")),
        number_cell(n, lambda v: f"{v:g}"),
        h.Cell(_spread(found.get("median")), number(mapping(found.get("median")).get("value"))),
        h.Cell(_spread(found.get("iqm")), number(mapping(found.get("iqm")).get("value"))),
        "" if n is None or above is None else f"{above:g} of {n:g}",
        number_cell(number(found.get("atari5")), lambda v: f"{v:.0f}"),
    )
    return h.Row(cells, marked)


def _summary(result: Result) -> list[h.Row]:
    frames = [f for r in rows(result.data.get("rows")) if (f := number(r.get("frames"))) is not None]
    mine = sum(frames) / len(frames) / 1e6 if frames else None
    ours = mapping(result.data.get("in_all"))
    out = [
        _in_all(f"here, {which} games", mine, mapping(ours.get(which)), True)
        for which in ("fresh", "training")
        if mapping(ours.get(which))
    ]
    for p in rows(result.data.get("published")):
        star = " *" if items(p.get("differences")) else ""
        out.append(_in_all(f"{text(p.get('agent'), '?')}{star}", number(p.get("millions")), mapping(p.get("in_all"))))
    return out


def _curve(game: str, result: Result) -> Chart | None:
    """Ours as a band over seeds, with the published ones as far as they help."""
    mine: list[dict[str, Any]] = []
    for curve in rows(result.data.get("curves")):
        points = [
            p
            for p in rows(curve.get("points"))
            if number(p.get("frames")) is not None and number(p.get("score")) is not None
        ]
        if text(curve.get("game")) == game and len(points) > 1:
            mine.append({"frames": ([p["frames"] for p in points], [p["score"] for p in points])})
    last = max((m["frames"][0][-1] for m in mine), default=0.0)
    groups: dict[str, list[dict[str, Any]]] = {"here": mine} if mine else {}
    for name, pair in mapping(mapping(result.data.get("published_curves")).get(game)).items():
        xs, ys = ([number(v) for v in items(part)] for part in [*items(pair), [], []][:2])
        line = [(x, y) for x, y in zip(xs, ys, strict=False) if x is not None and y is not None]
        line = [p for p in line if p[0] <= max(LEAST_FRAMES, 1.5 * last)]
        if len(line) > 1:
            groups[f"{name}, published"] = [{"frames": ([x for x, _ in line], [y for _, y in line])}]
    return median_curves(game_name(game), groups, axes=AXES, y="points") if mine else None


def _videos(result: Result) -> h.Html:
    """One of each game, where its runs have them; linked relative to the folder of the result if they are long."""
    shown = []
    for row in rows(result.data.get("rows")):
        found = next(((r, path) for r in rows(row.get("runs")) if (path := _video(r)) is not None), None)
        if found is not None:
            caption = f"{game_name(text(row.get('game'), '?'))}, seed {_amount(found[0].get('seed'))}"
            shown.append(h.video(found[1], result.path, caption, EMBED_BYTES))
    return h.Html(f'<div class="multiples">{h.join(*shown)}</div>') if shown else h.Html()


def _video(run: Mapping[str, Any]) -> pathlib.Path | None:
    try:
        path = pathlib.Path(text(run.get("run_dir"))) / "game.mp4"
        return path if path.is_file() else None
    except (OSError, ValueError):  # no file can have such a name
        return None


def _remarks(result: Result) -> list[str]:
    p = mapping(result.data.get("protocol"))
    out = [
        f"Protocol {text(p.get('name'), '?')}: sticky actions {_amount(p.get('sticky_actions'))}, lives "
        f"{'told' if p.get('lives_told') else 'not told'}; fresh games with epsilon {_amount(p.get('epsilon'))}, "
        f"played by {text(p.get('backend'), '?')}. Published: mean while training, epsilon 0.01. Then: at as many "
        "frames as here."
    ]
    told: dict[str, str] = {}
    for x in rows(result.data.get("published")):
        if words := "; ".join(text(d) for d in items(x.get("differences"))):
            told.setdefault(words, text(x.get("family"), "?"))
    out += [f"* Another protocol ({family}). {words}." for words, family in told.items()]
    used = {
        f"{text(s.get('repository'))} {text(s.get('path'))} at {text(s.get('commit'))[:12]}"
        for x in (*rows(result.data.get("published")), {"source": result.data.get("reference")})
        if (s := mapping(x.get("source")))
    }
    return [*out, f"Sources: {'; '.join(sorted(used))}."] if used else out


def section(result: Result, name: str, heading: str) -> h.Html:
    lines = rows(result.data.get("rows"))
    games = [text(r.get("game"), "?") for r in lines]
    charts = [c for g in games if (c := _curve(g, result)) is not None]
    table = h.Table(list(COLUMNS), [_row(r) for r in lines], heading, numeric=tuple(range(1, 13)), css="compact")
    summary = h.Table(list(IN_ALL), _summary(result), "In all", numeric=tuple(range(1, 7)), css="tried")
    seeds = len(items(result.data.get("seeds")))
    return h.section(
        heading,
        h.table(summary) if lines else h.Html(),
        h.Html(f'<div class="multiples">{h.join(*(h.figure(c, "") for c in charts))}</div>') if charts
        else h.paragraph("No game ended, so there is no curve.", "empty"),
        h.table(table) if lines else h.Html(),
        _videos(result),
        *(h.paragraph(r, "note") for r in _remarks(result)),
        common.repeat(result),
        note=f"{plural(len(lines), 'game')}, {plural(seeds, 'seed')} each. Mean score of the last 100 training games "
        f"over console frames, published curves beside it. {WHAT_BANDS_ARE}",
        name=name,
    )  # fmt: skip
