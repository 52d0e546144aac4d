"""A run from start to end: its folder, sinks, checkpoints and limits. `train` and `resume` are the API."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dqnitro import own
from dqnitro.agent import Agent, Tick, shared_envs
from dqnitro.callback import Callback, Training
from dqnitro.clock import Every
from dqnitro.common.files import now_text
from dqnitro.common.signals import Interrupted, Signals
from dqnitro.config import Config
from dqnitro.envs.names import check_trust, know_pieces
from dqnitro.errors import (
    CallbackFailed,
    CheckpointError,
    ConfigError,
    DivergedError,
    DQNitroError,
    EnvFailed,
    PieceFailed,
    PlayerDied,
    StorageError,
    user_line,
)
from dqnitro.evaluation import make_evaluations
from dqnitro.events import JsonlSink, Sink, Tally, TensorBoardSink, close_all
from dqnitro.learn.fixed_order import fixed_order
from dqnitro.requirements import check_runner
from dqnitro.run import make_run
from dqnitro.store import checkpoint, shards
from dqnitro.store.read_run import player_changes
from dqnitro.store.run_folder import LAST, RunFolder
from dqnitro.store.saved_record import check_record

# may change on resume
LIMITS = (
    "max_steps", "max_minutes", "stop_at_score", "checkpoint_every_s", "log_every_s", "player_timeout_s",
    "eval_every_steps", "games_per_eval", "eval_epsilon",
)  # fmt: skip
PLAYERS = ("players", "most_players", "player_changes")
LAYOUT = ("gpus", *PLAYERS)  # may change as well: what the ranks or the players had is dealt out again
ENDINGS = ("solved", "steps", "minutes")  # of a run that did what it was asked for
EXIT_CODES = {"solved": 0, "steps": 0, "minutes": 0, "callback": 0, "SIGHUP": 129, "SIGINT": 130, "SIGTERM": 143}


@dataclass(frozen=True)
class Result:
    """How a run ended. `ended` is solved, steps, minutes, callback, SIGINT, SIGTERM or SIGHUP."""

    ended: str
    config: Config = dataclasses.field(repr=False)
    run_dir: pathlib.Path | None
    wall_s: float  # since the first step, over all resumes
    startup_s: float  # before the first step of this call: imports excluded, compiling included
    fill_s: float  # from the first step of this call to its first update, 0 if the replay was full already
    loop_s: float  # from the first step of this call to its last
    steps: int
    updates: int
    games: int
    mean_score: float | None  # of the last 100 games
    steps_per_s: float
    frames_per_s: float
    samples_per_s: float  # transitions learned from
    bytes_per_transition: float
    share: dict[str, float]  # of the wall clock, by phase; "loop" is the overhead of the loop itself
    # The run's own agent, closed; `dqnitro.train` gives a `TrainedAgent` in its place.
    agent: Any = dataclasses.field(repr=False, compare=False)
    reason: str = ""  # why a callback stopped it
    # With `eval_every_steps`: the best and the last evaluation, how many there were, and how many are left to play.
    evaluations: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.ended]

    def to_dict(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("agent", "config")}
        out["run_dir"] = str(self.run_dir) if self.run_dir else None
        out["env_id"], out["seed"] = self.config.env_id, self.config.seed
        return out


def train(
    config: Config,
    run_dir: str | os.PathLike[str] | None = None,
    *,
    recipe: str = "custom",
    rungs: Sequence[str] = (),
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Train until a limit of the config is reached or a signal arrives.

    With `run_dir`, everything is stored there (metrics, TensorBoard, checkpoints, weights, summary) and the run can be
    resumed; without it nothing is written. Raises ConfigError before the first step if the config cannot work.
    """
    started = time.perf_counter()
    know_pieces(config)
    check_runner(config)
    with fixed_order(config), Signals().installed() as signals:
        folder = None if run_dir is None else RunFolder.create(pathlib.Path(run_dir), config, recipe, rungs)
        discard = folder.discard if folder else lambda: None
        try:
            with signals.starting(discard), _naming_pieces(config, starting=True):
                agent, ticks = make_run(config)
        except BaseException:
            discard()
            raise
        try:
            return _run(ticks, Training(agent, folder and folder.path, callbacks), folder, sinks, started, None)
        finally:
            agent.close()
            if folder:
                folder.unlock()


def resume(
    run_dir: str | os.PathLike[str],
    *,
    sinks: Sequence[Sink] = (),
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    **changes: Any,
) -> Result:
    """Continue a stored run from its newest checkpoint. Only limits may change; all else decides what is computed.

    `trust`: if the run's environment is `module:Id`, import that module, which may be the code of another person.
    """
    started = time.perf_counter()
    folder = RunFolder(pathlib.Path(run_dir))
    if not folder.path.is_dir():
        raise CheckpointError(f"{folder.path} does not exist", "`dqnitro runs` lists all runs")
    for name in changes:
        if name not in (*LIMITS, *LAYOUT):
            raise ConfigError(f"{name} cannot change on resume", f"these can: {', '.join((*LIMITS, *LAYOUT))}")
    folder.lock()
    try:
        folder.check_places()
        manifest = checkpoint.load(folder.path, lambda name: False)[1]
        config = check_record(manifest, folder.path).replace(**changes)
        check_trust(config, trust)
        loaded = None if config.gpus > 1 else shards.load(folder.path, 0, 1)  # of several ranks each reads its own
        with fixed_order(config), Signals().installed():
            made = _made_after(folder, manifest) if config.most_players and not set(changes) & set(PLAYERS) else []
            return _resume(folder, config, loaded, manifest, (sinks, callbacks), started, made)
    finally:
        folder.unlock()


