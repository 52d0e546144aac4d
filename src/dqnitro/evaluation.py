"""Evaluation apart from training: fresh games at fixed points of a run, which goes on meanwhile (`eval_every_steps`).

Between two ticks the weights are copied to a file; a process of its own, with lower priority, plays the games and
writes their scores (`python -m dqnitro.evaluation`, started with the first evaluation). The run waits for nothing and
shares nothing with it: no environment, no random number, no thread setting. So it is the same run, bit for bit, with
evaluations or without. What it costs: the copy (tens of milliseconds), and what the other process takes of the cores,
of the GPU and of memory while it plays.

Everything is in files, so a run that is killed plays after its resume what was left to play.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from dqnitro import protocol
from dqnitro.clock import Every
from dqnitro.common.files import temporary_folder
from dqnitro.common.host import usable_cores
from dqnitro.common.intervals import Scored
from dqnitro.common.parsing import whole
from dqnitro.common.signals import end_with_parent
from dqnitro.config import Config
from dqnitro.errors import CheckpointError, StorageError
from dqnitro.store import checkpoint
from dqnitro.store import evaluations as stored
from dqnitro.store.evaluations import Evaluation
from dqnitro.store.run_folder import BEST

if TYPE_CHECKING:
    from dqnitro.callback import Training

LOOK_EVERY_S = 0.5
RESTARTS = 2
NICENESS = 10


class NoEvaluations:
    """Of a run without them."""

    def on_tick(self, steps: int) -> None: ...

    def saved(self) -> None: ...

    def finish(self, given_up: Callable[[], object]) -> None: ...

    def close(self) -> None: ...

    def facts(self) -> dict[str, Any]:
        return {}


class Evaluations:
    """Those of one run: asks for them when they are due, and takes their scores when they are there."""

    def __init__(self, training: Training, resumed: bool, say: Callable[[str], None]) -> None:
        self._training, self._config, self._say = training, training.config, say
        self._held = contextlib.ExitStack()
        self._dir = training.run_dir or self._held.enter_context(temporary_folder("dqnitro-evaluations-"))
        (self._dir / stored.FOLDER).mkdir(exist_ok=True)
        self._saved_steps = training.steps if resumed else 0
        self._forget_later_ones()
        self.done: list[Evaluation] = stored.read_all(self._dir)
        self._waiting = stored.waiting(self._dir)
        self._next = self._after(training.steps)
        self._every = Every(LOOK_EVERY_S)
        self._worker: _Worker | None = None
        self._starts, self._gave_up = 0, False
        self._keep_best()

    def _after(self, steps: int) -> int:
        return (steps // self._config.eval_every_steps + 1) * self._config.eval_every_steps

    def _forget_later_ones(self) -> None:
        """A resumed run makes the steps after its checkpoint again, and their evaluations."""
        for path in (self._dir / stored.FOLDER).iterdir():
            if path.stem.isdigit() and int(path.stem) > self._training.steps:
                path.unlink()

    # ---- what the session calls

    def on_tick(self, steps: int) -> None:
        if steps >= self._next:
            self._next = self._after(steps)
            self._take(steps)
        if self._waiting and self._every.due():
            self._collect()

    def saved(self) -> None:
        """A checkpoint of this moment is complete: weights that only an older one could need may go."""
        self._saved_steps = self._training.steps
        self._prune()

    def finish(self, given_up: Callable[[], object]) -> None:
        """Evaluate the last weights, too, and wait for what is still to be played; a signal leaves it for a resume."""
        steps = self._training.steps
        if steps and not any(e.steps == steps for e in self.done) and steps not in self._waiting:
            self._take(steps)
        self._look_for_worker()
        told = time.monotonic()
        while self._waiting and not self._gave_up and not given_up():
            self._collect()
            if self._waiting and time.monotonic() - told > 10:
                told = time.monotonic()
                self._say(f"training has ended; evaluations left to play: {len(self._waiting)} (Ctrl-C: later)")
            time.sleep(0.05)

    def facts(self) -> dict[str, Any]:
        """For the summary: the best and the last evaluation, and what is left."""
        if not self.done:
            return {"n": 0, "waiting": len(self._waiting)}
        best = stored.best_of(self.done)
        assert best is not None
        return {
            "n": len(self.done), "waiting": len(self._waiting), "best": best.facts(), "last": self.done[-1].facts(),
        }  # fmt: skip

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        self._held.close()

    # ---- the way of one evaluation

    def _take(self, steps: int) -> None:
        run = self._training
        facts = {"env_id": run.config.env_id, "steps": str(steps), "wall_s": repr(run.wall_s)}
        checkpoint.save_weights(stored.weights_path(self._dir, steps), run.agent.learner.weights(), facts)
        self._waiting.append(steps)
        if self._worker is not None:
            self._worker.ask(steps)
        self._look_for_worker()

    def _look_for_worker(self) -> None:
        """Start the process, or one in place of one that died; two deaths without a result are no accident."""
        if self._gave_up or not self._waiting or (self._worker is not None and self._worker.looked_after()):
            return
        if self._worker is not None:
            self._worker.close()
            why = self._worker.last_words()
            if self._starts > RESTARTS:
                self._gave_up = True
                self._say(f"evaluations are given up; the run goes on ({why}); `--resume` tries again")
                return
            self._say(f"the process that plays fresh games died ({why}); starting it again")
        self._starts += 1
        self._worker = _Worker(Order(self._config, self._dir.resolve(), [p for p in sys.path if p]), self._config)
        for steps in self._waiting:
            self._worker.ask(steps)

    def _collect(self) -> None:
        for steps in list(self._waiting):
            found = stored.read(stored.result_path(self._dir, steps))
            if found is None and not stored.weights_path(self._dir, steps).is_file():
                self._waiting.remove(steps)
                self._say(f"the evaluation at step {steps:,} is left out: its weights are damaged or gone")
            if found is None:
                continue
            self._waiting.remove(steps)
            self._starts = 1
            self.done = sorted([*self.done, found], key=lambda e: e.steps)
            self._keep_best()
            scored = Scored(found.scores, found.mean, found.low, found.high, found.truncated)
            self._training.report_evaluation(scored, found.steps)
        self._look_for_worker()

    def _keep_best(self) -> None:
        """best.safetensors: the weights of the best evaluation whose weights are there, with its score and protocol."""
        best = stored.best_of([e for e in self.done if stored.weights_path(self._dir, e.steps).is_file()])
        path = self._dir / BEST
        if best is None:
            if (whole(checkpoint.weights_facts(path).get("steps", "")) or 0) > self._training.steps:
                path.unlink()  # of steps that are made again
            return
        if checkpoint.weights_facts(path).get("steps") != str(best.steps):
            try:
                weights = checkpoint.load_weights(stored.weights_path(self._dir, best.steps))
            except CheckpointError as e:  # the run does not need them
                self._say(f"{e}; {BEST} is chosen among the others")
                stored.weights_path(self._dir, best.steps).unlink(missing_ok=True)
                return self._keep_best()
            facts = {
                "env_id": self._config.env_id, "steps": str(best.steps), "score": repr(best.mean),
                "low": repr(best.low), "high": repr(best.high), "games": str(len(best.scores)),
                **{f"protocol.{k}": str(v) for k, v in best.protocol.items()},
            }  # fmt: skip
            checkpoint.save_weights(path, weights, facts)
        self._prune()

    def _prune(self) -> None:
        """Keep the weights of the best evaluation, and of the best one as of the last checkpoint: a run that resumes
        there has that one.
        """
        here = [e for e in self.done if stored.weights_path(self._dir, e.steps).is_file()]
        kept = stored.best_of(here), stored.best_of([e for e in here if e.steps <= self._saved_steps])
        for e in here:
            if e not in kept:
                stored.weights_path(self._dir, e.steps).unlink(missing_ok=True)


def make_evaluations(
    training: Training, resumed: bool, say: Callable[[str], None] = lambda text: None
) -> Evaluations | NoEvaluations:
    """What the config of a run asks for."""
    return Evaluations(training, resumed, say) if training.config.eval_every_steps else NoEvaluations()


# ---- the process that plays


class Order(NamedTuple):
    """What it has to know."""

    config: Config
    run_dir: pathlib.Path
    python_path: list[str]


class _Worker:
    """The process, from the side of the run. It reads numbers of steps from its standard input until that closes."""

    def __init__(self, order: Order, config: Config) -> None:
        from dqnitro.run.processes.spawn import own_pieces
        from dqnitro.run.processes.watchdog import HeldUp

        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        threads = str(cores_for_games())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dqnitro.evaluation"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=self._log, start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(order.python_path)},
        )  # fmt: skip
        self._send(pickle.dumps((own_pieces(config), order)))
        self._words = self._ended_because = ""
        self._held_up, self._looked = HeldUp(self._process.pid), time.monotonic()

    def looked_after(self) -> bool:
        """Whether it lives. One that was stopped (SIGSTOP) for too long is ended."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, 2 * LOOK_EVERY_S), now  # the run itself may have been stopped
        if (why := self._held_up.waited(passed)) and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
            self._ended_because = why
        return self._process.poll() is None

    def ask(self, steps: int) -> None:
        self._send(pickle.dumps(steps))

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # its death is noticed elsewhere
            self._process.stdin.write(len(message).to_bytes(8, "little") + message)
            self._process.stdin.flush()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        if not self._log.closed:
            self._log.seek(0)
            self._words = self._log.read().decode(errors="replace")
            self._log.close()

    def last_words(self) -> str:
        """Of a process that was closed."""
        from dqnitro.run.processes.spawn import exit_text

        lines = self._words.strip().splitlines()
        return self._ended_because or (lines[-1][:300] if lines else exit_text(self._process.returncode))


