"""A search whose runs have folders: several trials at a time, anywhere, and resumable.

STATE/search.json   what was asked, and the settings of every trial that was proposed
      t1-pong/      the runs of a trial: `seeds.json`, `s1/`, `s2/`, ... as of `train --seeds`

With `at_once` trials at a time, trial n is proposed from the results of trials 1 to n - at_once, and stopped where it
falls behind those. The ones in between count as running, even where one has ended. So it does not matter who is quick:
seed and results determine the next trial. What Optuna has to know stands in the folders; nothing else is kept.
"""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dqnitro.callback import Callback, Training
from dqnitro.common.files import file_stem, write_json
from dqnitro.config import Config
from dqnitro.errors import ConfigError, UserError
from dqnitro.lab import search
from dqnitro.lab.search import LOOKS, WORDS, Asked, check_optuna, points, result_of
from dqnitro.lab.store import kept
from dqnitro.seeds.allocation import Share
from dqnitro.seeds.folder import FILE as SEEDS
from dqnitro.seeds.folder import SeedsFolder, is_seeds

FILE = "search.json"
LOOK = "search/points at look "  # in metrics.jsonl: what a run had shown when it was looked at


class Marks(NamedTuple):
    """What a run has to know to stop where its trial falls behind."""

    before: tuple[float, ...]  # points of the trial's runs that have ended
    best: float | None  # the highest mean that the trial has shown
    medians: tuple[float | None, ...]  # of the other trials at each look of this run

    def text(self) -> str:
        return json.dumps(self)

    @staticmethod
    def of(text: str) -> Marks:
        before, best, medians = json.loads(text)
        return Marks(tuple(before), best, tuple(medians))

    def mean(self, now: float) -> float:
        return (sum(self.before) + now) / (len(self.before) + 1)


