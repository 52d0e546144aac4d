"""Fresh games with any policy, and their scores: what `play`, evaluations during training and trained agents share."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from dqnitro import dqn
from dqnitro.common.host import usable_cores
from dqnitro.common.intervals import Scored, mean_interval
from dqnitro.config import Config
from dqnitro.envs.base import Envs, EnvSpec, GameEnd
from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.learn.learner import build_network, head_spec
from dqnitro.requirements import on_gpu
from dqnitro.store import checkpoint

EPSILON = 0.01  # the chance of a random action, unless the caller says otherwise
FRESH_SEED = 0x5EED  # so that `play` does not repeat games of the training
# A game is truncated after this many frames without a reward: two minutes of play in which nothing happens, such as
# that of an agent which never serves. ALE's own limit, 108,000 frames in all, holds as well.
IDLE_FRAMES = 7_200
ROWS_PER_CORE = 4  # fewer observations are not worth another core
AT_ONCE = 32  # fresh games at the same time: enough to occupy many cores, and a GPU's pass costs as much for one


class Bounds(NamedTuple):
    """When a game is truncated: after this many frames without a reward, or in all (0: never)."""

    idle_frames: int = IDLE_FRAMES
    frames: int = 0


UNBOUNDED, NOT_IDLE = Bounds(0), Bounds()


class Policy:
    """A trained network that chooses actions, with a little randomness against endless loops.

    On the CPU each core computes some of the rows. torch's own threads would share every single product instead, and
    wait for each other at its end: on a busy machine that is many times slower. On a GPU every pass has as many rows as
    the first one, when all games are running: for another number of rows its libraries would choose and load other
    kernels, which takes longer than hundreds of passes.
    """

    def __init__(
        self,
        network: nn.Module,
        atoms: torch.Tensor | None,
        n_actions: int,
        epsilon: float,
        seed: int,
        device: str = "cpu",
        cores: int = 0,
    ) -> None:
        self._network = network.to(device)
        self._atoms = None if atoms is None else atoms.to(device)
        self._n_actions = n_actions
        self._epsilon = epsilon
        self._device = device
        self._rng = np.random.default_rng(seed)
        self._cores = (cores or usable_cores()) if device == "cpu" else 1
        self._pool: ThreadPoolExecutor | None = None
        self._rows: torch.Tensor | None = None  # on the host: the observations of a pass on a GPU

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        n = min(self._cores, len(obs) // ROWS_PER_CORE)
        if n > 1:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._cores, "policy", lambda: torch.set_num_threads(1))
            greedy = np.concatenate(list(self._pool.map(self._greedy, np.array_split(obs, n))))
        else:
            greedy = self._greedy(obs)
        return dqn.epsilon_greedy(greedy, self._epsilon, self._n_actions, self._rng)

    @torch.no_grad()
    def _greedy(self, obs: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(obs)
        if self._device != "cpu":
            rows = self._as_many_as_ever(rows)
        out = self._network(rows.to(self._device, non_blocking=True))
        return dqn.q_values(out, self._atoms).argmax(1)[: len(obs)].cpu().numpy()

    def _as_many_as_ever(self, obs: torch.Tensor) -> torch.Tensor:
        """These rows and, behind them, what was there before. The last pass has read them: its actions are known."""
        if self._rows is None or len(self._rows) < len(obs):
            self._rows = torch.zeros(obs.shape, dtype=obs.dtype, pin_memory=torch.cuda.is_available())
        self._rows[: len(obs)] = obs
        return self._rows

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


@contextlib.contextmanager
def torch_while_playing(config: Config) -> Iterator[None]:
    """On the CPU one thread for each of torch's products. On a GPU no trials of kernels, which the training of a GPU
    runner has switched on: they pay off over millions of passes, not over a game's.
    """
    usual, trials = torch.get_num_threads(), torch.backends.cudnn.benchmark
    if where(config) == "cpu":
        torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.set_num_threads(usual)
        torch.backends.cudnn.benchmark = trials


def where(config: Config) -> str:
    """Where the network runs now: on a GPU if the config allows it and there is one, wherever it was trained."""
    return "cuda" if torch.cuda.is_available() and on_gpu(config) else "cpu"


def fresh_games(config: Config, n_envs: int, seed: int) -> Config:
    """Whole games with unclipped rewards and new seeds."""
    return config.replace(
        n_envs=n_envs,
        episodic_life=False,
        clip_rewards=False,
        seed=(config.seed + FRESH_SEED + seed) % 2**31,
        first_fill_steps=config.batch_size,
        replay_capacity=max(config.replay_capacity, 64 * n_envs),
    )


def fastest_equal(config: Config) -> str:
    """The backend that plays these games in threads: ale-py's own in place of those that play in Python.

    All of them play the same games byte for byte (docs/environments.md), except with another downscaling.
    """
    from dqnitro.envs import env_kind

    slow = config.envs in ("wrappers", "gym-sync", "gym-async") and config.resize == "area"
    return "ale" if slow and env_kind(config.env_id) == "atari" else config.envs


class Played(NamedTuple):
    """The end of a game, and whether our bounds truncated it (a limit of the environment itself is an ordinary end)."""

    end: GameEnd
    truncated: bool


def ignore(_: Any) -> None: ...


def play_games(
    policy: Any, envs: Envs, bounds: Bounds = UNBOUNDED, on_end: Callable[[Played], None] = ignore,
    on_action: Callable[[int], None] = ignore,
) -> list[Played]:  # fmt: skip
    """One whole game in each environment, or as much of it as the bounds allow.

    One game each, because the first games to finish would be the short ones. The network is asked only for
    environments whose game is still running; the others step along, since a vector step moves all of them.
    `on_action` is told each action of the game in environment 0.
    """
    n, per_step = envs.spec.n_envs, envs.spec.frames_per_step
    idle, score, steps = np.zeros(n, np.int64), np.zeros(n), 0
    running = np.ones(n, np.bool_)
    played: list[Played] = []

    def finish(end: GameEnd, truncated: bool) -> None:
        running[end.env] = False
        played.append(Played(end, truncated))
        on_end(played[-1])

    obs = envs.reset()
    while running.any():
        actions = np.zeros(n, np.int64)
        actions[running] = policy(obs[running])
        envs.send(actions)
        if running[0]:
            on_action(int(actions[0]))
        step = envs.recv()
        obs, steps = step.obs_t, steps + 1
        score += step.reward_t
        idle = np.where(step.reward_t != 0, 0, idle + per_step)
        for end in step.ends:
            if running[end.env]:
                finish(end, False)
        too_long = bool(bounds.frames) and steps * per_step >= bounds.frames
        for i in np.flatnonzero(running & (too_long | ((idle >= bounds.idle_frames) & (bounds.idle_frames > 0)))):
            finish(GameEnd(int(i), float(score[i]), steps), True)
    return played


def load_network(path: pathlib.Path, config: Config, spec: EnvSpec) -> tuple[nn.Module, torch.Tensor | None]:
    """The network of a config with the weights of a file, on the CPU, and the atoms of a categorical head."""
    head = head_spec(config, spec)
    network = build_network(config, spec)
    weights = checkpoint.load_weights(path)
    try:
        network.load_state_dict(weights)
    except RuntimeError as e:
        raise CheckpointError(f"{path} is damaged or belongs to another network ({str(e).splitlines()[0]})") from e
    return network.eval(), dqn.support(head) if head.categorical else None


MakePolicy = Callable[[EnvSpec, int], Any]  # for these environments, with random numbers of this seed


def score_policy(
    make_policy: MakePolicy, config: Config, n_games: int, seed: int = 0, backend: str = "",
    *, idle_frames: int = IDLE_FRAMES, on_game: Callable[[int], None] = ignore,
    on_action: Callable[[int], None] = ignore,
) -> Scored:  # fmt: skip
    """Play `n_games` new games of a config with any policy (see `score`)."""
    from dqnitro.envs import make_envs

    if n_games < 1:
        raise ConfigError(f"games must be at least 1, got {n_games}")
    config = config.replace(envs=backend or fastest_equal(config))
    played: list[Played] = []

    def ended(game: Played) -> None:
        played.append(game)
        on_game(len(played))

    for wave in itertools.count():
        n = min(AT_ONCE, n_games - len(played))
        if n <= 0:
            break
        fresh = fresh_games(config, n, seed)
        envs = make_envs(fresh.replace(seed=(fresh.seed + 7919 * wave) % 2**31))
        policy = None
        try:
            policy = make_policy(envs.spec, seed + wave)
            with torch_while_playing(config):
                play_games(policy, envs, Bounds(idle_frames), ended, on_action if wave == 0 else ignore)
        finally:
            envs.close()
            if policy is not None:
                policy.close()
    scores = [game.end.score for game in played]
    i = mean_interval(scores)
    return Scored(scores, i.mean, i.low, i.high, sum(game.truncated for game in played))
