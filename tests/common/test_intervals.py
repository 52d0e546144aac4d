"""A 95% interval contains the true mean about 95 times in 100, also over the few rounds of a benchmark."""

import math

import gymnasium as gym
import numpy as np
import pytest

from dqnitro.common.intervals import mean_interval, rate_interval, ratio_interval
from dqnitro.envs import possible_scores


@pytest.mark.parametrize("n", [3, 6, 11])
def test_intervals_over_few_rounds_keep_their_word(n):
    rng = np.random.default_rng(1)
    held = [i.low <= 10.0 <= i.high for _ in range(600) if (i := mean_interval(rng.normal(10.0, 1.0, n).tolist()))]
    assert 0.92 <= np.mean(held) <= 0.98


def test_many_values_are_resampled():
    i = mean_interval([0.0] * 50 + [1.0] * 50)
    assert i.n == 100 and 0.35 < i.low < 0.45 and 0.55 < i.high < 0.65


def test_rates_have_a_geometric_mean_so_that_ratios_of_means_are_means_of_ratios():
    a, b = [1.0, 4.0, 2.0], [3.0, 5.0, 7.0]
    assert rate_interval(a).mean == pytest.approx(2.0)
    assert rate_interval(b).mean / rate_interval(a).mean == pytest.approx(ratio_interval(b, a).mean)
    assert rate_interval([1.0, 100.0]).low > 0


def test_an_interval_of_few_scores_stays_within_what_a_game_can_give():
    free = mean_interval([-21.0, -20.0])
    assert free.low < -26 and free.high > -15, "Student's t does not know the game"
    pong = mean_interval([-21.0, -20.0], within=possible_scores("ALE/Pong-v5"))
    assert pong.low == -21.0 and (pong.mean, pong.high) == (free.mean, free.high)
    assert possible_scores("CartPole-v1") == (0.0, 500.0)
    assert possible_scores("breakout") == possible_scores("mine:Env-v0") == (-math.inf, math.inf)


@pytest.mark.parametrize("env_id", ["CartPole-v0", "CartPole-v1", "Acrobot-v1", "MountainCar-v0"])
def test_the_bounds_of_scores_are_those_of_the_time_limits(env_id):
    low, high = possible_scores(env_id)
    assert max(-low, high) == gym.spec(env_id).max_episode_steps and 0.0 in (low, high)


def test_one_value_and_equal_values_have_no_width():
    assert mean_interval([2.0])[:3] == (2.0, 2.0, 2.0) and mean_interval([2.0] * 5)[:3] == (2.0, 2.0, 2.0)
