"""Runs and results on one page: the headline, a section for each result, the runs, and their sources."""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import shlex
import statistics
from collections.abc import Sequence
from urllib.parse import quote

from dqnitro.common.parsing import rows, text
from dqnitro.report import charts
from dqnitro.report import html as h
from dqnitro.report.bar_charts import time_stacks
from dqnitro.report.formatting import duration, game_name, plural, rate, when
from dqnitro.report.read_result import Result
from dqnitro.report.run_page import EMBED_BYTES, STATES, machine_fact
from dqnitro.report.sections import GROUPS, SECTIONS
from dqnitro.report.sections.record import facts as record_facts
from dqnitro.report.sections.record import is_of_seeds
from dqnitro.report.sections.record import title as record_title
from dqnitro.report.seed_groups import WHAT_BANDS_ARE, group_runs, learning_curves
from dqnitro.store.read_run import Run

MACHINE_IN_NAME = re.compile(r"-(h200|\d+-cores)(?=-|$)")
SEVERAL = "Speed lab"  # the title of a page about several games


def render_lab(runs: Sequence[Run], results: Sequence[Result], path: pathlib.Path) -> str:
    """The page as it will stand at `path` (videos and pages of runs are linked relative to it)."""
    used: dict[str, int] = {}
    groups: dict[str, list[tuple[str, str, h.Html]]] = {}
    for group, kinds in GROUPS.items():
        mine = [r for kind in kinds for r in results if r.kind == kind]
        mine.sort(key=lambda r: r.kind == "record" and not is_of_seeds(r))  # several seeds first
        parts = [_result(r, results, used) for r in mine]
        # A result that tells of many seeds comes before single runs.
        groups[group] = parts + (_runs(runs, path) if runs and "record" in kinds else [])
    if any(r.kind == "ladder" for r in results):  # what the lab is about
        groups = {"Speed-ups": groups["Speed-ups"], **groups}
    groups["Sources"] = [("repeat", "Machines, versions, files", _origin(runs, results))]
    whole = [part for parts in groups.values() for part in parts]
    links = h.contents({group: [(name, title) for name, title, _ in parts] for group, parts in groups.items()})
    head = h.join(_headline(runs, results, path), links if len(whole) > 2 else h.Html())
    return h.document(
        f"{_title(runs, results)} · DQNitro", head, [part for _, _, part in whole], _footer(runs, results)
    )


def _result(result: Result, results: Sequence[Result], used: dict[str, int]) -> tuple[str, str, h.Html]:
    shown = SECTIONS[result.kind]
    title = shown.title(result)
    title = title[:1].upper() + title[1:]
    alike = [r for r in results if r.kind == result.kind and shown.title(r) == shown.title(result)]
    title += _apart(result, alike) if len(alike) > 1 else ""
    n = used[result.kind] = used.get(result.kind, 0) + 1
    name = result.kind if n == 1 else f"{result.kind}-{n}"
    return name, title, shown.section(result, name, title)


def _apart(result: Result, alike: Sequence[Result]) -> str:
    """What tells results of one title apart: the game, or else the machine, or else the file."""
    if result.game and len({r.game for r in alike}) == len(alike):
        return f": {game_name(result.game)}"
    if len({_place(r) for r in alike} - {""}) == len(alike):
        return f" on {_place(result)}"
    return f": {_human(result.path.stem)}"


def _place(result: Result) -> str:
    """The GPU of its machine, or how many cores it has."""
    cores = result.machine.get("cores")
    gpu = text(result.machine.get("gpu")).split(",")[0]
    return gpu or (plural(cores, "core") if isinstance(cores, int) else "")


def _human(stem: str) -> str:
    """`gpu-h200` as people write it, without the machine at its end."""
    words = MACHINE_IN_NAME.sub("", stem).replace("-", " ").replace("_", " ").split()
    return " ".join(word.upper() if word in ("gpu", "cuda", "h200") else word for word in words)


def _games(runs: Sequence[Run], results: Sequence[Result]) -> list[str]:
    of_results = [game for r in results for game in _games_of(r)]
    return list(dict.fromkeys([*of_results, *(r.env_id for r in runs)]))


def _games_of(result: Result) -> list[str]:
    """The games of its rows, where they name any; `bench console` and `games --check` measure many."""
    named = [text(r.get("game")) for key in ("rows", "games") for r in rows(result.data.get(key))]
    return [game for game in named if game] or [result.game]


def _title(runs: Sequence[Run], results: Sequence[Result]) -> str:
    """The game, if the page is about a single one."""
    if results and all(r.kind == "atari" for r in results):
        return "Atari"
    games = _games(runs, results)
    return game_name(games[0]) if len(games) == 1 and not games[0].endswith(" games") else SEVERAL


