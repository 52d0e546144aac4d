"""A record: several seeds of one game, or several games with one seed each, trained to the end and scored in ale-py."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from dqnitro.common.parsing import interval, items, mapping, number, rows, text
from dqnitro.published import agents
from dqnitro.report import html as h
from dqnitro.report.charts import X_AXES, Chart
from dqnitro.report.formatting import duration, game_name, plural
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.seed_groups import WHAT_BANDS_ARE, Line, median_curves
from dqnitro.report.table_cells import interval_cell, number_cell

SCORED = {"in_ale": "median in ale-py", "fresh": "median of fresh games"}


def title(result: Result) -> str:
    if told := text(result.data.get("title")):
        return told
    gpu = text(result.machine.get("gpu")).split(",")[0]
    cores = number(result.machine.get("cores"))
    where = gpu or (plural(int(cores), "core") if cores else "one machine")
    return f"{game_name(result.game)} on {where}: {plural(len(_runs(result)), 'seed')}"


def section(result: Result, name: str, heading: str) -> h.Html:
    """Headline facts, curves over wall clock and steps, a table of all runs, the commands."""
    runs = _runs(result)
    charts = _seed_chart(result, runs) if _of_seeds(runs) else _game_charts(result, runs)
    shown = [c for c in charts if c]
    grid = h.join(*(h.figure(c, "", "large" if len(shown) == 1 else "small") for c in shown))
    return h.section(
        heading,
        h.facts(facts(result)),
        h.axis_switch(X_AXES, f"{name}-axis") if shown else h.Html(),
        (grid if len(shown) == 1 else h.Html(f'<div class="pair grid-of-games">{grid}</div>'))
        if shown
        else h.figure(None, "No curve is stored."),
        h.table(_seed_table(runs) if _of_seeds(runs) else _game_table(runs)),
        _beside(result, runs) if _of_seeds(runs) else h.Html(),
        h.paragraph(text(result.data.get("note")), "note"),
        *_commands(result, runs),
        note=WHAT_BANDS_ARE if shown and _of_seeds(runs) and len(runs) > 1 else "",
        name=name,
    )


def facts(result: Result) -> list[h.Fact]:
    """The headline: medians over seeds with their range, or how many games are above the published scores."""
    runs = _runs(result)
    if _of_seeds(runs):
        return _seed_facts(runs)
    out: list[h.Fact] = [("games", str(len(runs)), "one seed each" if len(runs) > 1 else "one seed")]
    for other in _published(runs):
        pairs = [(_score(r), _published_mean(r, other)) for r in runs]
        known = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None]
        above = sum(mine > theirs for mine, theirs in known)
        out.append((f"above published {other}", f"{above} of {len(known)}", "games, at as many frames, while training"))
    normal = [v for r in runs if (v := number(r.get("human_normalised_percent"))) is not None]
    if normal:
        out.append(
            ("median human-normalised", f"{statistics.median(normal):.0f}%", f"of {plural(len(normal), 'game')}")
        )
    frames = [v for r in runs if (v := number(r.get("frames"))) is not None]
    seconds = [v for r in runs if (v := number(r.get("wall_s"))) is not None]
    if frames and seconds:
        out.append(("frames a game", f"{statistics.median(frames) / 1e6:.1f} million", f"in {duration(max(seconds))}"))
    return out


def _seed_facts(runs: Sequence[dict[str, Any]]) -> list[h.Fact]:
    solved = [r for r in runs if r.get("ended") == "solved"]
    out: list[h.Fact] = [("solved", f"{len(solved)} of {len(runs)}", "seeds")]
    for label, key, say in (
        ("median time to solve", "wall_s", duration),
        ("median steps to solve", "steps", lambda v: f"{v:,.0f}"),
    ):
        known = sorted(v for r in solved if (v := number(r.get(key))) is not None)
        # A seed that was not solved counts as slower than all others.
        whole = known + [math.inf] * (len(runs) - len(known))
        if known and math.isfinite(statistics.median(whole)):
            out.append((label, say(statistics.median(whole)), _range(known, say)))
    warm = [v for r in runs if not r.get("first_on_the_machine") and (v := number(r.get("prompt_to_prompt_s")))]
    if warm:
        cold = [v for r in runs if r.get("first_on_the_machine") and (v := number(r.get("prompt_to_prompt_s")))]
        first = f"; {duration(max(cold))} the first time on a machine" if cold else ""
        out.append(("from prompt to prompt", duration(statistics.median(warm)), _range(warm, duration) + first))
    ale = [i.mean for r in runs if (i := interval(r.get("in_ale")))]
    if ale:
        games = {number(mapping(r.get("in_ale")).get("games")) for r in runs} - {None}
        each = f", {games.pop():,.0f} games each" if len(games) == 1 else ""
        out.append(
            ("median score in ale-py", f"{statistics.median(ale):.1f}", _range(ale, lambda v: f"{v:.1f}") + each)
        )
    speed = [v for r in runs if (v := number(r.get("steps_per_s"))) is not None]
    if speed:
        out.append(("steps a second", f"{statistics.median(speed):,.0f}", "median"))
    return out


def _range(values: Sequence[float], say: Any) -> str:
    if len(values) == 1:
        return "one seed"
    return f"{say(min(values))} to {say(max(values))} over {len(values)} seeds"


def is_of_seeds(result: Result) -> bool:
    """Whether a record is about several seeds of one game."""
    return _of_seeds(_runs(result))


def _runs(result: Result) -> list[dict[str, Any]]:
    return rows(result.data.get("runs"))


def _of_seeds(runs: Sequence[dict[str, Any]]) -> bool:
    """Runs of one game that differ in their seed, rather than runs of several games."""
    return all("seed" in r for r in runs)


def _score(run: dict[str, Any]) -> float | None:
    training = number(run.get("training_mean_of_last_100_games"))
    return number(run.get("mean_score")) if training is None else training


def _published(runs: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(k for r in runs for k in mapping(r.get("published_at_the_same_frames"))))


def _published_mean(run: dict[str, Any], name: str) -> float | None:
    return number(mapping(mapping(run.get("published_at_the_same_frames")).get(name)).get("mean"))


def _line(result: Result, run: dict[str, Any]) -> dict[str, Line] | None:
    """Score over wall clock and over steps; None if the file has no such curve."""
    raw = items(mapping(result.data.get("curve")).get(text(run.get("name"))))
    walls = items(run.get("wall_s_of_curve"))
    points = [
        (w, p[0], p[2]) for w, p in zip(walls, raw, strict=False)
        if isinstance(p, list) and len(p) == 3 and all(number(v) is not None for v in (w, *p))
    ]  # fmt: skip
    if len(points) < 2:
        return None
    scores = [s for _, _, s in points]
    return {"wall_s": ([w for w, _, _ in points], scores), "steps": ([s for _, s, _ in points], scores)}


def _seed_chart(result: Result, runs: Sequence[dict[str, Any]]) -> list[Chart | None]:
    pairs = [(line, r.get("ended") == "solved") for r in runs if (line := _line(result, r))]
    bars = {b for r in runs if (b := number(mapping(r.get("config")).get("stop_at_score"))) is not None}
    marks = [{"y": b, "label": f"solved at {b:g}"} for b in sorted(bars)]
    label = game_name(result.game)
    return [
        median_curves(
            "Mean score of the last 100 training games", {label: [p for p, _ in pairs]}, {label: [s for _, s in pairs]},
            marks=marks, y="points",
        )
    ]  # fmt: skip


def _game_charts(result: Result, runs: Sequence[dict[str, Any]]) -> list[Chart | None]:
    """One small chart a game: their scores have nothing in common."""
    out: list[Chart | None] = []
    for r in runs:
        line = _line(result, r)
        if line is None:
            continue
        marks = [
            {"y": v, "label": f"{other}, published: {v:,.0f}"}
            for other in _published([r])
            if (v := _published_mean(r, other)) is not None
        ]
        name = game_name(text(r.get("name")))
        out.append(median_curves(name, {"mean of the last 100 training games": [line]}, marks=marks, y="points"))
    return out


def _seed_table(runs: Sequence[dict[str, Any]]) -> h.Table:
    """A row for each seed; columns that no seed has an entry in are left out."""
    lines = []
    for r in runs:
        solved, wall = r.get("ended") == "solved", number(r.get("wall_s"))
        lines.append((
            h.Cell(str(r.get("seed", "?")), number(r.get("seed")), "rung"),
            h.Cell("–" if wall is None else duration(wall) + ("" if solved else " (not solved)"), wall),
            number_cell(number(r.get("startup_s")), duration),
            number_cell(number(r.get("prompt_to_prompt_s")), duration),
            number_cell(number(r.get("steps")), lambda v: f"{v:,.0f}"),
            number_cell(number(r.get("games")), lambda v: f"{v:,.0f}"),
            number_cell(_score(r), lambda v: f"{v:.2f}"),
            _ale_cell(r),
            _scored_cell(r, "fresh", len(items(mapping(r.get("fresh")).get("scores")))),
            number_cell(number(r.get("steps_per_s")), lambda v: f"{v:,.0f}"),
        ))  # fmt: skip
    columns = (
        "seed", "solved in", "start-up", "prompt to prompt", "steps", "games", "last 100 games", "in ale-py",
        "fresh games", "steps/s",
    )  # fmt: skip
    kept = [k for k in range(len(columns)) if k < 2 or any(line[k].sort is not None for line in lines)]
    told = [columns[k] for k in kept]
    return h.Table(
        told, [h.Row([line[k] for k in kept]) for line in lines], "Seeds", numeric=tuple(range(1, len(told))),
        wide=[k for k, name in enumerate(told) if name in ("start-up", "games", "steps/s")],
    )  # fmt: skip


def _beside(result: Result, runs: Sequence[dict[str, Any]]) -> h.Html:
    """What others published about the game, each by rules of its own."""
    game = result.game
    published = [
        (agent.name, float(millions), sum(seeds) / len(seeds), number(agent.protocol.get("sticky_actions")))
        for agent in agents().values() for millions in sorted({min(agent.scores), max(agent.scores)})
        if (seeds := agent.scores[millions].get(game))
    ]  # fmt: skip
    if not published:
        return h.Html()
    config = mapping(runs[0].get("config")) if runs else {}
    frames = [v * (number(config.get("frame_skip")) or 4) / 1e6 for r in runs if (v := number(r.get("steps")))]
    scored = [(key, found.mean) for r in runs for key in SCORED if (found := interval(r.get(key)))]
    if frames and scored:
        sticky = number(config.get("sticky_actions"))
        middle = statistics.median(v for key, v in scored if key == scored[0][0])
        published.insert(0, (f"here, {SCORED[scored[0][0]]}", statistics.median(frames), middle, sticky))
    lines = [
        h.Row((
            h.Cell(name, css="rung"), number_cell(millions, lambda v: f"{v:.1f}".removesuffix(".0")),
            number_cell(score, _points), number_cell(sticky, lambda v: f"{v:g}"),
        ), marked=name.startswith("here"))
        for name, millions, score, sticky in published
    ]  # fmt: skip
    columns = ("agent", "million frames", "score", "sticky actions")
    return common.folded(
        h.Table(columns, lines, "Published scores", numeric=(1, 2, 3), css="tried"),
        "Published scores, each by its own rules",
    )


def _game_table(runs: Sequence[dict[str, Any]]) -> h.Table:
    published = _published(runs)
    normal = any(number(r.get("human_normalised_percent")) is not None for r in runs)
    ale = any(interval(r.get("in_ale")) for r in runs)
    lines = []
    for r in runs:
        cells: list[Any] = [
            h.Cell(game_name(text(r.get("name"))), css="rung"),
            number_cell(number(r.get("frames")), lambda v: f"{v / 1e6:.1f}"),
            number_cell(number(r.get("wall_s")), duration),
            number_cell(_score(r), _points),
        ]
        cells += [_ale_cell(r)] if ale else []
        cells += [number_cell(_published_mean(r, p), _points) for p in published]
        cells += [number_cell(number(r.get("human_normalised_percent")), lambda v: f"{v:.0f}%")] if normal else []
        lines.append(h.Row(cells))
    columns = ["game", "million frames", "wall clock", "last 100 games", *(["100 games in ale-py"] if ale else [])]
    columns += [f"{p}, published" for p in published] + (["human-normalised"] if normal else [])
    return h.Table(columns, lines, "Games", numeric=tuple(range(1, len(columns))), wide=(2,), css="record")


def _points(v: float) -> str:
    return f"{v:,.0f}" if abs(v) >= 100 else f"{v:.1f}"


def _ale_cell(run: dict[str, Any]) -> h.Cell:
    return _scored_cell(run, "in_ale", number(mapping(run.get("in_ale")).get("games")))


def _scored_cell(run: dict[str, Any], key: str, games: float | None) -> h.Cell:
    found = interval(run.get(key))
    return interval_cell(found._replace(n=int(games or 2)) if found else None, _points)


def _commands(result: Result, runs: Sequence[dict[str, Any]]) -> list[h.Html]:
    """One command for each run: with its game or its seed in place of GAME and N."""
    base, _ = common.split_command(result.command)
    if not base:
        return [common.repeat(result)]
    out = []
    for r in runs:
        one = (
            base.replace(" --run-dir DIR", "")
            .replace("GAME", text(r.get("name")))
            .replace("--seed N", f"--seed {r.get('seed', 1)}")
        )
        label = f"seed {r['seed']}" if "seed" in r else game_name(text(r.get("name")))
        out.append(h.command(label, one))
    return [*dict.fromkeys(out), h.paragraph(f"As it was run: {result.command}", "note")]
