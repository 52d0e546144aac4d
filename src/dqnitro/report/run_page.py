"""The page of one run: which sections it has and what they say."""

from __future__ import annotations

import json
import math
import pathlib
import shlex
from typing import Any

from dqnitro.config import FIELDS
from dqnitro.report import charts
from dqnitro.report.formatting import duration, game_name, rate, when
from dqnitro.report.html import (
    Cell,
    Html,
    Row,
    Table,
    axis_switch,
    command,
    document,
    esc,
    facts,
    figure,
    join,
    section,
    table,
    video,
    write_page,
)
from dqnitro.report.read_run import Run, read_run

EMBED_BYTES = 8_000_000  # a longer video is linked: browsers get slow with larger data addresses
CONSOLE_FPS = 60

# state -> (colour class, words)
STATES = {
    "solved": ("good", "solved"),
    "steps": ("done", "step limit reached"),
    "minutes": ("done", "time limit reached"),
    "stopped": ("done", "stopped"),
    "running": ("busy", "running"),
    "diverged": ("bad", "diverged"),
    "crashed": ("bad", "crashed"),
}


def write_run_page(run_dir: pathlib.Path, out: pathlib.Path | None = None) -> pathlib.Path:
    """Write RUN/page.html (or `out`) for a run in any state; returns where it is."""
    path = run_dir / "page.html" if out is None else out
    write_page(path, render_run(read_run(run_dir), path))
    return path


def render_run(run: Run, path: pathlib.Path) -> str:
    """The page as it will stand at `path` (a long video is linked relative to it)."""
    sections = [_curves(run), _speed(run), _fresh_games(run), _settings(run), _origin(run)]
    title = f"{game_name(run.env_id)} · {run.recipe} · DQNitro"
    return document(title, _headline(run, path), [s for s in sections if s], _footer(run))


def _headline(run: Run, path: pathlib.Path) -> Html:
    css, words = STATES.get(run.state, ("done", run.state))
    head = Html(
        f'<div class="headline"><p class="kicker">DQNitro run</p><h1>{esc(game_name(run.env_id))}</h1>'
        f'<p class="sub"><span class="state {css}">{esc(words)}</span> recipe <b>{esc(run.recipe)}</b>'
        f" · seed {esc(run.config.get('seed', '?'))}</p>{facts(_big_numbers(run))}"
        f'<p class="counts">{esc(_counts(run))}</p>{_warnings(run)}</div>'
    )
    return Html(f'<div class="hero{" with-video" if run.video else ""}">{head}{_video(run, path)}</div>')


def _big_numbers(run: Run) -> list[tuple[str, str, str]]:
    e, out = run.evaluation, []
    last = "the only game so far" if run.games == 1 else f"mean of the last {min(100, run.games)} games"
    if e:
        small = f"{e['low']:.1f} to {e['high']:.1f}, {len(e['scores'])} fresh games"
        out.append(("score", f"{e['mean']:.1f}", small))
    elif run.mean_score is not None:
        out.append(("score", f"{run.mean_score:.1f}", last))
    else:
        out.append(("score", "–", "no game has ended yet"))
    if run.wall_s is not None:
        label = "time to solve" if run.state == "solved" else "wall clock"
        small = "" if run.startup_s is None else f"start-up {duration(run.startup_s)} apart"
        out.append((label, duration(run.wall_s), small))
    if run.steps_per_s is not None:
        share = run.share.get("learn")
        out.append(
            ("steps a second", rate(run.steps_per_s), "" if share is None else f"{share:.0%} of the time learning")
        )
    # Where a step is one frame, the two numbers are the same.
    if run.frames_per_s is not None and run.frames_per_s != run.steps_per_s:
        times = run.frames_per_s / CONSOLE_FPS
        out.append(
            (
                "console frames a second",
                rate(run.frames_per_s),
                f"{rate(times)}× a real console",
            )
        )
    return out


def _counts(run: Run) -> str:
    parts = []
    if run.steps is not None:
        parts.append(f"{run.steps:,} steps")
    if run.updates is not None:
        parts.append(f"{run.updates:,} updates")
    parts.append(f"{run.games:,} {'game' if run.games == 1 else 'games'}")
    if run.evaluation and run.mean_score is not None:
        parts.append(f"mean of the last {min(100, run.games)} games {run.mean_score:.2f}")
    if run.started:
        parts.append(f"started {when(run.started)}")
    return " · ".join(parts)


def _warnings(run: Run) -> Html:
    said = []
    if run.state == "crashed":
        said.append("The process ended without a last word; what it had written by then is shown.")
    if run.state == "diverged":
        said.append("The loss became infinite or not a number. A lower --learning-rate or --grad-clip 10 may help.")
    if run.metrics.damaged_lines:
        n = run.metrics.damaged_lines
        said.append(f"{n:,} damaged {'line' if n == 1 else 'lines'} of metrics.jsonl left out.")
    return join(*(Html(f'<p class="warning">{esc(s)}</p>') for s in said))


