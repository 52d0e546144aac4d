"""`bench collect`: threads or processes for collecting experience from Python environments, or neither?

Every contender hands the same thing to this process: observations, actions, rewards and ends as arrays, and all of it
is received (a benchmark that never reads its futures measures how fast work can be handed out).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from dqnitro import recipes
from dqnitro.common.host import usable_cores
from dqnitro.config import Config
from dqnitro.envs.base import Envs
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, Step, fastest, say_ratio
from dqnitro.lab.bench.envs import open_backend

CHUNK = 100  # steps that a worker collects before it sends them


class Chunk(NamedTuple):
    """The experience that a worker sends."""

    obs: np.ndarray  # (ticks, n_envs, *obs_shape)
    action: np.ndarray
    reward: np.ndarray
    ended: np.ndarray
    steps: int


def collect(envs: Envs, rng: np.random.Generator, ticks: int = CHUNK) -> Chunk:
    """Play with random actions and keep all transitions."""
    n = envs.spec.n_envs
    obs = np.empty((ticks, n, *envs.spec.obs_shape), envs.spec.obs_dtype)
    action = rng.integers(0, envs.spec.n_actions, (ticks, n))
    reward, ended = np.zeros((ticks, n), np.float32), np.zeros((ticks, n), np.bool_)
    steps = 0
    for t in range(ticks):
        envs.send(action[t])
        step = envs.recv()
        obs[t], reward[t], ended[t] = step.obs_t, step.reward_t, step.terminated | step.truncated
        steps += int(np.count_nonzero(~step.reset))
    return Chunk(obs, action, reward, ended, steps)


def work(config: Config, seed: int, pipe: Connection) -> None:
    """A worker process: a chunk for every message, until the pipe closes."""
    from dqnitro.envs import make_envs

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent closes the pipe
    envs = make_envs(config.replace(seed=seed))
    envs.reset()
    rng = np.random.default_rng(seed)
    pipe.send(os.getpid())
    try:
        while pipe.recv():
            pipe.send(collect(envs, rng))
    except (EOFError, BrokenPipeError):
        pass
    envs.close()


def in_processes(contest: Contest, config: Config, n: int) -> Step:
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    for i in range(n):
        mine, theirs = context.Pipe()
        process = context.Process(target=work, args=(config, i + 1, theirs), daemon=True)
        process.start()
        theirs.close()
        contest.closing.callback(
            process.join, 5
        )  # callbacks run last first: the pipe is closed, then the worker is awaited
        contest.closing.callback(mine.close)
        pipes.append(mine)
    pids = {pipe.recv() for pipe in pipes}
    assert len(pids) == n and os.getpid() not in pids, "the workers must be other processes"

    def step() -> float:
        for pipe in pipes:
            pipe.send(True)
        return float(sum(pipe.recv().steps for pipe in pipes))

    return step


def in_threads(contest: Contest, config: Config, n: int) -> Step:
    many = [open_backend(contest, config.replace(seed=i + 1), "wrappers", 1) for i in range(n)]
    rngs = [np.random.default_rng(i + 1) for i in range(n)]
    for envs in many:
        envs.reset()
    if n == 1:
        return lambda: float(collect(many[0], rngs[0]).steps)
    pool = ThreadPoolExecutor(n)
    contest.closing.callback(pool.shutdown)
    return lambda: float(sum(chunk.steps for chunk in pool.map(collect, many, rngs)))


def in_one_part(contest: Contest, config: Config, part: str, n: int) -> Step:
    envs = open_backend(contest, config, part, n)
    envs.reset()
    rng = np.random.default_rng(1)
    return lambda: float(collect(envs, rng, CHUNK // n + 1).steps)


def in_gym_vector(contest: Contest, config: Config, n: int) -> Step:
    """The environment's own vectorised version, if its author wrote one in NumPy."""
    import gymnasium as gym

    from dqnitro.envs import atari_game

    if atari_game(config.env_id) is not None:
        raise CannotRun("Atari games come vectorised as ale C++ and native console")
    try:
        vec = gym.make_vec(config.env_id, num_envs=n, vectorization_mode="vector_entry_point")
    except gym.error.Error as e:
        raise CannotRun(f"{config.env_id} has no vectorised version ({e})") from e
    contest.closing.callback(vec.close)
    obs, _ = vec.reset(seed=1)
    assert isinstance(vec.single_action_space, gym.spaces.Discrete)
    actions = np.random.default_rng(1).integers(0, vec.single_action_space.n, (64, n))
    kept = np.empty((CHUNK, *obs.shape), obs.dtype)

    def step() -> float:
        for t in range(CHUNK):
            kept[t], *_ = vec.step(actions[t % 64])
        return float(CHUNK * n)

    return step


def bench(o: Options) -> dict[str, Any]:
    config = recipes.baseline(o.game).replace(envs="wrappers", n_envs=1)
    n = max(2, usable_cores())
    ref = "one environment"
    ways: dict[str, Callable[[], Step]] = {
        ref: lambda: in_threads(contest, config, 1),
        f"{n} threads": lambda: in_threads(contest, config, n),
        f"{n} processes": lambda: in_processes(contest, config, n),
        f"gym Async, {n}": lambda: in_one_part(contest, config, "gym-async", n),
        f"ale C++, {n}": lambda: in_one_part(contest, config, "ale", n),
        f"native console, {n}": lambda: in_one_part(contest, config, "console", n),
        f"vectorised in NumPy, {n}": lambda: in_gym_vector(contest, config, n),
    }
    title = f"collecting experience from {config.env_id} ({usable_cores()} cores)"
    with Contest(o, title, "steps/s", ref) as contest:
        for name, make in ways.items():
            contest.add(name, make, ref, warm_up=1)
        return contest.run(verdict)


ONE = "one environment"


def verdict(table: Mapping[str, dict[str, Any]]) -> str:
    best = fastest(table)
    text = f"Collect with {best}" + ("" if table[best]["to"] == best else f": {say_ratio(table[best], ONE)}")
    for kind in ("threads", "processes"):
        for name, row in table.items():
            if name.endswith(kind) and name != best:
                text += f"; {name} give {say_ratio(row, ONE)}"
    return text + "."