def _resume(
    folder: RunFolder,
    config: Config,
    loaded: shards.Loaded | None,
    manifest: dict[str, Any],
    consumers: tuple[Sequence[Sink], Sequence[Callback]],
    started: float,
    made: Sequence[tuple[int, int]],
) -> Result:
    """`made`: changes of the number of players between the checkpoint and what ended the run; made once more."""
    check_runner(config)
    sinks, callbacks = consumers
    with Signals().installed() as signals, signals.starting(), _naming_pieces(config, starting=True):
        agent, ticks = make_run(config)
    try:
        if made:
            shared = shared_envs(agent)
            assert shared is not None
            shared.repeat(made)
        try:
            with signals.starting():  # games are played again up to where they were
                saved_by = _load(agent, folder, loaded)
        except (LookupError, ValueError, RuntimeError, TypeError, AttributeError, ArithmeticError, AssertionError) as e:
            raise CheckpointError(
                f"{folder.path}: the checkpoint does not fit its config ({type(e).__name__}: {e})"
            ) from e
        if saved_by != config.gpus:
            ranks = f"{saved_by} rank{'s' * (saved_by > 1)}"
            _say(f"saved by {ranks}: replay and environments are dealt out to {config.gpus}")
        return _run(ticks, Training(agent, folder.path, callbacks), folder, sinks, started, manifest)
    finally:
        agent.close()


def _load(agent: Any, folder: RunFolder, loaded: shards.Loaded | None) -> int:
    """Put an agent where its checkpoint was; how many ranks had saved it."""
    if loaded is None:
        return agent.load(folder.path)
    agent.set_state(loaded.arrays, loaded.record)
    return loaded.ranks


def _made_after(folder: RunFolder, manifest: dict[str, Any]) -> list[tuple[int, int]]:
    return player_changes(folder.path / "metrics.jsonl", int(manifest["metrics_bytes"]))


def _file_sinks(
    folder: RunFolder | None, manifest: dict[str, Any] | None, config: Config
) -> tuple[JsonlSink | None, list[Sink]]:
    if folder is None:
        return None, []
    keep = None if manifest is None else int(manifest["metrics_bytes"])
    jsonl = JsonlSink(folder.path / "metrics.jsonl", keep)
    purge = None if manifest is None else int(manifest["clock"]["steps"]) + 1
    return jsonl, [jsonl, TensorBoardSink(folder.path / "tensorboard", purge, config.to_dict())]


