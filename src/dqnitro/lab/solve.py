"""Times to solve, for every row of the notes: `dqnitro ladder --solve`.

A row is the textbook DQN with the rungs that the notes tried. How many steps it needs is measured by real runs, one
process per seed; how fast it is, alone, by a race. A run may climb further rungs that leave its learning unchanged
(`exact`, `close`), share the machine with others and be resumed: then its time is its steps at the row's own rate, and
the row says so. Rows that are measured `whole` train alone, as they are, and their time is that of the clock.

Everything is kept in a folder, so that several commands can share the work: finished runs are not repeated, others
are resumed.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dqnitro import recipes
from dqnitro.common.files import file_stem, write_json
from dqnitro.common.host import usable_cores
from dqnitro.common.intervals import Interval, rate_interval
from dqnitro.common.parsing import items, number
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab.points import score_points
from dqnitro.lab.race import Race
from dqnitro.lab.store import header, kept
from dqnitro.lab.time_to_solve import learning_key
from dqnitro.lab.where import lab_plan, where
from dqnitro.ladder import RUNGS, climb, in_force
from dqnitro.report.formatting import plural
from dqnitro.seeds.launcher import Team

AUTO = "auto"
# Rungs that take a second core for themselves: runs that share a machine go without.
TWO_CORES = ("side-by-side", "split-network")
SAVE_S = 25.0  # a run that is stopped needs time for its checkpoint
START_S = 30.0  # no run is started with less time left than this
RATE_SECONDS, RATE_ROUNDS = 2.0, 3


@dataclass(frozen=True)
class Row:
    """One row of the notes: rungs on top of the textbook DQN, and what the notes measured (steps/s, minutes)."""

    name: str
    rungs: tuple[str, ...] = ()
    notes_fps: float | None = None
    notes_of: float | None = None  # the speed that theirs is compared with
    notes_minutes: float | None = None


# The speeds and times of the notes' benchmark table; those of several steps per update are of Lapan's own log.
ROWS = {
    row.name: row
    for row in (
        Row("baseline", (), 229, 229, 52.2),
        Row("gradients-everywhere", ("gradients-everywhere",), 219, 229, 51.0),
        Row("two-envs", ("two-envs",)),
        Row("three-envs", ("three-envs",), 395, 229, 36.0),
        Row("four-envs", ("four-envs",)),
        Row("two-steps-per-update", ("two-steps-per-update",), 202, 159),
        Row("four-steps-per-update", ("four-steps-per-update",), 232, 159),
        Row("processes", ("processes",), 290, 229, 31.2),
        Row("tuned-wrappers", ("three-envs", "tuned-wrappers"), 448, 229, 47.4),
        Row("tuned-wrappers and processes", ("tuned-wrappers", "processes"), 325, 229, 30.0),
        Row(AUTO),
    )
}
NOTES_MINUTES = 52.2  # of their baseline


def config_of(row: Row, game: str, changes: Mapping[str, Any]) -> Config:
    """The config that the row stands for."""
    if row.name == AUTO:
        return recipes.plan(AUTO, game, changes.get("device")).config().replace(**changes)
    return climb(lab_plan("baseline", game, changes).config().replace(**changes), row.rungs)


def carried(row: Row, game: str, changes: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """The row's config on top of every faster rung that leaves its learning unchanged, and those rungs."""
    base = lab_plan("baseline", game, changes).config().replace(**changes)
    kept = row.rungs
    for name, rung in RUNGS.items():
        if rung.promise == "learning" or rung.detour or name in (*row.rungs, *TWO_CORES):
            continue
        climbed = in_force((*kept, name))
        if set(row.rungs) - set(climbed):
            continue  # it would replace what the row is about
        below = climb(base, tuple(n for n in climbed if n != name))
        if rung.needs(below) is None and rung.apply(below) != below:
            kept = climbed
    return climb(base, kept), tuple(n for n in kept if n not in row.rungs)


@dataclass(frozen=True)
class Job:
    """One run: a row's learning with one seed, in its folder."""

    row: str
    seed: int
    config: Config
    rungs: tuple[str, ...]
    whole: bool
    folder: pathlib.Path

    @property
    def log(self) -> pathlib.Path:
        return self.folder.with_suffix(".log.txt")

    def state(self) -> tuple[str, int, float, float | None]:
        """State, steps, seconds and mean score so far; `waiting` before its first checkpoint."""
        from dqnitro.store.read_run import read_run

        if not (self.folder / "summary.json").is_file():
            return "waiting", 0, 0.0, None
        run = read_run(self.folder)
        return run.state, run.steps or 0, run.wall_s or 0.0, run.mean_score

    def points(self) -> list[dict[str, float]]:
        """Steps and mean score as the run went on, thinned out."""
        return score_points(self.folder)


