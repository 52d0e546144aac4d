"""`dqnitro sweep`: several values of one setting, several seeds each; curves over wall clock and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dqnitro.common.intervals import Range, mean_interval, rate_interval
from dqnitro.common.parsing import real, whole
from dqnitro.config import CHOICES, FIELDS, RANGES, Config, nearest, shown
from dqnitro.envs import possible_scores
from dqnitro.errors import ConfigError, DivergedError, UserError
from dqnitro.events import NullSink, Snapshot
from dqnitro.lab.interleave import threads_put_back
from dqnitro.lab.store import header
from dqnitro.lab.where import lab_plan
from dqnitro.ladder import fitted
from dqnitro.planning import with_own_rate

# The settings swept in the book and the notes, by short names, with their values (and some around them).
SHORT = {"envs": "n_envs", "steps": "steps_per_update", "batch": "batch_size", "stack": "frame_stack"}
USUAL: dict[str, tuple[Any, ...]] = {
    "n_envs": (1, 2, 4, 6), "steps_per_update": (1.0, 2.0, 4.0, 8.0, 16.0), "batch_size": (16, 32, 64, 128),
    "frame_stack": (1, 2, 4),
}  # fmt: skip
NOT_SWEPT = (
    "env_id",
    "seed",
    "wrappers",
    "max_steps",
    "max_minutes",
    "stop_at_score",
    "log_every_s",
    "checkpoint_every_s",
    "eval_every_steps",
    "games_per_eval",
    "eval_epsilon",
)
MOST_POINTS = 200
QUARTERS = (0.25, 0.5, 0.75, 1.0)


def find_setting(name: str, values: Sequence[str]) -> str:
    """The config field that a name on the command line means. `envs` with numbers is their number, with names the
    backend.
    """
    field = name.replace("-", "_").removeprefix("__")
    if field == "envs" and any(v in CHOICES["envs"] for v in values):
        return "envs"
    field = SHORT.get(field, field)
    if field not in FIELDS or field in NOT_SWEPT:
        known = [*SHORT, *(f for f in FIELDS if f not in NOT_SWEPT)]
        raise ConfigError(f"cannot sweep {name!r}", nearest(field, known))
    return field


def parse_values(field: str, texts: Sequence[str]) -> tuple[Any, ...]:
    """Values in the type of the setting; if none are given, the usual ones or all choices."""
    if not texts:
        if field in USUAL:
            return USUAL[field]
        if field in CHOICES:
            return CHOICES[field]
        if isinstance(FIELDS[field].default, bool):
            return (False, True)
        raise ConfigError(f"no values were given for {field}", f"`dqnitro sweep {field} VALUE VALUE ...`")
    return tuple(dict.fromkeys(parse_value(field, t) for t in texts))


def parse_value(field: str, text: str) -> Any:
    want = type(FIELDS[field].default)
    if want is bool:
        words = {
            "true": True,
            "on": True,
            "yes": True,
            "1": True,
            "false": False,
            "off": False,
            "no": False,
            "0": False,
        }
        if text.lower() not in words:
            raise ConfigError(f"{field} is on or off, got {text!r}")
        return words[text.lower()]
    if want in (int, float):
        value = whole(text) if want is int else real(text)
        if value is None:
            raise ConfigError(f"{field}: expected a {'whole ' * (want is int)}number, got {shown(text)}")
        if what := RANGES[field].wrong(value):
            raise ConfigError(f"{field} {what}", f"the default is {shown(FIELDS[field].default)}")
        return value
    return text


class CurveSink(NullSink):
    """Keeps the snapshots of a run as points; when there are too many, every second one is dropped."""

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = []
        self._every, self._count = 1, 0

    def snapshot(self, s: Snapshot) -> None:
        self._count += 1
        if self._count % self._every:
            return
        self.points.append(
            {"wall_s": s.wall_s, "steps": s.steps, "updates": s.updates, "games": s.games, "score": s.mean_score}
        )
        if len(self.points) > MOST_POINTS:
            self.points, self._every = self.points[1::2], self._every * 2


def run_one(config: Config) -> dict[str, Any]:
    """One training run without a folder: its curve and its totals."""
    from dqnitro.session import train

    sink = CurveSink()
    try:
        with threads_put_back():
            r = train(config, sinks=[sink])
    except DivergedError as e:
        return {"points": sink.points, "why": str(e), "ended": "diverged"}
    last = {"wall_s": r.wall_s, "steps": r.steps, "updates": r.updates, "games": r.games, "score": r.mean_score}
    return {
        "points": [*(p for p in sink.points if p["steps"] < r.steps), last], "ended": r.ended, "why": None,
        "fps": r.steps_per_s, "score": r.mean_score,
        "samples_per_step": r.updates * config.batch_size / max(1, r.steps),
    }  # fmt: skip


def base_of(game: str, recipe: str, changes: dict[str, Any] | None, setting: str = "") -> Config:
    """The config of all runs but for the setting that is swept."""
    changes = dict(with_own_rate(changes or {}, [setting]))
    base = lab_plan(recipe, game, changes).config().replace(stop_at_score=float("inf")).replace(**changes)
    if not base.max_steps and not base.max_minutes:
        raise ConfigError("a sweep needs a limit for its runs", "give --minutes M or --steps N for each run")
    # A snapshot costs microseconds, and the sink thins them out: short runs get smooth curves too.
    return base.replace(log_every_s=min(base.log_every_s or 0.1, 0.1))


def variant(base: Config, setting: str, value: Any, seed: int) -> Config:
    return fitted(base.replace(**{setting: value, "seed": seed}))[0]


def turns(values: Sequence[Any], seeds: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Seeds and values: values take turns within a seed, so that drift of the machine favours none."""
    for k, seed in enumerate(seeds):
        for value in values if k % 2 == 0 else tuple(reversed(values)):
            yield seed, value


