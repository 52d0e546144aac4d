"""The emulator without the trainer: as many Pong games as you like, for a loop of your own.

python examples/console_alone.py
"""

import time

import numpy as np

from dqnitro.atari import AtariVec


def main(steps: int = 500, num_envs: int = 8) -> float:
    envs = AtariVec("pong", num_envs=num_envs)
    rng = np.random.default_rng(1)
    envs.reset(seed=1)  # uint8 (num_envs, 4, 84, 84); the first call compiles
    begin, points, ended = time.perf_counter(), 0.0, 0
    for _ in range(steps):
        actions = rng.integers(0, envs.single_action_space.n, num_envs)
        _, rewards, terminated, truncated, _ = envs.step(actions)
        points += float(rewards.sum())
        ended += int((terminated | truncated).sum())
    frames_per_s = steps * num_envs * 4 / (time.perf_counter() - begin)
    envs.close()
    print(f"{points:+.0f} points in {steps * num_envs:,} steps, {ended} games ended, {frames_per_s:,.0f} frames/s")
    return points


if __name__ == "__main__":
    main()
