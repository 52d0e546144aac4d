"""Train on an environment of your own, store the run, look at what the agent has learned.

python examples/own_environment.py
"""

import gymnasium as gym
import numpy as np

import dqnitro


class Thermostat(gym.Env):
    """Keep a room at 20 degrees: a heater that warms late, a window that cools at once."""

    action_space = gym.spaces.Discrete(3)  # wait, heat, open the window
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)  # distance from 20 degrees, warmth in the heater

    def __init__(self, length: int = 60) -> None:
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random: draw from nothing else
        self.room, self.heater, self.t = 20 + float(self.np_random.uniform(-8, 8)), 0.0, 0
        return self._obs(), {}

    def step(self, action):
        self.heater = 0.7 * self.heater + (1.0 if action == 1 else 0.0)
        self.room += 0.6 * self.heater - 0.4 - (2.0 if action == 2 else 0.0)
        self.t += 1
        return self._obs(), float(abs(self.room - 20) < 2), False, self.t >= self.length, {}

    def _obs(self):
        return np.clip(np.array([(self.room - 20) / 10, self.heater / 4], np.float32), -1, 1)


def main(max_steps: int = 20_000, run_dir: str = "runs/thermostat") -> float:
    result = dqnitro.train(
        Thermostat,
        run_dir,
        max_steps=max_steps,
        learning_rate=1e-3,
        target_sync_steps=500,
        epsilon_decay_steps=max_steps // 2,
        page=True,
    )
    agent = result.agent
    cold, warm = np.array([-0.5, 0.0], np.float32), np.array([0.5, 0.0], np.float32)
    print(f"5 degrees too cold: {('wait', 'heat', 'window')[agent.act(cold)]}")
    print(f"5 degrees too warm: {('wait', 'heat', 'window')[agent.act(warm)]}")
    score = agent.score(games=10).mean
    print(f"{score:.1f} of 60 steps within 2 degrees; page: {result.page}")
    return score


if __name__ == "__main__":
    main()
