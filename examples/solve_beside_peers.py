"""Solve CartPole-v1 or LunarLander-v3 with DQNitro, Stable-Baselines3's DQN and a loop in the style of CleanRL.

pip install -c constraints.txt -e '.[sb3,box2d]'
python examples/solve_beside_peers.py CartPole-v1 --seeds 5 --peer-seeds 1 --peer-limit-s 60 --out peers.json
dqnitro report peers.json

All stop by one rule: the mean score of the last 100 training games reaches the bar that Gymnasium registers, or the
time is up. Seeds and contenders take turns. One thread each; seconds of CPU are stored beside those of the clock, for
machines that do other work. Both begin before a contender builds its networks and end with its last step; imports and
what compiles once are not in them, because every contender makes a few steps before. Settings: Stable-Baselines3's are
those of its RL Zoo for the environment, the single loop's those of CleanRL's `dqn.py`; ours are what `dqnitro train ID`
chooses. (RL Zoo's and CleanRL's are tuned for a score after training, without random actions.)
"""

from __future__ import annotations

import argparse
import pathlib
import random
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable
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
CLEAN_EXPLORES = 250_000  # steps
GAMES = 100


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
    seconds: float

    def begin(self) -> Callable[[int], bool]:
        """Starts the clock; says whether a run of this many steps is over."""
        end = time.perf_counter() + self.seconds
        return lambda steps: steps >= self.max_steps or time.perf_counter() >= end


def ours(env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
    """The limit is a callback's, not `max_steps`: `auto` would explore less, and the others do not know theirs."""
    over = limit.begin()

    class Stop(dqnitro.Callback):
        def on_tick(self, run: Any, tick: Any) -> None:
            if over(tick.steps):
                run.stop("limit")

    result = dqnitro.train(env_id, seed=seed, callbacks=[Stop()], progress=False)
    return {"solved": result.ended == "solved", "steps": result.steps, "mean_score": result.mean_score}


def stable_baselines3(env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
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
        policy_kwargs={"net_arch": [256, 256]}, **ZOO[env_id],
    )  # fmt: skip
    model.learn(limit.max_steps, callback=stop)
    return {"solved": stop.solved, "steps": model.num_timesteps, "mean_score": stop.scores.mean}


def single_file_loop(env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
    """Act, store, learn every tenth step, copy the target network now and then."""
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
    buffer: deque[tuple[Any, ...]] = deque(maxlen=int(CLEAN["buffer"]))
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
        buffer.append((obs, action, float(reward), terminated, after))
        obs, score = after, score + float(reward)
        if terminated or truncated:
            if scores.add(score):
                return {"solved": True, "steps": step, "mean_score": scores.mean}
            (obs, _), score = env.reset(), 0.0
        if step > CLEAN["starts"] and step % CLEAN["every"] == 0:
            columns = zip(*random.sample(buffer, int(CLEAN["batch"])), strict=True)
            first, actions, rewards, ended, second = (torch.as_tensor(np.stack(c)) for c in columns)
            with torch.no_grad():
                wanted = rewards.float() + 0.99 * target(second).max(1).values * ~ended
            loss = nn.functional.mse_loss(wanted, online(first).gather(1, actions[:, None])[:, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % CLEAN["sync"] == 0:
            target.load_state_dict(online.state_dict())
    return {"solved": False, "steps": step, "mean_score": scores.mean}


CONTENDERS: dict[str, Callable[[str, int, Limit], dict[str, Any]]] = {
    "dqnitro": ours,
    "stable-baselines3": stable_baselines3,
    "single-file loop": single_file_loop,
}
WARM_UP = Limit(600, 60.0)


def _bar(env_id: str) -> float:
    bar = gym.spec(env_id).reward_threshold
    assert bar is not None
    return float(bar)


def timed(name: str, env_id: str, seed: int, limit: Limit) -> dict[str, Any]:
    """One run of a contender, as a row of the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    row = {"contender": name, "seed": seed, **CONTENDERS[name](env_id, seed, limit)}
    return row | {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def compare(
    env_id: str,
    seeds: int,
    limit: Limit,
    out: pathlib.Path | None = None,
    peer_seeds: int | None = None,
    peer_limit_s: float | None = None,
) -> dict[str, Any]:
    """Rows of all runs; the file is written after each, so that a comparison that was broken off is not lost."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    facts: dict[str, Any] = {
        "bar": _bar(env_id),
        "games": GAMES,
        "max_steps": limit.max_steps,
        "limit_s": limit.seconds,
    }
    peer_limit = limit if peer_limit_s is None else limit._replace(seconds=peer_limit_s)
    if peer_limit != limit:
        facts["note"] = f"The other trainers had {peer_limit.seconds:g} s a run."
    result = header("peers", env_id, **facts, rows=rows)
    result["command"] = shlex.join(["python", f"examples/{pathlib.Path(__file__).name}", *sys.argv[1:]])
    for name in CONTENDERS:
        timed(name, env_id, 0, WARM_UP)
    peers = seeds if peer_seeds is None else peer_seeds
    for seed in range(1, max(seeds, peers) + 1):
        for name in CONTENDERS:
            mine = name == "dqnitro"
            if seed <= (seeds if mine else peers):
                rows.append(timed(name, env_id, seed, limit if mine else peer_limit))
                print(rows[-1], flush=True)
                if out is not None:
                    save(out, result)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env_id", choices=list(ZOO))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--peer-seeds", type=int, help="seeds of the others (default: as many)")
    parser.add_argument("--max-steps", type=int, default=500_000)
    parser.add_argument("--limit-s", type=float, default=600.0, help="seconds after which a run ends unsolved")
    parser.add_argument("--peer-limit-s", type=float, help="those of the others (default: as many)")
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    limit = Limit(given.max_steps, given.limit_s)
    compare(given.env_id, given.seeds, limit, given.out, given.peer_seeds, given.peer_limit_s)
