"""Sweeps: any setting by name, values checked, seeds in turn, both axes."""

import itertools

import pytest

from dqnitro.errors import ConfigError
from dqnitro.lab import sweep

SMALL = {"hidden_units": 16, "batch_size": 8, "first_fill_steps": 50, "replay_capacity": 500, "max_steps": 250}


@pytest.mark.parametrize(
    ("name", "values", "field"),
    [
        ("envs", ["1", "2"], "n_envs"), ("envs", ["wrappers", "gym-sync"], "envs"), ("envs", [], "n_envs"),
        ("steps", [], "steps_per_update"), ("batch", [], "batch_size"), ("stack", [], "frame_stack"),
        ("learning-rate", ["1e-3"], "learning_rate"), ("--n-step", ["1"], "n_step"),
    ],
)  # fmt: skip
def test_settings_have_the_names_of_the_notes_and_of_the_options(name, values, field):
    assert sweep.find_setting(name, values) == field


def test_unknown_settings_and_values_are_one_line():
    with pytest.raises(ConfigError, match="cannot sweep 'lerning-rate'; hint: did you mean learning_rate"):
        sweep.find_setting("lerning-rate", [])
    with pytest.raises(ConfigError, match="cannot sweep 'seed'"):
        sweep.find_setting("seed", [])
    with pytest.raises(ConfigError, match="n_envs: expected a whole number, got 'two'"):
        sweep.parse_values("n_envs", ["two"])
    with pytest.raises(ConfigError, match="whole number"):
        sweep.parse_values("n_envs", ["1.5"])
    with pytest.raises(ConfigError, match="on or off"):
        sweep.parse_values("double", ["maybe"])
    with pytest.raises(ConfigError, match="no values were given for learning_rate"):
        sweep.parse_values("learning_rate", [])
    with pytest.raises(ConfigError, match="needs a limit"):
        sweep.sweep("CartPole-v1", "n_envs", [1])


def test_values_have_the_type_of_the_setting():
    assert sweep.parse_values("steps_per_update", ["1", "2e0"]) == (1.0, 2.0)
    assert sweep.parse_values("batch_size", ["1_000", "32", "32"]) == (1000, 32)
    assert sweep.parse_values("double", []) == (False, True) and sweep.parse_values("double", ["off"]) == (False,)
    assert "nature" in sweep.parse_values("network", [])


def test_every_value_is_trained_with_every_seed_in_turn():
    said = []
    result = sweep.sweep("CartPole-v1", "n_envs", [1, 2, 400], seeds=(5, 6), changes=SMALL, say=said.append)
    assert [text.split(": ")[1] for text in said] == [
        "n_envs 1, seed 5",
        "n_envs 2, seed 5",
        "n_envs 400, seed 5",
        "n_envs 2, seed 6",
        "n_envs 1, seed 6",
    ]
    one, two, many = result["rows"]
    assert one["state"] == two["state"] == "measured" and one["fps"].n == two["score"].n == 2
    assert many["state"] == "skipped" and "replay_capacity 500 leaves only 1 steps" in many["why"]
    assert one["samples_per_step"] == pytest.approx(8 * 200 / 250, rel=0.05)
    assert {(c["value"], c["seed"]) for c in result["curves"]} == {(1, 5), (2, 5), (1, 6), (2, 6)}
    for c in result["curves"]:
        walls, steps = [p["wall_s"] for p in c["points"]], [p["steps"] for p in c["points"]]
        assert walls == sorted(walls) and steps == sorted(steps) and 250 <= steps[-1] <= 251
        assert c["points"][-1]["updates"] > 150 and c["points"][-1]["games"] > 3
    assert not result["interrupted"]


def test_equal_seeds_give_equal_curves_so_a_difference_is_the_settings():
    a, b = (
        sweep.sweep("CartPole-v1", "n_step", [3], seeds=(2,), changes=SMALL)["curves"][0]["points"][-1] for _ in "ab"
    )
    assert (a["steps"], a["games"], a["score"]) == (b["steps"], b["games"], b["score"])


def test_curves_are_read_at_places_that_all_of_them_reach():
    def curve(value, seed, end):
        points = [{"wall_s": t, "steps": 10 * t, "score": float(value + t) if t else None} for t in range(end + 1)]
        return {"value": value, "seed": seed, "points": points}

    result = {"values": [0, 100], "curves": [curve(0, 1, 8), curve(0, 2, 8), curve(100, 1, 12)]}
    places, table = sweep.quarters(result, "steps")
    assert places == [20, 40, 60, 80] and table == {0: [2, 4, 6, 8], 100: [102, 104, 106, 108]}
    assert sweep.quarters(result, "wall_s")[0] == [2, 4, 6, 8]
    assert sweep.score_at(result["curves"][0]["points"], "steps", 5) is None


def test_a_long_curve_is_thinned_not_cut():
    from dqnitro.events import Snapshot

    sink = sweep.CurveSink()
    for k in range(5000):
        sink.snapshot(Snapshot(k, k, 0, 0, 0.0, 0.0, 0.0, 0.0, None, None, None, {}))
    steps = [p["steps"] for p in sink.points]
    assert 50 <= len(steps) <= sweep.MOST_POINTS and steps[0] < 100 and steps[-1] > 4900
    assert len({b - a for a, b in itertools.pairwise(steps)}) == 1


def test_a_swept_rate_stays_where_that_of_the_recipe_falls():
    recipe, swept = (
        sweep.base_of("CartPole-v1", "auto", {"max_steps": 9}, name) for name in ("batch_size", "learning_rate")
    )
    assert recipe.learning_rate_end > 0
    assert sweep.variant(swept, "learning_rate", 1e-6, 1).learning_rate_end == 0
