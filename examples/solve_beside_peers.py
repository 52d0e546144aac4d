"""Solve CartPole-v1 or LunarLander-v3 with DQNitro, Stable-Baselines3's DQN and a loop in the style of CleanRL.

pip install -c constraints.txt -e '.[sb3,box2d]'
python examples/solve_beside_peers.py CartPole-v1 --seeds 5 --out peers.json
dqnitro report peers.json

All stop by one rule: the mean score of the last 100 training games reaches the bar that Gymnasium registers, or a limit
on steps or on CPU time is reached. Seeds take turns, and within a seed the contenders do. Every run is a process of its
own, on one core with one thread of torch, `--jobs` of them at a time. What is compared is the CPU time of that process:
waiting for a core does not count. (Other work still makes it longer, by a factor of two and more on a machine with a
load of 20, because it takes caches: the load when a run began is stored with it.) It begins before a contender builds
its networks and ends with its last step; imports and what compiles once are not in it, because every contender makes a
few steps before.

Settings: Stable-Baselines3's are those of its RL Zoo for the environment, the loop's are those of CleanRL's `dqn.py`
(written for CartPole; it has none for LunarLander) with the replay that it takes from Stable-Baselines3. Both are tuned
for a score after training, and leave more random actions in the training games than `dqnitro train ID` does; the
contender "stable-baselines3, 1% random" is RL Zoo's with as few as ours. A file that is there already is continued.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import queue
import random
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import dqnitro
from dqnitro.lab.store import header, save

ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1_000, "gamma": 0.99,
        "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_final_eps": 0.04,
    },
    "LunarLander-v3": {
        "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "gamma": 0.99,
        "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1, "exploration_final_eps": 0.1,
    },
}  # fmt: skip
ZOO_EXPLORES = {"CartPole-v1": 8_000, "LunarLander-v3": 12_000}  # steps: its fraction of its number of steps
CLEAN = {"rate": 2.5e-4, "buffer": 10_000, "sync": 500, "batch": 128, "end": 0.05, "starts": 10_000, "every": 10}
CLEAN_EXPLORES = 250_000  # steps: half of its 500,000
GAMES = 100
NOTE = (
    "Every run is a process of its own on one core with one torch thread; contenders take turns. Time is CPU time, "
    "because the machine may do other work; imports and compiling are not in it."
)


class Scores:
    """The scores of the last games, and whether their mean has reached the bar."""

    def __init__(self, bar: float) -> None:
        self.bar, self.last = bar, deque[float](maxlen=GAMES)

    def add(self, score: float) -> bool:
        self.last.append(score)
        return len(self.last) == GAMES and self.mean >= self.bar

    @property
    def mean(self) -> float:
        return sum(self.last) / max(1, len(self.last))


class Limit(NamedTuple):
    """When a run ends unsolved."""

    max_steps: int
    cpu_s: float

    def begin(self) -> Callable[[int], bool]:
        """Starts the clock; says whether a run of this many steps is over."""
        end = cpu_seconds() + self.cpu_s
        return lambda steps: steps >= self.max_steps or cpu_seconds() >= end


def cpu_seconds() -> float:
    """Of this process with all its threads, and of children that have ended."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def ours(env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
    """The limit is a callback's, not `max_steps`: `auto` would explore less, and the others do not know theirs."""
    over = limit.begin()

    class Stop(dqnitro.Callback):
        def on_tick(self, run: Any, tick: Any) -> None:
            if over(tick.steps):
                run.stop("limit")

    result = dqnitro.train(env_id, seed=seed, callbacks=[Stop()], progress=False)
    ended = {"solved": result.ended == "solved", "steps": result.steps, "mean_score": result.mean_score}
    return ended | {"config": result.config.to_dict()}


def stable_baselines3(env_id: str, seed: int, limit: Limit, **changes: Any) -> dict[str, Any]:
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback

    over = limit.begin()

    class Stop(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.scores, self.solved = Scores(_bar(env_id)), False

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    self.solved = self.solved or self.scores.add(info["episode"]["r"])
            return not self.solved and not over(self.num_timesteps)

    stop = Stop()
    explores = ZOO_EXPLORES[env_id] / max(limit.max_steps, ZOO_EXPLORES[env_id])
    model = DQN(
        "MlpPolicy", env_id, seed=seed, device="cpu", exploration_fraction=explores,
        policy_kwargs={"net_arch": [256, 256]}, **ZOO[env_id] | changes,
    )  # fmt: skip
    model.learn(limit.max_steps, callback=stop)
    return {"solved": stop.solved, "steps": model.num_timesteps, "mean_score": stop.scores.mean}


def stable_baselines3_as_greedy(env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
    """As many random actions at the end as `auto` leaves: the bar is reached with them."""
    return stable_baselines3(env_id, seed, limit, exploration_final_eps=0.01)


def single_file_loop(env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
    """Act, store, learn every tenth step, copy the target network now and then."""
    from stable_baselines3.common.buffers import ReplayBuffer

    over = limit.begin()
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)  # noqa: NPY002
    env = gym.make(env_id)
    n_inputs, n_actions = env.observation_space.shape[0], int(env.action_space.n)  # type: ignore[index,attr-defined]

    def make() -> nn.Module:
        layers = nn.Linear(n_inputs, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, n_actions)
        return nn.Sequential(*layers)

    online, target = make(), make()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=CLEAN["rate"])
    buffer = ReplayBuffer(
        int(CLEAN["buffer"]), env.observation_space, env.action_space, "cpu", handle_timeout_termination=False
    )
    scores, score = Scores(_bar(env_id)), 0.0
    obs, _ = env.reset(seed=seed)
    step = 0
    while not over(step):
        step += 1
        epsilon = max(CLEAN["end"], 1.0 - (1.0 - CLEAN["end"]) * step / CLEAN_EXPLORES)
        if random.random() < epsilon:
            action = random.randrange(n_actions)
        else:
            with torch.no_grad():
                action = int(online(torch.as_tensor(obs)).argmax())
        after, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs, after, np.array([action]), np.array([reward]), np.array([terminated]), [{}])
        obs, score = after, score + float(reward)
        if terminated or truncated:
            if scores.add(score):
                return {"solved": True, "steps": step, "mean_score": scores.mean}
            (obs, _), score = env.reset(), 0.0
        if step > CLEAN["starts"] and step % CLEAN["every"] == 0:
            data = buffer.sample(int(CLEAN["batch"]))
            with torch.no_grad():
                best, _ = target(data.next_observations).max(dim=1)
                wanted = data.rewards.flatten() + 0.99 * best * (1 - data.dones.flatten())
            loss = nn.functional.mse_loss(wanted, online(data.observations).gather(1, data.actions).squeeze())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % CLEAN["sync"] == 0:
            target.load_state_dict(online.state_dict())
    return {"solved": False, "steps": step, "mean_score": scores.mean}


