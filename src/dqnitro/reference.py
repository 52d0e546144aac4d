"""The complete textbook DQN in one file. Read it first.

The rest of this package makes it faster, and tests compare with it: `dqnitro train pong --recipe baseline` ends with
the same parameters, bit for bit. It shares only the environment with the fast code.

    python -m dqnitro.reference            # Pong, until you stop it

Deep Q-learning (Mnih et al., 2015) in one paragraph: play epsilon-greedily and remember every transition. After each
step draw 32 of them at random and move Q(s, a) towards r + gamma * max_a' Q_target(s', a'), where Q_target is a copy of
the network that is refreshed every thousand steps.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

REPLAY_SIZE = 100_000
FIRST_FILL = 10_000
BATCH = 32
LEARNING_RATE = 1e-4
GAMMA = 0.99
EPSILON_START = 1.0
EPSILON_END = 0.02
EPSILON_STEPS = 100_000
SYNC_EVERY = 1_000


def make_network(n_actions: int) -> nn.Module:
    """The network of the Nature paper: four stacked grey frames of 84x84 in, one value per action out."""
    return nn.Sequential(
        nn.Conv2d(4, 32, kernel_size=8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, kernel_size=3, stride=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, n_actions),
    )


def to_input(observations: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(observations).float() * (1.0 / 255.0)


def dqn_loss(network: nn.Module, target_network: nn.Module, batch: list[tuple[Any, ...]]) -> torch.Tensor:
    """Mean squared error between Q(s, a) and the Bellman target. Gradients flow through Q(s, a) only."""
    obs, actions, rewards, dones, next_obs = (np.array(column) for column in zip(*batch, strict=True))
    q = network(to_input(obs)).gather(1, torch.from_numpy(actions).unsqueeze(1)).squeeze(1)
    with torch.no_grad():  # the target is a constant to move towards; no gradients flow through it
        best_next = target_network(to_input(next_obs)).max(1).values
        target = torch.from_numpy(rewards).float() + torch.where(torch.from_numpy(dones), 0.0, GAMMA) * best_next
    return (target - q).square().mean()


def train(
    env: gymnasium.Env,
    seed: int = 1,
    max_steps: int | None = None,
    first_fill: int = FIRST_FILL,
    replay_size: int = REPLAY_SIZE,
    sync_every: int = SYNC_EVERY,
    verbose: bool = False,
) -> nn.Module:
    """Train on `env` (stacked uint8 frames, discrete actions) for `max_steps` steps; returns the network."""
    n_actions = int(env.action_space.n)  # type: ignore[attr-defined]
    torch.manual_seed(seed)
    network = make_network(n_actions)
    target_network = make_network(n_actions)
    target_network.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    # Two generators, so that how often we learn does not change how we explore.
    play_rng, replay_rng = (np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(2))

    replay: deque[tuple[Any, ...]] = deque(maxlen=replay_size)
    scores: deque[float] = deque(maxlen=100)
    score = 0.0
    obs, _ = env.reset()
    step = 0
    while max_steps is None or step < max_steps:
        # 1. Decide: a random action with probability epsilon, else the best one according to the network.
        epsilon = max(EPSILON_END, EPSILON_START + (EPSILON_END - EPSILON_START) * (step / EPSILON_STEPS))
        explore = play_rng.random(1)[0] < epsilon
        action = int(play_rng.integers(0, n_actions, 1)[0])
        if not explore:
            with torch.no_grad():
                action = int(network(to_input(obs[None])).argmax(1).item())

        # 2. Learn. This comes before the step because a faster version steps its environments at the same time.
        if step >= first_fill:
            if step % sync_every == 0:
                target_network.load_state_dict(network.state_dict())
            batch = [replay[i] for i in replay_rng.integers(0, len(replay), BATCH)]
            loss = dqn_loss(network, target_network, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        # 3. Step, and remember.
        next_obs, reward, terminated, truncated, info = env.step(action)
        replay.append((obs, action, float(reward), terminated, next_obs))
        obs = next_obs
        step += 1
        score += float(info.get("raw_reward", reward))
        if terminated or truncated:
            obs, _ = env.reset()
            scores.append(score)
            if verbose:
                mean = np.mean(scores)
                print(f"step {step:>8}  score {score:>6.1f}  mean of last 100 {mean:>7.2f}  epsilon {epsilon:.3f}")
            score = 0.0
    return network


def main() -> None:
    from dqnitro.config import Config
    from dqnitro.envs.atari import make_atari_env
    from dqnitro.envs.serial import SeededGames

    train(SeededGames(make_atari_env("pong", Config(), clip_rewards=True), run_seed=1, index=0), verbose=True)


if __name__ == "__main__":
    main()