def _headline(runs: Sequence[Run], results: Sequence[Result], path: pathlib.Path) -> h.Html:
    machines = _machines(runs, results)
    told = [plural(len(results), "result")] if results else []
    told += [plural(len(runs), "run")] if runs else []
    sub = " · ".join([*(machine_words(m) for m in machines[:2]), *told])
    several = (
        '<p class="warning">These numbers come from different machines: compare numbers only within a section.</p>'
        if len(machines) > 1
        else ""
    )
    title, big = _title(runs, results), h.facts(_big_numbers(runs, results))
    kicker = "DQNitro" if title == SEVERAL else "DQNitro speed lab"
    head = h.Html(
        f'<div class="headline"><p class="kicker">{kicker}</p><h1>{h.esc(title)}</h1>'
        f'<p class="sub">{h.esc(sub)}</p>{big}{several}</div>'
    )
    best = _best_with_video(runs)
    film = h.Html()
    if best is not None and best.video is not None:
        film = h.video(best.video, path, f"One game of the agent trained with {best.recipe}", EMBED_BYTES)
    return h.Html(f'<div class="hero{" with-video" if film else ""}">{head}{film}</div>')


def machine_words(machine: dict) -> str:
    cores = machine.get("cores")
    parts = [str(machine.get("cpu", "unknown CPU"))]
    parts += [plural(cores, "core")] if isinstance(cores, int) else []
    parts += [str(machine["gpu"]).split(",")[0]] if machine.get("gpu") else []
    return ", ".join(parts)


def _big_numbers(runs: Sequence[Run], results: Sequence[Result]) -> list[tuple[str, str, str]]:
    out = [fact for r in results if r.kind == "atari" for fact in SECTIONS["atari"].facts(r)][:4]
    ladder = next((r for r in results if r.kind == "ladder"), None)
    out += SECTIONS["ladder"].facts(ladder) if ladder is not None else []
    records = [r for r in results if r.kind == "record"]
    if len(records) == 1 and not runs and not ladder:
        return []  # its section begins with its own facts
    for record in sorted(records, key=lambda r: not is_of_seeds(r))[:3]:
        fact = next((f for f in record_facts(record) if "time to solve" in f[0] or f[0].startswith("above")), None)
        if fact:
            out.append((fact[0], fact[1], f"{record_title(record)}; {fact[2]}"))
    solved = [r for r in runs if r.state == "solved" and r.wall_s is not None]
    if any(is_of_seeds(r) for r in records):
        return out  # several seeds tell more than single runs
    if len(runs) > 1 and solved and len(group_runs(runs)) == 1:
        out += _of_seeds(runs, [r.wall_s or 0.0 for r in solved])
    elif solved:
        out.append(_best_median(runs))
    elif not runs and not out:
        out = _of_results(results)
    elif runs and not ladder:
        fast = max(runs, key=lambda r: r.steps_per_s or 0.0)
        if fast.steps_per_s:
            out.append(("steps a second", rate(fast.steps_per_s), f"{game_name(fast.env_id)}, recipe {fast.recipe}"))
    return out


def _of_results(results: Sequence[Result]) -> list[tuple[str, str, str]]:
    """A single result has all of its facts, several have the first one of each."""
    told = [SECTIONS[r.kind].facts(r) for r in results]
    if len(told) == 1:
        return told[0]
    firsts = [(facts[0], SECTIONS[r.kind].title(r)) for facts, r in zip(told, results, strict=True) if facts]
    return [(label, value, f"{title}; {about}") for (label, value, about), title in firsts[:4]]


def _best_median(runs: Sequence[Run]) -> tuple[str, str, str]:
    """The group of seeds with the best median, never the luckiest run; one that was not solved counts as endless."""
    medians = []
    for group in group_runs(runs):
        times = [r.wall_s if r.state == "solved" and r.wall_s is not None else math.inf for r in group.runs]
        medians.append((statistics.median(times), len(times), group))
    seconds, n, group = min(medians, key=lambda m: m[0])
    if not math.isfinite(seconds):
        solved = [r for r in runs if r.state == "solved"]
        return "solved", f"{len(solved)} of {len(runs)}", "runs"
    seeds = f"median of {n} seeds" if n > 1 else "one seed"
    return "solved in", duration(seconds), f"{seeds}, {game_name(group.env_id)}, {group.label}"


def _of_seeds(runs: Sequence[Run], seconds: Sequence[float]) -> list[tuple[str, str, str]]:
    """Runs that differ only in their seed: the median, not the luckiest; a run that was not solved counts as slower
    than all others.
    """
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


