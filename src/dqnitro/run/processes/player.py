"""The player: a process that chooses actions, plays, and writes what came of it into shared memory.

It does what it is told, message by message, in order. `PERMIT` lets it play one vector step with the weights of a named
slot; it counts steps and draws random numbers itself, exactly as the inline loop would, because only it knows which
games just ended. Everything else (replay, learner, clock, limits, checkpoints) is the trainer's.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch

from dqnitro import dqn, own
from dqnitro.common.signals import NUMBERS, end_with_parent
from dqnitro.config import Config
from dqnitro.envs.base import Envs, EnvSpec
from dqnitro.errors import UserError
from dqnitro.heads import Draws, Wants, noise_size
from dqnitro.learn.networks import acting_noise, build_network, head_spec
from dqnitro.learn.transforms import wrap
from dqnitro.run.build import make_clock, make_generators
from dqnitro.run.inline import choose_actions
from dqnitro.run.processes.shared_memory import Report, Ring, SharedMemory, WeightRing

# Messages are one letter and, where there is more to say, bytes behind it.
HELLO, MEMORY, BEGIN, PERMIT, DONE, STATE, STOP, REFUSED, CRASHED = b"h", b"m", b"b", b"p", b"d", b"s", b"x", b"r", b"c"
PERMIT_BODY = struct.Struct("<qqq")  # tick, slot of the weights, their version


def post(conn: Connection, kind: bytes, payload: Any = None) -> None:
    """Send a message whose payload is pickled: both ends are ours, and one started the other."""
    conn.send_bytes(kind + pickle.dumps(payload))


class Order(NamedTuple):
    """All that a player has to know to be born."""

    config: Config
    own_pieces: bytes  # pickled: what the trainer's process registered must be known here too
    n_slots: int
    threads: int
    parent: int


class Position(NamedTuple):
    """Where to begin: saved environments, the actions played since, and what the player knew after them."""

    games: dict[str, np.ndarray]
    log: np.ndarray  # int64 (ticks, n_envs)
    rng: np.ndarray
    pending: np.ndarray
    steps: int


def pack_rng(rng: np.random.Generator) -> np.ndarray:
    """The state of a PCG64 generator as six words."""
    s: Any = rng.bit_generator.state
    low = (1 << 64) - 1
    state, inc = s["state"]["state"], s["state"]["inc"]
    return np.array([state >> 64, state & low, inc >> 64, inc & low, s["has_uint32"], s["uinteger"]], np.uint64)


def unpack_rng(words: np.ndarray) -> dict[str, Any]:
    """The inverse of `pack_rng`, for `bit_generator.state`."""
    w = [int(x) for x in words]
    state = {"state": w[0] << 64 | w[1], "inc": w[2] << 64 | w[3]}
    return {"bit_generator": "PCG64", "state": state, "has_uint32": w[4], "uinteger": w[5]}


class Actor:
    """A network without a memory of its own: its parameters are views of whichever slot it is told to use."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        parts = wrap(config.wrappers, "cpu")
        head = head_spec(config, spec)
        self._network = parts.prepare(build_network(config, spec))
        self._act = parts.act
        self._atoms = dqn.support(head) if head.categorical else None
        self.parameters = list(self._network.parameters())
        self._wants = Wants(noise=noise_size(self._network))

    def use(self, views: list[torch.Tensor]) -> None:
        for p, view in zip(self.parameters, views, strict=True):
            p.data = view
        # The trainer wrote there, which torch cannot see here; a wrapper may keep something that it made of the
        # parameters.
        torch.autograd.graph.increment_version(self.parameters)

    def greedy(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """The noise of noisy layers is drawn from `rng`, as `Learner.greedy` does."""
        noise = acting_noise(self._wants, rng)
        draws = () if noise is None else (Draws(None, noise),)
        return dqn.q_values(self._act(self._network, torch.from_numpy(obs), *draws), self._atoms).argmax(1).numpy()


class Player:
    """The state of the playing half of a run."""

    def __init__(self, order: Order, envs: Envs, conn: Connection, ring: SharedMemory, weights: SharedMemory) -> None:
        self._envs, self._conn, self._order = envs, conn, order
        self._memory = ring, weights
        self._clock = make_clock(order.config)
        self._rng, _ = make_generators(order.config.seed)
        self._pending = np.zeros(envs.spec.n_envs, bool)
        self._obs: np.ndarray = np.zeros(0)

    def serve(self) -> None:
        """Until STOP."""
        while (message := self._conn.recv_bytes())[:1] != STOP:
            kind, body = message[:1], message[1:]
            if kind == PERMIT:
                self._tick(*PERMIT_BODY.unpack(body))
            elif kind == STATE:
                post(self._conn, STATE, dict(self._envs.get_state()))
            elif kind == BEGIN:
                self._begin(pickle.loads(body))
            elif kind == MEMORY:
                self._map()

    def _map(self) -> None:
        spec, n_slots = self._envs.spec, self._order.n_slots
        self._actor = Actor(self._order.config, spec)
        self._actor.greedy(
            np.zeros((spec.n_envs, *spec.obs_shape), spec.obs_dtype)
        )  # warm: allocate and choose kernels
        self._ring = Ring(self._memory[0].map(), spec, n_slots)
        self._weights = WeightRing(self._memory[1].map(), self._actor.parameters, n_slots)
        post(self._conn, MEMORY)

    def _begin(self, at: Position | None) -> None:
        if at is None:
            self._obs = self._envs.reset()
        else:
            self._obs = self._envs.set_state(at.games)
            for actions in at.log:
                self._envs.send(actions)
                self._obs = self._envs.recv().obs_t
            self._rng.bit_generator.state = unpack_rng(at.rng)
            self._pending, self._clock.steps = at.pending, at.steps
        post(self._conn, BEGIN, (self._obs, dict(self._envs.get_state())))

    def _tick(self, tick: int, slot: int, version: int) -> None:
        start = time.perf_counter()
        self._weights.check(slot, version)
        self._actor.use(self._weights.views(slot))
        actions = choose_actions(
            self._rng, self._clock.epsilon(), self._pending, self._envs.spec.n_actions,
            lambda: self._actor.greedy(self._obs, self._rng), self._envs.idle,
            self._envs.last_actions,
        )  # fmt: skip
        self._weights.check(slot, version)  # still: nobody wrote there meanwhile
        acted = time.perf_counter()
        self._envs.send(actions)
        step = self._envs.recv()
        self._obs = step.obs_t
        self._pending = np.zeros_like(self._pending)
        self._pending[[end.env for end in step.ends]] = True
        self._clock.count_steps(int(np.count_nonzero(~step.reset)))
        seconds = np.array([acted - start, time.perf_counter() - acted])
        self._ring.write(tick, actions, step, Report(pack_rng(self._rng), seconds))
        self._conn.send_bytes(DONE)


def main(conn: Connection, order: Order, ring: SharedMemory, weights: SharedMemory) -> None:
    """The process."""
    _settle(order, conn)
    code = perform(conn, order, ring, weights)
    sys.stdout.flush()
    os._exit(code)  # an orderly end of the interpreter takes torch half a second


def perform(conn: Connection, order: Order, ring: SharedMemory, weights: SharedMemory) -> int:
    """Play until told to stop; the exit code. A failure is told to the trainer with its traceback."""
    try:
        envs = _make_envs(order)
        try:
            post(conn, HELLO, envs.spec)
            Player(order, envs, conn, ring, weights).serve()
        finally:
            envs.close()
    except (EOFError, BrokenPipeError, ConnectionResetError) as e:
        if not _gone(conn):
            _confess(conn, e)  # the user's environment has pipes of its own
            return 1
    except BaseException as e:
        _confess(conn, e)
        return 1
    return 0


def _gone(conn: Connection) -> bool:
    """Has the trainer closed its end?"""
    try:
        while conn.poll(0):
            conn.recv_bytes()
    except (EOFError, OSError):
        return True
    return False


def _confess(conn: Connection, e: BaseException) -> None:
    try:
        if isinstance(e, UserError):
            post(conn, REFUSED, e)
        else:
            post(conn, CRASHED, traceback.format_exc())
    except BaseException:  # out of memory, or the trainer is gone: the exit code says the rest
        sys.stderr.write(f"dqnitro player: {type(e).__name__}\n")


def _settle(order: Order, conn: Connection) -> None:
    """Be a good child: no signals, a fair share of the cores, and no life after the trainer's."""
    # Ctrl-C, the end of a terminal and a service manager's SIGTERM reach every process of the run; only the trainer
    # answers, and needs the player to save.
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, set(NUMBERS))
    # Workers that an environment forks would hold the pipe open, and the trainer would not see the player's death.
    os.register_at_fork(after_in_child=conn.close)
    torch.set_num_threads(order.threads)
    if not end_with_parent():
        threading.Thread(target=_outlive_nobody, args=(order.parent,), daemon=True).start()
    if os.getppid() != order.parent:
        os._exit(0)


def _outlive_nobody(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def register_pieces(packed: bytes) -> None:
    """Register here what the trainer's process has registered (`spawn.own_pieces`)."""
    spec, table = pickle.loads(packed)
    own.set_table(table)
    if spec is not None:
        import gymnasium as gym

        gym.registry.setdefault(spec.id, spec)


def _make_envs(order: Order) -> Envs:
    from dqnitro.envs import make_envs

    register_pieces(order.own_pieces)
    return make_envs(order.config)
