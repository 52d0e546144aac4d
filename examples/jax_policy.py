"""Play Atari with a network in JAX: observations come by DLPack, actions go back as a JAX array.

pip install jax
python examples/jax_policy.py
"""

import jax
import jax.numpy as jnp

from dqnitro.atari.adapters import JaxAtari


@jax.jit
def act(weights: jax.Array, obs: jax.Array, key: jax.Array) -> jax.Array:
    logits = obs.reshape(obs.shape[0], -1).astype(jnp.float32) / 255 @ weights
    return jax.random.categorical(key, logits)


def play(game: str = "pong", num_envs: int = 8, steps: int = 200) -> jax.Array:
    """The rewards (steps, num_envs) of an untrained policy."""
    envs = JaxAtari(game, num_envs)
    obs, _ = envs.reset(seed=1)
    key = jax.random.key(1)
    n_actions = envs.vec.single_action_space.n  # type: ignore[attr-defined]
    weights = 0.01 * jax.random.normal(key, (obs[0].size, n_actions))
    rewards = []
    for _ in range(steps):
        key, now = jax.random.split(key)
        obs, reward, _, _, _ = envs.step(act(weights, obs, now))
        rewards.append(reward)
    envs.close()
    return jnp.stack(rewards)


if __name__ == "__main__":
    print("rewards:", play().sum(0))