def _video(run: Run, path: pathlib.Path) -> Html:
    if run.video is None:
        return Html()
    facts = run.summary.get("video")
    score = facts.get("score") if isinstance(facts, dict) else None
    caption = "One game of the trained agent" + (f", score {score:g}" if isinstance(score, int | float) else "")
    return video(run.video, path, caption, EMBED_BYTES)


def _curves(run: Run) -> Html:
    learning, loss = charts.learning_curve(run), charts.loss_curve(run)
    epsilon = charts.epsilon_curve(run)
    switch = axis_switch(charts.X_AXES) if learning or loss or epsilon else Html()
    small = join(
        figure(loss, "No update has been reported yet: the first comes after first_fill_steps random steps."),
        figure(epsilon, "No progress has been reported yet."),
    )
    return section(
        "Learning",
        switch,
        figure(learning, "No game has ended yet.", "large"),
        Html(f'<div class="pair">{small}</div>'),
    )


def _speed(run: Run) -> Html:
    small = join(
        figure(charts.speed_curve(run), "No progress has been reported yet."),
        figure(charts.time_shares(run), "The time of the phases has not been reported yet."),
    )
    note = "A step is one decision of the agent. The clock starts at the first step; start-up is counted apart."
    return section("Speed", Html(f'<div class="pair">{small}</div>'), note=note)


def _fresh_games(run: Run) -> Html:
    chart = charts.evaluation(run)
    if chart is None:
        return Html()
    e = run.evaluation
    assert e is not None
    note = (
        f"{len(e['scores'])} games that training never saw: mean {e['mean']:.2f}, 95% interval {e['low']:.2f} to "
        f"{e['high']:.2f}, lowest {min(e['scores']):g}, highest {max(e['scores']):g}."
    )
    return section("Score over fresh games", figure(chart, "", "flat"), note=note)


def _settings(run: Run) -> Html:
    rows = [
        _setting(name, run.config[name])
        for name in (*FIELDS, *sorted(set(run.config) - set(FIELDS)))
        if name in run.config
    ]
    rungs = f" The recipe climbed {', '.join(run.rungs)}." if run.rungs else ""
    changed = sum(r.marked for r in rows)
    note = f"{changed} of {len(rows)} settings differ from the textbook's; they are marked.{rungs}"
    columns = ("setting", "value", "default", "what it is")
    t = Table(columns, rows, "Settings of the run", "filter settings", "only what differs", css="settings")
    return section("Settings", table(t), note=note)


def _setting(name: str, value: Any) -> Row:
    field = FIELDS.get(name)
    if field is None:
        return Row((Cell(name, css="name"), _value(value), "–", "unknown to this version"))
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    if isinstance(default, float) and math.isinf(default):
        default = None  # as Config.to_dict writes it
    changed = value != default
    return Row(
        (Cell(name, css="name"), _value(value), _value(default), Cell(field.metadata["help"], css="help")), changed
    )


def _value(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no", css="value")
    if isinstance(value, int | float):
        return Cell(f"{value:,}" if isinstance(value, int) else f"{value:g}", value, "value")
    if isinstance(value, list):
        return Cell(", ".join(map(str, value)) or "none", css="value")
    return Cell("none" if value is None else value if isinstance(value, str) else json.dumps(value), css="value")


def _origin(run: Run) -> Html:
    """All that is needed to make the same numbers again."""
    folder = str(run.path if run.path.name not in ("", "..") else run.path.resolve())
    commands = [command("repeat", run.command)] if run.command else []
    commands += [
        command("resume", shlex.join(["dqnitro", "train", "--resume", folder])),
        command("score", shlex.join(["dqnitro", "play", folder, "--games", "30"])),
    ]
    machine = [Row(machine_fact(k, v)) for k, v in run.machine.items()]
    built = [
        Row(("commit", Cell(run.commit, css="value"))),
        *(Row((k, Cell(v, css="value"))) for k, v in run.versions.items()),
    ]
    tables = join(
        table(Table(("machine", "value"), machine, "The machine")) if machine else Html(),
        table(Table(("version of", "value"), built, "Commit and versions")),
    )
    note = "How to get these numbers again, and what they came from."
    return section("Repeat", *commands, Html(f'<div class="pair">{tables}</div>'), note=note)


def machine_fact(name: str, value: Any) -> tuple[str, str]:
    if name == "memory_gib":
        return "memory", f"{value} GiB"
    known = {"cpu": "CPU", "gpu": "GPU", "os": "system"}
    return known.get(name, name.replace("_", " ")), "none" if value is None else str(value)


def _footer(run: Run) -> Html:
    updated = run.summary.get("updated")
    state = f" · state of {when(updated)}" if isinstance(updated, str) else ""
    return Html(f"<p>{esc(run.path.resolve().name)}{esc(state)} · written by <code>dqnitro report</code></p>")
