"""Reads the folder of a run as plain data, whatever state the run is in; imports nothing heavy."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import pathlib
from dataclasses import dataclass, field
from typing import Any

from dqnitro.common.files import is_locked, seal_holds
from dqnitro.common.parsing import items, mapping, number, read_object, shares
from dqnitro.errors import CheckpointError
from dqnitro.store.evaluations import Evaluation, best_of, read_all

Columns = dict[str, list[float]]  # name -> values, all of one length; NaN where a line had no number

# Columns kept per event of metrics.jsonl. A line without `wall_s` and `steps` cannot be drawn and counts as damaged.
EVENTS: dict[str, tuple[str, ...]] = {
    "game": ("wall_s", "steps", "score", "avg_reward", "game_steps"),
    "loss": ("wall_s", "steps", "updates", "loss", "avg_loss"),
    "progress": (
        "wall_s", "steps", "updates", "games", "epsilon", "steps_per_s", "frames_per_s", "updates_per_s", "mean_score",
    ),
}  # fmt: skip


@dataclass
class Metrics:
    """metrics.jsonl by column."""

    game: Columns
    loss: Columns
    progress: Columns
    share: dict[str, float]  # of the time, by phase, over all progress lines
    damaged_lines: int = 0


@dataclass(frozen=True)
class Run:
    """What is known of a run. Numbers that are not known yet are None."""

    path: pathlib.Path
    recipe: str
    rungs: list[str]
    config: dict[str, Any]
    started: str
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str
    command: str
    state: str  # solved, steps, minutes, stopped, running, diverged, crashed
    summary: dict[str, Any]
    metrics: Metrics
    video: pathlib.Path | None
    wall_s: float | None
    startup_s: float | None
    steps: int | None
    updates: int | None
    games: int
    mean_score: float | None  # of the last 100 games
    steps_per_s: float | None
    frames_per_s: float | None
    share: dict[str, float]
    evaluations: list[Evaluation] = field(default_factory=list)  # fresh games at fixed points of the run

    @property
    def env_id(self) -> str:
        return str(self.config.get("env_id", "unknown game"))

    @property
    def bar(self) -> float | None:
        """The score that counts as solved, if the run has one."""
        return number(self.config.get("stop_at_score"))

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """Scores of fresh games with mean and interval, if they were played."""
        e = self.summary.get("evaluation")
        if not isinstance(e, dict) or not isinstance(e.get("scores"), list):
            return None
        scores = [s for x in e["scores"] if (s := number(x)) is not None]
        mean, low, high = (number(e.get(k)) for k in ("mean", "low", "high"))
        if not scores or mean is None or low is None or high is None:
            return None
        return {"scores": scores, "mean": mean, "low": low, "high": high}

    @property
    def best(self) -> Evaluation | None:
        """The best of the evaluations during training."""
        return best_of(self.evaluations)

    def to_dict(self) -> dict[str, Any]:
        """The headline facts, for `--json`."""
        left_out = ("metrics", "summary", "config", "machine", "versions", "path", "video", "evaluations")
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}
        facts |= {"evaluation": self.evaluation, "best": None if self.best is None else self.best.facts()}
        return {"run": str(self.path), "env_id": self.env_id, **facts}


def run_folders(path: pathlib.Path) -> list[pathlib.Path]:
    """The runs in a folder of several seeds, in the order of their seeds; for any other path, the path itself."""
    if not (path / "seeds.json").is_file():
        return [path]
    runs = [p.parent for p in path.glob("s*/config.json")]
    return sorted(runs, key=lambda p: (len(p.name), p.name))


def read_run(path: pathlib.Path) -> Run:
    """Read a run's folder. Only a folder without a config is an error; missing or damaged files cost their facts."""
    video = path / "game.mp4"
    summary = read_object(path / "summary.json")
    run = make_run(
        path, _read_head(path), summary if seal_holds(summary) else {}, read_metrics(path / "metrics.jsonl"),
        video if video.is_file() else None,
    )  # fmt: skip
    return dataclasses.replace(run, evaluations=read_all(path))


