"""`auto` for environments that are not Atari: what it chooses follows from the length of a game and the budget."""

from __future__ import annotations

import time

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from dqnitro import recipes
from dqnitro.config import numbers_of_players
from dqnitro.envs.look import look
from dqnitro.errors import ConfigError
from dqnitro.planning import Wish, planned, with_own_head
from dqnitro.recipes.players import ENVS_EACH, LOST, chunk_for, lost_to_ray


class Walk(gym.Env):
    """A game of `length` steps."""

    action_space = Discrete(2)
    observation_space = Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, length: int = 7, sleep_s: float = 0.0) -> None:
        self.length, self.sleep_s = length, sleep_s

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(self.sleep_s)
        self.at += 1
        return np.zeros(1, np.float32), 0.0, self.at >= self.length, False, {}


gym.register("dqnitro_test/Walk-v0", Walk)
gym.register("dqnitro_test/LimitedWalk-v0", Walk, max_episode_steps=300, kwargs={"length": 10_000})


def plan(env_id, **changes):
    return planned(Wish(env_id, changes=changes))


def test_the_length_of_a_game_is_its_limit_or_what_random_games_take():
    assert look("dqnitro_test/LimitedWalk-v0").length == 300
    assert look("dqnitro_test/Walk-v0").length == 7
    assert look("dqnitro_test/Walk-v0?length=100000").length == 2_000, "a game without an end is cut off by the probe"


def test_longer_games_fill_and_explore_longer():
    short, long = (plan(f"dqnitro_test/{name}-v0").config for name in ("Walk", "LimitedWalk"))
    for name in ("first_fill_steps", "epsilon_decay_steps", "replay_capacity"):
        assert getattr(short, name) < getattr(long, name), name


def test_a_budget_of_steps_shortens_filling_and_exploring_unless_they_are_given():
    whole = plan("dqnitro_test/LimitedWalk-v0").config
    config = plan("dqnitro_test/LimitedWalk-v0", max_steps=4_000).config
    assert (config.first_fill_steps, config.epsilon_decay_steps) == (200, 2_000)
    kept = plan("dqnitro_test/LimitedWalk-v0", max_steps=2_000, epsilon_decay_steps=77, first_fill_steps=188).config
    assert (kept.first_fill_steps, kept.epsilon_decay_steps) == (188, 77)
    long = plan("dqnitro_test/LimitedWalk-v0", max_steps=10**9).config
    assert (long.first_fill_steps, long.epsilon_decay_steps) == (whole.first_fill_steps, whole.epsilon_decay_steps)


def test_the_rate_falls_within_the_budget_and_not_where_the_user_gives_it():
    whole = plan("dqnitro_test/LimitedWalk-v0").config
    assert 0 < whole.learning_rate_end < whole.learning_rate and whole.learning_rate_decay_steps > 4_000
    assert plan("dqnitro_test/LimitedWalk-v0", max_steps=4_000).config.learning_rate_decay_steps == 4_000
    given = plan("dqnitro_test/LimitedWalk-v0", learning_rate=1e-5).config
    assert (given.learning_rate, given.learning_rate_end, given.learning_rate_decay_steps) == (1e-5, 0, 0)
    both = plan("dqnitro_test/LimitedWalk-v0", learning_rate=1e-2, learning_rate_end=1e-3).config
    assert (both.learning_rate_end, both.learning_rate_decay_steps) == (1e-3, whole.learning_rate_decay_steps)


@pytest.mark.parametrize(("budget", "steps"), [(1_000, 1.0), (30_000, 1.5), (10**6, 2.0), (0, 2.0)])
def test_with_few_steps_each_is_learned_from_more_often(budget, steps):
    assert plan("dqnitro_test/LimitedWalk-v0", max_steps=budget).config.steps_per_update == steps
    given = plan("dqnitro_test/LimitedWalk-v0", max_steps=budget, steps_per_update=3.0).config
    assert given.steps_per_update == 3.0


def test_a_short_first_fill_takes_a_smaller_batch():
    assert plan("dqnitro_test/LimitedWalk-v0", first_fill_steps=50).config.batch_size == 50
    with pytest.raises(ConfigError, match="batch_size 60 is larger than first_fill_steps 50"):
        plan("dqnitro_test/LimitedWalk-v0", first_fill_steps=50, batch_size=60)


