"""Scores of games after the same time, beside another trainer."""

from __future__ import annotations

from typing import Any

from dqnitro.common.parsing import Interval, mapping, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import Bar, bars
from dqnitro.report.formatting import game_name
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import COLORS
from dqnitro.report.table_cells import number_cell, shown


def title(result: Result) -> str:
    return f"{', '.join(game_name(game) for game in _games(result))} beside another trainer"


def facts(result: Result) -> list[h.Fact]:
    """What each trainer gained in each game."""
    return [
        (f"{game_name(game)}, {who}", f"{gain:+,.1f}", "points over random play")
        for game, found in mapping(result.data.get("gains")).items()
        for who, value in mapping(found).items()
        if (gain := number(value)) is not None
    ]


def section(result: Result, name: str, heading: str) -> h.Html:
    """Each run's score over fresh games, one chart for each game, and all runs in a table."""
    found = rows(result.data.get("rows"))
    trainers = list(dict.fromkeys(text(r.get("contender"), "?") for r in found))
    charts = [
        h.figure(
            bars(f"{game_name(game)}: mean score of fresh games", _bars(found, game, trainers)), "No run is stored."
        )
        for game in _games(result)
    ]
    lines = [
        h.Row((
            h.Cell(text(r.get("contender"), "?"), css="rung"), game_name(text(r.get("game"))), shown(r.get("seed")),
            number_cell(number(mapping(r.get("fresh")).get("score")), "{:,.1f}".format),
            number_cell(number(r.get("training_score")), "{:,.1f}".format),
            number_cell(number(r.get("steps")), "{:,.0f}".format),
        ))
        for r in found
    ]  # fmt: skip
    head = ("trainer", "game", "seed", "score", "training score", "steps")
    minutes = number(result.data.get("minutes"))
    told = f"Each run had the machine for {minutes:g} minutes. " if minutes else ""
    return h.section(
        heading,
        *charts,
        h.table(h.Table(head, lines, heading, numeric=(3, 4, 5))) if lines else h.Html(),
        common.repeat(result),
        note=" ".join(filter(None, (told.strip(), text(result.data.get("protocol")), text(result.data.get("note"))))),
        name=name,
    )


def _games(result: Result) -> list[str]:
    return list(dict.fromkeys(text(r.get("game")) for r in rows(result.data.get("rows")))) or [result.game]


def _bars(found: list[dict[str, Any]], game: str, trainers: list[str]) -> list[Bar]:
    """Random play first, where it was scored."""
    out = list[Bar]()
    for r in found:
        if text(r.get("game")) != game:
            continue
        who = text(r.get("contender"), "?")
        if span := _interval(r.get("random")):
            out.insert(0, Bar("random play", span, COLORS[5], f"{span.mean:,.1f}"))
        if span := _interval(r.get("fresh")):
            label = f"{who}, seed {shown(r.get('seed'))}"
            out.append(Bar(label, span, COLORS[trainers.index(who) % 6], f"{span.mean:,.1f}"))
    return out


def _interval(value: Any) -> Interval | None:
    one = mapping(value)
    mean, low, high = (number(one.get(key)) for key in ("score", "low", "high"))
    if mean is None:
        return None
    return Interval(
        mean, mean if low is None else low, mean if high is None else high, int(number(one.get("games")) or 0)
    )
