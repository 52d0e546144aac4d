"""Times to solve: which rungs carry a row, which rows share runs, what is resumed, and whose clock a time is of."""

import json

import pytest

from dqnitro import ladder
from dqnitro.cli import solve as cli_solve
from dqnitro.common.files import plain
from dqnitro.errors import ConfigError
from dqnitro.lab import solve
from dqnitro.lab.solve import ROWS, Row, carried, config_of, jobs_of, row_result
from dqnitro.lab.time_to_solve import learning_key

CARTPOLE = {"stop_at_score": 12.0, "max_steps": 0, "log_every_s": 0.1, "device": "cpu"}


@pytest.mark.parametrize("name", [n for n in ROWS if n != "auto"])
def test_what_carries_a_row_leaves_its_learning_unchanged(name):
    row, changes = ROWS[name], {"device": "cpu"}
    config, more = carried(row, "pong", changes)
    assert learning_key(config) == learning_key(config_of(row, "pong", changes))
    assert all(ladder.RUNGS[n].promise in ("exact", "close") for n in more)
    assert "console" in more and "frame-replay" in more, "that is what makes it fast"


def test_the_rows_are_those_of_the_notes_with_their_figures():
    assert ROWS["baseline"].notes_fps == 229 and ROWS["baseline"].notes_minutes == 52.2
    row = row_result(ROWS["three-envs"], [100.0, 100.0], [job("three-envs")], {})
    assert row["notes"]["delta_fps"] == pytest.approx(0.725, abs=0.001)
    assert row["notes"]["delta_minutes"] == pytest.approx(-0.310, abs=0.001)


def test_rows_that_learn_alike_share_their_runs(tmp_path):
    rows = [ROWS["baseline"], ROWS["gradients-everywhere"], ROWS["two-envs"]]
    jobs = jobs_of(tmp_path, "pong", rows, (1, 2), (), {"device": "cpu"})
    assert jobs["gradients-everywhere"] is jobs["baseline"], "its promise is exact: the same run, slower"
    assert jobs["two-envs"][0].config.n_envs == 2 and [j.seed for j in jobs["two-envs"]] == [1, 2]
    assert {j.config.torch_threads for j in jobs["two-envs"]} == {1}, "they share the machine"
    whole = jobs_of(tmp_path, "pong", rows, (1,), ("baseline",), {"device": "cpu"})["baseline"][0]
    assert whole.whole and whole.config == config_of(ROWS["baseline"], "pong", {"device": "cpu"}).replace(seed=1)
    assert [(j.row, j.seed) for j in solve._in_turn(jobs)] == [
        ("baseline", 1), ("two-envs", 1), ("baseline", 2), ("two-envs", 2),
    ]  # fmt: skip


def job(row, state="solved", steps=60_000, wall_s=30.0, whole=False, seed=1):
    class Fixed(solve.Job):
        def state(self):
            return state, steps, wall_s, 17.0

    return Fixed(row, seed, config_of(ROWS["baseline"], "pong", {"device": "cpu"}), (), whole, solve.pathlib.Path("x"))


def test_a_time_is_that_of_the_clock_or_steps_at_the_rows_own_rate():
    jobs = [job("baseline", steps=n) for n in (60_000, 30_000, 90_000)] + [job("baseline", "minutes")]
    row = row_result(ROWS["baseline"], [50.0, 50.0, 50.0], jobs, {})
    assert row["minutes"] == pytest.approx({"median": 20.0, "low": 10.0, "high": 30.0, "n": 3})
    assert (row["solved"], row["of"], row["how"]) == (3, 4, "steps at its own rate")
    assert cli_solve.cells(row)[3].endswith("*")
    alone = row_result(ROWS["baseline"], [50.0], [job("baseline", whole=True)], {})
    assert alone["minutes"]["median"] == 0.5 and alone["how"] == "whole"
    solve._add_changes([row, alone | {"name": "auto"}])
    assert cli_solve.cells(alone)[3] == "30 s"


def test_an_unknown_row_and_a_folder_of_other_options_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown row 'three-env'"):
        solve.rows_named(["three-env"])
    solve._check_folder(tmp_path, "pong", {"device": "cpu"})
    solve._check_folder(tmp_path, "pong", {"device": "cpu"})
    with pytest.raises(ConfigError, match="other options"):
        solve._check_folder(tmp_path, "breakout", {"device": "cpu"})


def test_rows_are_solved_by_processes_and_the_next_command_goes_on(tmp_path, monkeypatch):
    """On CartPole with a low bar, in seconds: the first command measures and solves, the second finds it all done."""
    monkeypatch.setattr(solve, "RATE_SECONDS", 0.1)
    monkeypatch.setattr(solve, "START_S", 1.0)
    monkeypatch.setattr(solve, "ROWS", {"baseline": Row("baseline", (), 229, 229, 52.2)})
    options = {"seeds": (1,), "minutes": 2.0, "whole": (), "changes": CARTPOLE}
    result = solve.solve_rows("CartPole-v1", None, tmp_path, **options)
    (row,) = result["rows"]
    assert row["solved"] == 1 and row["runs"][0]["state"] == "solved", row
    assert row["minutes"]["median"] == pytest.approx(row["runs"][0]["steps"] / row["fps"].mean / 60)
    json.dumps(plain(result), allow_nan=False)
    monkeypatch.setattr(solve.Work, "_command", lambda *_: pytest.fail("nothing is left to do"))
    again = solve.solve_rows("CartPole-v1", None, tmp_path, **options)
    assert again["rows"][0]["minutes"] == row["minutes"]