def test_minutes_become_steps_by_the_speed_of_the_environment():
    """20 ms a step: six seconds are enough for at most 300 steps."""
    config = plan("dqnitro_test/Walk-v0?sleep_s=0.02", max_minutes=0.1).config
    assert config.first_fill_steps == config.batch_size and config.epsilon_decay_steps <= 150


@pytest.mark.parametrize(
    ("env_id", "changes", "says"),
    [
        ("dqnitro_test/Walk-v0", {"max_steps": 50}, "this run will not learn: it ends after 50 steps, and the first "),
        (
            "dqnitro_test/Walk-v0?sleep_s=0.02",
            {"max_minutes": 0.01},
            "this run will not learn: 0.01 minutes are enough",
        ),
        ("pong", {"max_steps": 50}, "this run will not learn: it ends after 50 steps"),
    ],
)
def test_a_run_that_ends_before_its_first_update_says_so(env_id, changes, says):
    (note,) = [note for note in plan(env_id, **changes).notes if "learn" in note]
    assert note.startswith(says) and "(first_fill_steps)" in note


def test_a_run_that_learns_says_nothing():
    assert plan("dqnitro_test/Walk-v0", max_steps=2_000).notes == ()


def players_of(env_id, players, **changes):
    return planned(Wish(env_id, changes={"runner": "cluster", "players": players, "device": "cpu", **changes})).config


@pytest.mark.parametrize(("env_id", "players"), [("pong", 1), ("pong", 4), ("breakout", 2), ("breakout", 64)])
def test_auto_chooses_chunks_that_lose_little_to_ray_and_a_slack_of_one_of_them(env_id, players):
    config = players_of(env_id, players)
    chunk, each = config.chunk_vector_steps, config.n_envs // players
    assert each >= ENVS_EACH and config.n_envs == each * players
    assert lost_to_ray(config, chunk, True) <= LOST < lost_to_ray(config, chunk // 2, True)
    assert config.slack_steps == config.n_envs * chunk


def test_auto_has_environments_for_the_most_players_that_there_may_be():
    config = players_of("pong", 3, most_players=16)
    assert config.n_envs == 16 * ENVS_EACH and numbers_of_players(config) == [4, 8, 16]
    assert config.chunk_vector_steps == players_of("pong", 16).chunk_vector_steps


@pytest.mark.parametrize("wrong", [{"players": 0}, {"players": 10**30}, {"players": 2, "most_players": 10**30}])
def test_a_number_of_players_that_cannot_be_is_refused_by_its_name(wrong):
    with pytest.raises(ConfigError, match="players must be at "):
        planned(Wish("pong", changes={"runner": "cluster", **wrong}))


def test_a_learner_on_a_gpu_leaves_less_of_a_step_for_ray_to_be_a_part_of():
    config = players_of("breakout", 8)
    assert chunk_for(config, learns_on_cpu=False) > chunk_for(config, learns_on_cpu=True)


def test_what_is_given_for_players_is_kept():
    config = players_of("pong", 2, n_envs=6, chunk_vector_steps=3, slack_steps=0)
    assert (config.n_envs, config.chunk_vector_steps, config.slack_steps) == (6, 3, 0)
    few = players_of("breakout", 2, n_envs=2)
    assert few.chunk_vector_steps > players_of("breakout", 2).chunk_vector_steps, "fewer environments, longer chunks"
    assert few.slack_steps == 2 * few.chunk_vector_steps


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({"double": True}, (True, False, 64, False)),
        ({"categorical": True}, (False, True, 0, False)),
        ({"implicit_quantiles": 8}, (False, False, 0, True)),
        ({"n_step": 5}, (False, False, 64, True)),
    ],
)
def test_a_head_or_a_target_that_is_asked_for_replaces_that_of_the_recipe(asked, left):
    config = recipes.plan("strong", "pong").config().replace(**with_own_head(asked))
    assert (config.double, config.categorical, config.quantiles, config.munchausen) == left


def test_two_targets_that_are_both_asked_for_are_refused():
    with pytest.raises(ConfigError, match="leave out --double"):
        planned(Wish("pong", "strong", changes={"double": True, "munchausen": True}))
