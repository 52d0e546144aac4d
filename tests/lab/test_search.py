"""A search over several settings: the space, early stopping, going on where it stopped."""

import itertools

import pytest

pytest.importorskip("optuna")

from dqnitro.errors import ConfigError
from dqnitro.lab import search
from dqnitro.lab.search import Asked, Dimension, parse_dimension, points

SMALL = {"hidden_units": 16, "batch_size": 8, "first_fill_steps": 50, "replay_capacity": 500, "max_steps": 200}
SPACE = (parse_dimension("learning-rate=1e-4..1e-2"), parse_dimension("n-step=1,3"))


def test_a_space_is_values_or_a_range():
    assert parse_dimension("n-step=1,3,3") == Dimension("n_step", (1, 3))
    rate = parse_dimension("learning-rate=1e-5..1e-3")
    assert (rate.low, rate.high, rate.log, rate.whole) == (1e-5, 1e-3, True, False)
    envs = parse_dimension("envs=2..8")
    assert (envs.field, envs.low, envs.high, envs.log, envs.whole) == ("n_envs", 2, 8, False, True)
    assert rate.holds(1e-4) and not rate.holds(1.0) and parse_dimension("double=on,off").holds(False)
    for bad, why in (("n-step=", "no values"), ("network=a..b", "not a range"), ("gamma=1..0.5", "not a range"),
                     ("sead=1,2", "cannot sweep"), ("n-step=0..3", "at least 1")):  # fmt: skip
        with pytest.raises(ConfigError, match=why):
            parse_dimension(bad)


def test_points_are_human_normalised_where_a_human_played():
    assert points("breakout", 1.7) == pytest.approx(0.0) and points("breakout", 30.5) == pytest.approx(1.0)
    assert points("CartPole-v1", 200.0) == 200.0


def test_what_cannot_be_searched_is_told_before_anything_runs(tmp_path):
    for asked, why in (
        (Asked(["CartPole-v1"], SPACE, recipe="baseline"), "needs a limit"),
        (Asked(["CartPole-v1"], SPACE, changes={"n_step": 3, "max_steps": 9}, recipe="baseline"), "also given"),
        (Asked(["pong", "CartPole-v1"], SPACE, changes={"max_steps": 9}, recipe="baseline"), "no human score"),
    ):
        with pytest.raises(ConfigError, match=why):
            search.search(asked, tmp_path / "s.journal")
    assert not list(tmp_path.iterdir())


def test_it_begins_with_the_recipe_and_goes_on_where_it_stopped(tmp_path):
    path, said = tmp_path / "s.journal", []
    asked = Asked(["CartPole-v1"], SPACE, 2, "baseline", changes=SMALL)
    first = search.search(asked, path, said.append)
    assert len(said) == 2 and said[0].startswith("trial 1: learning_rate 0.0005, n_step 1; CartPole-v1")
    assert {r["trial"] for r in first["rows"]} == {1, 2} and not first["interrupted"]
    own = next(r for r in first["rows"] if r["trial"] == 1)
    assert own["settings"] == first["own"] and own["points"] == own["scores"]["CartPole-v1 1"] > 5
    assert [r["points"] for r in first["rows"]] == sorted((r["points"] for r in first["rows"]), reverse=True)
    again = search.search(Asked(["CartPole-v1"], SPACE, 3, "baseline", changes=SMALL), path, said.append)
    assert len(said) == 3 and len(again["rows"]) == 3
    assert all(r in again["rows"] for r in first["rows"])
    assert len(search.search(asked, path, said.append)["rows"]) == len(said) == 3  # nothing is left to do
    with pytest.raises(ConfigError, match="begun with other options"):
        search.search(Asked(["CartPole-v1"], SPACE[:1], 3, "baseline", changes=SMALL), path)


def test_trials_that_fall_behind_are_stopped_and_bad_ones_are_told(tmp_path, monkeypatch):
    worse = itertools.count(0, -1)
    monkeypatch.setattr(search, "BEFORE_STOPPING", 1)
    monkeypatch.setattr(search, "points", lambda game, score: float(next(worse)))
    asked = Asked(["CartPole-v1"], (parse_dimension("n-envs=1,400"),), 8, "baseline", changes=SMALL)
    rows = sorted(search.search(asked, tmp_path / "s.journal")["rows"], key=lambda r: r["trial"])
    refused = [r for r in rows if r["settings"]["n_envs"] == 400]
    assert refused and all(r["state"] == "skipped" and "replay_capacity 500" in r["why"] for r in refused)
    whole, *others = [r for r in rows if r["settings"]["n_envs"] == 1]
    assert whole["state"] == "measured" and whole["steps"] >= 200
    assert others and all(r["state"] == "stopped early" and r["steps"] < 100 and r["looks"] == 1 for r in others)


def test_a_run_is_stopped_where_optuna_says_so():
    looks = []

    class Run:
        steps, wall_s, mean_score, reason = 0, 0.0, 9.0, ""

        def stop(self, reason: str) -> None:
            self.reason = reason

    config = Asked(["CartPole-v1"], SPACE, recipe="baseline", changes=SMALL).config("CartPole-v1", {}, 1)
    watch = search.Watch(config, lambda look, now: looks.append((look, now)) or look == 2)
    run = Run()
    for run.steps in range(0, 200, 10):
        watch.on_tick(run, None)  # type: ignore[arg-type]
        if run.reason:
            break
    assert looks == [(1, 9.0), (2, 9.0)] and run.steps == 100 and watch.stopped