def sweep(
    game: str, setting: str, values: Sequence[Any], *, recipe: str = "baseline", seeds: Sequence[int] = (1, 2, 3),
    changes: dict[str, Any] | None = None, say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Train every value with every seed, one after the other in this process."""
    base = base_of(game, recipe, changes, setting)
    runs: dict[Any, dict[int, dict[str, Any]]] = {v: {} for v in values}
    skipped: dict[Any, str] = {}
    interrupted: str | None = None
    started = 0
    for seed, value in turns(values, seeds):
        if interrupted or value in skipped:
            continue
        started += 1
        say(f"run {started} of {len(seeds) * len(values)}: {setting} {value}, seed {seed}")
        try:
            run = run_one(variant(base, setting, value, seed))
        except UserError as e:
            skipped[value] = str(e)
            continue
        if run["ended"] in ("SIGINT", "SIGTERM"):
            interrupted = run["ended"]
            continue  # a half-finished run cannot be compared with whole ones
        runs[value][seed] = run
    return result_of(base, setting, recipe, seeds, runs, skipped, interrupted)


def result_of(
    base: Config, setting: str, recipe: str, seeds: Sequence[int], runs: dict[Any, dict[int, dict[str, Any]]],
    skipped: dict[Any, str], interrupted: str | None,
) -> dict[str, Any]:  # fmt: skip
    """The result as it is stored; `runs` has a key for every value."""
    result = header(
        "sweep", base.env_id, rounds=len(seeds), seconds=base.max_minutes * 60, steps_per_run=base.max_steps,
        recipe=recipe, setting=setting, values=list(runs), seeds=list(seeds),
    )  # fmt: skip
    curves = [{"value": v, "seed": s, "points": r["points"]} for v, done in runs.items() for s, r in done.items()]
    rows = [_row(v, list(done.values()), skipped.get(v), possible_scores(base.env_id)) for v, done in runs.items()]
    return result | {"curves": curves, "rows": rows, "interrupted": interrupted}


def _row(value: Any, runs: list[dict[str, Any]], why: str | None, possible: Range) -> dict[str, Any]:
    done = [r for r in runs if r["ended"] != "diverged"]
    row: dict[str, Any] = {
        "value": value,
        "fps": None,
        "score": None,
        "samples_per_step": None,
        "state": "measured",
        "why": why,
    }
    if not done:
        row |= {
            "state": "skipped",
            "why": why or (runs[0]["why"] if runs else "interrupted before its first run ended"),
        }
        return row
    if len(done) < len(runs):
        row["why"] = f"{len(runs) - len(done)} of {len(runs)} seeds diverged"
    scores = [r["score"] for r in done if r["score"] is not None]
    return row | {
        "fps": rate_interval([r["fps"] for r in done]),
        "score": mean_interval(scores, within=possible) if scores else None,
        "samples_per_step": sum(r["samples_per_step"] for r in done) / len(done),
    }


def score_at(points: Sequence[dict[str, Any]], axis: str, x: float) -> float | None:
    """The newest score when `axis` reached x."""
    known = [p["score"] for p in points if p[axis] <= x and p["score"] is not None]
    return known[-1] if known else None


def quarters(result: dict[str, Any], axis: str) -> tuple[list[float], dict[Any, list[float | None]]]:
    """Places on an axis that every curve reaches, and each value's score there, averaged over seeds."""
    curves = [c for c in result["curves"] if c["points"]]
    if not curves:
        return [], {}
    end = min(c["points"][-1][axis] for c in curves)
    places = [end * q for q in QUARTERS]
    table: dict[Any, list[float | None]] = {}
    for value in result["values"]:
        mine = [c["points"] for c in curves if c["value"] == value]
        if mine:
            found = [[s for p in mine if (s := score_at(p, axis, x)) is not None] for x in places]
            table[value] = [sum(f) / len(f) if f else None for f in found]
    return places, table