def jobs_of(
    folder: pathlib.Path, game: str, rows: Sequence[Row], seeds: Sequence[int], whole: Sequence[str],
    changes: Mapping[str, Any],
) -> dict[str, list[Job]]:  # fmt: skip
    """By row, the runs that its time comes from. Rows that learn in the same way share their runs."""
    shared: dict[str, list[Job]] = {}
    out: dict[str, list[Job]] = {}
    for row in rows:
        alone = row.name in whole
        own = config_of(row, game, changes)
        config, rungs = (own, ()) if alone or row.name == AUTO else carried(row, game, changes)
        if not alone:
            config = config.replace(torch_threads=1, env_threads=1)
        key = f"{alone}{learning_key(own)}"
        if key not in shared:
            stem = file_stem(("whole-" if alone else "") + row.name.replace(" ", "-"))
            shared[key] = [
                Job(row.name, s, config.replace(seed=s), rungs, alone, folder / f"{stem}-s{s}") for s in seeds
            ]
        out[row.name] = shared[key]
    return out


def measure_rates(
    folder: pathlib.Path, configs: Mapping[str, Config], minutes: float, say: Callable[[str], None]
) -> dict[str, list[float]]:
    """Steps a second of each row, alone on the machine; rows that the folder knows already are not measured again."""
    path = folder / "rates.json"
    stored = (kept(path) or {}) if path.is_file() else {}
    known = {name: rates for name, rates in stored.items() if all(map(number, items(rates)))}
    missing = {name: config for name, config in configs.items() if not items(known.get(name))}
    if missing:
        with Race(minutes, say) as race:
            race.expected = len(missing)
            for name, config in missing.items():
                race.build(name, config)
            known |= {name: rates for name, rates in race.run(RATE_ROUNDS, RATE_SECONDS).items() if rates}
        write_json(path, known)
    return known


