"""Callbacks: the user's own code beside the loop. They see every tick, game and evaluation, and they may act.

    class Patience(Callback):
        def on_game(self, run, game):
            if run.games > 500 and run.mean_score < 10:
                run.stop("no progress")

A callback is called between two ticks, when the run is at rest: it may take its time, and the run can be saved. An
exception in one ends the run with a checkpoint.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dqnitro.agent import Agent, Tick
from dqnitro.config import Config
from dqnitro.envs.base import GameEnd
from dqnitro.errors import CallbackFailed, ConfigError
from dqnitro.events import NullSink, Snapshot, Tally

if TYPE_CHECKING:
    from dqnitro.common.intervals import Scored


class Callback:
    """Override what you need. `run` is the run that is under way."""

    def on_start(self, run: Training) -> None:
        """Before the first step of this call of `train` or `resume`."""

    def on_tick(self, run: Training, tick: Tick) -> None:
        """After every vector step (runner `device`: after a CUDA graph of several). Keep it short."""

    def on_game(self, run: Training, game: GameEnd) -> None:
        """A game ended."""

    def on_snapshot(self, run: Training, snapshot: Snapshot) -> None:
        """Every `log_every_s` seconds, and at the end: speed, loss, mean score."""

    def on_evaluation(self, run: Training, evaluation: Scored) -> None:
        """The agent was scored over fresh games (`eval_every_steps`, `Evaluate`, or `run.report_evaluation`)."""

    def on_log(self, run: Training, values: Mapping[str, float]) -> None:
        """Some callback called `run.log`."""

    def on_end(self, run: Training, ended: str) -> None:
        """The run has ended and was saved; `ended` is that of the result, or the name of the error."""


def as_callbacks(given: Callback | Sequence[Callback]) -> tuple[Callback, ...]:
    """One callback or several; ConfigError for anything else, before the run begins."""
    several: tuple[Any, ...] = (given,) if isinstance(given, Callback) or not isinstance(given, Iterable) else (*given,)
    for callback in several:
        if isinstance(callback, type) and issubclass(callback, Callback):
            raise ConfigError(f"callbacks= got the class {callback.__name__}", f"pass an object: {callback.__name__}()")
        if not isinstance(callback, Callback):
            raise ConfigError(f"callbacks= got {callback!r}", "pass objects of classes derived from dqnitro.Callback")
    return several


class Training:
    """A run under way, as callbacks see it: where it stands, and what may be asked of it."""

    def __init__(self, agent: Agent, run_dir: pathlib.Path | None, callbacks: Sequence[Callback]) -> None:
        self.agent, self.run_dir = agent, run_dir
        self.reason = ""  # why a callback stopped the run
        self.wants_stop = self._wants_checkpoint = False
        self._callbacks = list(callbacks)
        self._tally: Tally | None = None
        self.sink = _Forward(self)

    # ---- where the run stands

    @property
    def config(self) -> Config:
        return self.agent.config

    @property
    def steps(self) -> int:
        return self.agent.clock.steps

    @property
    def updates(self) -> int:
        return self.agent.clock.updates

    @property
    def games(self) -> int:
        return self._tally.games if self._tally else 0

    @property
    def mean_score(self) -> float | None:
        """Of the last 100 games; None before the first."""
        return self._tally.mean_score if self._tally else None

    @property
    def wall_s(self) -> float:
        """Seconds since the first step, over all resumes."""
        return self._tally.wall_s if self._tally else 0.0

    # ---- what may be asked of it

    def stop(self, reason: str = "") -> None:
        """End the run after this tick. It is saved, `result.ended` is "callback" and `result.reason` this text."""
        self.wants_stop, self.reason = True, reason

    def checkpoint(self) -> None:
        """Save after this tick (a run without a folder has nowhere to save to)."""
        self._wants_checkpoint = True

    def log(self, values: Mapping[str, float], steps: int | None = None) -> None:
        """Store numbers under names of your own: in metrics.jsonl, in TensorBoard, and with all `on_log`.

        `steps`: the step that they are of, if it is not the last one.
        """
        if self._tally is None:
            raise RuntimeError("run.log can be used from on_start on")
        numbers = {name: float(value) for name, value in values.items()}
        self._tally.log(numbers, steps)
        self._call("on_log", numbers)

    def report_evaluation(self, evaluation: Scored, steps: int | None = None) -> None:
        """Store the scores of fresh games, and show them to all `on_evaluation`."""
        self.log({"evaluation/mean": evaluation.mean, "evaluation/games": len(evaluation.scores)}, steps)
        self._call("on_evaluation", evaluation)

    # ---- what the session calls

    def begin(self, tally: Tally) -> None:
        self._tally = tally
        self._call("on_start")

    def on_tick(self, tick: Tick) -> None:
        if self._callbacks:
            self._call("on_tick", tick)

    def take_checkpoint_request(self) -> bool:
        wanted, self._wants_checkpoint = self._wants_checkpoint, False
        return wanted

    def end(self, ended: str) -> None:
        """Every callback hears of the end, also when another one fails; the first failure is raised."""
        failures = [e for e in self._calls("on_end", ended) if e is not None]
        if failures:
            raise failures[0]

    def _call(self, name: str, *args: Any) -> None:
        for failure in self._calls(name, *args):
            if failure is not None:
                raise failure

    def _calls(self, name: str, *args: Any) -> Iterator[CallbackFailed | None]:
        for callback in self._callbacks:
            try:
                getattr(callback, name)(self, *args)
                yield None
            except CallbackFailed as e:  # of a callback that this one called through `run`
                yield e
            except Exception as e:
                error = CallbackFailed(f"{type(callback).__name__}.{name}", e)
                error.__cause__ = e
                yield error


class _Forward(NullSink):
    """The sink through which callbacks hear of games and snapshots."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def game(self, end: GameEnd, wall_s: float, steps: int, avg_reward: float) -> None:
        self._training._call("on_game", end)

    def snapshot(self, s: Snapshot) -> None:
        self._training._call("on_snapshot", s)
