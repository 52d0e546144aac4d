"""Published figures and what is computed from them: aggregates of Dopamine's runs as others computed them from the same
data, and cases small enough for a sheet of paper.
"""

import math

import numpy as np
import pytest

from dqnitro import published
from dqnitro.common import aggregates
from dqnitro.common.aggregates import ATARI5, above_human, atari5, bootstrap, iqm, mean, median

# (median, interquartile mean over runs, games above human, Atari-5), over the 55 games that the data has.
KNOWN = {
    ("DQN", 10): (0.12, 0.16, 5, 9.6),
    ("Rainbow", 10): (0.40, 0.60, 22, 43),
    ("IQN", 10): (0.62, 0.73, 24, 68),
    ("DQN", 50): (0.47, 0.52, 15, None),
    ("Rainbow", 50): (1.13, 1.27, 34, None),
    ("DQN", 100): (0.64, 0.67, 17, 51),
    ("Rainbow", 100): (1.28, 1.40, 37, 98),
    ("DQN", 200): (0.65, 0.75, 20, 62),
    ("DQN (Adam, MSE)", 200): (None, None, None, 88),
    ("Rainbow", 200): (1.48, 1.70, 39, 119),
    ("IQN", 200): (1.25, 1.75, 37, 95),
    ("DQN Impala", 200): (1.17, 1.50, 35, None),
    ("Rainbow Impala", 200): (1.78, 2.55, 42, 168),
    ("IQN Impala", 200): (1.40, 2.18, 37, 134),
    ("Cleanba IMPALA, 1 A100, 10 CPU", 200): (None, None, None, 152),
    ("Cleanba PPO (Sync), 1 A100, 10 CPU", 200): (None, None, None, 150),
    ("Moolib IMPALA, 1 A100, 10 CPU", 200): (None, None, None, 131),
}


def normalized(agent, millions):
    found = published.agents()[agent].scores[millions]
    return {game: [published.human_normalized(game, s) for s in seeds] for game, seeds in found.items()}


@pytest.mark.parametrize(("agent", "millions"), KNOWN)
def test_aggregates_of_published_runs(agent, millions):
    per_game = normalized(agent, millions)
    expected = KNOWN[agent, millions]
    scores = list(per_game.values())
    five = atari5({game: float(np.mean(v)) for game, v in per_game.items()})
    for got, want in zip((median(scores), iqm(scores), above_human(scores), five), expected, strict=True):
        if want is not None:
            digits = 0 if isinstance(want, int) else 1 if want == 9.6 else 2
            assert round(got, digits) == want
    assert len(scores) == (57 if "A100" in agent else 55)


def test_every_entry_names_its_source_and_its_protocol():
    for agent in published.agents().values():
        assert set(agent.source) == {"repository", "path", "commit"} and len(agent.source["commit"]) == 40
        assert agent.protocol["name"] == "machado" and agent.protocol["sticky_actions"] == 0.25
        assert set(agent.scores[max(agent.scores)]) <= set(published.games())
    assert len(published.games()) == 57 and len(published.reference_source()["commit"]) == 40


def test_the_games_are_those_of_the_console():
    from dqnitro.atari.games.game_table import GAMES

    assert set(published.games()) <= set(GAMES)


def test_published_figures_of_single_games():
    agents = published.agents()
    assert agents["DQN"].last("breakout") == pytest.approx(93.9, abs=0.05)
    assert agents["Rainbow"].at(10, "breakout") == pytest.approx(41.9, abs=0.05)
    assert agents["Rainbow"].at(14, "breakout") == agents["Rainbow"].at(10, "breakout")
    assert agents["Rainbow"].at(16, "breakout") is None and agents["Rainbow"].at(1, "breakout") is None
    assert agents["DQN"].at(200, "surround") is None
    dqn = agents["DQN"]
    at = dict(zip(dqn.curve_millions, dqn.curves["pong"], strict=True))
    assert dqn.on_curve(12.5, "pong") == pytest.approx((at[10] + at[15]) / 2)
    assert dqn.on_curve(200, "pong") == at[200] and dqn.on_curve(1, "pong") is None
    assert len(at) == 20 and len(agents["IQN Impala"].curves) == 55
    assert agents["Cleanba IMPALA, 1 A100, 10 CPU"].minutes["alien"] == pytest.approx(152.55)
    assert published.human_normalized("pong", -20.7) == 0 and published.human_normalized("pong", 14.6) == 1
    assert published.human_normalized("tetris", 3) is None