CONTENDERS: dict[str, Callable[[str, int, Limit], dict[str, Any]]] = {
    "dqnitro": ours,
    "stable-baselines3": stable_baselines3,
    "CleanRL-style loop": single_file_loop,
    "stable-baselines3, 1% random": stable_baselines3_as_greedy,
}
WARM_UP = Limit(2_500, 60.0)  # steps: every contender but the loop has made updates by then


def _bar(env_id: str) -> float:
    bar = gym.spec(env_id).reward_threshold
    assert bar is not None
    return float(bar)


def timed(name: str, env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
    """One run of a contender, as a row of the result."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    row = {"contender": name, "seed": seed, **CONTENDERS[name](env_id, seed, limit)}
    return row | {"cpu_s": cpu_seconds() - cpu, "wall_s": time.perf_counter() - wall}


def _on_one_core(core: int | None, name: str, env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
    if core is not None:
        os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    CONTENDERS[name](env_id, 0, WARM_UP)
    load = {"load": os.getloadavg()[0]} if hasattr(os, "getloadavg") else {}
    return timed(name, env_id, seed, limit) | load


class Apart:
    """As `timed`, in a new process on a core of its own; as many at a time as there are `jobs`."""

    def __init__(self, jobs: int = 1) -> None:
        usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [None] * jobs
        self._free: queue.Queue[int | None] = queue.Queue()
        for core in usable[-jobs:]:  # the last ones: systems like to use the first
            self._free.put(core)

    def __call__(self, name: str, env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
        core = self._free.get()
        try:
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                return pool.submit(_on_one_core, core, name, env_id, seed, limit).result()
        finally:
            self._free.put(core)


def compare(
    env_id: str,
    seeds: Sequence[int],
    limit: Limit,
    names: Sequence[str] = tuple(CONTENDERS),
    out: pathlib.Path | None = None,
    run: Callable[[str, str, int, Limit], dict[str, Any]] = timed,
    jobs: int = 1,
) -> dict[str, Any]:
    """Rows of all runs; the file is written after each, and a file that is there already is continued."""
    stored = json.loads(out.read_bytes()) if out is not None and out.is_file() else {}
    rows: list[dict[str, Any]] = stored.get("rows", [])
    result = header(
        "peers", env_id, bar=_bar(env_id), games=GAMES, max_steps=limit.max_steps, limit_cpu_s=limit.cpu_s, note=NOTE,
        rows=rows,
    )  # fmt: skip
    if "config" in stored:
        result["config"] = stored["config"]
    for package in ("stable-baselines3", "box2d"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            result["versions"][package] = importlib.metadata.version(package)
    result["command"] = shlex.join(["python", f"examples/{pathlib.Path(__file__).name}", *sys.argv[1:]])
    done = {(r["contender"], r["seed"]) for r in rows}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        todo = [
            pool.submit(run, name, env_id, seed, limit)
            for seed in seeds for name in names if (name, seed) not in done
        ]  # fmt: skip
        for ended in concurrent.futures.as_completed(todo):
            row = ended.result()
            if "config" in row:
                result["config"] = row.pop("config")  # what `auto` chose; but for the seed it is the same in every row
            rows.append(row)
            rows.sort(key=lambda r: (r["seed"], list(CONTENDERS).index(r["contender"])))
            print(row, flush=True)
            if out is not None:
                save(out, result)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env_id", choices=list(ZOO))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-steps", type=int, default=500_000)
    parser.add_argument("--limit-cpu-s", type=float, default=600.0, help="CPU time after which a run ends unsolved")
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS), metavar="CONTENDER")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each on a core of its own")
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    limit, seeds = Limit(given.max_steps, given.limit_cpu_s), range(1, given.seeds + 1)
    compare(given.env_id, seeds, limit, given.only, given.out, Apart(given.jobs), given.jobs)
