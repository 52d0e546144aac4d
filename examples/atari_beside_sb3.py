"""What a machine learns of an Atari game in minutes: `dqnitro train GAME` and Stable-Baselines3's DQN, in turns.

pip install -c constraints.txt -e '.[sb3]'
python examples/atari_beside_sb3.py breakout freeway --minutes 20 --out beside.json

Each contender has the whole machine for as long by the clock, from its first step, in a process of its own. Then its
last network plays fresh games in ale-py's emulator under one protocol: up to 30 no-op starts, no sticky actions, whole
games of unclipped rewards, 1% random actions, and a game without a reward for two minutes of play is truncated. What is
compared is the gain: the score less that of random play under the same protocol.

Stable-Baselines3's settings are those of its RL Zoo for Atari, which are meant for 10 million steps. What counts in
steps is scaled to the run: exploration takes the same tenth of it, and learning begins after the same hundredth. How
many steps the run will have is measured first, in a minute that does not count. A file that is there already is
continued.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ale_py
import gymnasium as gym
import numpy as np

import dqnitro
from dqnitro.common.intervals import mean_interval
from dqnitro.lab.store import header, save

ZOO: dict[str, Any] = {
    "learning_rate": 1e-4, "batch_size": 32, "buffer_size": 100_000, "target_update_interval": 1_000, "train_freq": 4,
    "gradient_steps": 1, "exploration_final_eps": 0.01,
}  # fmt: skip
ZOO_EXPLORES, ZOO_WAITS = 0.1, 0.01  # parts of a run
EPSILON, IDLE_FRAMES, FRAME_SKIP = 0.01, 7_200, 4
SEED_OF_GAMES = 1_000
MEASURED_S, MEASURED_STEPS = 60.0, 1_000  # of the rate; steps before the clock starts
PROTOCOL = str(__doc__).split("\n\n")[2].replace("\n", " ")


class Wanted(NamedTuple):
    """What each contender is to do."""

    game: str
    seed: int
    minutes: float
    games: int


def facts_of(scores: Sequence[float]) -> dict[str, Any]:
    mean, low, high, n = mean_interval(scores)
    return {"score": mean, "low": low, "high": high, "games": n}


def ours(wanted: Wanted) -> dict[str, Any]:
    """Recipe `auto`. Random play is scored here as well."""
    result = dqnitro.train(wanted.game, seed=wanted.seed, max_minutes=wanted.minutes, progress=False)
    told: dict[str, Any] = {"steps": result.steps, "wall_s": result.wall_s, "training_score": result.mean_score}
    for name, epsilon in (("fresh", EPSILON), ("random", 1.0)):
        told[name] = facts_of(result.agent.score(wanted.games, epsilon, SEED_OF_GAMES, "ale").scores)
    return told | {"config": result.config.to_dict()}


class Idle(gym.Wrapper):
    """Truncates a game in which nothing happens."""

    def reset(self, **kwargs: Any) -> Any:
        self._since = 0
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        self._since = 0 if reward else self._since + FRAME_SKIP
        return obs, reward, terminated, truncated or self._since >= IDLE_FRAMES, info


def stable_baselines3(wanted: Wanted) -> dict[str, Any]:
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gym.register_envs(ale_py)
    env_id = "".join(word.capitalize() for word in wanted.game.split("_")) + "NoFrameskip-v4"

    class Until(BaseCallback):
        """The clock starts with a step, and ends the run."""

        def __init__(self, seconds: float, first_step: int = 1) -> None:
            super().__init__()
            self.seconds, self.first, self.took, self.steps = seconds, first_step, 0.0, 0

        def _on_step(self) -> bool:
            if self.num_timesteps <= self.first:
                self._began, self._from = time.perf_counter(), self.num_timesteps
            self.took, self.steps = time.perf_counter() - self._began, self.num_timesteps - self._from
            return self.took < self.seconds

    def trained(until: Until, starts: int, explores: int) -> DQN:
        most = 1_000_000_000
        env = VecFrameStack(make_atari_env(env_id, seed=wanted.seed), 4)
        model = DQN(
            "CnnPolicy", env, seed=wanted.seed, device="cpu", learning_starts=starts,
            exploration_fraction=explores / most, **ZOO,
        )  # fmt: skip
        model.learn(most, callback=until)
        env.close()
        return model

    quick = Until(MEASURED_S * min(1.0, wanted.minutes), 2 * MEASURED_STEPS)
    trained(quick, MEASURED_STEPS, MEASURED_STEPS)
    expected = quick.steps / quick.took * 60 * wanted.minutes
    until = Until(60 * wanted.minutes)
    model = trained(until, round(expected * ZOO_WAITS), round(expected * ZOO_EXPLORES))
    ended = model.ep_info_buffer or []
    told = {
        "steps": model.num_timesteps, "wall_s": until.took, "expected_steps": round(expected),
        "training_score": float(np.mean([game["r"] for game in ended])) if ended else None,
    }  # fmt: skip
    scores, rng = list[float](), np.random.default_rng(SEED_OF_GAMES)
    env = make_atari_env(
        env_id, seed=SEED_OF_GAMES, wrapper_kwargs={"terminal_on_life_loss": False, "clip_reward": False}
    )
    stacked = VecFrameStack(env, 4)
    for i, inner in enumerate(env.envs):  # type: ignore[attr-defined]
        env.envs[i] = Idle(inner)  # type: ignore[attr-defined]
    obs, score = stacked.reset(), 0.0
    while len(scores) < wanted.games:
        action, _ = model.predict(obs, deterministic=True)  # type: ignore[arg-type]
        if rng.random() < EPSILON:
            action = np.array([stacked.action_space.sample()])
        obs, reward, done, _ = stacked.step(action)
        score += float(reward[0])
        if done[0]:
            scores.append(score)
            score = 0.0
    return told | {"fresh": facts_of(scores)}


CONTENDERS: dict[str, Callable[[Wanted], dict[str, Any]]] = {"dqnitro": ours, "stable-baselines3": stable_baselines3}


def apart(name: str, wanted: Wanted) -> dict[str, Any]:
    """In a new process."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        told = pool.submit(CONTENDERS[name], wanted).result()
    return {"contender": name, "game": wanted.game, "seed": wanted.seed, "load": load, **told}


