"""Runs and results on one page: the headline, a section for each result, the runs, and what everything came from."""

from __future__ import annotations

import json
import math
import os
import pathlib
import shlex
import statistics
from collections.abc import Callable, Sequence
from urllib.parse import quote

from dqnitro.report import charts, lab_sections, more_sections
from dqnitro.report.bar_charts import time_stacks
from dqnitro.report.formatting import bounds, duration, game_name, plural, rate, times, when
from dqnitro.report.html import (
    Cell,
    Html,
    Row,
    Table,
    axis_switch,
    command,
    contents,
    document,
    esc,
    facts,
    figure,
    join,
    section,
    table,
    video,
)
from dqnitro.report.ladder_section import SAME_LEARNING, ladder_section, rungs_of, top
from dqnitro.report.read_result import Result
from dqnitro.report.read_run import Run
from dqnitro.report.run_page import EMBED_BYTES, STATES, machine_fact
from dqnitro.report.seed_groups import WHAT_BANDS_ARE, group_runs, learning_curves

SEVERAL = "Speed lab"  # the title of a page about several games

Section = Callable[[Result, str, str], Html]

# kind -> (title, section), in the order of the page; the title of a benchmark is its own.
SECTIONS: dict[str, tuple[str, Section]] = {
    "ladder": ("The ladder", ladder_section),
    "sweep": ("Sweep", lab_sections.sweep),
    "ablate": ("Without one rung", lab_sections.ablate),
    "cost": ("What a step costs", lab_sections.cost),
    "tune": ("Tuned for this machine", lab_sections.tune),
    "compare": ("Two runs compared", more_sections.compare),
    "profile": ("Profile", more_sections.profile),
    "bench": ("Benchmark", lab_sections.bench),
    "console": ("The console beside other environments", lab_sections.console),
    "exact": ("The console beside ale-py", more_sections.exact),
    "trial": ("Settings tried side by side", more_sections.trial),
}
BENCH_TITLES = {
    "learn": "Learners at the textbook settings", "device": "Forward pass by device", "compile": "Compiling the network",
    "amp": "Mixed precision", "collect": "Threads or processes", "replay": "Replay memories", "resize": "Resizing frames",
    "envs": "Vector environments", "copies": "Copies to the device", "console": "The console beside other environments",
    "gpu": "The console and the learner on a GPU",
}  # fmt: skip


def render_lab(runs: Sequence[Run], results: Sequence[Result], path: pathlib.Path) -> str:
    """The page as it will stand at `path` (videos and pages of runs are linked relative to it)."""
    parts: list[tuple[str, str, Html]] = []
    ladders = [r for r in results if r.kind == "ladder"]
    others = [r for r in results if r.kind != "ladder"]
    used: dict[str, int] = {}
    for result in ladders:
        parts.append(_result(result, results, used))
    if runs:
        parts += _runs(runs, path)
    for kind in SECTIONS:
        parts += [_result(r, results, used) for r in others if r.kind == kind]
    parts.append(("repeat", "Where it came from", _origin(runs, results)))
    links = contents([(name, title) for name, title, _ in parts])
    head = join(_headline(runs, results, path), links if len(parts) > 2 else Html())
    return document(f"{_title(runs, results)} · DQNitro", head, [part for _, _, part in parts], _footer(runs, results))


def _result(result: Result, results: Sequence[Result], used: dict[str, int]) -> tuple[str, str, Html]:
    title, make = SECTIONS[result.kind]
    if result.kind == "bench":
        title = BENCH_TITLES.get(result.what) or str(result.data.get("title") or f"Benchmark {result.what}")
    if result.kind == "sweep":
        title = f"Sweep over {result.data.get('setting', 'a setting')}"
    if result.kind == "ablate" and result.data.get("recipe"):
        title = f"{result.data['recipe']} without one rung"
    # Two results of one kind are told apart by the game, or else by the file.
    alike = [r for r in results if (r.kind, r.what) == (result.kind, result.what)]
    if len(alike) > 1:
        games = {r.game for r in alike}
        title += f": {game_name(result.game) if len(games) == len(alike) and result.game else result.path.stem}"
    n = used[result.kind] = used.get(result.kind, 0) + 1
    name = result.kind if n == 1 else f"{result.kind}-{n}"
    return name, title, make(result, name, title)


def _games(runs: Sequence[Run], results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys([*(r.game for r in results), *(r.env_id for r in runs)]))


def _title(runs: Sequence[Run], results: Sequence[Result]) -> str:
    """The game, where all is about one; a ladder decides what a page is about."""
    games = [r.game for r in results if r.kind == "ladder" and r.game][:1] or _games(runs, results)
    return game_name(games[0]) if len(games) == 1 else SEVERAL


