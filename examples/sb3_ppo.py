"""Train Stable-Baselines3's PPO on the console.

pip install stable-baselines3
python examples/sb3_ppo.py
"""

from stable_baselines3 import PPO

from dqnitro.atari.adapters import Sb3AtariVec


def train(game: str = "pong", steps: int = 1_000_000, num_envs: int = 8, n_steps: int = 128) -> PPO:
    envs = Sb3AtariVec(game, num_envs, episodic_life=True, seed=1)
    model = PPO(
        "CnnPolicy", envs, n_steps=n_steps, batch_size=min(256, num_envs * n_steps), n_epochs=4, learning_rate=2.5e-4,
        clip_range=0.1, ent_coef=0.01, seed=1, device="cpu",
    )  # fmt: skip
    model.learn(steps)
    envs.close()
    return model


if __name__ == "__main__":
    train().save("ppo-pong")
