"""What `train` shows on a terminal, through a pipe and to machines, and what it estimates."""

import io
import json
import pathlib
import re
from argparse import Namespace

import pytest

from dqnitro.cli import main
from dqnitro.cli.terminal import live
from dqnitro.cli.terminal.estimate import RECORDS, Estimate, estimate
from dqnitro.cli.terminal.live import LogSink, lines, make_sinks, one_line, score_text
from dqnitro.config import Config
from support import fakes_envs
from support.terminals import snapshot, stderr_to

fakes_envs.register()
SMALL = [
    "dqnitro_test/Corridor-v0", "--recipe", "baseline", "--hidden-units", "16", "--batch-size", "8",
    "--first-fill-steps", "50",
    "--replay-capacity", "400", "--n-envs", "2", "--no-video", "--stop-at", "1000", "--run-dir", "r", "--log-every-s",
    "0.01",
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "goal", "says"),
    [
        ({}, 17.0, "-3.2 (mean of the last 100 games, 150 played), goal 17"),
        ({"games": 1}, 17.0, "-3.2 (mean of 1 game, 1 played), goal 17"),
        ({"mean_score": None, "games": 0}, 17.0, "no game finished yet, goal 17"),
        ({"mean_score": None, "games": 0}, float("inf"), "no game finished yet"),
        (
            {"mean_score": 17.5, "games": 40},
            17.0,
            "17.5 (mean of the last 40 games, 40 played), goal 17 over 100 games",
        ),
        ({"mean_score": 17.5}, 17.0, "17.5 (mean of the last 100 games, 150 played), goal 17 reached"),
    ],
)
def test_the_goal_is_named_until_it_is_reached(changes, goal, says):
    assert score_text(snapshot(**changes), goal) == says


def test_a_log_gets_a_line_after_ten_seconds_and_then_one_a_minute():
    now, log = [0.0], io.StringIO()
    sink = LogSink(lambda s: f"{now[0]:.0f}", 60.0, log, clock=lambda: now[0])
    for now[0] in range(200):
        sink.snapshot(snapshot())
    assert log.getvalue().split() == ["10", "70", "130", "190"]


def test_the_line_of_a_log():
    assert one_line(snapshot(), Config(stop_at_score=17.0, max_steps=90_000), "pong · auto") == (
        "pong · auto: 2:05 min, 1:40 min left at most; score -3.2 (mean of the last 100 games, 150 played), goal 17; "
        "50,000 steps, 400 steps/s, epsilon 0.510, loss 0.0123"
    )


def test_without_a_limit_an_estimate_is_marked_as_one_and_ends_with_the_steps_it_is_made_of():
    def first_line(s, e):
        return lines(s, Config(stop_at_score=17.0), "pong", e)[0]

    assert first_line(snapshot(), None) == "pong   2:05 min"
    says = "pong   2:05 min, perhaps 1:40 min left (estimate from 3 solved runs)"
    assert first_line(snapshot(), Estimate(90_000, 3)) == says
    assert first_line(snapshot(), Estimate(90_000, 1)).endswith("(estimate from a solved run)")
    assert first_line(snapshot(steps=90_001), Estimate(90_000, 3)) == "pong   2:05 min"
    assert first_line(snapshot(steps_per_s=0.0), Estimate(90_000, 3)) == "pong   2:05 min"


def recorded() -> Config:
    return Config.from_dict(json.loads(RECORDS.read_text())[0]["config"])


