"""`dqnitro bench` and `dqnitro profile` as people call them."""

from __future__ import annotations

import json

import pytest

QUICK = ["--game", "CartPole-v1", "--rounds", "1", "--seconds", "0.002"]


def test_bench_prints_a_table_and_a_verdict_and_keeps_the_result(tmp_path, call):
    code, out, err = call("bench", "device", *QUICK, "--out", "deep/r.json", "--log-every", "0.001")
    assert code == 0, err
    assert "CPU, batch 512" in out and "\n\n" in out and "observations" in out.splitlines()[-1]
    assert "preparing 1 of " in err and "round 1 of 1: CPU, batch " in err and "\x1b" not in out
    kept = json.loads((tmp_path / "deep" / "r.json").read_text())
    assert (kept["what"], kept["format"], kept["game"], kept["rounds"]) == ("device", 1, "CartPole-v1", 1)
    assert {
        "date",
        "machine",
        "versions",
        "commit",
        "command",
        "unit",
        "to",
        "rates",
        "table",
        "skipped",
        "verdict",
    } <= kept.keys()


def test_profile_writes_a_trace_and_says_what_to_try(tmp_path, call):
    args = [
        "CartPole-v1",
        "--steps",
        "20",
        "--first-fill-steps",
        "70",
        "--batch-size",
        "32",
        "--without",
        "few-calls",
        "--steps-per-update",
        "1",
        "--trace",
        "t.json",
        "--out",
        "p.json",
    ]
    code, out, err = call("profile", *args)
    assert code == 0, err
    where, *lines = err.splitlines()
    assert where.startswith("measuring on the ")
    assert all(line.startswith("CartPole-v1, recipe auto: 20 steps, twice: ") for line in lines)
    for heading in ("where a step's time goes", "top operations", "what to try next", "trace  t.json"):
        assert heading in out
    assert "learn" in out and "four-steps-per-update [learning]" in out
    kept = json.loads((tmp_path / "p.json").read_text())
    assert (kept["what"], kept["format"], kept["trace"]) == ("profile", 1, "t.json")
    assert {"tree", "top", "advice", "machine", "commit", "command", "config"} <= kept.keys()
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["bench", "devise"], "unknown benchmark 'devise'; hint: did you mean device"),
        (["bench", "device", "--rounds", "0"], "--rounds must be at least 1"),
        (["bench", "learn", "--only", "x"], "bench learn does not take --only"),
        (["bench", "device", *QUICK, "--only", "tpu"], "--only tpu: no contender has that name; hint: contenders: CPU"),
        (["bench", "resize", *QUICK], "needs an Atari game, got --game CartPole-v1"),
        (["bench", "copies", "--game", "pongg"], "unknown game or environment 'pongg'"),
        (["bench", "device", *QUICK, "--only", "batch 8", "--out", "/proc/none/x"], "cannot write /proc/none/x"),
        (["profile", "pongg"], "unknown game or environment 'pongg'"),
        (["profile", "CartPole-v1", "--steps", "0"], "--steps must be at least 1, got 0"),
        (["profile", "CartPole-v1", "--recipe", "quick"], "unknown recipe 'quick'"),
        (["profile", "CartPole-v1", "--steps", "1", "--trace", "/proc/none/t"], "cannot write /proc/none/t"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_bad_input_is_one_line_and_exit_code_2(args, says, tmp_path, capsys):
    from dqnitro.cli import main

    code = main(args)
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith(("bench", "CartPole-v1, recipe", "measuring"))]
    assert code == 2 and out == "" and len(lines) == 1, err
    assert (says in lines[0] and "hint:" in lines[0]) or "--rounds" in says or "steps must" in says


@pytest.mark.parametrize("command", ["bench", "profile"])
def test_help_shows_working_examples_on_its_first_screen(command, capsys):
    from dqnitro.cli import main

    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    out = capsys.readouterr().out
    assert "Examples" in "\n".join(out.splitlines()[:24]) and "Exit codes" in out
