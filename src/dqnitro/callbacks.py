"""Callbacks that are ready to use: evaluation, early stopping, trackers, pruning. `Callback` is for your own.

The libraries of trackers are imported when a run starts, so that only their users need them.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

from dqnitro.callback import Callback, Training
from dqnitro.common.intervals import Scored
from dqnitro.envs.base import GameEnd
from dqnitro.errors import ConfigError
from dqnitro.events import Snapshot
from dqnitro.trained import from_run

__all__ = ["Callback", "EarlyStop", "Evaluate", "Mlflow", "OptunaPruning", "Trackio", "Training", "Wandb"]


class Evaluate(Callback):
    """Score the agent over fresh games every `every_steps` steps; it is acting almost greedily then.

    Training waits meanwhile, and the time counts. The scores reach `on_evaluation` of all callbacks.
    """

    def __init__(self, every_steps: int, games: int = 10, epsilon: float = 0.01, seed: int = 0) -> None:
        if every_steps < 1 or games < 1:
            raise ConfigError(f"every_steps and games must be at least 1, got {every_steps} and {games}")
        self.every_steps, self.games, self.epsilon, self.seed = every_steps, games, epsilon, seed
        self.last: Scored | None = None
        self._next = every_steps

    def on_start(self, run: Training) -> None:
        self._next = (run.steps // self.every_steps + 1) * self.every_steps

    def on_tick(self, run: Training, tick: Any) -> None:
        if tick.steps < self._next:
            return
        self._next = (tick.steps // self.every_steps + 1) * self.every_steps
        self.last = from_run(run.agent).score(self.games, self.epsilon, self.seed)
        run.report_evaluation(self.last)


class EarlyStop(Callback):
    """Stop when the score has not risen by `min_gain` for `patience_steps` steps, or has reached `at_score`.

    The score is that of evaluations where there are any (put `Evaluate` before it), otherwise the mean of the last 100
    games.
    """

    def __init__(self, patience_steps: int = 0, min_gain: float = 0.0, at_score: float = math.inf) -> None:
        if patience_steps < 1 and math.isinf(at_score):
            raise ConfigError("EarlyStop needs patience_steps= or at_score=")
        self.patience_steps, self.min_gain, self.at_score = patience_steps, min_gain, at_score
        self.best, self._best_steps, self._evaluated = -math.inf, 0, False

    def on_start(self, run: Training) -> None:
        self._best_steps = run.steps

    def on_game(self, run: Training, game: GameEnd) -> None:
        # The mean of a few games says little, and falls when the first lucky ones leave the last 100.
        if not self._evaluated and run.games >= 100 and run.mean_score is not None:
            self._see(run, run.mean_score)

    def on_evaluation(self, run: Training, evaluation: Scored) -> None:
        self._evaluated = True
        self._see(run, evaluation.mean)

    def _see(self, run: Training, score: float) -> None:
        if score >= self.at_score:
            run.stop(f"score {score:.2f} reached {self.at_score:g}")
        elif score > self.best + self.min_gain or math.isinf(self.best):
            self.best, self._best_steps = score, run.steps
        elif self.patience_steps and run.steps - self._best_steps >= self.patience_steps:
            run.stop(f"no gain over {self.best:.2f} for {run.steps - self._best_steps:,} steps")


class _Tracker(Callback):
    """What all trackers have in common: which numbers they get, and when."""

    module, install = "", ""

    def __init__(self, **options: Any) -> None:
        self.options = options  # of the library's own start function
        self.api: Any = None

    def on_start(self, run: Training) -> None:
        try:
            self.api = importlib.import_module(self.module)
        except ModuleNotFoundError as e:
            raise ConfigError(f"{type(self).__name__} needs {self.module}", f"pip install {self.install}") from e
        self.begin(run, run.config.to_dict())

    def on_game(self, run: Training, game: GameEnd) -> None:
        self.send(run, {"game/score": game.score, "game/steps": game.steps})

    def on_snapshot(self, run: Training, snapshot: Snapshot) -> None:
        found = {
            "train/mean_score": snapshot.mean_score,
            "train/loss": snapshot.loss,
            "train/epsilon": snapshot.epsilon,
            "speed/steps_per_s": snapshot.steps_per_s,
            "speed/updates_per_s": snapshot.updates_per_s,
        }
        self.send(run, {name: value for name, value in found.items() if value is not None})

    def on_log(self, run: Training, values: Mapping[str, float]) -> None:
        self.send(run, values)

    def on_end(self, run: Training, ended: str) -> None:
        if self.api is not None:
            self.finish(ended)

    def begin(self, run: Training, config: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def send(self, run: Training, values: Mapping[str, float]) -> None:
        raise NotImplementedError

    def finish(self, ended: str) -> None:
        raise NotImplementedError


class Wandb(_Tracker):
    """Weights & Biases: `Wandb(project="pong")`; the keywords are those of `wandb.init`."""

    module = install = "wandb"
    _run: Any = None

    def begin(self, run: Training, config: Mapping[str, Any]) -> None:
        self._run = self.api.init(**{"config": dict(config)} | self.options)

    def send(self, run: Training, values: Mapping[str, float]) -> None:
        self._run.log({**values, "steps": run.steps})

    def finish(self, ended: str) -> None:
        if self._run is not None:
            self._run.finish(exit_code=int(ended.endswith(("Error", "Failed", "Died"))))


class Trackio(_Tracker):
    """Trackio: `Trackio(project="pong")`; the keywords are those of `trackio.init`."""

    module = install = "trackio"

    def begin(self, run: Training, config: Mapping[str, Any]) -> None:
        self.api.init(**{"project": "dqnitro", "config": dict(config)} | self.options)

    def send(self, run: Training, values: Mapping[str, float]) -> None:
        self.api.log({**values, "steps": run.steps})

    def finish(self, ended: str) -> None:
        self.api.finish()


class Mlflow(_Tracker):
    """MLflow: `Mlflow(run_name="pong")`; the keywords are those of `mlflow.start_run`."""

    module = install = "mlflow"

    def begin(self, run: Training, config: Mapping[str, Any]) -> None:
        self.api.start_run(**self.options)
        self.api.log_params(dict(config))

    def send(self, run: Training, values: Mapping[str, float]) -> None:
        self.api.log_metrics(dict(values), step=run.steps)

    def finish(self, ended: str) -> None:
        self.api.end_run("FAILED" if ended.endswith(("Error", "Failed", "Died")) else "FINISHED")


class OptunaPruning(Callback):
    """Report the score to an Optuna trial and stop the run when the trial should be pruned.

    After `train`, raise `optuna.TrialPruned()` if `pruned` is set. The score is that of evaluations where there are
    any, otherwise the mean of the last 100 games, every `every_steps` steps.
    """

    def __init__(self, trial: Any, every_steps: int = 1_000) -> None:
        self.trial, self.every_steps, self.pruned = trial, every_steps, False
        self._next, self._evaluated = every_steps, False

    def on_tick(self, run: Training, tick: Any) -> None:
        if tick.steps < self._next:
            return
        self._next = (tick.steps // self.every_steps + 1) * self.every_steps
        if not self._evaluated and run.mean_score is not None:
            self._report(run, run.mean_score)

    def on_evaluation(self, run: Training, evaluation: Scored) -> None:
        self._evaluated = True
        self._report(run, evaluation.mean)

    def _report(self, run: Training, score: float) -> None:
        self.trial.report(score, run.steps)
        if self.trial.should_prune():
            self.pruned = True
            run.stop("pruned")