class Work:
    """Runs jobs as processes until all are solved or the time is up."""

    def __init__(self, at_once: int, end: float, say: Callable[[str], None]) -> None:
        self.at_once, self._end, self._say = at_once, end, say
        self.failed: dict[pathlib.Path, str] = {}

    def left_s(self) -> float:
        return self._end - time.monotonic()

    def do(self, jobs: Sequence[Job]) -> None:
        """Jobs that are not solved, at most `at_once` at a time; whole ones one by one, before the others."""
        open_jobs = [j for j in jobs if j.state()[0] != "solved"]
        for alone, at_once in ((True, 1), (False, self.at_once)):
            self._until_done([j for j in open_jobs if j.whole is alone], at_once)

    def _until_done(self, jobs: Sequence[Job], at_once: int) -> None:
        paths = [str(pathlib.Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        team = Team(lambda k: self._command(jobs[k]), range(len(jobs)), at_once, lambda k: jobs[k].log, environment)
        try:
            while True:
                if self.left_s() <= START_S + SAVE_S:
                    team.waiting.clear()
                for member in team.poll():
                    if member.code not in (0, 143):
                        job = jobs[member.seed]
                        self.failed[job.folder] = f"ended with exit code {member.code}; see {job.log}"
                if team.over or self.left_s() < SAVE_S:
                    return
                running = [jobs[k] for k in team.running]
                now = ", ".join(f"{j.row} seed {j.seed}" for j in running[:3])
                self._say(
                    f"{len(team.members) - len(running)} of {plural(len(jobs), 'run')} ended, "
                    f"{len(running)} running ({now}), {self.left_s():.0f} s left"
                )
                time.sleep(0.3)
        finally:
            team.close()

    def _command(self, job: Job) -> list[str]:
        """What trains a job that begins now."""
        order = {
            "config": job.config.to_dict(), "rungs": list(job.rungs), "minutes": (self.left_s() - SAVE_S) / 60,
            "folder": str(job.folder),
        }  # fmt: skip
        path = job.folder.with_suffix(".job.json")
        write_json(path, order)
        return [sys.executable, "-m", "dqnitro.lab.solve_job", str(path)]


def default_at_once() -> int:
    """Runs that share the machine. Each keeps about one core busy, with learning or with driving the GPU."""
    cores = usable_cores()
    return max(1, min(16, cores - cores // 4))


def solve_rows(
    game: str, names: Sequence[str] | None, folder: pathlib.Path, *, seeds: Sequence[int] = (1, 2, 3),
    minutes: float = 8.0, at_once: int = 0, whole: Sequence[str] = (AUTO,), changes: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Work on the rows for at most these minutes, then report what is known so far, in the format of lab/store.py."""
    end = time.monotonic() + minutes * 60
    rows, changes = rows_named(names), changes or {}
    folder.mkdir(parents=True, exist_ok=True)
    _check_folder(folder, game, changes)
    configs = {row.name: config_of(row, game, changes) for row in rows}
    if configs[rows[0].name].stop_at_score == float("inf"):
        raise ConfigError(f"{game} has no score that counts as solved", "give one with --stop-at")
    rates = measure_rates(folder, configs, minutes / 2, say)
    jobs = jobs_of(folder, game, rows, seeds, whole, changes)
    work = Work(at_once or default_at_once(), end, say)
    interrupted = None
    try:
        work.do(_in_turn(jobs))
    except KeyboardInterrupt:
        interrupted = "SIGINT"
    table = [row_result(row, rates.get(row.name, []), jobs[row.name], work.failed) for row in rows]
    _add_changes(table)
    result = header("solve", configs[rows[0].name].env_id, minutes=minutes, seeds=list(seeds), folder=str(folder))
    notes = {"where": where(changes).text, "at_once": work.at_once, "carried": _carried_text(jobs)}
    return result | {
        "rows": table, "curves": _curves(table, jobs), "notes": notes, "interrupted": interrupted,
    }  # fmt: skip


def rows_named(names: Sequence[str] | None) -> list[Row]:
    from dqnitro.config import nearest

    for name in names or ():
        if name not in ROWS:
            raise ConfigError(f"unknown row {name!r}", nearest(name, ROWS, "rows"))
    return [row for row in ROWS.values() if names is None or row.name in names]


def _check_folder(folder: pathlib.Path, game: str, changes: Mapping[str, Any]) -> None:
    """A folder belongs to one game and one set of options: steps and rates of others must not be mixed in."""
    path = folder / "solve.json"
    mine = {"game": game, "changes": dict(changes)}
    before = kept(path)
    if before is None:
        write_json(path, mine)
    elif before != json.loads(json.dumps(mine)):
        raise ConfigError(f"{folder} was begun with other options ({json.dumps(before)[:120]})", "give another --state")


def _in_turn(jobs: Mapping[str, Sequence[Job]]) -> list[Job]:
    """The first seed of every row, then the second, ...: an early end leaves something for each row."""
    each = list(dict.fromkeys(job for row in jobs.values() for job in row))
    return sorted(each, key=lambda job: job.seed)


def row_result(
    row: Row, rates: Sequence[float], jobs: Sequence[Job], failed: Mapping[pathlib.Path, str]
) -> dict[str, Any]:
    """What is known of a row: its speed, its runs, and the median and range of its time to solve in minutes."""
    fps = rate_interval(list(rates)) if rates else None
    runs = []
    for job in jobs:
        state, steps, wall_s, score = job.state()
        if job.whole:
            minutes: float | None = wall_s / 60
        else:
            minutes = steps / fps.mean / 60 if fps else None
        runs.append({
            "seed": job.seed, "state": state, "steps": steps, "wall_s": wall_s, "score": score,
            "minutes": minutes if state == "solved" else None, "why": failed.get(job.folder),
        })  # fmt: skip
    solved = [r["minutes"] for r in runs if r["minutes"] is not None]
    steps = [r["steps"] for r in runs if r["state"] == "solved"]
    return {
        "name": row.name, "rungs": list(row.rungs), "how": "whole" if jobs[0].whole else "steps at its own rate",
        "fps": fps, "delta_fps": None, "runs": runs, "solved": len(steps), "of": len(runs),
        "minutes": _median_range(solved), "delta_minutes": None, "steps": _median_range(steps),
        "on_top": list(jobs[0].rungs), "learned_by": jobs[0].row,
        "notes": {
            "fps": row.notes_fps, "of": row.notes_of, "minutes": row.notes_minutes,
            "delta_fps": row.notes_fps / row.notes_of - 1 if row.notes_fps and row.notes_of else None,
            "delta_minutes": row.notes_minutes / NOTES_MINUTES - 1 if row.notes_minutes else None,
        },
    }  # fmt: skip


def _median_range(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def _add_changes(table: Sequence[dict[str, Any]]) -> None:
    """ΔFPS and Δtime, compared with our own baseline."""
    base = next((r for r in table if r["name"] == "baseline"), None)
    if base is None:
        return
    for row in table:
        if row["fps"] and base["fps"] and row is not base:
            row["delta_fps"] = row["fps"].mean / base["fps"].mean - 1
        if row["minutes"] and base["minutes"] and row is not base:
            row["delta_minutes"] = row["minutes"]["median"] / base["minutes"]["median"] - 1


def _carried_text(jobs: Mapping[str, Sequence[Job]]) -> str:
    rungs = sorted(
        {n for row in jobs.values() for job in row if not job.whole for n in job.rungs}, key=list(RUNGS).index
    )
    return f"runs whose steps are counted climb {', '.join(rungs)} as well" if rungs else ""


def _curves(table: Sequence[dict[str, Any]], jobs: Mapping[str, Sequence[Job]]) -> list[dict[str, Any]]:
    """Score over steps and over wall clock, which is steps at the row's rate for a run that shared the machine."""
    out = []
    for row in table:
        fps: Interval | None = row["fps"]
        for job in jobs[row["name"]]:
            if not job.whole and fps is None:
                continue
            points = [p if job.whole or fps is None else p | {"wall_s": p["steps"] / fps.mean} for p in job.points()]
            if points:
                out.append({"value": row["name"], "seed": job.seed, "points": points})
    return out
