"""Atari through compiled vector environments: ale-py's AtariVectorEnv and, with the same interface, the native console.

Both do skipping, pooling, warping and stacking themselves. They are asked for unclipped rewards and for ends of games
only; lost lives are read from the number of lives, because `terminated` would not tell a lost life from a lost game.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from dqnitro.config import Config
from dqnitro.envs.bookkeeping import Outcome, episode_seed
from dqnitro.errors import ConfigError
from dqnitro.host import usable_cores


def vector_options(game: str, config: Config) -> dict[str, Any]:
    """The config in the words of AtariVectorEnv (all but the number of environments and threads)."""
    return {
        "game": game,
        "max_num_frames_per_episode": config.max_episode_frames,
        "repeat_action_probability": config.sticky_actions,
        "full_action_space": config.full_actions,
        "img_height": config.screen_size,
        "img_width": config.screen_size,
        "stack_num": config.frame_stack,
        "frameskip": config.frame_skip,
        "maxpool": config.max_pool,
        "noop_max": config.noop_max,
        "episodic_life": False,
        "life_loss_info": False,
        "reward_clipping": False,
        "use_fire_reset": config.fire_reset,
    }


def make_ale_engine(game: str, config: Config) -> AleEngine:
    """ale-py's C++ environments."""
    import ale_py

    options = vector_options(game, config)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return AleEngine(lambda: ale_py.AtariVectorEnv(num_envs=1, num_threads=1, **options), config)


def make_console_engines(game: str, config: Config, parts: int) -> list[VectorEngine]:
    """The native console, with its machines in parts that share the threads."""
    try:
        from dqnitro.atari import AtariVec  # pyright: ignore
    except ImportError as e:
        raise ConfigError(f"the console part cannot be loaded ({e})", "use --envs ale") from e
    options = vector_options(game, config)
    vec = AtariVec(num_envs=config.n_envs, num_threads=config.env_threads, **options)
    vecs = vec.split(parts) if parts > 1 else [vec]
    aside = 1 + usable_cores() // (8 * parts)

    def make_one() -> AtariVec:
        return AtariVec(num_envs=1, num_threads=1, **options)

    return [VectorEngine(v, make_one, config.seed, k * v.num_envs, aside) for k, v in enumerate(vecs)]


