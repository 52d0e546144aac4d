"""`bench envs`: which environment backend is fastest here, and what do more environments gain?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.envs.base import Envs
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, Step, fastest, say_ratio

# backend -> its usual name
BACKENDS = {
    "wrappers": "serial wrappers",
    "gym-sync": "gym Sync",
    "gym-async": "gym Async",
    "ale": "ale C++",
    "console": "native console",
}
COUNTS = (1, 4, 8)


def stepper(envs: Envs, seed: int = 0) -> Step:
    """Steps with random actions; starting new games takes time, as in training, but a reset counts no step."""
    n = envs.spec.n_envs
    actions = np.random.default_rng(seed).integers(0, envs.spec.n_actions, (64, n))
    envs.reset()
    tick = 0

    def step() -> float:
        nonlocal tick
        envs.send(actions[tick % 64])
        tick += 1
        return float(np.count_nonzero(~envs.recv().reset))

    return step


def open_backend(contest: Contest, config: Config, backend: str, n: int) -> Envs:
    """The backend, closed with the contest; CannotRun if it cannot play this game."""
    from dqnitro.envs import atari_game, make_envs

    if backend in ("ale", "console") and atari_game(config.env_id) is None:
        raise CannotRun(f"{config.env_id} is not an Atari game")
    envs = make_envs(config.replace(envs=backend, n_envs=n))
    contest.closing.callback(envs.close)
    return envs


def bench(o: Options) -> dict[str, Any]:
    config = recipes.baseline(o.game)
    with Contest(o, f"steps of {config.env_id}", "steps/s", "the serial wrappers with as many environments") as contest:
        for n in COUNTS:
            ref = f"{BACKENDS['wrappers']}, {n}"
            for backend, called in BACKENDS.items():

                def make(backend: str = backend, n: int = n) -> Step:
                    return stepper(open_backend(contest, config, backend, n))

                contest.add(f"{called}, {n}", make, ref, warm_up=5, n_envs=n, part=backend)
        return contest.run(verdict)


def verdict(table: Mapping[str, dict[str, Any]]) -> str:
    best = fastest(table)
    row = table[best]
    text = (
        f"Fastest is {best.rsplit(',', 1)[0]} (--envs {row['part']} --n-envs {row['n_envs']}): "
        f"{row['rate']:,.0f} steps/s"
    )
    if row["to"] != best:
        text += f", {say_ratio(row, 'the serial wrappers')}"
    one = {r["n_envs"]: r for r in table.values() if r["part"] == row["part"]}
    first = min(one)
    if first != row["n_envs"]:
        text += f" and {row['rate'] / one[first]['rate']:.1f}x itself with {first}"
    asynchronous = [r for r in table.values() if r["part"] == "gym-async"]
    if asynchronous and all(r["high"] < 1.0 for r in asynchronous):
        text += "; a process per environment (gym Async) only costs here"
    return text + "."
