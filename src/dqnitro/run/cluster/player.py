"""A player: some of the run's environments, a copy of the network, and a random generator of its own.

A chunk is a function of three things: where the player was, the weights and epsilon. Nothing else enters, no clock and
no other player, so any process can play a chunk again and get the same bytes.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from dqnitro.config import Config
from dqnitro.run.cluster.chunk import Chunk, Recorder
from dqnitro.run.inline import choose_actions
from dqnitro.run.processes.player import Actor, pack_rng, register_pieces, unpack_rng

THREADS = 1  # of a player's network passes: the same sums wherever it plays


class Order(NamedTuple):
    """All that a player has to know to be born."""

    config: Config  # of the whole run
    player: int
    own_pieces: bytes  # pickled: what the learner's process registered must be known here too


class Permit(NamedTuple):
    """Leave to play a chunk."""

    chunk: int
    epsilon: float
    keep: bool  # send the state of the environments along


class Position(NamedTuple):
    """Where a player is: saved environments, the actions played since, and its generator after them."""

    games: dict[str, np.ndarray] | None  # None: before the first game
    log: np.ndarray  # int64 (vector steps, environments)
    rng: np.ndarray
    pending: np.ndarray


class Played(NamedTuple):
    """What comes back for a permit."""

    chunk: Chunk
    games: dict[str, np.ndarray] | None  # the state of the environments, where it was asked for


def joined_weights(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """All numbers of a network in one array. Where they are of several types, in the one that holds them all."""
    return np.concatenate([a.ravel() for a in arrays])


def parts_of(weights: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """The inverse of `joined_weights`: views."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    assert ends[-1] == len(weights), "weights of another network"
    return [part.reshape(shape) for part, shape in zip(np.split(weights, ends[:-1]), shapes, strict=True)]


def envs_each(config: Config) -> int:
    return config.n_envs // config.players


def first_rng(seed: int, player: int) -> np.ndarray:
    """The generator of a player's actions at the beginning of a run, packed."""
    sequence = np.random.SeedSequence(seed).spawn(2)[0].spawn(player + 1)[player]
    return pack_rng(np.random.Generator(np.random.PCG64(sequence)))


def played_config(config: Config) -> Config:
    """The config of one player's environments."""
    return config.replace(n_envs=envs_each(config), players=1, runner="inline", slack_steps=0)


class Player:
    """Plays what it is permitted, in the order of its calls."""

    def __init__(self, order: Order) -> None:
        from dqnitro.envs import make_envs

        register_pieces(order.own_pieces)
        self._config = order.config
        self._envs = make_envs(played_config(order.config), order.player * envs_each(order.config))
        self.spec = self._envs.spec
        self._actor = Actor(order.config, self.spec)
        # Allocate and choose kernels now: the first chunk has a deadline.
        self._actor.greedy(np.zeros((self.spec.n_envs, *self.spec.obs_shape), self.spec.obs_dtype))
        self._rng = np.random.Generator(np.random.PCG64(0))
        self._pending = np.zeros(self.spec.n_envs, bool)
        self._obs = np.zeros(0)

    def begin(self, at: Position) -> np.ndarray:
        """Go to a position; the observation there."""
        self._obs = self._envs.reset() if at.games is None else self._envs.set_state(at.games)
        for actions in at.log:
            self._envs.send(actions)
            self._obs = self._envs.recv().obs_t
        self._rng.bit_generator.state = unpack_rng(at.rng)
        self._pending = np.array(at.pending)
        return self._obs

    def play(self, permit: Permit, weights: np.ndarray) -> Played:
        """A chunk with these weights."""
        parameters = self._actor.parameters
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # and nobody writes there
            for p, new in zip(parameters, parts_of(weights, [tuple(p.shape) for p in parameters]), strict=True):
                p.copy_(torch.from_numpy(new))
        recorder, seconds = Recorder(self.spec, self._obs), np.zeros(2)
        for _ in range(self._config.chunk_vector_steps):
            start = time.perf_counter()
            actions = choose_actions(
                self._rng, permit.epsilon, self._pending, self.spec.n_actions,
                lambda: self._actor.greedy(self._obs, self._rng), self._envs.idle,
                self._envs.last_actions,
            )  # fmt: skip
            acted = time.perf_counter()
            self._envs.send(actions)
            step = self._envs.recv()
            recorder.add(actions, step)
            self._obs = step.obs_t
            self._pending = np.zeros_like(self._pending)
            self._pending[[end.env for end in step.ends]] = True
            seconds += acted - start, time.perf_counter() - acted
        games = dict(self._envs.get_state()) if permit.keep else None
        return Played(recorder.chunk(pack_rng(self._rng), seconds), games)

    def close(self) -> None:
        self._envs.close()
