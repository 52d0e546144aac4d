"""The ladder: what stands on what, what is compared with what, and what is said of rungs that cannot run."""

import dataclasses
import json

import pytest

from dqnitro import ladder, recipes
from dqnitro.common.files import plain
from dqnitro.errors import ConfigError, DivergedError
from dqnitro.lab import ladder as climbing
from dqnitro.lab import time_to_solve
from dqnitro.lab.race import Budget
from lab import fake_race

CLIMB = ["gradients-everywhere", "frame-replay", "channels-last", "fused-adam", "four-steps-per-update", "three-step"]


def speed(config):
    """A made-up machine on which every rung has a known effect."""
    fast = 100.0
    fast *= 1.0 if "no-grad" in config.wrappers else 0.5
    fast *= 2.0 if config.replay == "frames" else 1.0
    fast *= 1.5 if "fused-adam" in config.wrappers else 1.0
    fast *= config.steps_per_update
    return fast * (0.9 if config.n_step == 3 else 1.0)


def rows_of(result):
    return {r["name"]: r for r in result["rows"]}


def test_every_rung_is_compared_with_what_it_stands_on_and_with_the_baseline(monkeypatch):
    fake_race.use(monkeypatch, speed)
    result = climbing.climb_ladder("CartPole-v1", CLIMB, budget=Budget(0, 4))
    rows = rows_of(result)
    assert [r["name"] for r in result["rows"]] == ["baseline", *CLIMB]
    assert rows["baseline"]["gain"] is None and rows["baseline"]["total"].mean == pytest.approx(1.0)
    gains = {n: r["gain"].mean for n, r in rows.items() if r.get("gain")}
    assert gains == pytest.approx(
        {
            "gradients-everywhere": 0.5,
            "frame-replay": 2.0,
            "fused-adam": 1.5,
            "four-steps-per-update": 4.0,
            "three-step": 0.9,
        }
    )
    assert rows["three-step"]["total"].mean == pytest.approx(2 * 1.5 * 4 * 0.9)
    assert (
        rows["gradients-everywhere"]["on"] == rows["frame-replay"]["on"] == "baseline"
    )  # nobody stands on the slow one
    assert rows["three-step"]["climbed"] == ["frame-replay", "fused-adam", "four-steps-per-update", "three-step"]
    assert rows["fused-adam"]["fps"].n == 4
    json.dumps(plain(result), allow_nan=False)


def test_a_rung_that_cannot_run_is_listed_with_its_reason_and_not_climbed_on(monkeypatch):
    fake_race.use(monkeypatch, speed)
    row = rows_of(climbing.climb_ladder("CartPole-v1", CLIMB, budget=Budget(0, 2)))["channels-last"]
    assert row["state"] == "skipped" and "no convolution" in row["why"]
    assert row["climbed"] == ["frame-replay"] and "fps" not in row


def test_a_rung_that_fails_to_start_is_passed_over(monkeypatch):
    def fragile(config):
        if "fused-adam" in config.wrappers:
            raise RuntimeError("no kernel\nand a long story")
        return speed(config)

    fake_race.use(monkeypatch, fragile)
    rows = rows_of(climbing.climb_ladder("CartPole-v1", ["fused-adam", "frame-replay"], budget=Budget(0, 2)))
    assert rows["fused-adam"]["why"] == "failed to start: no kernel"
    assert rows["frame-replay"]["climbed"] == ["frame-replay"] and rows["frame-replay"]["on"] == "baseline"


def test_a_rung_that_fails_while_it_runs_is_taken_out_from_under_the_others(monkeypatch):
    turns = {}

    def breaks_later(config):
        fused = "fused-adam" in config.wrappers and config.replay == "plain"
        turns[fused] = turns.get(fused, 0) + 1
        if fused and turns[fused] > 2:  # building asks once, the first round once more
            raise DivergedError(7, float("nan"))
        return speed(config)

    fake_race.use(monkeypatch, breaks_later)
    rows = rows_of(climbing.climb_ladder("CartPole-v1", ["fused-adam", "frame-replay"], budget=Budget(0, 3)))
    assert rows["fused-adam"]["state"] == "skipped" and "the loss became nan at update 7" in rows["fused-adam"]["why"]
    assert rows["frame-replay"]["on"] == "baseline" and rows["frame-replay"]["fps"].n == 3
    assert rows["frame-replay"]["gain"].mean == pytest.approx(3.0)  # both rungs are in force there


def test_the_replay_ratio_is_measured_and_marked(monkeypatch):
    fake_race.use(monkeypatch, speed)
    rows = rows_of(climbing.climb_ladder("CartPole-v1", CLIMB, budget=Budget(0, 2)))
    marks = {n: (r["equal_ratio"], r["changes_ratio"]) for n, r in rows.items() if r["state"] == "measured"}
    assert marks["frame-replay"] == (True, False)
    assert marks["four-steps-per-update"] == (False, True)
    assert marks["three-step"] == (False, False)  # as many samples a step as the row below it
    assert rows["four-steps-per-update"]["samples_per_step"] == pytest.approx(rows["baseline"]["samples_per_step"] / 4)


