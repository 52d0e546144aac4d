"""A search over several settings and games at once: `dqnitro sweep SETTING=VALUES SETTING=VALUES ...`.

Optuna proposes settings and stops trials that fall behind; what it knows is kept in a file, so that the same command
goes on where it stopped. The first trial is the recipe as it is. A trial trains every game with every seed; its points
are the mean of human-normalised scores (for one game without such figures: of the score itself).
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dqnitro import published
from dqnitro.callback import Callback, Training
from dqnitro.common.files import alone_with
from dqnitro.common.parsing import real
from dqnitro.config import FIELDS, RANGES, Config
from dqnitro.envs import atari_game
from dqnitro.errors import ConfigError, DivergedError, UserError
from dqnitro.lab.interleave import threads_put_back
from dqnitro.lab.store import header
from dqnitro.lab.sweep import find_setting, parse_value
from dqnitro.lab.where import lab_plan
from dqnitro.ladder import fitted
from dqnitro.planning import with_own_rate

LOOKS = 4  # how often in a run Optuna is asked whether the trial is worth its time; the last time is the end
BEFORE_STOPPING = 4  # trials that run to their end before any is stopped early
LOG_SCALE_FROM = 10.0  # a range whose ends differ by this factor is searched on a logarithmic scale


@dataclass(frozen=True)
class Dimension:
    """A setting and where to search it: among `choices`, or from `low` to `high`."""

    field: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0

    @property
    def whole(self) -> bool:
        return isinstance(FIELDS[self.field].default, int)

    @property
    def log(self) -> bool:
        return self.low > 0 and self.high / self.low >= LOG_SCALE_FROM

    def holds(self, value: Any) -> bool:
        return value in self.choices if self.choices else self.low <= value <= self.high

    def suggest(self, trial: Any) -> Any:
        """What Optuna proposes for it in a trial."""
        if self.choices:
            return trial.suggest_categorical(self.field, self.choices)
        if self.whole:
            return trial.suggest_int(self.field, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.field, self.low, self.high, log=self.log)

    def distribution(self) -> Any:
        """The same, as Optuna is told of trials that there were."""
        from optuna import distributions as d

        if self.choices:
            return d.CategoricalDistribution(self.choices)
        if self.whole:
            return d.IntDistribution(int(self.low), int(self.high), log=self.log)
        return d.FloatDistribution(self.low, self.high, log=self.log)

    def __str__(self) -> str:
        return ",".join(map(str, self.choices)) if self.choices else f"{self.low:g}..{self.high:g}"


def parse_dimension(text: str) -> Dimension:
    """`n-step=1,3,5` or `learning-rate=1e-5..1e-3`."""
    name, _, values = text.partition("=")
    texts = [v.strip() for v in values.split(",") if v.strip()]
    field = find_setting(name.strip(), texts)
    if not texts:
        raise ConfigError(f"no values were given for {field}", f"{name}=VALUE,VALUE or {name}=LOW..HIGH")
    if ".." not in values:
        return Dimension(field, tuple(dict.fromkeys(parse_value(field, t) for t in texts)))
    ends = [e for t in values.split("..") if (e := real(t)) is not None]
    if field not in RANGES or values.count("..") != 1 or len(ends) != 2 or not ends[0] < ends[1]:
        raise ConfigError(f"{text!r} is not a range of a number", f"{name}=LOW..HIGH, or values with commas")
    low, high = (parse_value(field, str(int(e)) if isinstance(FIELDS[field].default, int) else str(e)) for e in ends)
    return Dimension(field, low=low, high=high)


def points(game: str, score: float) -> float:
    """A score as it counts in a search."""
    value = published.human_normalized(atari_game(game) or game, score)
    return score if value is None else value


def has_points(game: str) -> bool:
    return published.human_normalized(atari_game(game) or game, 0.0) is not None


class _Stopped(Exception):
    """The trial fell behind the others."""


class Watch(Callback):
    """Tells the points of a run at each of its quarters, and stops it where `behind` says so. `first`: the next look,
    of a run that is resumed.
    """

    def __init__(self, config: Config, behind: Callable[[int, float], bool], first: int = 1) -> None:
        self._config, self._behind, self._look, self.stopped = config, behind, first, False

    def on_tick(self, run: Training, tick: Any) -> None:
        c = self._config
        shares = [run.steps / c.max_steps] if c.max_steps else []
        shares += [run.wall_s / (60 * c.max_minutes)] if c.max_minutes else []
        if max(shares) < self._look / LOOKS or self._look >= LOOKS or run.mean_score is None:
            return
        self.stopped = self._behind(self._look, points(c.env_id, run.mean_score))
        self._look += 1
        if self.stopped:
            run.stop("the trial fell behind the others")


@dataclass(frozen=True)
class Asked:
    """What a search is asked for."""

    games: Sequence[str]
    space: Sequence[Dimension]
    trials: int = 20
    recipe: str = "auto"
    seeds: Sequence[int] = (1,)
    changes: Mapping[str, Any] | None = None

    def config(self, game: str, settings: Mapping[str, Any], seed: int) -> Config:
        changes = dict(with_own_rate(self.changes or {}, [d.field for d in self.space]))
        base = lab_plan(self.recipe, game, changes).config().replace(stop_at_score=math.inf).replace(**changes)
        return fitted(base.replace(**settings, seed=seed, log_every_s=base.log_every_s or 1.0))[0]

    def kept(self) -> dict[str, Any]:
        """What must stay the same in a file."""
        return {
            "games": list(self.games), "space": {d.field: str(d) for d in self.space}, "recipe": self.recipe,
            "seeds": list(self.seeds), "changes": dict(self.changes or {}),
        }  # fmt: skip

    def check(self) -> Config:
        """The first game's config, as the recipe has it; ConfigError for what cannot be searched."""
        base = self.config(self.games[0], {}, self.seeds[0])
        if not base.max_steps and not base.max_minutes:
            raise ConfigError("a search needs a limit for its runs", "give --minutes M or --steps N for each run")
        fields = [d.field for d in self.space]
        if wrong := [f for f in fields if f in (self.changes or {}) or fields.count(f) > 1]:
            raise ConfigError(f"{wrong[0]} is searched and also given", "give only one of them")
        if len(self.games) > 1 and (strange := [g for g in self.games if not has_points(g)]):
            raise ConfigError(
                f"{strange[0]} has no human score, so its points cannot be compared with those of other games",
                "search it alone",
            )
        return base