class Looks(Callback):
    """At each quarter of a run: writes down its points, and stops it where the trial is behind. After a resume it knows
    what the run had shown before.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks, self._shown = marks, dict[int, float]()
        self._watch: search.Watch | None = None

    def on_start(self, run: Training) -> None:
        assert run.run_dir is not None
        self._shown = looks_of(run.run_dir)  # those after the checkpoint have been cut off
        self._watch = search.Watch(run.config, lambda look, now: self._behind(run, look, now), 1 + len(self._shown))

    def _behind(self, run: Training, look: int, now: float) -> bool:
        self._shown[look] = now
        run.log({f"{LOOK}{look}": now})
        best = max(x for x in (self._marks.best, *map(self._marks.mean, self._shown.values())) if x is not None)
        median = self._marks.medians[look - 1]
        return median is not None and best < median

    def on_tick(self, run: Training, tick: Any) -> None:
        assert self._watch is not None
        self._watch.on_tick(run, tick)


def looks_of(run_dir: pathlib.Path) -> dict[int, float]:
    """The points that a run had shown at each look."""
    path, out = run_dir / "metrics.jsonl", dict[int, float]()
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        if b'"log"' not in line:
            continue
        try:
            values = json.loads(line).get("values", {})
        except ValueError:  # half a line of a run that was killed
            continue
        out |= {int(k.removeprefix(LOOK)): float(v) for k, v in values.items() if k.startswith(LOOK)}
    return out


def folder_of(state: pathlib.Path, number: int, game: str) -> pathlib.Path:
    """Of the runs of a trial with one game."""
    return state / file_stem(f"t{number}-{game}")


@dataclass
class Trial:
    """A trial as far as it has come."""

    number: int  # from 1
    settings: dict[str, Any]
    why: str | None = None  # it cannot run, or learned nothing but infinity
    state: str = "RUNNING"  # of Optuna: RUNNING, COMPLETE, PRUNED or FAIL
    done: list[float] = field(default_factory=list)  # points of the runs that have ended
    shown: dict[int, float] = field(default_factory=dict)  # by look, over all runs: the mean so far
    next: tuple[str, int] | None = None  # game and seed of the run that is to be played
    scores: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    wall_s: float = 0.0

    @property
    def points(self) -> float | None:
        return sum(self.done) / len(self.done) if self.state == "COMPLETE" else None


class Runs:
    """The trials of a search, their folders, and what is to be done next."""

    def __init__(self, state: pathlib.Path, asked: Asked, base: Config, share: Share) -> None:
        self.state, self.asked, self.base = state, asked, base
        begun = {"at_once": share.at_once, "torch_threads": share.torch_threads, "env_threads": share.env_threads}
        known = kept(state / FILE) or {**asked.kept(), **begun, "trials": []}
        asked_for = json.loads(json.dumps(asked.kept()))
        if {k: known.get(k) for k in asked_for} != asked_for:
            raise ConfigError(f"{state} was begun with other options", "give another --state")
        try:
            self._begun = {k: int(known[k]) for k in begun}
            self._proposed = [(dict(t["settings"]), t["why"]) for t in known["trials"]]
        except (LookupError, TypeError, ValueError) as e:
            raise ConfigError(f"{state / FILE} is damaged ({type(e).__name__}: {e})", "give another --state") from e
        self._trials: dict[int, Trial] = {}  # those whose end is known
        self.files: list[pathlib.Path] = []  # that were written since the last look

    @property
    def at_once(self) -> int:
        """How many trials are proposed without knowing each other's results."""
        return self._begun["at_once"]

    @property
    def torch_threads(self) -> int:
        return self._begun["torch_threads"]

    def folder(self, number: int, game: str) -> pathlib.Path:
        return folder_of(self.state, number, game)

    def _write(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        trials = [{"settings": settings, "why": why} for settings, why in self._proposed]
        write_json(self.state / FILE, {**self.asked.kept(), **self._begun, "trials": trials})
        self.files.append(self.state / FILE)

    # ---- what there is

    def trials(self) -> list[Trial]:
        return [self.trial(n) for n in range(1, len(self._proposed) + 1)]

    def trial(self, number: int) -> Trial:
        """How a trial stands, from the folders of its runs."""
        if number not in self._trials:
            found = self._read(number)
            if found.state == "RUNNING":
                return found
            self._trials[number] = found
        return self._trials[number]

    def _read(self, number: int) -> Trial:
        settings, why = self._proposed[number - 1]
        trial = Trial(number, settings, why)
        if why is not None:
            trial.state = "FAIL"
            return trial
        runs = [(game, seed) for seed in self.asked.seeds for game in self.asked.games]
        for i, (game, seed) in enumerate(runs):
            if not self._take_in(trial, i, game, seed):
                return trial
            after = (i + 1) * LOOKS
            trial.shown[after] = sum(trial.done) / len(trial.done)
            if i + 1 < len(runs) and self._is_behind(trial, after):
                trial.state = "PRUNED"
                return trial
        trial.state = "COMPLETE"
        return trial

    def _take_in(self, trial: Trial, i: int, game: str, seed: int) -> bool:
        """A run of a trial; whether it has ended and the trial goes on."""
        path = self.folder(trial.number, game)
        folder = SeedsFolder.read(path) if is_seeds(path) else None
        s = folder.summary(seed) if folder else {}
        marks = Marks(tuple(trial.done), None, ())
        stopped = s.get("ended") == "callback"
        if folder is None or not (stopped or folder.is_done(seed)):
            trial.next = (game, seed)
            return False
        trial.shown |= {i * LOOKS + look: marks.mean(x) for look, x in looks_of(folder.run_dir(seed)).items()}
        score = s.get("mean_score")
        trial.scores[f"{game} {seed}"] = score
        trial.steps, trial.wall_s = trial.steps + int(s.get("steps") or 0), trial.wall_s + float(s.get("wall_s") or 0)
        if s.get("state") == "diverged":
            trial.state, trial.why = "FAIL", str(s.get("why") or "the loss diverged")
        elif stopped:
            trial.state = "PRUNED"
        else:  # a run without a finished game has shown nothing: as good as random play
            trial.done.append(0.0 if score is None else points(game, float(score)))
            return True
        return False

    # ---- falling behind

    def _median(self, number: int, look: int) -> float | None:
        """Of the trials that this one may know; as Optuna's MedianPruner has it."""
        known = [t for t in map(self.trial, range(1, number - self.at_once + 1)) if t.state == "COMPLETE"]
        values = [t.shown[look] for t in known if look in t.shown]
        return statistics.median(values) if values and len(known) >= search.BEFORE_STOPPING else None

    def _is_behind(self, trial: Trial, look: int) -> bool:
        median = self._median(trial.number, look)
        return median is not None and max(trial.shown.values()) < median

    def marks(self, trial: Trial) -> Marks:
        """For the next run of a trial."""
        first = len(trial.done) * LOOKS
        medians = tuple(self._median(trial.number, first + look) for look in range(1, LOOKS))
        return Marks(tuple(trial.done), max(trial.shown.values(), default=None), medians)

    # ---- what is next

    def propose(self) -> None:
        """New trials, as far as what they may know is there. The folders of trials are made here."""
        for number in range(1, len(self._proposed) + 1):
            if self.trial(number).state == "RUNNING":
                self._make_folders(number)
        while len(self._proposed) < self.asked.trials:
            number = len(self._proposed) + 1
            if any(self.trial(n).state == "RUNNING" for n in range(1, number - self.at_once + 1)):
                return
            settings, why = self._settings(number), None
            try:
                self._configs(settings)
            except UserError as e:  # settings that do not go together
                why = str(e)
            self._proposed.append((settings, why))
            self._write()
            if why is None:
                self._make_folders(number)

    def refuse(self, number: int, why: str) -> None:
        """A trial whose settings turned out to be wrong when it started."""
        self._proposed[number - 1] = (self._proposed[number - 1][0], why)
        self._write()

    def _configs(self, settings: Mapping[str, Any]) -> dict[str, Config]:
        out = {}
        threads = {k: self._begun[k] for k in ("torch_threads", "env_threads") if k not in settings}
        for game in self.asked.games:
            config = self.asked.config(game, settings, self.asked.seeds[0])
            out[game] = config.replace(**{k: getattr(config, k) or v for k, v in threads.items()})
        return out

    def _make_folders(self, number: int) -> None:
        """Of a trial that has been written down."""
        paths = {game: self.folder(number, game) for game in self.asked.games}
        if all(is_seeds(path) for path in paths.values()):
            return
        for game, config in self._configs(self._proposed[number - 1][0]).items():
            if not is_seeds(paths[game]):
                made = SeedsFolder.create(paths[game], config, self.asked.seeds, self.asked.recipe, (), self.at_once)
                self.files.append(made.path / SEEDS)

    def _settings(self, number: int) -> dict[str, Any]:
        """What Optuna proposes for a trial; the first one is the recipe as it is."""
        own = {d.field: getattr(self.base, d.field) for d in self.asked.space}
        if number == 1 and all(d.holds(own[d.field]) for d in self.asked.space):
            return own
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.base.seed + number - 1, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials([self._told(n, known=n <= number - self.at_once) for n in range(1, number)])
        trial = study.ask()
        return {d.field: d.suggest(trial) for d in self.asked.space}

    def _told(self, number: int, known: bool) -> Any:
        """A trial as Optuna is told of it; one that is not yet to be known runs."""
        import optuna

        trial = self.trial(number) if known else Trial(number, self._proposed[number - 1][0])
        return optuna.trial.create_trial(
            state=optuna.trial.TrialState[trial.state], value=trial.points, params=trial.settings,
            distributions={d.field: d.distribution() for d in self.asked.space}, intermediate_values=trial.shown,
        )  # fmt: skip

    # ---- what came out

    def result(self, interrupted: str | None, where: str) -> dict[str, Any]:
        rows = [
            {
                "trial": t.number, "settings": t.settings, "state": WORDS[t.state], "points": t.points, "why": t.why,
                "steps": t.steps or None, "wall_s": round(t.wall_s, 2) if t.wall_s else None, "looks": len(t.shown),
                "scores": t.scores,
            }
            for t in self.trials()
            if t.state != "RUNNING"
        ]  # fmt: skip
        return result_of(self.asked, self.base, rows, interrupted, where) | {"at_once": self.at_once}


def planned(asked: Asked) -> Config:
    """The first game's config; ConfigError for what cannot be searched."""
    base = asked.check()
    check_optuna()
    return base


def folder_names(state: pathlib.Path, asked: Asked) -> Sequence[pathlib.Path]:
    """The folders of the trials that stand in search.json: before there are `Runs`, which read them."""
    known = (kept(state / FILE) or {}).get("trials", [])
    return [folder_of(state, n, g) for n in range(1, len(known) + 1) for g in asked.games]