def _headline(runs: Sequence[Run], results: Sequence[Result], path: pathlib.Path) -> Html:
    machines = _machines(runs, results)
    told = [plural(len(results), "result")] if results else []
    told += [plural(len(runs), "run")] if runs else []
    sub = " · ".join([*(machine_words(m) for m in machines[:2]), *told])
    several = (
        '<p class="warning">These numbers come from different machines; compare only what stands in one section.</p>'
        if len(machines) > 1
        else ""
    )
    title, big = _title(runs, results), facts(_big_numbers(runs, results))
    kicker = "DQNitro" if title == SEVERAL else "DQNitro speed lab"
    head = Html(
        f'<div class="headline"><p class="kicker">{kicker}</p><h1>{esc(title)}</h1>'
        f'<p class="sub">{esc(sub)}</p>{big}{several}</div>'
    )
    best = _best_with_video(runs)
    film = Html()
    if best is not None and best.video is not None:
        film = video(best.video, path, f"One game of the agent trained with {best.recipe}", EMBED_BYTES)
    return Html(f'<div class="hero{" with-video" if film else ""}">{head}{film}</div>')


def machine_words(machine: dict) -> str:
    cores = machine.get("cores")
    parts = [str(machine.get("cpu", "unknown CPU"))]
    parts += [plural(cores, "core")] if isinstance(cores, int) else []
    parts += [str(machine["gpu"]).split(",")[0]] if machine.get("gpu") else []
    return ", ".join(parts)


def _big_numbers(runs: Sequence[Run], results: Sequence[Result]) -> list[tuple[str, str, str]]:
    out = []
    ladder = next((r for r in results if r.kind == "ladder"), None)
    if ladder is not None:
        rungs = rungs_of(ladder)
        base = next((r for r in rungs if r.name == "baseline" and r.fps), None)
        if base is not None and base.fps:
            out.append(("textbook DQN", rate(base.fps.mean), f"steps a second {bounds(base.fps)}"))
        for label, promises in (("same learning", SAME_LEARNING), ("all rungs", (*SAME_LEARNING, "learning"))):
            best = top(rungs, promises)
            if best is not None and best.total is not None:
                out.append((label, times(best.total.mean), f"{bounds(best.total, times)} up to {best.name}".strip()))
    solved = [r for r in runs if r.state == "solved" and r.wall_s is not None]
    if len(runs) > 1 and solved and len(group_runs(runs)) == 1:
        out += _of_seeds(runs, [r.wall_s or 0.0 for r in solved])
    elif solved:
        quick = min(solved, key=lambda r: r.wall_s or 0.0)
        out.append(("solved in", duration(quick.wall_s or 0.0), f"{game_name(quick.env_id)}, recipe {quick.recipe}"))
    elif runs and not ladder:
        fast = max(runs, key=lambda r: r.steps_per_s or 0.0)
        if fast.steps_per_s:
            out.append(("steps a second", rate(fast.steps_per_s), f"{game_name(fast.env_id)}, recipe {fast.recipe}"))
    return out


def _of_seeds(runs: Sequence[Run], seconds: Sequence[float]) -> list[tuple[str, str, str]]:
    """Of seeds that differ in nothing else the median counts, never the luckiest; those without an end are later than all others."""
    whole = sorted(seconds) + [math.inf] * (len(runs) - len(seconds))
    median = statistics.median(whole)
    spread = f"{duration(min(seconds))} to {duration(max(seconds))}"
    said = [("solved", f"{len(seconds)} of {len(runs)}", "seeds")]
    if math.isfinite(median):
        said.append(
            (
                "median time to solve",
                duration(median),
                f"{spread}, {game_name(runs[0].env_id)}, recipe {runs[0].recipe}",
            )
        )
    return said


def _best_with_video(runs: Sequence[Run]) -> Run | None:
    filmed = [r for r in runs if r.video is not None]
    return max(filmed, key=lambda r: (r.state == "solved", r.mean_score or float("-inf")), default=None)