def open_study(path: pathlib.Path, asked: Asked, base: Config) -> Any:
    """The study in this file, or a new one, which begins with the recipe as it is."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))), study_name="search", direction="maximize",
            load_if_exists=True, pruner=optuna.pruners.MedianPruner(n_startup_trials=BEFORE_STOPPING),
        )  # fmt: skip
    except OSError:
        raise
    except Exception as e:  # Optuna does not check what it reads
        raise ConfigError(
            f"{path} cannot be read as the trials of a search ({type(e).__name__}: {e})",
            "delete it, or give another --state",
        ) from e
    study.sampler = optuna.samplers.TPESampler(seed=base.seed + len(study.trials))
    kept = json.loads(json.dumps(asked.kept()))
    if study.user_attrs.get("asked", kept) != kept:
        raise ConfigError(f"{path} was begun with other options ({study.user_attrs['asked']})", "give another --state")
    if not study.trials:
        study.set_user_attr("asked", kept)
        own = {d.field: getattr(base, d.field) for d in asked.space}
        if all(d.holds(own[d.field]) for d in asked.space):
            study.enqueue_trial(own)
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):  # of a process that was killed
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def run_trial(trial: Any, asked: Asked, say: Callable[[str], None]) -> float | str:
    """Train every game with every seed; the trial's points, or the signal that broke it off."""
    from dqnitro.session import train

    settings = {d.field: d.suggest(trial) for d in asked.space}
    told, done = ", ".join(f"{k} {v}" for k, v in settings.items()), []
    steps, seconds = 0, 0.0
    for i, (seed, game) in enumerate((s, g) for s in asked.seeds for g in asked.games):
        say(f"trial {trial.number + 1}: {told}; {game}, seed {seed}")
        config = asked.config(game, settings, seed)

        def behind(look: int, now: float, i: int = i) -> bool:
            trial.report((sum(done) + now) / (len(done) + 1), i * LOOKS + look)
            return bool(trial.should_prune())

        watch = Watch(config, behind)
        with threads_put_back():
            result = train(config, callbacks=[watch])
        if result.ended in ("SIGINT", "SIGTERM", "SIGHUP"):
            return result.ended
        steps, seconds = steps + result.steps, seconds + result.wall_s
        trial.set_user_attr(f"score {game} {seed}", result.mean_score)
        trial.set_user_attr("steps", steps)
        trial.set_user_attr("wall_s", round(seconds, 2))
        if watch.stopped:
            raise _Stopped
        # A run without a finished game has shown nothing: as good as random play.
        done.append(0.0 if result.mean_score is None else points(game, result.mean_score))
        trial.report(sum(done) / len(done), (i + 1) * LOOKS)
        if i + 1 < len(asked.seeds) * len(asked.games) and trial.should_prune():
            raise _Stopped
    return sum(done) / len(done)


