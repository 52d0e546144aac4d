"""The page of one run: which sections it has and what they say."""

from __future__ import annotations

import json
import math
import pathlib
import shlex
from dataclasses import dataclass
from typing import Any

from dqnitro.config import FIELDS
from dqnitro.report import charts
from dqnitro.report import html as h
from dqnitro.report.formatting import duration, game_name, plural, rate, when
from dqnitro.store.read_run import Run, read_run

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
    h.write_page(path, render_run(read_run(run_dir), path))
    return path


@dataclass(frozen=True)
class Film:
    """A video that a server offers in place of the run's own; without an address only the caption is shown."""

    address: str
    caption: str


def render_run(run: Run, path: pathlib.Path, film: Film | None = None, refresh_s: float = 0.0) -> str:
    """The page as it will stand at `path` (a long video is linked relative to it).

    With `refresh_s` it asks its server for a newer one after that many seconds.
    """
    sections = [_curves(run), _speed(run), _fresh_games(run), _evaluations(run), _settings(run), _origin(run)]
    title = f"{game_name(run.env_id)} · {run.recipe} · DQNitro"
    head = _headline(run, _video(run, path) if film is None else _film(film))
    return h.document(title, head, [s for s in sections if s], _footer(run), refresh_s)


def _headline(run: Run, film: h.Html) -> h.Html:
    css, words = STATES.get(run.state, ("done", run.state))
    head = h.Html(
        f'<div class="headline"><p class="kicker">DQNitro run</p><h1>{h.esc(game_name(run.env_id))}</h1>'
        f'<p class="sub"><span class="state {css}">{h.esc(words)}</span> recipe <b>{h.esc(run.recipe)}</b>'
        f" · seed {h.esc(run.config.get('seed', '?'))}</p>{h.facts(_big_numbers(run))}"
        f'<p class="counts">{h.esc(_counts(run))}</p>{_warnings(run)}</div>'
    )
    return h.Html(f'<div class="hero{" with-video" if film else ""}">{head}{film}</div>')


def _film(film: Film) -> h.Html:
    caption = h.Html(f"<figcaption>{h.esc(film.caption)}</figcaption>")
    shown = f'<video controls loop muted autoplay playsinline src="{h.esc(film.address)}"></video>'
    return h.Html(f'<figure class="video">{shown if film.address else ""}{caption}</figure>')


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
    if best := run.best:
        small = f"{best.low:.1f} to {best.high:.1f}, {len(best.scores)} fresh games at step {best.steps:,}"
        out.append(("best evaluation", f"{best.mean:.1f}", small))
        last = run.evaluations[-1]
        small = f"{last.low:.1f} to {last.high:.1f}, {len(last.scores)} fresh games at step {last.steps:,}"
        out.append(("last evaluation", f"{last.mean:.1f}", small))
    if run.wall_s is not None:
        label = "time to solve" if run.state == "solved" else "wall clock"
        small = "" if run.startup_s is None else f"plus {duration(run.startup_s)} start-up"
        out.append((label, duration(run.wall_s), small))
    if run.steps_per_s is not None:
        share = None if charts.asynchronous(run) else run.share.get("learn")
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
        parts.append(plural(run.steps, "step"))
    if run.updates is not None:
        parts.append(plural(run.updates, "update"))
    parts.append(plural(run.games, "game"))
    if run.evaluation and run.mean_score is not None:
        parts.append(f"mean of the last {min(100, run.games)} games {run.mean_score:.2f}")
    if run.started:
        parts.append(f"started {when(run.started)}")
    return " · ".join(parts)


def _warnings(run: Run) -> h.Html:
    said = []
    if run.state == "crashed":
        said.append("The process ended without writing its result; the page shows what it had written until then.")
    if run.state == "diverged":
        said.append("The loss became infinite or NaN. A lower --learning-rate or --grad-clip 10 may help.")
    if run.metrics.damaged_lines:
        n = run.metrics.damaged_lines
        said.append(f"{n:,} damaged {'line' if n == 1 else 'lines'} of metrics.jsonl were ignored.")
    return h.join(*(h.Html(f'<p class="warning">{h.esc(s)}</p>') for s in said))


def _video(run: Run, path: pathlib.Path) -> h.Html:
    if run.video is None:
        return h.Html()
    film = run.summary.get("video")
    score = film.get("score") if isinstance(film, dict) else None
    caption = "One game of the trained agent" + (f", score {score:g}" if isinstance(score, int | float) else "")
    return h.video(run.video, path, caption, EMBED_BYTES)


def _curves(run: Run) -> h.Html:
    learning, loss = charts.learning_curve(run), charts.loss_curve(run)
    epsilon = charts.epsilon_curve(run)
    switch = h.axis_switch(charts.X_AXES) if learning or loss or epsilon else h.Html()
    small = h.join(
        h.figure(loss, "No update has been reported yet: the first comes after first_fill_steps random steps."),
        h.figure(epsilon, "No progress has been reported yet."),
    )
    return h.section(
        "Learning",
        switch,
        h.figure(learning, "No game has ended yet.", "large"),
        h.Html(f'<div class="pair">{small}</div>'),
    )


def _speed(run: Run) -> h.Html:
    small = h.join(
        h.figure(charts.speed_curve(run), "No progress has been reported yet."),
        h.figure(charts.time_shares(run), "The time of the phases has not been reported yet."),
    )
    note = "A step is one decision of the agent. The clock starts at the first step; start-up is counted separately."
    if charts.asynchronous(run):
        note += (
            " The GPU works on its own while the host goes on, so the shares are those of the host: "
            "they do not say how busy the GPU is with playing or learning."
        )
    return h.section("Speed", h.Html(f'<div class="pair">{small}</div>'), note=note)