def test_the_estimate_is_that_of_runs_with_the_same_settings(tmp_path: pathlib.Path):
    config = recorded()
    assert estimate(config) == Estimate(734_184, 3)
    assert estimate(config.replace(seed=9, torch_threads=2, max_minutes=1.0)) == Estimate(734_184, 3)
    other = config.replace(learning_rate=1e-3)
    assert estimate(other) is None and estimate(other, tmp_path / "nowhere") is None
    for name, steps, state, c in (
        ("a", 1_000, "solved", other), ("b", 3_000, "solved", other.replace(seed=4)), ("c", 9_000, "stopped", other),
        ("d", 8_000, "solved", config), ("e", None, "solved", other),
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text(json.dumps({"state": state, "steps": steps}))
        (tmp_path / name / "config.json").write_text(json.dumps({"config": c.to_dict()}))
    (tmp_path / "d" / "summary.json").write_text("{damaged")
    assert estimate(other, tmp_path) == Estimate(2_000, 2)
    assert estimate(config.replace(stop_at_score=float("inf"))) is None


def train(kind: str, *args: str) -> str:
    """What `dqnitro train` writes to stderr."""
    with stderr_to(kind) as seen:
        assert main(["train", *SMALL, "--steps", "300", *args]) == 0
    return seen.text


def test_a_terminal_shows_the_block_in_place(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    seen = train("terminal")
    assert (
        "goal 1000" in seen and "steps/s" in seen and "\x1b[2K" in seen
    )  # rich erases the lines before it rewrites them
    assert "stopped by --steps after" in capsys.readouterr().out


def test_a_pipe_gets_lines_and_never_control_characters(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    seen = train("pipe", "--log-every", "0.001")
    found = re.findall(r"^dqnitro_test/Corridor-v0 · baseline: .* steps, [\d,]+ steps/s, epsilon .*$", seen, re.M)
    assert len(found) > 3 and "\x1b" not in seen and "\r" not in seen
    monkeypatch.setattr(live, "FIRST_LOG_S", 0.0)
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path / "second")
    assert len(re.findall(r"epsilon", train("pipe"))) == 1  # the next line would come in a minute


def test_quiet_says_nothing_about_progress(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    seen = train("pipe", "--quiet", "--log-every", "0.001")
    assert "epsilon" not in seen and "preparing" not in seen


def test_json_lines_are_start_progress_and_result(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    seen = train("pipe", "--json-lines", "--log-every", "0.001")
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [e["event"] for e in events]
    assert (kinds[0], kinds[-1]) == ("start", "result") and set(kinds[1:-1]) == {"progress"}
    assert events[0]["config"]["batch_size"] == 8 and events[0]["run_dir"] == "r"
    assert events[1]["steps"] > 0 and "mean_score" in events[1]
    assert events[-1]["ended"] == "steps" and events[-1]["page"] == "r/page.html"
    assert "epsilon" not in seen


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--json", "--json-lines"], "--json and --json-lines were both given"),
        (["--log-every", "0"], "--log-every must be at least 0.001, got 0; hint: "),
    ],
)
def test_options_that_contradict_are_one_line(args, says, capsys):
    assert main(["train", "pong", *args]) == 2
    assert says in capsys.readouterr().err


def test_a_run_that_cannot_start_leaves_no_line_behind(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    with stderr_to("terminal") as seen:
        assert main(["train", "dqnitro_test/Corridor-v0", "--replay-capacity", "1e12"]) == 2
    assert seen.text.endswith("\r\n") and "hint:" in seen.text.splitlines()[-1]


def test_the_start_of_a_run_is_shown_while_it_compiles(monkeypatch):
    from dqnitro.cli.terminal import progress

    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.001)
    with stderr_to("pipe") as seen:
        sinks = make_sinks(Config(), "pong", Namespace(log_every=None, quiet=False, json_lines=False))
        seen.wait_for("pong: preparing (the first start on a machine also compiles): 0 s\n")
        for sink in sinks:
            sink.snapshot(snapshot())
        for sink in sinks:
            sink.close()


def test_one_game_has_no_interval():
    from dqnitro.cli.terminal.wording import fresh_text

    assert fresh_text({"scores": [3.0], "mean": 3.0, "low": 3.0, "high": 3.0}) == "3.00 in one game"
    assert fresh_text({"scores": [3.0, 5.0], "mean": 4.0, "low": 3.0, "high": 5.0}) == (
        "4.00 over 2 games, 95% interval 3.00 to 5.00"
    )


def test_shares_beside_a_gpu_that_works_on_its_own_are_the_hosts():
    assert lines(snapshot(), Config(), "pong")[-1].startswith("  time    learn 62%")
    assert lines(snapshot(players=3), Config(), "pong")[2].endswith(" updates/s   3 players")
    assert one_line(snapshot(players=1), Config(), "pong").endswith(", 1 player")
    on_gpu = Config(runner="hybrid", device="cuda")
    assert lines(snapshot(), on_gpu, "pong")[-1].startswith("  host    learn 62%")
