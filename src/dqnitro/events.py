"""Consumers of the loop: one tally, and sinks that show or store its results.

The tally reads every tick, which costs a few comparisons. Sinks are called only when a game ended, 100 updates passed
or a second passed. `NullSink` does nothing, so no code has to ask whether logging is on.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any, Protocol

from dqnitro.agent import PHASES, Agent, Tick, shared_envs
from dqnitro.clock import Every
from dqnitro.common.files import writing
from dqnitro.envs.base import GameEnd

SMOOTHING = 0.98  # of avg_reward and avg_loss, as in Lapan's book
LOSS_EVERY_UPDATES = 100


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at one moment, in human units."""

    wall_s: float  # since the first step; resumed runs continue to count
    steps: int
    updates: int
    games: int
    epsilon: float
    steps_per_s: float  # since the last snapshot
    frames_per_s: float
    updates_per_s: float
    mean_score: float | None  # of the last 100 games
    last_score: float | None
    loss: float | None  # smoothed
    share: dict[str, float]  # of the time since the last snapshot, by phase; "loop" is everything else
    best_value: float | None = None  # of the best action in the newest observations, mean over environments
    players: int | None = None  # runner cluster: that share the environments

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Sink(Protocol):
    """Receives the events of a run."""

    def game(self, end: GameEnd, wall_s: float, steps: int, avg_reward: float) -> None: ...

    def loss(self, value: float, avg: float, wall_s: float, steps: int, updates: int) -> None: ...

    def snapshot(self, s: Snapshot) -> None: ...

    def log(self, values: Mapping[str, float], wall_s: float, steps: int) -> None: ...

    def close(self) -> None: ...


class NullSink:
    """Ignores all events."""

    def game(self, end: GameEnd, wall_s: float, steps: int, avg_reward: float) -> None: ...

    def loss(self, value: float, avg: float, wall_s: float, steps: int, updates: int) -> None: ...

    def snapshot(self, s: Snapshot) -> None: ...

    def log(self, values: Mapping[str, float], wall_s: float, steps: int) -> None: ...

    def close(self) -> None: ...


class JsonlSink(NullSink):
    """metrics.jsonl: one object per line, `event` says which kind. Pages and comparisons read this file."""

    def __init__(self, path: pathlib.Path, keep_bytes: int | None = None) -> None:
        # A resumed run drops what was written after its checkpoint: it will repeat those steps.
        self._path = path
        with writing(path.parent):
            self._file: IO[str] = path.open("a", encoding="utf-8")
            if keep_bytes is not None and keep_bytes < os.path.getsize(path):
                self._file.truncate(keep_bytes)

    def _write(self, event: str, **values: Any) -> None:
        with writing(self._path.parent):
            self._file.write(json.dumps({"event": event, **values}) + "\n")

    def _flush(self) -> None:
        with writing(self._path.parent):
            self._file.flush()

    def game(self, end: GameEnd, wall_s: float, steps: int, avg_reward: float) -> None:
        self._write(
            "game", wall_s=round(wall_s, 4), steps=steps, score=end.score, game_steps=end.steps, avg_reward=avg_reward
        )

    def loss(self, value: float, avg: float, wall_s: float, steps: int, updates: int) -> None:
        self._write("loss", wall_s=round(wall_s, 4), steps=steps, updates=updates, loss=value, avg_loss=avg)

    def snapshot(self, s: Snapshot) -> None:
        self._write("progress", **s.to_dict())
        self._flush()

    def log(self, values: Mapping[str, float], wall_s: float, steps: int) -> None:
        self._write("log", wall_s=round(wall_s, 4), steps=steps, values=dict(values))

    def players(self, chunk: int, players: int, wall_s: float, steps: int) -> None:
        """From this chunk on that many players share the environments: with seed and config this determines the run."""
        self._write("players", wall_s=round(wall_s, 4), steps=steps, chunk=chunk, players=players)
        self._flush()  # a run that is lost makes the same change again

    def position(self) -> int:
        self._flush()
        return os.path.getsize(self._path)

    def close(self) -> None:
        with writing(self._path.parent):
            self._file.close()


