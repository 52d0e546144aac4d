"""The environment backend `console`: the emulator of `dqnitro.atari`, with the interface of ale-py's AtariVectorEnv.

As in `ale`, rewards are unclipped, only games end, and lost lives are read from the number of lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from dqnitro.common.host import usable_cores
from dqnitro.config import Config
from dqnitro.envs.ale import vector_options
from dqnitro.envs.bookkeeping import Outcome, episode_seed
from dqnitro.errors import ConfigError


def make_console_engines(game: str, config: Config, groups: int, first: int = 0) -> list[ConsoleEngine]:
    """One engine for each group of environments, numbered from `first` on; the groups share the threads."""
    try:
        from dqnitro.atari import AtariVec  # pyright: ignore
    except ImportError as e:
        raise ConfigError(f"the console cannot be loaded ({e})", "use --envs ale") from e
    options = vector_options(config)
    vec = AtariVec(game, num_envs=config.n_envs, num_threads=config.env_threads, **options)
    vecs = vec.split(groups) if groups > 1 else [vec]
    starters = 1 + usable_cores() // (8 * groups)

    def make_one() -> AtariVec:
        return AtariVec(game, num_envs=1, num_threads=1, **options)

    return [ConsoleEngine(v, make_one, config.seed, first + k * v.num_envs, starters) for k, v in enumerate(vecs)]


class ConsoleEngine:
    """One `AtariVec` for all environments; another console begins the next game of each before the current one ends.

    A game's start takes hundreds of frames. Begun in the step after an end it would keep all other environments
    waiting, with many of them in nearly every step. `starters` threads (one, and one more for every eight cores) play
    starts in an `AtariVec` of a single console, and the state is put in when it is needed. The engine's environments
    are those of the run from number `first` on.
    """

    def __init__(self, vec: Any, make_one: Callable[[], Any], run_seed: int, first: int, starters: int) -> None:
        self._vec: Any = vec
        self._make_one = make_one
        self._n, self._first = int(vec.num_envs), first
        self._run_seed = run_seed
        self.n_actions = int(vec.single_action_space.n)
        self.obs_shape = vec.single_observation_space.shape
        self.obs_dtype = np.dtype(np.uint8)
        self._game = np.zeros(self._n, np.int64)
        self._lives = np.zeros(self._n, np.int64)
        self._reset_next = np.zeros(self._n, np.bool_)
        self._pool = ThreadPoolExecutor(starters, "console-prepare")
        self._own = threading.local()
        self._prepared: list[Future[dict[str, np.ndarray]]] = []

    def begin(self, games: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
        """All environments step together, so each one's game is begun where it will end with the longest."""
        self._settle()
        self._game = games.copy()
        counts = np.array([len(a) for a in actions])
        longest = counts.max()
        padded = np.zeros((longest, self._n), np.int64)
        for i, a in enumerate(actions):
            padded[longest - len(a) :, i] = a
        obs = self._reset(np.ones(self._n, np.bool_))
        self._reset_next[:] = False
        for tick, step in enumerate(padded):
            if tick and (counts == longest - tick).any():
                self._reset(counts == longest - tick)
            obs, _, terminated, truncated, info = self._vec.step(step)
            self._lives, self._reset_next = info["lives"], terminated | truncated
        if longest and (counts == 0).any():
            obs = self._reset(counts == 0)
            self._reset_next &= counts > 0
        self._prepared = [self._prepare(i) for i in range(self._n)]
        return obs

    def _reset(self, which: np.ndarray) -> np.ndarray:
        seeds = np.array([self._seed(int(i), int(self._game[i])) for i in np.flatnonzero(which)])
        obs, info = self._vec.reset(seed=seeds, options={"reset_mask": which})
        self._lives = info["lives"]
        return obs

    def _seed(self, i: int, game: int) -> int:
        return episode_seed(self._run_seed, self._first + i, game)

    def _prepare(self, i: int) -> Future[dict[str, np.ndarray]]:
        return self._pool.submit(self._start_of, self._seed(i, int(self._game[i]) + 1))

    def _start_of(self, seed: int) -> dict[str, np.ndarray]:
        """The state in which a game with this seed begins."""
        if not hasattr(self._own, "vec"):
            self._own.vec = self._make_one()
        self._own.vec.reset(seed=seed)
        return self._own.vec.get_state()

    def send(self, actions: np.ndarray) -> None:
        for i in np.flatnonzero(self._reset_next).tolist():
            self._vec.put_state(i, self._prepared[i].result())
            self._game[i] += 1
            self._prepared[i] = self._prepare(i)
        self._vec.send(actions, look=self._reset_next)

    def recv(self) -> Outcome:
        obs, reward, terminated, truncated, info = self._vec.recv()
        lives = info["lives"]
        life_lost = (lives > 0) & (lives < self._lives) & ~terminated
        self._lives = lives
        self._reset_next = terminated | truncated
        return Outcome(obs, reward, terminated, truncated, life_lost)

    def _settle(self) -> None:
        for future in self._prepared:
            if not future.cancel():
                future.exception()
        self._prepared = []

    def close(self) -> None:
        self._settle()
        self._pool.shutdown()
        if self._vec is not None:
            self._vec.close()
        self._vec = None