def test_protocols_that_differ_are_told():
    dopamine = published.agents()["DQN"].protocol
    assert published.differences(dopamine, dopamine) == []
    ours = dopamine | {"sticky_actions": 0.0, "noop_max": 30, "lives_told": True}
    assert published.differences(ours, dopamine) == [
        "sticky actions: 0.25 there, 0 here", "lives told: no there, yes here", "no-op starts: no there, yes here",
    ]  # fmt: skip
    assert published.differences(dopamine | {"noop_max": 1}, dopamine) == [], "one no-op is none"


def test_medians_means_and_interquartile_means_by_hand():
    scores = [[1.0, 3.0], [0.0, 0.0], [10.0, 20.0], [5.0, 5.0]]
    assert median(scores) == (2 + 5) / 2 and mean(scores) == (2 + 0 + 15 + 5) / 4
    # Sorted: 0 0 1 3 5 5 10 20; a quarter of eight runs is cut off at either end.
    assert iqm(scores) == (1 + 3 + 5 + 5) / 4
    assert iqm([[1.0], [2.0], [6.0]]) == 3.0, "a quarter of three runs is none"
    assert iqm([[1.0], [2.0], [6.0], [100.0], [-5.0]]) == 3.0
    assert above_human([[0.5, 1.5], [0.9], [3.0]]) == 2


def test_the_interquartile_mean_is_scipys_trimmed_mean():
    from scipy.stats import trim_mean

    rng = np.random.default_rng(3)
    for games, seeds in ((5, 3), (26, 5), (7, 1), (1, 1)):
        scores = rng.normal(size=(games, seeds)) ** 3
        assert iqm(scores.tolist()) == pytest.approx(trim_mean(scores, 0.25, axis=None))


def test_the_stratified_bootstrap_resamples_seeds_within_games():
    """Two games of two seeds: the mean has four equally likely values each, so the distribution can be listed."""
    scores = [[0.0, 2.0], [10.0, 14.0]]
    i = bootstrap(scores, mean, resamples=4000)
    assert i.mean == 6.5 and i.n == 4
    # Each game's mean is low, middle (twice) or high: 1/16 for both low (5) and 1/16 for both high (8).
    assert (i.low, i.high) == (5.0, 8.0)
    assert bootstrap([[1.0], [3.0]], mean).low == bootstrap([[1.0], [3.0]], mean).high == 2.0, "one seed: no width"
    over_games = bootstrap([[1.0], [3.0]], mean, games=True)
    assert (over_games.low, over_games.high) == (1.0, 3.0)
    assert bootstrap(scores, iqm, seed=5) == bootstrap(scores, iqm, seed=5)


@pytest.mark.parametrize("statistic", [median, mean, iqm])
@pytest.mark.parametrize("games", [False, True])
def test_many_resamples_at_once_are_as_one_after_the_other(statistic, games, monkeypatch):
    """The same statistic of every resample, and the same distribution of resamples."""
    rng = np.random.default_rng(1)
    many = rng.normal(size=(40, 7, 3))
    assert np.allclose(aggregates.AT_ONCE[statistic](many), [statistic(one) for one in many])
    scores = rng.normal(size=(9, 3)).tolist()
    fast = bootstrap(scores, statistic, games, resamples=2000)
    monkeypatch.setattr(aggregates, "AT_ONCE", {})
    slow = bootstrap(scores, statistic, games, resamples=2000, seed=1)
    width = slow.high - slow.low
    assert fast.mean == slow.mean and abs(fast.low - slow.low) < 0.1 * width > abs(fast.high - slow.high)


def test_the_atari5_estimate_by_hand():
    human = dict.fromkeys(ATARI5, 1.0)
    total = sum(ATARI5.values())
    assert total == pytest.approx(0.9653) and atari5(human) == pytest.approx(101**total - 1)
    assert atari5(dict.fromkeys(ATARI5, -3.0)) == 0, "worse than random is random"
    one = dict.fromkeys(ATARI5, 0.0) | {"qbert": 0.99}
    assert atari5(one) == pytest.approx(100**0.0805 - 1)
    assert atari5({"qbert": 1.0}) is None
    assert math.isclose(aggregates.ATARI5["battle_zone"], 0.382)