class _Books:
    """What is written down of a run while it goes on: figures, evaluations and, in its folder, checkpoints."""

    def __init__(
        self, training: Training, folder: RunFolder | None, extra: Sequence[Sink], started: float,
        manifest: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        agent, c = training.agent, training.config
        self.training, self.folder = training, folder
        self._jsonl, own = _file_sinks(folder, manifest, c)
        self._sinks: list[Sink] = [*own, *extra, training.sink]
        self.tell("running")
        self.wall_before = float(manifest["tally"]["wall_s"]) if manifest else 0.0
        self.startup_s = time.perf_counter() - started
        self.tally = Tally(agent, self._sinks, c.log_every_s, self.wall_before)
        if manifest:
            self.tally.set_state(manifest["tally"])
        shared = shared_envs(agent)
        self._changes: deque[tuple[int, int]] = deque() if shared is None else shared.changes
        self.evaluations = make_evaluations(training, manifest is not None, _say)

    def note_players(self) -> None:
        """Write down how many players share the environments from which chunk on, where that has changed."""
        while self._changes:
            chunk, players = self._changes.popleft()
            if self._jsonl:
                self._jsonl.players(chunk, players, self.tally.wall_s, self.training.agent.clock.steps)

    def tell(self, state: str, **facts: Any) -> None:
        """Write into the folder how the run stands."""
        if self.folder:
            self.folder.write_summary(state, **{"env_id": self.training.config.env_id} | facts)

    def save(self) -> None:
        agent = self.training.agent
        if self.folder is None or self._jsonl is None:
            return
        arrays, record = agent.get_state()
        self.note_players()
        record |= {
            "config": agent.config.to_dict(),
            "tally": self.tally.get_state(),
            "metrics_bytes": self._jsonl.position(),
            "saved": now_text(),
        }
        # A run on several GPUs has other ranks, which save their shards.
        others = getattr(agent, "save_others", None)
        checkpoint.save(self.folder.path / "checkpoints", agent.clock.steps, arrays, record, others)
        save_weights(agent, self.folder.path)
        self.evaluations.saved()

    def result(self, ended: str) -> Result:
        loop_s = self.tally.wall_s - self.wall_before
        times = {"startup_s": self.startup_s, "fill_s": self.tally.fill_s, "loop_s": loop_s}
        return _result(ended, self.training, self.tally, self.folder, times)

    def close(self) -> None:
        self.evaluations.close()
        close_all(self._sinks)


def _run(
    ticks: Iterator[Tick],
    training: Training,
    folder: RunFolder | None,
    extra: Sequence[Sink],
    started: float,
    manifest: dict[str, Any] | None,
) -> Result:
    books = _Books(training, folder, extra, started, manifest)
    try:
        with Signals().installed() as signals:
            try:
                training.begin(books.tally)
                with _naming_pieces(training.config):
                    ended = _consume(ticks, books, signals)
                result = books.result(ended)
                books.tally.last_snapshot(training.agent.clock.epsilon())
                books.save()
                if ended in ENDINGS:
                    books.evaluations.finish(lambda: signals.caught)
                result = dataclasses.replace(result, evaluations=books.evaluations.facts())
            except (DivergedError, PlayerDied, EnvFailed, CallbackFailed) as e:
                books.save()
                books.tell("diverged" if isinstance(e, DivergedError) else "crashed")
                with contextlib.suppress(CallbackFailed):  # one error is enough
                    training.end(type(e).__name__)
                raise
    except (StorageError, PieceFailed):
        with contextlib.suppress(StorageError):  # no room for this either; `RunFolder.state` knows without it
            books.tell("crashed")
        raise
    finally:
        books.close()
    books.tell(ended if ended in ENDINGS else "stopped", **result.to_dict())
    training.end(ended)
    return result


@contextlib.contextmanager
def _naming_pieces(config: Config, starting: bool = False) -> Iterator[None]:
    """An exception in a run with a network, loss, optimiser or replay of the user's own is told as such: they raise it,
    or what they return leads to it.
    """
    try:
        yield
    except DQNitroError:
        raise
    except Exception as e:
        pieces = [f"the {kind}" for kind in own.KINDS if own.is_own(kind, str(getattr(config, kind)))]
        if not pieces:
            raise
        what = f"{' or '.join(pieces)} of your own"
        if starting:
            raise ConfigError(f"{user_line(e)}{type(e).__name__}: {e} (in a run with {what})") from e
        raise PieceFailed(what, e) from e


def _consume(ticks: Iterator[Tick], books: _Books, signals: Signals) -> str:
    """Follow the loop until a limit, a callback or a signal ends it; returns which one."""
    training, tally = books.training, books.tally
    agent, c = training.agent, training.config
    autosave = Every(c.checkpoint_every_s)
    deadline = books.wall_before + c.max_minutes * 60 if c.max_minutes else math.inf
    if c.max_steps and agent.clock.steps >= c.max_steps:
        return "steps"
    try:
        for tick in ticks:
            books.note_players()
            tally.on_tick(tick)
            training.on_tick(tick)
            books.evaluations.on_tick(tick.steps)
            if signals.caught:
                return signals.caught
            if tick.ends and tally.solved(c.stop_at_score):
                return "solved"
            if c.max_steps and tick.steps >= c.max_steps:
                return "steps"
            if tally.wall_s >= deadline:
                return "minutes"
            if training.wants_stop:
                return "callback"
            if training.take_checkpoint_request() or autosave.due():
                books.save()
    except Interrupted:  # in a step that did not end; it can be saved as it was before that step
        return signals.caught or "SIGINT"
    raise AssertionError("the loop is endless")


def _result(ended: str, training: Training, tally: Tally, folder: RunFolder | None, times: dict[str, float]) -> Result:
    agent = training.agent
    wall, steps = tally.wall_s, agent.clock.steps
    share = {k: v / wall for k, v in agent.phases.seconds.items()}
    share["loop"] = max(0.0, 1.0 - sum(share.values()))
    rate = steps / wall
    return Result(
        ended=ended,
        config=agent.config,
        run_dir=folder.path if folder else None,
        wall_s=wall,
        **times,
        steps=steps,
        updates=agent.clock.updates,
        games=tally.games,
        mean_score=tally.mean_score,
        steps_per_s=rate,
        frames_per_s=rate * agent.envs.spec.frames_per_step,
        samples_per_s=agent.clock.updates * agent.config.batch_size / wall,
        bytes_per_transition=agent.replay.bytes_per_transition,
        share=share,
        agent=agent,
        reason=training.reason,
        evaluations={},
    )


def _say(text: str) -> None:
    sys.stderr.write(f"dqnitro: {text}\n")


def save_weights(agent: Agent, folder: pathlib.Path) -> None:
    """model.safetensors: only the online network, for `play` and for other programs."""
    facts = {"env_id": agent.config.env_id, "steps": str(agent.clock.steps)}
    checkpoint.save_weights(folder / LAST, agent.learner.weights(), facts)
