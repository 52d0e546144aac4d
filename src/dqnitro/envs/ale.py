"""The environment backend `ale`: ale-py's AtariVectorEnv, compiled C++ environments.

They do skipping, pooling, resizing and stacking themselves. They are asked for unclipped rewards and for ends of games
only; lost lives are read from the number of lives, because `terminated` would not tell a lost life from a lost game.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from dqnitro.common.host import usable_cores
from dqnitro.config import Config
from dqnitro.envs.bookkeeping import Outcome, episode_seed


def vector_options(config: Config) -> dict[str, Any]:
    """The config in the words of AtariVectorEnv, all but the game and the number of environments and threads.

    The console takes the same options (`dqnitro.atari.vector.options.VecOptions`).
    """
    return {
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


def make_ale_engine(game: str, config: Config, first: int = 0) -> AleEngine:
    """ale-py's C++ environments, numbered from `first` on."""
    import ale_py

    options = vector_options(config)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return AleEngine(lambda: ale_py.AtariVectorEnv(game, num_envs=1, num_threads=1, **options), config, first)


class AleEngine:
    """Two C++ environments for each one: a game is played in the first while the second prepares the next game.

    A seeded reset of ale-py loads the ROM, which takes 90 ms, as long as 270 steps. One AtariVectorEnv for all would
    stand still that long at every end. The price is one more emulator (4 MB) per environment, and 90 ms at the start.

    Each emulator has a thread of its own; `env_threads` is how many of them are at work at a time.
    """

    def __init__(self, make_one: Callable[[], Any], config: Config, first: int = 0) -> None:
        self._make_one = make_one
        self._n, self._first = config.n_envs, first  # environments, and the number in the run of the first one
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
        self._reset_next = np.zeros(self._n, np.bool_)
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
        self._reset_next[:] = False
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

    def _reset(self, emulator: Any, i: int, game: int) -> tuple[np.ndarray, dict[str, Any]]:
        return emulator.reset([0], [episode_seed(self._run_seed, self._first + i, game)])

    def _prepare(self, i: int) -> Future[Any]:
        return self._pool.submit(self._reset, self._spare[i], i, int(self._game[i]) + 1)

    def send(self, actions: np.ndarray) -> None:
        self._out = self._blank()
        self._actions = actions.tolist()
        self._started = self._finished = 0
        self._keep_at_work()

    def _keep_at_work(self) -> None:
        while self._started < min(self._n, self._finished + self._at_work):
            if not self._reset_next[self._started]:
                self._play[self._started].send([self._actions[self._started]], [1.0])
            self._started += 1

    def recv(self) -> Outcome:
        while self._finished < self._n:
            i = self._finished
            if self._reset_next[i]:
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
        self._reset_next[i] = False
        self._prepared[i] = self._prepare(i)

    def _show_start(self, i: int, result: tuple[np.ndarray, dict[str, Any]]) -> None:
        obs, info = result
        self._out.obs[i] = obs[0]
        self._lives[i] = info["lives"][0]

    def _show_step(self, i: int, result: tuple[Any, Any, Any, Any, dict[str, Any]]) -> None:
        obs, reward, terminated, truncated, info = result
        lives, out = info["lives"][0], self._out
        out.obs[i], out.reward[i], out.terminated[i], out.truncated[i] = obs[0], reward[0], terminated[0], truncated[0]
        out.life_lost[i] = 0 < lives < self._lives[i] and not terminated[0]
        self._lives[i] = lives
        self._reset_next[i] = terminated[0] or truncated[0]

    def _settle(self) -> None:
        """Wait until no environment is at work: each serves one caller at a time."""
        for future in self._prepared:
            if not future.cancel():
                future.exception()
        if self._finished < self._started:
            # The caller left between send and recv, perhaps by Ctrl-C inside recv. Which results were fetched is not
            # known then, and fetching one that is not there would wait for ever.
            self._play = [self._make_one().ale for _ in range(self._n)]
            self._started = self._finished = 0

    def close(self) -> None:
        self._started = self._finished = 0
        self._settle()
        self._pool.shutdown()
        self._play, self._spare, self._prepared = [], [], []