def _fresh_games(run: Run) -> h.Html:
    chart = charts.evaluation(run)
    if chart is None:
        return h.Html()
    e = run.evaluation
    assert e is not None
    note = (
        f"{len(e['scores'])} games that training never saw: mean {e['mean']:.2f}, 95% interval {e['low']:.2f} to "
        f"{e['high']:.2f}, lowest {min(e['scores']):g}, highest {max(e['scores']):g}."
    )
    return h.section("Score over fresh games", h.figure(chart, "", "flat"), note=note)


def _evaluations(run: Run) -> h.Html:
    """Fresh games during training, point by point."""
    if not run.evaluations:
        return h.Html()
    rows = [
        h.Row(
            (
                h.Cell(f"{e.steps:,}", e.steps),
                h.Cell(duration(e.wall_s), e.wall_s),
                h.Cell(f"{e.mean:.2f}", e.mean),
                f"{e.low:.2f} to {e.high:.2f}",
                f"{min(e.scores):g} to {max(e.scores):g}",
                h.Cell(str(e.truncated), e.truncated),
                h.Cell(duration(e.seconds), e.seconds),
            ),
            e is run.best,
        )
        for e in run.evaluations
    ]
    p = run.evaluations[-1].protocol
    rules = f" Protocol {p.get('name', '?')}: sticky actions {p.get('sticky_actions', '?')}, epsilon "
    note = (
        f"{len(run.evaluations[-1].scores)} fresh games each, in a process of their own while the run went on; the "
        f"best is marked." + (f"{rules}{p.get('epsilon', '?')}, played by {p.get('backend', '?')}." if p else "")
    )
    columns = ("steps", "wall clock", "score", "95% interval", "range", "truncated", "time")
    shown = h.Table(columns, rows, "Evaluations", numeric=(0, 1, 2, 5, 6), wide=(4, 5, 6), css="tried")
    return h.section("Evaluations", h.table(shown), note=note)


def _settings(run: Run) -> h.Html:
    rows = [
        _setting(name, run.config[name])
        for name in (*FIELDS, *sorted(set(run.config) - set(FIELDS)))
        if name in run.config
    ]
    rungs = f" The recipe climbed {', '.join(run.rungs)}." if run.rungs else ""
    changed = sum(r.marked for r in rows)
    note = f"{changed} of {len(rows)} settings differ from the textbook's.{rungs}"
    columns = ("setting", "value", "default", "what it is")
    t = h.Table(columns, rows, "Settings of the run", "filter settings", "only settings that differ", css="settings")
    return h.section("Settings", h.table(t), note=note)


def _setting(name: str, value: Any) -> h.Row:
    field = FIELDS.get(name)
    if field is None:
        return h.Row((h.Cell(name, css="name"), _value(value), "–", "unknown to this version"))
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    if isinstance(default, float) and math.isinf(default):
        default = None  # as Config.to_dict writes it
    changed = value != default
    return h.Row(
        (h.Cell(name, css="name"), _value(value), _value(default), h.Cell(field.metadata["help"], css="help")), changed
    )


def _value(value: Any) -> h.Cell:
    if isinstance(value, bool):
        return h.Cell("yes" if value else "no", css="value")
    if isinstance(value, int | float):
        return h.Cell(f"{value:,}" if isinstance(value, int) else f"{value:g}", value, "value")
    if isinstance(value, list):
        return h.Cell(", ".join(map(str, value)) or "none", css="value")
    return h.Cell("none" if value is None else value if isinstance(value, str) else json.dumps(value), css="value")


def _origin(run: Run) -> h.Html:
    """Everything needed to repeat the run."""
    folder = str(run.path if run.path.name not in ("", "..") else run.path.resolve())
    trust = ["--trust"] if ":" in run.env_id else []  # it names a module to import
    commands = [h.command("repeat", run.command)] if run.command else []
    commands += [
        h.command("resume", shlex.join(["dqnitro", "train", "--resume", folder, *trust])),
        h.command("score", shlex.join(["dqnitro", "play", folder, "--games", "30", *trust])),
    ]
    machine = [h.Row(machine_fact(k, v)) for k, v in run.machine.items()]
    built = [
        h.Row(("commit", h.Cell(run.commit, css="value"))),
        *(h.Row((k, h.Cell(v, css="value"))) for k, v in run.versions.items()),
    ]
    tables = h.join(
        h.table(h.Table(("machine", "value"), machine, "The machine")) if machine else h.Html(),
        h.table(h.Table(("version of", "value"), built, "Commit and versions")),
    )
    note = "Commands that repeat this run, and the machine and versions it ran on."
    return h.section("Repeat", *commands, h.Html(f'<div class="pair">{tables}</div>'), note=note)


def machine_fact(name: str, value: Any) -> tuple[str, str]:
    if name == "memory_gib":
        return "memory", f"{value} GiB"
    known = {"cpu": "CPU", "gpu": "GPU", "os": "system"}
    return known.get(name, name.replace("_", " ")), "none" if value is None else str(value)


def _footer(run: Run) -> h.Html:
    updated = run.summary.get("updated")
    state = f" · state of {when(updated)}" if isinstance(updated, str) else ""
    return h.Html(f"<p>{h.esc(run.path.resolve().name)}{h.esc(state)} · written by <code>dqnitro report</code></p>")