def check_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError as e:
        raise ConfigError("a search over several settings needs Optuna", "pip install 'dqnitro[optuna]'") from e


def search(asked: Asked, path: pathlib.Path, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Trials until there are as many as were asked for, those of earlier calls included."""
    base = asked.check()
    check_optuna()  # before there is a file
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone_with(path):
        return _search(asked, path, base, say)


def _search(asked: Asked, path: pathlib.Path, base: Config, say: Callable[[str], None]) -> dict[str, Any]:
    study = open_study(path, asked, base)
    from optuna.trial import TrialState

    interrupted: str | None = None
    while sum(counts(t) for t in study.trials) < asked.trials and interrupted is None:
        trial = study.ask()
        try:
            value = run_trial(trial, asked, say)
        except _Stopped:
            study.tell(trial, state=TrialState.PRUNED)
        except (UserError, DivergedError) as e:  # settings that do not go together, or learn nothing but infinity
            trial.set_user_attr("why", str(e))
            study.tell(trial, state=TrialState.FAIL)
        except BaseException:
            study.tell(trial, state=TrialState.FAIL)
            raise
        else:
            interrupted = value if isinstance(value, str) else None
            if interrupted:
                study.tell(trial, state=TrialState.FAIL)
            else:
                study.tell(trial, value)
    return make_result(study, asked, base, interrupted, path)


def counts(trial: Any) -> bool:
    """Whether a trial is done; one that was broken off is not."""
    return trial.state.name in ("COMPLETE", "PRUNED") or "why" in trial.user_attrs


WORDS = {"COMPLETE": "measured", "PRUNED": "stopped early", "FAIL": "skipped"}


def make_result(study: Any, asked: Asked, base: Config, interrupted: str | None, path: pathlib.Path) -> dict[str, Any]:
    rows = [
        {
            "trial": t.number + 1, "settings": dict(t.params), "state": WORDS[t.state.name],
            "points": t.value if t.state.name == "COMPLETE" else None, "why": t.user_attrs.get("why"),
            "steps": t.user_attrs.get("steps"), "wall_s": t.user_attrs.get("wall_s"),
            "looks": len(t.intermediate_values),
            "scores": {k.removeprefix("score "): v for k, v in t.user_attrs.items() if k.startswith("score ")},
        }
        for t in study.trials
        if counts(t)
    ]  # fmt: skip
    return result_of(asked, base, rows, interrupted, str(path))


def result_of(
    asked: Asked, base: Config, rows: list[dict[str, Any]], interrupted: str | None, state: str
) -> dict[str, Any]:
    """What is known, in the format of lab/store.py; the best trial first."""
    rows.sort(key=lambda r: (r["points"] is None, -(r["points"] or 0.0), r["trial"]))
    own = {d.field: getattr(base, d.field) for d in asked.space}
    head = header(
        "search", ",".join(asked.games), games=list(asked.games), recipe=asked.recipe, seeds=list(asked.seeds),
        trials=asked.trials, seconds=base.max_minutes * 60, steps_per_run=base.max_steps, state=state,
        space={d.field: str(d) for d in asked.space}, own=own,
        unit="human-normalised score" if has_points(asked.games[0]) else "score",
    )  # fmt: skip
    return head | {"rows": rows, "interrupted": interrupted}