class TensorBoardSink(NullSink):
    """Curves by step, in groups and with units in their names; TensorBoard can also show them by wall clock.

    `config` is shown as text.
    """

    def __init__(
        self, folder: pathlib.Path, purge_step: int | None = None, config: Mapping[str, Any] | None = None
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second of import time: only when training

        self._folder = folder
        _do_not_print_what_its_writer_meets()
        with writing(folder):
            self._writer = SummaryWriter(str(folder), purge_step=purge_step)
            if config is not None and purge_step is None:
                self._writer.add_text("config", _as_table(config), 0)

    def _add(self, at: int, values: Mapping[str, float]) -> None:
        with writing(self._folder):
            for name, value in values.items():
                self._writer.add_scalar(name, value, at)

    def game(self, end: GameEnd, wall_s: float, steps: int, avg_reward: float) -> None:
        self._add(steps, {"score/game_points": end.score, "game/length_steps": end.steps})

    def loss(self, value: float, avg: float, wall_s: float, steps: int, updates: int) -> None:
        self._add(steps, {"learning/loss": value, "learning/loss_smoothed": avg})

    def snapshot(self, s: Snapshot) -> None:
        values = {
            "exploration/epsilon_probability": s.epsilon, "speed/steps_per_s": s.steps_per_s,
            "speed/frames_per_s": s.frames_per_s, "speed/updates_per_s": s.updates_per_s,
        }  # fmt: skip
        if s.players is not None:
            values["speed/players"] = s.players
        if s.mean_score is not None:
            values["score/mean_of_last_100_games_points"] = s.mean_score
        if s.best_value is not None:  # discounted and, as the rewards it is learned from, clipped
            values["learning/mean_best_q_discounted_reward"] = s.best_value
        self._add(s.steps, values | {f"time/{phase}_share": v for phase, v in s.share.items()})

    def log(self, values: Mapping[str, float], wall_s: float, steps: int) -> None:
        self._add(steps, values)

    def close(self) -> None:
        with writing(self._folder):
            self._writer.close()


class _QuietWriter:
    """What to do with an exception that nobody caught in a thread: print it as usual, unless TensorBoard's thread could
    not write.
    """

    def __init__(self, usual: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._usual = usual

    def __call__(self, args: threading.ExceptHookArgs) -> None:
        writes = type(args.thread).__module__.startswith("tensorboard.")
        if not (writes and isinstance(args.exc_value, OSError)):
            self._usual(args)


def _do_not_print_what_its_writer_meets() -> None:
    """TensorBoard writes in a thread of its own. What a disk does to it is raised by the next call, as one line for the
    user, so the thread must not print a traceback as well.
    """
    if not isinstance(threading.excepthook, _QuietWriter):
        threading.excepthook = _QuietWriter(threading.excepthook)


def _as_table(config: Mapping[str, Any]) -> str:
    """Settings as a Markdown table, which TensorBoard renders."""
    return "\n".join(["| setting | value |", "| --- | --- |", *(f"| {k} | {v} |" for k, v in config.items())])


def close_all(sinks: Sequence[Sink]) -> None:
    """Close every sink, also when one of them fails; the first failure is raised, unless another error is under way
    already.
    """
    under_way, first = sys.exception(), None
    for sink in sinks:
        try:
            sink.close()
        except Exception as e:
            first = first or e
    if first is not None and under_way is None:
        raise first


class Tally:
    """Follows the ticks of one run and feeds the sinks."""

    def __init__(self, agent: Agent, sinks: Iterable[Sink], log_every_s: float, wall_before_s: float = 0.0) -> None:
        self._agent, self._sinks = agent, list(sinks)
        self._start = time.perf_counter() - wall_before_s
        self._every = Every(log_every_s)
        self.scores: deque[float] = deque(maxlen=100)
        self.games = 0
        self.avg_reward: float | None = None
        self.avg_loss: float | None = None
        self._next_loss = (agent.clock.updates // LOSS_EVERY_UPDATES + 1) * LOSS_EVERY_UPDATES
        self.fill_s = 0.0  # from here to the first update
        self._filling = not agent.clock.updates
        self._mark = (self.wall_s, agent.clock.steps, agent.clock.updates, dict(agent.phases.seconds))

    @property
    def wall_s(self) -> float:
        return time.perf_counter() - self._start

    @property
    def mean_score(self) -> float | None:
        return sum(self.scores) / len(self.scores) if self.scores else None

    def solved(self, bar: float) -> bool:
        """Whether the mean score of the last 100 finished games, never of fewer, reaches the bar."""
        return len(self.scores) == 100 and sum(self.scores) / 100 >= bar

    def on_tick(self, tick: Tick) -> None:
        if self._filling:
            self.fill_s, self._filling = self.wall_s, not tick.updates
        for end in tick.ends:
            self._on_game(end, tick.steps)
        if tick.updates >= self._next_loss and tick.loss is not None:
            self._next_loss = (tick.updates // LOSS_EVERY_UPDATES + 1) * LOSS_EVERY_UPDATES
            self._on_loss(tick)
        if self._every.due():
            self.take_snapshot(tick.epsilon)

    def _on_game(self, end: GameEnd, steps: int) -> None:
        self.games += 1
        self.scores.append(end.score)
        old = self.avg_reward
        self.avg_reward = end.score if old is None else SMOOTHING * old + (1 - SMOOTHING) * end.score
        for sink in self._sinks:
            sink.game(end, self.wall_s, steps, self.avg_reward)

    def _on_loss(self, tick: Tick) -> None:
        assert tick.loss is not None
        self._agent.learner.check_finite()
        value = tick.loss.item()  # synchronises with the GPU, once per 100 updates
        self.avg_loss = value if self.avg_loss is None else SMOOTHING * self.avg_loss + (1 - SMOOTHING) * value
        for sink in self._sinks:
            sink.loss(value, self.avg_loss, self.wall_s, tick.steps, tick.updates)

    def last_snapshot(self, epsilon: float) -> None:
        """At the end of a run, unless there is one of this very step: a finished run that is resumed ends at once."""
        if self._mark[1] != self._agent.clock.steps:
            self.take_snapshot(epsilon)

    def log(self, values: Mapping[str, float], steps: int | None = None) -> None:
        """Numbers of the user's own, as of now or of an earlier step."""
        for sink in self._sinks:
            sink.log(values, self.wall_s, self._agent.clock.steps if steps is None else steps)

    def take_snapshot(self, epsilon: float) -> Snapshot:
        a = self._agent
        now = (self.wall_s, a.clock.steps, a.clock.updates, dict(a.phases.seconds))
        seconds = max(now[0] - self._mark[0], 1e-9)
        share = {p: (now[3][p] - self._mark[3][p]) / seconds for p in PHASES}
        share["loop"] = max(0.0, 1.0 - sum(share.values()))
        steps_per_s = (now[1] - self._mark[1]) / seconds
        snapshot = Snapshot(
            wall_s=now[0],
            steps=now[1],
            updates=now[2],
            games=self.games,
            epsilon=epsilon,
            steps_per_s=steps_per_s,
            frames_per_s=steps_per_s * a.envs.spec.frames_per_step,
            updates_per_s=(now[2] - self._mark[2]) / seconds,
            mean_score=self.mean_score,
            last_score=self.scores[-1] if self.scores else None,
            loss=self.avg_loss,
            share=share,
            best_value=a.learner.mean_best_value(),
            players=None if (shared := shared_envs(a)) is None else shared.players,
        )
        self._mark = now
        for sink in self._sinks:
            sink.snapshot(snapshot)
        return snapshot

    def get_state(self) -> dict[str, Any]:
        return {
            "wall_s": self.wall_s,
            "scores": list(self.scores),
            "games": self.games,
            "avg_reward": self.avg_reward,
            "avg_loss": self.avg_loss,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.scores.extend(float(s) for s in state["scores"])
        self.games = int(state["games"])
        self.avg_reward, self.avg_loss = state["avg_reward"], state["avg_loss"]


def time_left_s(s: Snapshot, max_steps: int, max_minutes: float) -> float | None:
    """Seconds until a limit ends the run, at the present speed; None without a limit."""
    left = [math.inf]
    if max_steps and s.steps_per_s > 0:
        left.append(max(0, max_steps - s.steps) / s.steps_per_s)
    if max_minutes:
        left.append(max(0.0, max_minutes * 60 - s.wall_s))
    shortest = min(left)
    return None if math.isinf(shortest) else shortest