def _runs(runs: Sequence[Run], path: pathlib.Path) -> list[tuple[str, str, Html]]:
    """Learning curves, one chart a game; then the runs in a table and where their time went."""
    out: list[tuple[str, str, Html]] = []
    groups = group_runs(runs)
    for i, game in enumerate(dict.fromkeys(g.env_id for g in groups)):
        mine = [g for g in groups if g.env_id == game]
        chart = learning_curves(mine)
        if chart is None:
            continue
        name, title = f"learning-{i + 1}", f"Learning {game_name(game)}"
        several = any(len(g.runs) > 1 for g in mine)
        note = (
            f"Runs that differ only in their seed are one curve. {WHAT_BANDS_ARE} A run that was solved keeps its last value."
            if several
            else "One run a curve."
        )
        switch = axis_switch(charts.X_AXES, f"{name}-axis")
        out.append((name, title, section(title, switch, figure(chart, "", "large"), note=note, name=name)))
    labels = {id(r): g.label for g in groups for r in g.runs}
    parts = {f"{labels[id(r)]}, {game_name(r.env_id)} s{_seed(r)}": (r.share, r.steps_per_s) for r in runs if r.share}
    body = section(
        "Runs",
        table(_run_table(runs, path)),
        figure(time_stacks("Where the time of a step goes", parts), "No run reported the time of its phases.", "large"),
        *(command("repeat", c) for c in dict.fromkeys(r.command for r in runs if r.command)),
        name="runs",
    )
    out.append(("runs", "Runs", body))
    return out


def _seed(run: Run) -> str:
    return str(run.config.get("seed", "?"))


def _run_table(runs: Sequence[Run], path: pathlib.Path) -> Table:
    shown = []
    for r in runs:
        css, words = STATES.get(r.state, ("done", r.state))
        score = r.evaluation["mean"] if r.evaluation else r.mean_score
        shown.append(
            Row(
                (
                    Cell(_run_link(r, path), css="rung"),
                    game_name(r.env_id),
                    r.recipe,
                    Cell(_seed(r), r.config.get("seed") if isinstance(r.config.get("seed"), int) else None),
                    Cell(Html(f'<span class="state {css}">{esc(words)}</span>'), words),
                    Cell("–" if score is None else f"{score:.1f}", score),
                    Cell("–" if r.wall_s is None else duration(r.wall_s), r.wall_s),
                    Cell("–" if r.steps is None else f"{r.steps:,}", r.steps),
                    Cell("–" if r.steps_per_s is None else rate(r.steps_per_s), r.steps_per_s),
                )
            )
        )
    columns = ("run", "game", "recipe", "seed", "state", "score", "wall clock", "steps", "steps a second")
    return Table(columns, shown, "Runs", numeric=(3, 5, 6, 7, 8), wide=(1, 2, 3, 7, 8), css="runs")


def _run_link(run: Run, path: pathlib.Path) -> Html:
    """The run's own page has its settings and its losses."""
    name, page = run.path.resolve().name, run.path / "page.html"
    if not page.is_file():
        return esc(name)
    link = quote(pathlib.Path(os.path.relpath(page, path.parent)).as_posix())
    return Html(f'<a href="{esc(link)}">{esc(name)}</a>')


def _machines(runs: Sequence[Run], results: Sequence[Result]) -> list[dict]:
    found = [x.machine for x in (*results, *runs) if x.machine]
    return list({json.dumps(m, sort_keys=True): m for m in found}.values())


def _origin(runs: Sequence[Run], results: Sequence[Result]) -> Html:
    """Machine, commit and date of every number, and the command that writes this page again."""
    sources = [
        Row(
            (
                Cell(str(x.path), css="name"),
                what,
                when(date)[:16] or "–",
                Cell(x.commit, css="value"),
                machine_words(x.machine),
            )
        )
        for x, what, date in [
            *((r, r.what, r.date) for r in results),
            *((r, "run", r.started) for r in runs),
        ]
    ]
    machines = [
        table(Table(("machine", "value"), [Row(machine_fact(k, v)) for k, v in m.items()], "The machine"))
        for m in _machines(runs, results)
    ]
    versions: dict[str, set[str]] = {}
    for x in (*results, *runs):
        for k, v in x.versions.items():
            versions.setdefault(k, set()).add(v)
    built = [Row((k, Cell(", ".join(sorted(v)), css="value"))) for k, v in versions.items()]
    tables = join(*machines, table(Table(("version of", "value"), built, "Versions")) if built else Html())
    again = command("again", shlex.join(["dqnitro", "report", *(str(x.path) for x in (*results, *runs))]))
    columns = ("file", "what", "date", "commit", "machine")
    note = "What every number above was measured with, as far as its file says."
    return section(
        "Where it came from",
        table(Table(columns, sources, "Sources", wide=(2, 4))),
        Html(f'<div class="pair">{tables}</div>'),
        again,
        note=note,
        name="repeat",
    )


def _footer(runs: Sequence[Run], results: Sequence[Result]) -> Html:
    told = " and ".join(
        words
        for n, words in ((len(results), plural(len(results), "result")), (len(runs), plural(len(runs), "run")))
        if n
    )
    return Html(f"<p>{esc(told)} · written by <code>dqnitro report</code></p>")