def _runs(runs: Sequence[Run], path: pathlib.Path) -> list[tuple[str, str, h.Html]]:
    """Learning curves, one chart a game; then the runs in a table and where their time went."""
    out: list[tuple[str, str, h.Html]] = []
    groups = group_runs(runs)
    for i, game in enumerate(dict.fromkeys(g.env_id for g in groups)):
        mine = [g for g in groups if g.env_id == game]
        chart = learning_curves(mine)
        if chart is None:
            continue
        name, title = f"learning-{i + 1}", f"Learning {game_name(game)}"
        several = any(len(g.runs) > 1 for g in mine)
        note = (
            f"Runs that differ only in their seed are one curve. {WHAT_BANDS_ARE} "
            "After a run is solved, its curve keeps its last value."
            if several
            else "One curve per run."
        )
        switch = h.axis_switch(charts.X_AXES, f"{name}-axis")
        out.append((name, title, h.section(title, switch, h.figure(chart, "", "large"), note=note, name=name)))
    labels = {id(r): g.label for g in groups for r in g.runs}
    parts = {
        f"{labels[id(r)]}, {game_name(r.env_id)} s{_seed(r)}": (r.share, r.steps_per_s)
        for r in runs if r.share and not charts.asynchronous(r)
    }  # fmt: skip
    body = h.section(
        "Runs",
        h.table(_run_table(runs, path)),
        h.figure(
            time_stacks("Where the time of a step goes", parts),
            "No run on a CPU reported the time of its phases.",
            "large",
        ),
        *(h.command("repeat", c) for c in dict.fromkeys(r.command for r in runs if r.command)),
        name="runs",
    )
    out.append(("runs", "Runs", body))
    return out


def _seed(run: Run) -> str:
    return str(run.config.get("seed", "?"))


def _run_table(runs: Sequence[Run], path: pathlib.Path) -> h.Table:
    shown = []
    for r in runs:
        css, words = STATES.get(r.state, ("done", r.state))
        score = r.evaluation["mean"] if r.evaluation else r.mean_score
        shown.append(
            h.Row(
                (
                    h.Cell(_run_link(r, path), css="rung"),
                    game_name(r.env_id),
                    r.recipe,
                    h.Cell(_seed(r), r.config.get("seed") if isinstance(r.config.get("seed"), int) else None),
                    h.Cell(h.Html(f'<span class="state {css}">{h.esc(words)}</span>'), words),
                    h.Cell("–" if score is None else f"{score:.1f}", score),
                    h.Cell("–" if r.wall_s is None else duration(r.wall_s), r.wall_s),
                    h.Cell("–" if r.steps is None else f"{r.steps:,}", r.steps),
                    h.Cell("–" if r.steps_per_s is None else rate(r.steps_per_s), r.steps_per_s),
                )
            )
        )
    columns = ("run", "game", "recipe", "seed", "state", "score", "wall clock", "steps", "steps a second")
    return h.Table(columns, shown, "Runs", numeric=(3, 5, 6, 7, 8), wide=(1, 2, 3, 7, 8), css="runs")


def _run_link(run: Run, path: pathlib.Path) -> h.Html:
    """The run's own page has its settings and its losses."""
    name, page = run.path.resolve().name, run.path / "page.html"
    if not page.is_file():
        return h.esc(name)
    link = quote(pathlib.Path(os.path.relpath(page, path.parent)).as_posix())
    return h.Html(f'<a href="{h.esc(link)}">{h.esc(name)}</a>')


def _machines(runs: Sequence[Run], results: Sequence[Result]) -> list[dict]:
    found = [x.machine for x in (*results, *runs) if x.machine]
    return list({json.dumps(m, sort_keys=True): m for m in found}.values())


def _origin(runs: Sequence[Run], results: Sequence[Result]) -> h.Html:
    """Machine, commit and date of every number, and the command that writes this page again."""
    sources = [
        h.Row(
            (
                h.Cell(str(x.path), css="name"),
                what,
                when(date)[:16] or "–",
                h.Cell(x.commit, css="value"),
                machine_words(x.machine),
            )
        )
        for x, what, date in [
            *((r, r.what, r.date) for r in results),
            *((r, "run", r.started) for r in runs),
        ]
    ]
    machines = [
        h.table(h.Table(("machine", "value"), [h.Row(machine_fact(k, v)) for k, v in m.items()], "The machine"))
        for m in _machines(runs, results)
    ]
    versions: dict[str, set[str]] = {}
    for x in (*results, *runs):
        for k, v in x.versions.items():
            versions.setdefault(k, set()).add(v)
    built = [h.Row((k, h.Cell(", ".join(sorted(v)), css="value"))) for k, v in versions.items()]
    tables = h.join(*machines, h.table(h.Table(("version of", "value"), built, "Versions")) if built else h.Html())
    again = h.command("repeat", shlex.join(["dqnitro", "report", *(str(x.path) for x in (*results, *runs))]))
    columns = ("file", "what", "date", "commit", "machine")
    note = "The machine, commit and versions behind every number above, as far as its file names them."
    return h.section(
        "Sources",
        h.table(h.Table(columns, sources, "Sources", wide=(2, 4))),
        h.Html(f'<div class="pair">{tables}</div>'),
        again,
        note=note,
        name="repeat",
    )


def _footer(runs: Sequence[Run], results: Sequence[Result]) -> h.Html:
    told = " and ".join(
        words
        for n, words in ((len(results), plural(len(results), "result")), (len(runs), plural(len(runs), "run")))
        if n
    )
    return h.Html(f"<p>{h.esc(told)} · written by <code>dqnitro report</code></p>")
