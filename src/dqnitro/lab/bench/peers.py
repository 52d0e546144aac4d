"""DQN of other libraries at the textbook settings, compared in one process: same game, same wrappers, same batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab.interleave import threads_put_back, timed_rate

FILL = 500  # steps before measuring: enough to sample from, and the replay's size does not change an update's cost
CAPACITY = 5_000


def wrapped_env(game: str, seed: int) -> Any:
    """The same wrapped game for all contenders."""
    from dqnitro.envs.atari import make_atari_env
    from dqnitro.envs.serial import SeededGames

    return SeededGames(make_atari_env(game, Config(), clip_rewards=True), run_seed=seed, index=0)


def ours(config: Config) -> Callable[[float], float]:
    """Samples a second of our loop, environment steps included."""
    import torch

    from dqnitro.run.inline import loop, make_agent

    with threads_put_back():
        agent = make_agent(
            config.replace(first_fill_steps=FILL, replay_capacity=CAPACITY, max_steps=0, epsilon_decay_steps=FILL)
        )
        ticks = loop(agent)
        while next(ticks).updates < 5:
            pass
        threads = torch.get_num_threads()  # set by the config; it must not affect the other contenders

    def step() -> float:
        before = agent.clock.updates
        next(ticks)
        return (agent.clock.updates - before) * config.batch_size

    def rate(seconds: float) -> float:
        with threads_put_back(threads):
            return timed_rate(step, seconds)

    return rate


def stable_baselines3(game: str, device: str = "cpu") -> Callable[[float], float]:
    """SB3's DQN: one update of 32 after every step."""
    try:
        from stable_baselines3 import DQN  # pyright: ignore[reportMissingImports]
        from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]
    except ImportError as e:
        raise ConfigError(
            f"Stable-Baselines3 is not installed ({e})", "pip install -c constraints.txt -e '.[peers]'"
        ) from e
    import time

    class UntilTime(BaseCallback):
        """Ends a `learn` call after some seconds."""

        end = 0.0

        def _on_step(self) -> bool:
            return time.perf_counter() < self.end

    model = DQN(
        "CnnPolicy", wrapped_env(game, 11), learning_rate=1e-4, buffer_size=CAPACITY, learning_starts=FILL,
        batch_size=32,
        train_freq=1, gradient_steps=1, target_update_interval=1_000, exploration_fraction=1e-9,
        exploration_final_eps=0.02, device=device, seed=1, verbose=0,
    )  # fmt: skip
    model.learn(FILL + 5, reset_num_timesteps=True)

    def rate(seconds: float) -> float:
        callback, before, start = UntilTime(), model._n_updates, time.perf_counter()
        callback.end = start + seconds
        model.learn(10**9, callback=callback, reset_num_timesteps=False)
        return (model._n_updates - before) * 32 / (time.perf_counter() - start)

    return rate


def single_file_loop(game: str, device: str = "cpu") -> Callable[[float], float]:
    """A single-file loop in the style of CleanRL: NumPy ring of whole stacks, eager torch, Adam,
    one update per step.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    env = wrapped_env(game, 12)
    n_actions = int(env.action_space.n)

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, n_actions),
        )  # fmt: skip

    q, target = make().to(device), make().to(device)

    def put(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-4)
    rng = np.random.default_rng(1)
    shape = (CAPACITY, 4, 84, 84)
    obs_ring, next_ring = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    actions, rewards, dones = (
        np.zeros((CAPACITY, 1), np.int64),
        np.zeros(CAPACITY, np.float32),
        np.zeros(CAPACITY, np.float32),
    )
    state = {"obs": env.reset()[0], "t": 0}

    def step() -> float:
        t, obs = state["t"], state["obs"]
        if t < FILL or rng.random() < 0.02:
            action = int(rng.integers(n_actions))
        else:
            action = int(torch.argmax(q(torch.Tensor(obs[None]).to(device) / 255.0), dim=1).item())
        nxt, reward, terminated, truncated, _ = env.step(action)
        i = t % CAPACITY
        obs_ring[i], next_ring[i], actions[i], rewards[i], dones[i] = obs, nxt, action, reward, terminated
        state["obs"] = env.reset()[0] if terminated or truncated else nxt
        state["t"] = t + 1
        if t < FILL:
            return 0.0
        pick = rng.integers(0, min(t + 1, CAPACITY), 32)
        with torch.no_grad():
            best = target(put(next_ring[pick]).float() / 255.0).max(dim=1).values
            y = put(rewards[pick]) + 0.99 * best * (1 - put(dones[pick]))
        old = q(put(obs_ring[pick]).float() / 255.0).gather(1, put(actions[pick])).squeeze()
        loss = F.mse_loss(y, old)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if t % 1_000 == 0:
            target.load_state_dict(q.state_dict())
        return 32.0

    while state["t"] < FILL + 5:
        step()
    return lambda seconds: timed_rate(step, seconds)