def test_headlines_say_how_far_up_it_goes_and_what_did_not_pay(monkeypatch):
    fake_race.use(monkeypatch, speed)
    lines = climbing.headlines(climbing.climb_ladder("CartPole-v1", CLIMB, budget=Budget(0, 4))["rows"])
    assert lines[0].startswith("with learning unchanged: 3.00x") and lines[0].endswith("at fused-adam")
    assert lines[1].startswith("with all rungs: 12.00x") and lines[1].endswith("at four-steps-per-update")
    assert lines[2].endswith(": three-step")


def test_rungs_by_default_are_all_there_are_or_those_that_leave_learning_alone():
    base = recipes.baseline("pong")
    assert set(climbing.rung_names(base, None, False)) == set(ladder.RUNGS)
    same = climbing.rung_names(base, None, True)
    assert same[0] == climbing.BELOW and {ladder.rung(n).promise for n in same} == {"exact", "close"}
    with pytest.raises(ConfigError, match="unknown rung 'fused-adm'; hint: did you mean fused-adam"):
        climbing.rung_names(base, ["fused-adm"], False)


def test_real_racers_climb_a_real_ladder():
    names = ["gradients-everywhere", "frame-replay", "four-steps-per-update"]
    small = {"hidden_units": 16, "batch_size": 8}
    result = climbing.climb_ladder("CartPole-v1", names, budget=Budget(0.5, 2, 0.05), changes=small)
    rows = rows_of(result)
    assert all(r["state"] == "measured" and min(r["rates"]) > 0 for r in rows.values())
    assert rows["baseline"]["samples_per_step"] == pytest.approx(8, rel=0.1)
    assert rows["four-steps-per-update"]["samples_per_step"] == pytest.approx(2, rel=0.2)
    assert rows["four-steps-per-update"]["gain"].mean > 1.1, "a quarter of the learning must be faster"
    assert 0 < result["notes"]["measuring_share"] < 0.01


# --- time to solve


@pytest.mark.parametrize("name", ladder.RUNGS)
def test_steps_to_solve_carry_over_exactly_where_the_promise_says_so(name):
    base = recipes.baseline("pong").replace(episodic_life=True)
    changed = ladder.climb(base, (name,))
    assert changed != base
    same = time_to_solve.learning_key(changed) == time_to_solve.learning_key(base)
    if ladder.rung(name).promise == "learning":
        assert not same
    else:
        assert same


def solved(config, steps, seconds, machine=None):
    from dqnitro.common.host import machine as here

    return time_to_solve.Solved("a run", config, seconds, steps, time_to_solve.machine_of(machine or here()))


def test_time_to_solve_is_measured_projected_or_unknown(monkeypatch):
    fake_race.use(monkeypatch, speed, wobble=(1.0,))
    base = recipes.baseline("CartPole-v1")
    runs = [solved(base.replace(seed=s, max_minutes=9.0), steps, 50.0) for s, steps in ((1, 10_000), (2, 10_000))]
    rows = rows_of(climbing.climb_ladder("CartPole-v1", CLIMB, budget=Budget(0, 2), solved=runs))
    assert rows["baseline"]["solve"]["how"] == "measured" and rows["baseline"]["solve"][
        "seconds"
    ].mean == pytest.approx(50)
    projected = rows["fused-adam"]["solve"]
    assert projected["how"] == "projected" and projected["seconds"].mean == pytest.approx(10_000 / 300)
    assert projected["gain"] == pytest.approx(10_000 / 300 / 50) and projected["steps"] == pytest.approx(10_000)
    assert rows["four-steps-per-update"]["solve"] is None  # learning changes: needs runs of its own


def test_seconds_of_another_machine_are_never_shown_as_measured_here(monkeypatch):
    fake_race.use(monkeypatch, speed, wobble=(1.0,))
    elsewhere = solved(recipes.baseline("CartPole-v1"), 10_000, 1.0, {"cpu": "another", "cores": 64, "gpu": "yes"})
    rows = rows_of(climbing.climb_ladder("CartPole-v1", ["frame-replay"], budget=Budget(0, 2), solved=[elsewhere]))
    assert {r["solve"]["how"] for r in rows.values()} == {"projected"}
    assert rows["baseline"]["solve"]["seconds"].mean == pytest.approx(100)


def test_only_a_solved_run_has_a_time_to_solve(tmp_path):
    from report import fake_run

    run = fake_run.make_run(tmp_path / "r", n_games=50, seconds=100)
    assert time_to_solve.read_solved(run).seconds == 100
    fake_run.write_summary(run, "minutes", wall_s=100.0, steps=5)
    with pytest.raises(ConfigError, match="this run ended as 'minutes'"):
        time_to_solve.read_solved(run)
    record = tmp_path / "r.json"
    record.write_text(
        json.dumps(
            {"state": "solved", "wall_s": 5.0, "steps": 7, "machine": {}, "config": recipes.baseline("pong").to_dict()}
        )
    )
    assert dataclasses.astuple(time_to_solve.read_solved(record))[2:4] == (5.0, 7)
    with pytest.raises(ConfigError, match="cannot be read"):
        time_to_solve.read_solved(tmp_path / "none")
