"""Tiny games are solved in seconds, the same way for the same seed."""

import pytest

from dqnitro.config import Config
from dqnitro.session import train
from support import fakes_envs

fakes_envs.register()

CORRIDOR = Config(
    env_id="dqnitro_test/Corridor-v0", n_envs=4, frame_stack=1, clip_rewards=False, hidden_units=32, batch_size=32,
    learning_rate=2e-3, first_fill_steps=200, replay_capacity=5_000, target_sync_steps=50, epsilon_decay_steps=1_000,
    epsilon_end=0.02, max_steps=8_000, stop_at_score=0.9, torch_threads=1, gamma=0.95, steps_per_update=2.0,
)  # fmt: skip
CATCH = CORRIDOR.replace(
    env_id="dqnitro_test/Catch-v0", frame_stack=2, screen_size=36, n_envs=8, learning_rate=1e-3, steps_per_update=4.0,
    first_fill_steps=400, epsilon_decay_steps=2_000, hidden_units=64, max_steps=30_000, stop_at_score=0.8, n_step=3,
    batch_size=16,
)  # fmt: skip

OPTIONS = {
    "dqn": {},
    "double": {"double": True},
    "dueling": {"dueling": True},
    "n-step": {"n_step": 3},
    "prioritized": {"prioritized": True},
    "categorical": {"categorical": True, "value_min": -1.0, "value_max": 1.0, "atoms": 21},
    "quantiles": {"quantiles": 8},
    "munchausen": {"munchausen": True},
    "munchausen-quantiles": {"munchausen": True, "quantiles": 8, "dueling": True, "n_step": 3, "prioritized": True},
    "all": {
        "double": True, "dueling": True, "n_step": 3, "prioritized": True, "categorical": True, "value_min": -1.0,
        "value_max": 1.0, "atoms": 21,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_the_corridor_is_solved_with_every_option_of_dqn(name):
    result = train(CORRIDOR.replace(**OPTIONS[name]))
    assert result.ended == "solved", f"mean score {result.mean_score} after {result.steps} steps"


def test_without_learning_the_corridor_is_not_solved():
    """The bar means something: a random walk stays under it. Nothing is learned, which would change none of it."""
    result = train(CORRIDOR.replace(epsilon_end=1.0, max_steps=4_000, first_fill_steps=5_000))
    assert result.ended == "steps" and result.mean_score < 0.85


def test_catching_a_falling_pixel_is_learned_from_pictures():
    result = train(CATCH)
    assert result.ended == "solved", f"mean score {result.mean_score} after {result.steps} steps"


def test_a_seed_decides_everything():
    a, b, c = (train(CORRIDOR.replace(max_steps=500, stop_at_score=1e9, seed=s)) for s in (1, 1, 2))
    assert (a.games, a.mean_score) == (b.games, b.mean_score) != (c.games, c.mean_score)