class AleEngine:
    """Two C++ environments for each one: a game is played in the first while the second prepares the next game.

    A seeded reset of ale-py loads the ROM, which takes 90 ms, as long as 270 steps. One AtariVectorEnv for all would
    stand still that long at every end. The price is one more console (4 MB) per environment, and 90 ms at the start.

    Each console has a thread of its own; `env_threads` is how many of them are at work at a time.
    """

    def __init__(self, make_one: Callable[[], Any], config: Config) -> None:
        self._make_one = make_one
        self._n = config.n_envs
        self._run_seed = config.seed
        pairs = [(make_one(), make_one()) for _ in range(self._n)]
        self.n_actions = int(pairs[0][0].single_action_space.n)
        self.obs_shape = pairs[0][0].single_observation_space.shape
        self.obs_dtype = np.dtype(np.uint8)
        # The interface below AtariVectorEnv: its Python layer checks and converts for longer than a CPU plays a frame.
        self._play = [env.ale for env, _ in pairs]
        self._spare = [env.ale for _, env in pairs]
        self._game = np.zeros(self._n, np.int64)
        self._lives = np.zeros(self._n, np.int64)
        self._ended = np.zeros(self._n, np.bool_)
        self._at_work = config.env_threads or self._n
        self._actions: list[int] = []
        self._started = self._finished = 0
        self._pool = ThreadPoolExecutor(min(self._n, usable_cores()), "ale-prepare")
        self._prepared: list[Future[Any]] = []
        self._out = self._blank()

    def _blank(self) -> Outcome:
        obs = np.empty((self._n, *self.obs_shape), np.uint8)
        return Outcome(obs, np.zeros(self._n, np.float64), *(np.zeros(self._n, np.bool_) for _ in range(3)))

    def begin(self, games: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
        self._settle()
        self._game = games.copy()
        self._ended[:] = False
        self._out = self._blank()
        for _ in self._pool.map(self._replay, range(self._n), actions):
            pass
        self._prepared = [self._prepare(i) for i in range(self._n)]
        return self._out.obs

    def _replay(self, i: int, actions: np.ndarray) -> None:
        self._show_start(i, self._reset(self._play[i], i, int(self._game[i])))
        for action in actions.tolist():
            self._play[i].send([action], [1.0])
            self._show_step(i, self._play[i].recv())

    def _reset(self, console: Any, i: int, game: int) -> tuple[np.ndarray, dict[str, Any]]:
        return console.reset([0], [episode_seed(self._run_seed, i, game)])

    def _prepare(self, i: int) -> Future[Any]:
        return self._pool.submit(self._reset, self._spare[i], i, int(self._game[i]) + 1)

    def send(self, actions: np.ndarray) -> None:
        self._out = self._blank()
        self._actions = actions.tolist()
        self._started = self._finished = 0
        self._keep_at_work()

    def _keep_at_work(self) -> None:
        while self._started < min(self._n, self._finished + self._at_work):
            if not self._ended[self._started]:
                self._play[self._started].send([self._actions[self._started]], [1.0])
            self._started += 1

    def recv(self) -> Outcome:
        while self._finished < self._n:
            i = self._finished
            if self._ended[i]:
                self._next_game(i)
            else:
                self._show_step(i, self._play[i].recv())
            self._finished += 1
            self._keep_at_work()
        return self._out

    def _next_game(self, i: int) -> None:
        self._show_start(i, self._prepared[i].result())
        self._play[i], self._spare[i] = self._spare[i], self._play[i]
        self._game[i] += 1
        self._ended[i] = False
        self._prepared[i] = self._prepare(i)

    def _show_start(self, i: int, result: tuple[np.ndarray, dict[str, Any]]) -> None:
        obs, info = result
        self._out.obs[i] = obs[0]
        self._lives[i] = info["lives"][0]

    def _show_step(self, i: int, result: tuple[Any, Any, Any, Any, dict[str, Any]]) -> None:
        obs, reward, over, cut, info = result
        lives, out = info["lives"][0], self._out
        out.obs[i], out.reward[i], out.over[i], out.cut[i] = obs[0], reward[0], over[0], cut[0]
        out.life_lost[i] = 0 < lives < self._lives[i] and not over[0]
        self._lives[i] = lives
        self._ended[i] = over[0] or cut[0]

    def _settle(self) -> None:
        """Let nobody be at work any more: a console serves one caller at a time."""
        for future in self._prepared:
            if not future.cancel():
                future.exception()
        if self._finished < self._started:
            # Somebody left between send and recv, perhaps by Ctrl-C inside recv. Which results were fetched is not
            # known then, and fetching one that is not there would wait for ever.
            self._play = [self._make_one().ale for _ in range(self._n)]
            self._started = self._finished = 0

    def close(self) -> None:
        self._started = self._finished = 0
        self._settle()
        self._pool.shutdown()
        self._play, self._spare, self._prepared = [], [], []


class VectorEngine:
    """One vector environment for all; the next game of each is begun beside it, before the current one is over.

    A game's start takes hundreds of frames. Begun in the tick after an end it would keep all other environments waiting, with
    many of them in nearly every tick. Threads of its own (`aside`: one, and one more for every eight cores) play starts in
    environments of a single machine, and the state is put in when it is needed. Among all environments of a run, its own are those
    from number `first` on.
    """

    def __init__(self, vec: Any, make_one: Callable[[], Any], run_seed: int, first: int, aside: int) -> None:
        self._vec: Any = vec
        self._make_one = make_one
        self._n, self._first = int(vec.num_envs), first
        self._run_seed = run_seed
        self.n_actions = int(vec.single_action_space.n)
        self.obs_shape = vec.single_observation_space.shape
        self.obs_dtype = np.dtype(np.uint8)
        self._game = np.zeros(self._n, np.int64)
        self._lives = np.zeros(self._n, np.int64)
        self._ended = np.zeros(self._n, np.bool_)
        self._pool = ThreadPoolExecutor(aside, "console-prepare")
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
        self._ended[:] = False
        for tick, step in enumerate(padded):
            if tick and (counts == longest - tick).any():
                self._reset(counts == longest - tick)
            obs, _, over, cut, info = self._vec.step(step)
            self._lives, self._ended = info["lives"], over | cut
        if longest and (counts == 0).any():
            obs = self._reset(counts == 0)
            self._ended &= counts > 0
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
        for i in np.flatnonzero(self._ended).tolist():
            self._vec.put_state(i, self._prepared[i].result())
            self._game[i] += 1
            self._prepared[i] = self._prepare(i)
        self._vec.send(actions, look=self._ended)

    def recv(self) -> Outcome:
        obs, reward, over, cut, info = self._vec.recv()
        lives = info["lives"]
        life_lost = (lives > 0) & (lives < self._lives) & ~over
        self._lives = lives
        self._ended = over | cut
        return Outcome(obs, reward, over, cut, life_lost)

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
