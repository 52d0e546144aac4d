"""Reading a run's folder, in every state it can be in."""

import json
import math
import os
import pathlib

import pytest

from dqnitro.errors import CheckpointError
from dqnitro.store.read_run import read_metrics, read_run
from dqnitro.store.run_folder import RunFolder
from report import fake_run


def test_a_finished_run_takes_its_totals_from_the_summary(tmp_path: pathlib.Path) -> None:
    run = read_run(fake_run.make_run(tmp_path / "r", n_games=50, seconds=100))
    assert (run.state, run.env_id, run.recipe, run.games) == ("solved", "pong", "auto", 50)
    assert run.wall_s == 100 and run.startup_s == 21.4 and run.mean_score == 17.04
    assert run.frames_per_s == pytest.approx(4 * (run.steps_per_s or 0))
    assert len(run.metrics.game["score"]) == len(run.metrics.loss["loss"]) == len(run.metrics.progress["steps"]) == 50
    assert run.bar == 17 and run.evaluation is not None and len(run.evaluation["scores"]) == 30
    json.dumps(run.to_dict(), allow_nan=False)


def test_a_running_run_takes_its_totals_from_the_last_progress(tmp_path: pathlib.Path) -> None:
    path = fake_run.make_run(tmp_path / "r", n_games=50, seconds=100)
    fake_run.write_summary(path, "running")
    trainer = RunFolder(path)
    trainer.lock()
    run = read_run(path)
    trainer.unlock()
    assert run.state == "running" and run.wall_s == 100 and run.games == 49
    assert run.steps_per_s is not None and run.steps_per_s == pytest.approx(run.metrics.progress["steps"][-1] / 100)
    assert run.frames_per_s == pytest.approx(4 * run.steps_per_s)
    assert run.share == pytest.approx(fake_run.SHARE)
    assert run.mean_score == pytest.approx(sum(run.metrics.game["score"]) / 50)


@pytest.mark.parametrize("pid", ["mine", None, "7", -1, True, 10**30])
def test_running_that_no_process_holds_is_crashed(tmp_path: pathlib.Path, pid: object) -> None:
    """Whoever has the number of the process now."""
    fake_run.write_head(tmp_path)
    fake_run.write_summary(tmp_path, "running", pid=os.getpid() if pid == "mine" else pid)
    assert read_run(tmp_path).state == "crashed"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"state": 3}'])
def test_a_summary_that_says_nothing_is_crashed(tmp_path: pathlib.Path, text: str) -> None:
    fake_run.write_head(tmp_path)
    (tmp_path / "summary.json").write_text(text)
    assert read_run(tmp_path).state == "crashed"


def test_only_a_config_is_enough(tmp_path: pathlib.Path) -> None:
    fake_run.write_head(tmp_path)
    run = read_run(tmp_path)
    assert (run.steps, run.wall_s, run.mean_score, run.steps_per_s, run.games) == (None, None, None, None, 0)
    assert run.video is None and run.evaluation is None and run.share == {}


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.mkdir(), "config.json is missing"),
        (lambda p: (p.mkdir(), (p / "config.json").write_text('{"config": ')), "damaged"),
        (lambda p: (p.mkdir(), (p / "config.json").write_text('{"config": 3}')), "damaged"),
    ],
)
def test_what_is_no_run_is_an_error_with_a_hint(tmp_path: pathlib.Path, make: object, word: str) -> None:
    assert callable(make)
    make(tmp_path / "r")
    with pytest.raises(CheckpointError, match=word) as e:
        read_run(tmp_path / "r")
    assert "hint:" in str(e.value)


def test_a_half_written_last_line_is_normal_and_others_are_counted(tmp_path: pathlib.Path) -> None:
    lines = fake_run.metric_lines(20, 10.0)
    file = tmp_path / "metrics.jsonl"
    file.write_text("\n".join(lines) + '\n{"event": "game", "wall_s": 1')
    m = read_metrics(file)
    assert (len(m.game["score"]), m.damaged_lines) == (20, 0)
    bad = ["{", "\x00\x00", "[1]", '{"event": "game", "score": 3}', '{"event": "game", "wall_s": "a", "steps": 1}']
    file.write_bytes("\n".join([*lines[:10], *bad, *lines[10:], ""]).encode() + b"\xff\xfe")
    m = read_metrics(file)
    assert (len(m.game["score"]), m.damaged_lines) == (20, len(bad))


def test_events_of_a_newer_version_and_missing_numbers_do_no_harm(tmp_path: pathlib.Path) -> None:
    rows = [
        {"event": "from the future", "x": 1},
        {"event": "loss", "wall_s": 1, "steps": 4, "loss": math.nan, "avg_loss": None},
        {"event": "progress", "wall_s": 2, "steps": 8, "share": {"env": "much", "act": 0.5, "new": 1.5}},
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    m = read_metrics(tmp_path / "m.jsonl")
    assert m.damaged_lines == 0 and math.isnan(m.loss["loss"][0]) and math.isnan(m.progress["epsilon"][0])
    assert m.share == {"act": 0.25, "new": 0.75}


def test_an_incomplete_evaluation_is_none(tmp_path: pathlib.Path) -> None:
    fake_run.write_head(tmp_path)
    for e in (None, [], {"scores": []}, {"scores": [1], "mean": 1, "low": None, "high": 1}, {"scores": "x"}):
        fake_run.write_summary(tmp_path, "solved", evaluation=e)
        assert read_run(tmp_path).evaluation is None