def cores_for_games() -> int:
    """A quarter of the cores: the others train."""
    return max(1, usable_cores() // 4)


def evaluate(order: Order, steps: int) -> Evaluation:
    """Play the games of one point of a run. Their seeds depend on the run's seed and the steps alone."""
    from dqnitro.scoring import Policy, fastest_equal, load_network, score_policy, where

    path, cores = stored.weights_path(order.run_dir, steps), cores_for_games()
    config = order.config.replace(env_threads=cores if order.config.env_threads == 0 else order.config.env_threads)
    games, epsilon = config.games_per_eval, config.eval_epsilon

    def policy(spec: Any, seed: int) -> Policy:
        return Policy(*load_network(path, config, spec), spec.n_actions, epsilon, seed, where(config), cores)

    begun = time.perf_counter()
    scored = score_policy(policy, config, games, steps % 2**31)
    rules = protocol.of(config, "fresh games", games, epsilon, fastest_equal(config)).to_dict()
    wall_s = float(checkpoint.weights_facts(path).get("wall_s", 0.0))
    return Evaluation(
        steps, wall_s, scored.scores, scored.mean, scored.low, scored.high, scored.truncated,
        time.perf_counter() - begun, rules,
    )  # fmt: skip


def play(order: Order, steps: int) -> None:
    """One evaluation, from file to file."""
    path = stored.weights_path(order.run_dir, steps)
    if not path.is_file():
        return
    try:
        stored.write(order.run_dir, evaluate(order, steps))
    except StorageError:
        raise
    except CheckpointError:  # damaged: nobody will ever play with them, and the run does not wait for them
        path.unlink(missing_ok=True)


def _messages(pipe: BinaryIO) -> Any:
    while len(size := pipe.read(8)) == 8:
        yield pickle.loads(pipe.read(int.from_bytes(size, "little")))


def main() -> int:
    """The process itself: plays what it is asked for, in order; ends when the run does."""
    import queue
    import threading

    end_with_parent()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    messages = _messages(sys.stdin.buffer)
    (pieces, order), asked = next(messages), queue.Queue()

    def listen() -> None:
        for steps in messages:
            asked.put(steps)
        os._exit(0)  # the run is gone, or wants no more

    threading.Thread(target=listen, daemon=True).start()
    from dqnitro.run.processes.player import register_pieces

    register_pieces(pieces)
    while True:
        play(order, asked.get())


if __name__ == "__main__":
    sys.exit(main())
