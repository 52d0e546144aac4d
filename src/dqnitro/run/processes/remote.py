"""The trainer's end of the player: starts it, permits its steps, takes them, saves it, and revives it when it dies.

Tick t may be played when it was permitted, which happens when the trainer begins tick t - slack; the permit names the
weights, those after the updates of tick t - slack - 1. So play is never more than `slack` ticks ahead, the age of the
weights is the same in every run, and with slack 0 it is the inline run's. Nothing here depends on which process
happened to be faster.

Neither side ever waits to send: at most MAX_SLACK_TICKS + 1 small messages are under way in each direction, and those
fit into the pipe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Mapping
from multiprocessing import util
from typing import Any

import numpy as np
import torch

from dqnitro.common.signals import WAIT, Interrupted
from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec, Step
from dqnitro.errors import ConfigError, PlayerDied, UserError, line_in
from dqnitro.learn.learner import Learner
from dqnitro.run.build import make_generators
from dqnitro.run.processes import player as child
from dqnitro.run.processes.shared_memory import Report, Ring, SharedMemory, WeightRing
from dqnitro.run.processes.spawn import check_memory, exit_text, own_pieces, quiet_birth
from dqnitro.run.processes.watchdog import Watchdog

POLL_S = 0.25  # how often a trainer that waits looks whether the player lives
CLOSE_S = 2.0  # what a player in the middle of a step gets to finish it
RESTARTS, RESTARTS_TICKS = 3, 1_000  # more within this many ticks are not accidents
STATE_TICKS = 256  # a revived player plays at most about this many ticks again
GUARD = "a script that trains at its top level needs `if __name__ == '__main__':` around the call"


class _Gone(Exception):
    """The player has ended."""

    def __init__(self, why: str, trace: str = "", what: str = "died") -> None:
        super().__init__(why)
        self.trace, self.what = trace, what


class RemotePlayer:
    """Environments that are played, actions and all, in a process of their own.
    To the rest of the agent: its `envs`.
    """

    spec: EnvSpec

    idle = last_actions = None  # the player knows

    def __init__(
        self, config: Config, slack_ticks: int, threads: int, on_close: Callable[[], None] = lambda: None
    ) -> None:
        self._slack, self._config, self._on_close = slack_ticks, config, on_close
        self._memory = SharedMemory(), SharedMemory()
        self._process: Any = None
        self._conn: Any = None
        self._weights: WeightRing | None = None
        self._alive = self._closed = self._asked = False
        self.restarts = 0
        self.seconds = {"act": 0.0, "env": 0.0}  # of the player's own time, over the ticks taken
        self._crashes: list[int] = []
        self._end = util.Finalize(None, self.close, exitpriority=20)  # before multiprocessing waits for its children
        try:
            self._order = child.Order(config, own_pieces(config), slack_ticks + 1, threads, os.getpid())
            self._start()
        except _Gone as e:
            self.close()
            raise self._died(f"the player process could not start: {e}", e) from None
        except BaseException:
            self.close()
            raise
        self._set_clocks(0)
        self._ring = Ring(self._memory[0].allocate(Ring.size(self.spec, slack_ticks + 1)), self.spec, slack_ticks + 1)
        self._obs = np.zeros(0)

    @property
    def pid(self) -> int:
        """Of the player, for those who watch processes."""
        return self._process.pid

    def _set_clocks(self, in_flight: int) -> None:
        """Tick numbers begin at 0 with every start or resume; `in_flight` ticks are already played."""
        self._next = 0  # the tick to take next
        self._done = self._permitted = in_flight  # ticks played; ticks that were allowed
        self._outstanding: deque[tuple[int, int, int]] = deque()  # permits not yet played
        self._log: list[np.ndarray] = []  # actions of the ticks since `_base`
        self._slot, self._version, self._last_state = 0, -1, in_flight

    # -- the life of the process

    def _start(self) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise ConfigError("the run was started by its own player, while that imported the script", GUARD)
        self._conn, theirs = multiprocessing.Pipe()
        self._process = self._launch(theirs)
        theirs.close()
        self._alive, self._asked = True, False
        try:
            spec = self._reply(child.HELLO)
        except _Gone as e:
            raise _Gone(
                f"{e}; hint: {GUARD}" if not e.trace and self._process.exitcode == 1 else str(e), e.trace
            ) from e
        if getattr(self, "spec", spec) != spec:
            self._bury()
            raise PlayerDied(f"the environment has changed since the run began: it was {self.spec}, now it is {spec}")
        self.spec = spec

    def _launch(self, theirs: Any) -> Any:
        """A new process that has the other end of the pipe."""
        process = multiprocessing.get_context("spawn").Process(
            target=child.main, args=(theirs, self._order, *self._memory), name="dqnitro-player"
        )
        with quiet_birth(self._order.threads):
            process.start()
        return process

    def _receive(self, playing: bool = False) -> tuple[bytes, bytes]:
        """The player's next message; _Gone within POLL_S of its death, and when it hangs.

        A wait that a signal breaks off ends the player: it is saved as of its last finished step.
        """
        watchdog = Watchdog(self._process.pid, self._config.player_timeout_s, playing)
        try:
            while not self._poll():
                if self._process.exitcode is not None and not self._conn.poll(0):
                    raise EOFError
                if why := watchdog.waited(POLL_S):
                    self._bury()
                    raise _Gone(why, what="hung")
            message = self._conn.recv_bytes()
        except Interrupted:
            self._bury()
            raise
        except (EOFError, OSError):
            self._bury()
            raise _Gone(f"it ended with {exit_text(self._process.exitcode)}") from None
        kind, body = message[:1], message[1:]
        if kind in (child.REFUSED, child.CRASHED):
            self._bury()
        if kind == child.REFUSED:
            raise pickle.loads(body)
        if kind == child.CRASHED:
            trace = pickle.loads(body)
            last, ours = trace.strip().splitlines()[-1], "dqnitro.errors.EnvFailed: "
            said = last.removeprefix(ours) if last.startswith(ours) else line_in([trace]) + last
            raise _Gone(said.partition("; hint: ")[0], trace)
        return kind, body

    def _poll(self) -> bool:
        with WAIT:
            return self._conn.poll(POLL_S)

    def _reply(self, kind: bytes) -> Any:
        """The payload of the next message, which must be of this kind."""
        came, body = self._receive()
        if came != kind:
            raise RuntimeError(f"player: expected message {kind!r}, got {came!r}")
        return pickle.loads(body)

    def _say(self, kind: bytes, payload: Any = None) -> None:
        with contextlib.suppress(OSError):  # a dead player is noticed where its answer is waited for
            child.post(self._conn, kind, payload)

    def _bury(self) -> None:
        """Make sure that it is dead, and collect it."""
        self._alive = False
        self._conn.close()
        self._process.join(0.5)  # a dying process closes its pipes a moment before its exit code is there
        if self._process.exitcode is None:
            self._process.kill()
        self._process.join()

    def _died(self, message: str, e: _Gone) -> PlayerDied:
        if e.trace:
            sys.stderr.write(e.trace)
        return PlayerDied(message, e.trace)

    def _revive(self, e: _Gone) -> None:
        """A new player goes on exactly where the dead one finished its last step."""
        while True:
            self._crashes = [t for t in self._crashes if t > self._done - RESTARTS_TICKS] + [self._done]
            if len(self._crashes) > RESTARTS:
                cure = (
                    "repair the environment (traceback above)" if e.trace else "find out what ends it (out of memory?)"
                )
                raise self._died(
                    f"the player process {e.what} {len(self._crashes)} times within {RESTARTS_TICKS} vector steps, "
                    f"at last because {e}; "
                    f"the run is saved; hint: {cure}, then --resume; with --runner inline a debugger reaches it", e,
                )  # fmt: skip
            sys.stderr.write(
                f"{e.trace}dqnitro: the player process {e.what} ({e}); starting it again ({len(self._crashes)} of "
                f"{RESTARTS})\n"
            )
            try:
                self._start()
                self.restarts += 1
                self._share()
                self._begin(self._position(), self._check_replayed)
                for permit in self._outstanding:
                    self._conn.send_bytes(child.PERMIT + child.PERMIT_BODY.pack(*permit))
                return
            except UserError as refused:
                raise PlayerDied(
                    f"the player process died ({e}) and cannot be revived: {refused}", e.trace
                ) from refused
            except _Gone as again:
                e = again
            except OSError:  # it was gone before it could be told what to play
                e = self._last_words()

    def _last_words(self) -> _Gone:
        """Why a player that listens no more is gone. Steps that it finished unnoticed will be played again."""
        try:
            while True:
                self._receive()
        except _Gone as e:
            return e

    def _check_replayed(self, obs: np.ndarray) -> None:
        """The last finished step must look as it did, or the games that go on are not those of the run."""
        seen = self._obs if self._done == self._next else self._ring.peek(self._done - 1)["obs"]
        if obs.tobytes() != seen.tobytes():
            self._bury()
            raise PlayerDied(
                "the player process died and its games did not come out the same when they were played again; "
                "the run is saved; "
                "hint: an environment must depend on nothing but the seed of reset and the actions"
            )

    def close(self) -> None:
        """End the player and free what was shared. May be called twice, and at any moment."""
        if self._closed:
            return
        self._closed = True
        self._end.cancel()
        if self._alive:
            self._say(child.STOP)
            self._process.join(CLOSE_S)
        if self._process is not None and self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        if self._conn is not None:
            self._conn.close()
        for memory in self._memory:
            memory.close()
        self._weights = None  # the large part, which a kept Result would keep
        self._on_close()

    # -- memory

    def connect(self, learner: Learner) -> None:
        """Allocate room for the learner's weights and let the player warm up. Before the first permit."""
        parameters = list(learner.online.parameters())
        size = WeightRing.size(parameters, self._slack + 1)
        check_memory(size, self._config)
        self._weights = WeightRing(self._memory[1].allocate(size), parameters, self._slack + 1)
        try:
            self._share()
        except _Gone as e:
            raise self._died(f"the player process could not start: {e}", e) from None

    def _share(self) -> None:
        if self._weights is not None:
            self._say(child.MEMORY)
            self._reply(child.MEMORY)

    # -- playing

    def permit(self, learner: Learner) -> None:
        """Begin a tick: hand over the weights as they are now, and let the player go on up to the slack."""
        assert self._weights is not None, "connect comes first"
        if self._permitted > self._next + self._slack:
            return
        if learner.n_updates != self._version:
            # At most `slack` other versions are still in use, by permits that are not played yet, and none of
            # them uses this slot.
            self._slot, self._version = (self._slot + 1) % (self._slack + 1), learner.n_updates
            self._weights.write(self._slot, self._version, learner.online.parameters())
        while self._permitted <= self._next + self._slack:
            permit = (self._permitted, self._slot, self._version)
            self._outstanding.append(permit)
            self._permitted += 1
            with contextlib.suppress(OSError):  # dead: it is noticed, and the permit repeated, in `take`
                self._conn.send_bytes(child.PERMIT + child.PERMIT_BODY.pack(*permit))
        if self._permitted - self._last_state >= STATE_TICKS and not self._asked:
            self._ask()

    def take(self) -> tuple[np.ndarray, Step, Report]:
        """The next vector step, waiting for it where need be."""
        while self._done <= self._next:
            self.wait()
        actions, step, report = self._ring.read(self._next)
        self._next += 1
        self._obs = step.obs_t
        self.seconds["act"] += float(report.seconds[0])
        self.seconds["env"] += float(report.seconds[1])
        return actions, step, report

    def wait(self) -> None:
        """For one message of the player, and what follows from it."""
        try:
            kind, body = self._receive(playing=True)
        except _Gone as e:
            self._revive(e)
            return
        if kind == child.STATE:
            self._base, self._log = pickle.loads(body), []
            self._asked, self._last_state = False, self._done
        elif kind == child.DONE:
            slot = self._ring.peek(self._done)
            self._log.append(slot["action"].copy())
            self._rng, self._pending = slot["rng"].copy(), slot["ended"].copy()
            self._steps += int(np.count_nonzero(~slot["reset"]))
            self._outstanding.popleft()
            self._done += 1

    def _ask(self) -> None:
        self._asked = True
        self._say(child.STATE)

    # -- beginning and saving

    def reset(self) -> np.ndarray:
        """Begin every environment's first game."""
        n = self.spec.n_envs
        self._rng = child.pack_rng(make_generators(self._config.seed)[0])
        self._pending, self._steps = np.zeros(n, bool), 0
        try:
            self._obs = self._begin(None)
        except _Gone as e:
            raise self._died(f"the player process could not start: {e}", e) from None
        return self._obs

    def _begin(self, at: child.Position | None, check: Callable[[np.ndarray], None] = lambda obs: None) -> np.ndarray:
        self._say(child.BEGIN, at)
        obs, base = self._reply(child.BEGIN)
        check(obs)
        self._base = base
        self._log, self._last_state = [], self._done
        return obs

    def _position(self) -> child.Position:
        log = np.array(self._log, np.int64).reshape(-1, self.spec.n_envs)
        return child.Position(dict(self._base), log, self._rng, self._pending, self._steps)

    def get_state(self) -> Mapping[str, np.ndarray]:
        """Where the player is, and the steps it is ahead, by value. A dead player is saved as of its last finished
        step, with what it was still to play.
        """
        with contextlib.suppress(Interrupted):
            while self._alive and (self._done < self._permitted or self._log):
                if not self._asked:
                    self._ask()
                self.wait()
        at = self._position()
        out = {f"games.{k}": np.asarray(v) for k, v in at.games.items()}
        out |= {"log": at.log, "rng": at.rng, "pending": at.pending, "steps": np.array(at.steps), "obs": self._obs}
        out |= self._permits()
        ahead = self._ring.slots[[t % len(self._ring.slots) for t in range(self._next, self._done)]]
        return out | {f"ahead.{name}": ahead[name] for name in self._ring.slots.dtype.names or () if name != "tick"}

    def _permits(self) -> dict[str, np.ndarray]:
        """Steps that a player which is gone was still to play, and the weights that choose their actions."""
        if not self._outstanding or self._weights is None:
            return {}
        permits = np.array(self._outstanding, np.int64) - [self._next, 0, 0]
        out = {"permits": permits, "published": np.array([self._slot, self._version])}
        for slot in {int(s) for s in permits[:, 1]}:
            out |= {f"weights.{slot}.{i}": v.float().numpy().copy() for i, v in enumerate(self._weights.views(slot))}
        return out

    def _permit_again(self, state: Mapping[str, np.ndarray]) -> None:
        """The inverse of `_permits`."""
        if "permits" not in state:
            return
        assert self._weights is not None, "connect comes first"
        self._slot, self._version = (int(x) for x in state["published"])
        for tick, slot, version in np.array(state["permits"], np.int64).reshape(-1, 3).tolist():
            if tick != self._permitted or not 0 <= slot <= self._slack or tick > self._slack:
                raise ValueError(f"step {tick} of slot {slot} was permitted, expected {self._permitted}")
            mine = [torch.from_numpy(np.array(state[f"weights.{slot}.{i}"])) for i in range(self._weights.n_parameters)]
            self._weights.write(slot, version, mine)
            self._outstanding.append((tick, slot, version))
            self._permitted += 1
            with contextlib.suppress(OSError):  # as in `permit`
                self._conn.send_bytes(child.PERMIT + child.PERMIT_BODY.pack(tick, slot, version))

    def set_state(self, state: Mapping[str, np.ndarray]) -> np.ndarray:
        """Go on from `get_state`, in a player that has not been permitted anything yet."""
        games = {k.removeprefix("games."): np.array(v) for k, v in state.items() if k.startswith("games.")}
        log = np.array(state["log"], np.int64).reshape(-1, self.spec.n_envs)
        n_ahead = len(state["ahead.action"])
        if n_ahead > self._slack:
            raise ValueError(f"{n_ahead} steps were saved ahead, the slack is {self._slack}")
        self._set_clocks(n_ahead)
        self._rng, self._pending = np.array(state["rng"]), np.array(state["pending"])
        self._steps = int(state["steps"])
        try:
            self._begin(child.Position(games, log, self._rng, self._pending, self._steps))
        except _Gone as e:
            raise self._died(f"the player process could not go back to its games: {e}", e) from None
        for name in self._ring.slots.dtype.names or ():
            self._ring.slots[name][:n_ahead] = np.arange(n_ahead) if name == "tick" else state[f"ahead.{name}"]
        self._obs = np.array(state["obs"])
        self._permit_again(state)
        return self._obs

    def send(self, actions: np.ndarray) -> None:
        """The player chooses actions itself."""
        raise TypeError("a RemotePlayer takes permits, not actions")

    def recv(self) -> Step:
        return self.take()[1]
