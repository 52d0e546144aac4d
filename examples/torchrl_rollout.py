"""Collect Atari games with TorchRL: a random policy, and the batch that a TorchRL loss would learn from.

pip install torchrl
python examples/torchrl_rollout.py
"""

from tensordict import TensorDictBase

from dqnitro.atari.adapters import TorchRLAtari


def collect(game: str = "breakout", num_envs: int = 8, steps: int = 100) -> TensorDictBase:
    """A batch (num_envs, steps); games that end begin anew on the way."""
    env = TorchRLAtari(game, num_envs, seed=1, max_num_frames_per_episode=200)
    batch = env.rollout(steps, break_when_any_done=False)
    env.close()
    return batch


if __name__ == "__main__":
    batch = collect()
    print(batch)
    print("games that ended:", int(batch["next", "done"].sum()))