def gains(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Per game and contender the score less that of random play, mean over the seeds."""
    out: dict[str, dict[str, float]] = {}
    for game in dict.fromkeys(row["game"] for row in rows):
        of_game = [row for row in rows if row["game"] == game]
        random = [row["random"]["score"] for row in of_game if "random" in row]
        for name in CONTENDERS:
            found = [row["fresh"]["score"] for row in of_game if row["contender"] == name]
            if found and random:
                out.setdefault(game, {})[name] = float(np.mean(found) - np.mean(random))
    return out


def compare(
    games: Sequence[str],
    seeds: Sequence[int],
    minutes: float,
    games_each: int,
    out: pathlib.Path | None = None,
    run: Callable[[str, Wanted], dict[str, Any]] = apart,
) -> dict[str, Any]:
    """Rows of all runs; the file is written after each, and a file that is there already is continued."""
    stored = json.loads(out.read_bytes()) if out is not None and out.is_file() else {}
    rows: list[dict[str, Any]] = stored.get("rows", [])
    result = header("beside", ",".join(games), minutes=minutes, protocol=PROTOCOL, rows=rows)
    result["versions"]["stable-baselines3"] = importlib.metadata.version("stable-baselines3")
    result["command"] = shlex.join(["python", f"examples/{pathlib.Path(__file__).name}", *sys.argv[1:]])
    result["zoo"] = {**ZOO, "exploration_fraction": ZOO_EXPLORES, "learning_starts_fraction": ZOO_WAITS}
    done = {(row["contender"], row["game"], row["seed"]) for row in rows}
    for seed in seeds:
        for game in games:
            for name in CONTENDERS:
                if (name, game, seed) in done:
                    continue
                rows.append(run(name, Wanted(game, seed, minutes, games_each)))
                result["gains"] = gains(rows)
                print({k: v for k, v in rows[-1].items() if k != "config"}, flush=True)
                if out is not None:
                    save(out, result)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="+", help="as `dqnitro games` names them")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--games-each", type=int, default=30, help="fresh games of each network")
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    found = compare(given.games, range(1, given.seeds + 1), given.minutes, given.games_each, given.out)
    for game, by_name in found["gains"].items():
        told = ", ".join(f"{name} {gain:.1f}" for name, gain in by_name.items())
        print(f"{game}: gain over random play: {told}")
