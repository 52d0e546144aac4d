"""Results that are read rather than compared: a profile, two runs side by side, exactness, trials of settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dqnitro.report.bar_charts import Bar, bars
from dqnitro.report.charts import Series, xy
from dqnitro.report.formatting import game_name, plural, spread, times
from dqnitro.report.html import (
    Cell,
    Html,
    Row,
    Table,
    axis_switch,
    command,
    esc,
    figure,
    join,
    pair,
    paragraph,
    section,
    table,
)
from dqnitro.report.parsing import interval, items, mapping, number, rows, text
from dqnitro.report.read_result import Result
from dqnitro.report.seed_groups import COLORS
from dqnitro.report.table_cells import interval_cell, number_cell, shown

DEEPEST = 12  # levels of a profile's tree that are shown
FIRST = 4  # pieces of advice that are shown at once
TRIAL_AXES = {"steps": "steps", "updates": "updates"}


def profile(result: Result, name: str, title: str) -> Html:
    """Where a step's time goes, by phase and by operation, and what to try next."""
    tree = _branch(mapping(result.data.get("tree")), 0)
    top = [
        Row(
            (
                Cell(text(r.get("op"), "?"), css="name"),
                _ms(r.get("self_s")),
                _share(r.get("share")),
                Cell(shown(r.get("calls")), number(r.get("calls"))),
            )
        )
        for r in rows(result.data.get("top"))
    ]
    advice = [
        f"<li>{esc(text(a.get('text')))}{_at_most(a)}</li>"
        for a in rows(result.data.get("advice"))
        if text(a.get("text"))
    ]
    said = _bullets(advice[:FIRST])
    if len(advice) > FIRST:
        rest = len(advice) - FIRST
        said = Html(f"{said}<details><summary>{rest} smaller ones</summary>{_bullets(advice[FIRST:])}</details>")
    trace = text(result.data.get("trace"))
    return section(
        title,
        said,
        table(Table(("where", "ms", "share", "calls"), tree, title, numeric=(1, 2, 3), css="tree compact"))
        if tree
        else paragraph("The profile holds no tree.", "empty"),
        paragraph("Top operations", "subtitle") if top else Html(),
        table(Table(("operation", "own ms", "share", "calls"), top, "Top operations", numeric=(1, 2, 3), css="compact"))
        if top
        else Html(),
        paragraph(f"The trace opens in Perfetto: {trace}" if trace else "", "note"),
        command("repeat", result.command) if result.command else Html(),
        name=name,
    )


def _bullets(lines: Sequence[str]) -> Html:
    """A list of lines that are markup already."""
    return Html(f'<ul class="advice">{"".join(lines)}</ul>') if lines else Html()


def _branch(node: dict[str, Any], depth: int) -> list[Row]:
    if not node or depth > DEEPEST:
        return []
    label = Html(f'<span style="padding-left:{1.2 * depth:.1f}em">{esc(text(node.get("name"), "?"))}</span>')
    cells = (
        Cell(label),
        _ms(node.get("seconds")),
        _share(node.get("share")),
        Cell(shown(node.get("calls")), number(node.get("calls"))),
    )
    children = [row for child in rows(node.get("children")) for row in _branch(child, depth + 1)]
    return [Row(cells), *children]


def _ms(x: Any) -> Cell:
    return number_cell(number(x), lambda v: f"{1000 * v:,.1f}")


def _share(x: Any) -> Cell:
    v = number(x)
    return Cell("–") if v is None else Cell(f"{v:.1%}", f"{v:.6g}", share=v)


def _at_most(advice: dict[str, Any]) -> str:
    v = number(advice.get("buys_at_most"))
    return "" if v is None or "at most" in text(advice.get("text")) else f" <small>buys at most {times(v)}</small>"


def compare(result: Result, name: str, title: str) -> Html:
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
        Row(
            (
                Cell(text(r.get("name"), "?"), css="rung"),
                interval_cell(interval(r.get("scores")), lambda v: f"{v:.4g}"),
                interval_cell(interval(r.get("fps"))),
            )
        )
        for r in runs
    ]
    said = [f"<li>{esc(s)}</li>" for raw in items(result.data.get("sentences")) if (s := text(raw))]
    verdict = text(result.data.get("verdict"))
    return section(
        title,
        _bullets(said) or paragraph(verdict, "verdict"),
        pair(
            figure(bars("Score", scores, say=lambda v: f"{v:.4g}"), "No scores."),
            figure(bars("Steps a second", speeds), "No speeds."),
        ),
        table(Table(("run", "score", "steps/s"), cells, title, numeric=(1, 2), css="compact")) if cells else Html(),
        command("repeat", result.command) if result.command else Html(),
        note="" if "p =" in verdict else "; ".join(facts),
        name=name,
    )


def exact(result: Result, name: str, title: str) -> Html:
    """The console beside ale-py, frame by frame."""
    games = rows(result.data.get("games"))
    same = sum(g.get("equal") is True for g in games)
    frames = sum(int(number(g.get("frames")) or 0) for g in games)
    said = (
        f"{same} of {plural(len(games), 'game')} are equal to ale-py on every frame compared, {frames:,} frames in all."
    )
    cells = [
        Row(
            (
                Cell(game_name(text(g.get("game"), "?")), css="rung"),
                "equal" if g.get("equal") is True else Cell(text(g.get("difference")) or "different", css="differs"),
                Cell(shown(g.get("frames")), number(g.get("frames"))),
                Cell(shown(g.get("games_started")), number(g.get("games_started"))),
                Cell(shown(g.get("rewards")), number(g.get("rewards"))),
            ),
            marked=g.get("equal") is not True,
        )
        for g in games
    ]
    columns = ("game", "result", "frames", "games started", "rewards")
    t = Table(columns, cells, title, filter_label="filter games", numeric=(2, 3, 4), wide=(3, 4), css="long")
    note = "RAM, screen, reward, lives and the end of the game, compared after every frame of random play."
    repeat = command("repeat", result.command) if result.command else Html()
    return section(title, paragraph(said, "verdict"), table(t) if cells else Html(), repeat, note=note, name=name)


def trial(result: Result, name: str, title: str) -> Html:
    """Curves of settings that were tried side by side: [steps, updates, score] each."""
    series = []
    for i, (who, raw) in enumerate(mapping(result.data.get("curve")).items()):
        points = [
            p for p in items(raw) if isinstance(p, list) and len(p) == 3 and all(number(v) is not None for v in p)
        ]
        if points:
            x = {"steps": [p[0] for p in points], "updates": [p[1] for p in points]}
            style = "line" if i < len(COLORS) else "line dash"
            series.append(Series(str(who), style, x, [p[2] for p in points], COLORS[i % 6]))
    chart = xy("Mean score of the last games", series, TRIAL_AXES)
    parts = [
        axis_switch(TRIAL_AXES, f"{name}-axis") if chart else Html(),
        figure(chart, "No curve is stored.", "large"),
    ]
    repeat = command("repeat", result.command) if result.command else Html()
    return section(title, join(*parts), repeat, name=name)