def make_run(
    path: pathlib.Path, head: dict[str, Any], summary: dict[str, Any], m: Metrics, video: pathlib.Path | None
) -> Run:
    """A run from its parts. `head` has the config and what the run came from, `summary` how it ended."""
    p = m.progress

    def last(name: str) -> float | None:
        return next((v for v in reversed(p[name]) if math.isfinite(v)), None)

    # A run that is going on, or that crashed, has no totals in its summary: take them from its last line of progress.
    wall_s = _first(number(summary.get("wall_s")), last("wall_s"), m.game["wall_s"][-1] if m.game["wall_s"] else None)
    steps = _first(number(summary.get("steps")), last("steps"), m.game["steps"][-1] if m.game["steps"] else None)
    updates = _first(number(summary.get("updates")), last("updates"))
    rate = _first(number(summary.get("steps_per_s")), steps / wall_s if steps and wall_s else None)
    frames_per_step = _frames_per_step(m)
    frame_rate = number(summary.get("frames_per_s"))
    if frame_rate is None and rate is not None and frames_per_step is not None:
        frame_rate = rate * frames_per_step
    scores = m.game["score"][-100:]
    mean = _first(number(summary.get("mean_score")), number(sum(scores) / len(scores)) if scores else None)
    share = shares(summary.get("share")) or m.share
    return Run(
        path=path, recipe=str(head.get("recipe", "custom")), rungs=[str(r) for r in items(head.get("rungs"))],
        config=head["config"], started=str(head.get("started", "")), machine=mapping(head.get("machine")),
        versions={str(k): str(v) for k, v in mapping(head.get("versions")).items()},
        commit=str(head.get("commit", "unknown")), command=str(head.get("command", "")), state=_state(path, summary),
        summary=summary, metrics=m, video=video, wall_s=wall_s,
        startup_s=number(summary.get("startup_s")), steps=None if steps is None else int(steps),
        updates=None if updates is None else int(updates),
        games=int(_first(number(summary.get("games")), last("games"), len(m.game["score"])) or 0),
        mean_score=mean, steps_per_s=rate, frames_per_s=frame_rate, share=share,
    )  # fmt: skip


def read_metrics(path: pathlib.Path) -> Metrics:
    """All lines of metrics.jsonl, by column. A half-written last line is normal and is ignored."""
    columns = {event: {name: [] for name in names} for event, names in EVENTS.items()}
    seconds: dict[str, float] = {}
    damaged, before_s = 0, 0.0
    try:
        raw = path.read_bytes()
    except OSError:
        raw = b""
    lines = raw.split(b"\n")
    for i, line in enumerate(lines):
        if not line.strip():
            continue
        row = _parse(line)
        if row is None:
            damaged += i < len(lines) - 1
            continue
        names = EVENTS.get(row.get("event", ""))
        if names is None:
            continue  # an event of a newer version
        for name, column in columns[row["event"]].items():
            value = number(row.get(name))
            column.append(math.nan if value is None else value)
        if row["event"] == "progress":
            wall_s = float(row["wall_s"])
            for phase, part in shares(row.get("share")).items():
                seconds[phase] = seconds.get(phase, 0.0) + part * max(0.0, wall_s - before_s)
            before_s = wall_s
    total = sum(seconds.values())
    share = {k: v / total for k, v in seconds.items()} if total > 0 else {}
    return Metrics(columns["game"], columns["loss"], columns["progress"], share, damaged)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("event"), str):
        return None
    if row["event"] in EVENTS and (number(row.get("wall_s")) is None or number(row.get("steps")) is None):
        return None
    return row


def player_changes(path: pathlib.Path, begin: int = 0) -> list[tuple[int, int]]:
    """Chunks, and how many players there were from each on, as a metrics.jsonl records them from byte `begin` on."""
    found: list[tuple[int, int]] = []
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(begin)
        for line in file:
            row = _parse(line) if b'"event": "players"' in line else None
            chunk, players = (row.get(name) for name in ("chunk", "players")) if row else (None, None)
            if type(chunk) is int and type(players) is int:
                found.append((chunk, players))
    return found


def _read_head(path: pathlib.Path) -> dict[str, Any]:
    file = path / "config.json"
    if not file.is_file():
        what = "is not a run folder (config.json is missing)" if path.is_dir() else "does not exist"
        raise CheckpointError(f"{path} {what}", "`dqnitro runs` lists the stored runs")
    head = read_object(file)
    if not isinstance(head.get("config"), dict):
        raise CheckpointError(f"{file} is damaged: it has no config", "a run cannot be shown without it")
    if not seal_holds(head):
        raise CheckpointError(f"{file} is damaged (its checksum differs)", "a run cannot be shown without it")
    return head


def _first(*values: float | None) -> float | None:
    return next((v for v in values if v is not None), None)


def _frames_per_step(m: Metrics) -> float | None:
    rates = zip(m.progress["frames_per_s"], m.progress["steps_per_s"], strict=True)
    return next((f / s for f, s in rates if s > 0 and math.isfinite(f)), None)


def _state(path: pathlib.Path, summary: dict[str, Any]) -> str:
    """`running` counts only while a process holds the run's lock; one that wrote no final state has crashed."""
    state = summary.get("state")
    if not isinstance(state, str) or (state == "running" and not is_locked(path)):
        return "crashed"
    return state
