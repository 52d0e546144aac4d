"""The lab's commands as they are typed: tables, JSON, files, exit codes, one-line errors, Ctrl-C."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from dqnitro.cli import main
from lab import fake_race

HERE = pathlib.Path(__file__).resolve().parents[1]
SMALL = ["--hidden-units", "16", "--batch-size", "8", "--torch-threads", "1"]
QUICK = ["--rounds", "2", "--seconds", "0.05", "--minutes", "1", *SMALL]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DQNITRO_TUNED", str(tmp_path / "tuned.json"))
    return tmp_path


def test_ladder_prints_the_table_and_keeps_the_result(capsys, elsewhere):
    rungs = "gradients-everywhere,frame-replay,channels-last,four-steps-per-update"
    assert main(["ladder", "CartPole-v1", "--rungs", rungs, *QUICK]) == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert all(
        word in head
        for word in ("step", "FPS", "ΔFPS", "console frames/s", "samples/step", "time to solve", "Δtime", "promise")
    )
    assert [r.split()[:2] for r in rows[:4]] == [
        ["0", "baseline"], ["↓", "gradients-everywhere"], ["1", "frame-replay"], ["2", "four-steps-per-update"],
    ]  # fmt: skip
    assert (
        " ~ " not in rows[2]
    )  # as many samples a step as the baseline; test_climbing sees the mark where there are fewer
    assert "not measured: channels-last: there is no convolution" in out and "\x1b" not in out
    assert "with learning unchanged:" in out and "with all rungs:" in out and "% of the time" in out
    (file,) = (elsewhere / "ladders").glob("CartPole-v1-*.json")
    assert f"written to {file.relative_to(elsewhere)}" in err
    stored = json.loads(file.read_text())
    assert stored["what"] == "ladder" and len(stored["rows"]) == 5 and stored["rows"][0]["fps"]["n"] == 2


def test_ladder_as_json_with_times_from_a_solved_run(capsys, monkeypatch, elsewhere):
    from dqnitro import recipes
    from dqnitro.common.host import machine

    fake_race.use(monkeypatch, lambda c: 100.0 if c.replay == "plain" else 200.0, wobble=(1.0,))
    record = {"state": "solved", "wall_s": 90.0, "steps": 10_000, "machine": machine()}
    pathlib.Path("solved.json").write_text(json.dumps(record | {"config": recipes.baseline("CartPole-v1").to_dict()}))
    args = [
        "ladder",
        "CartPole-v1",
        "--rungs",
        "frame-replay",
        "--rounds",
        "3",
        "--solved",
        "solved.json",
        "--out",
        "x.json",
    ]
    assert main([*args, "--json", "--quiet"]) == 0
    base, rung = json.loads(capsys.readouterr().out)["rows"]
    assert (base["solve"]["how"], rung["solve"]["how"]) == ("measured", "projected")
    assert rung["solve"]["seconds"]["mean"] == pytest.approx(50)
    assert main([*args, "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "1:30 min measured" in out and "50 s projected" in out and "-44%" in out
    fake_race.use(monkeypatch, lambda c: 100.0 if c.replay == "plain" else 200.0, wobble=(1.0, 1.5, 0.8))
    assert main([*args, "--quiet"]) == 0
    assert re.search(
        r"\d+ s \[\d+ s, [\d:]+ (s|min)\] projected", capsys.readouterr().out
    )  # an uncertain speed, an interval


def test_sweep_shows_both_axes(capsys, elsewhere):
    args = [
        "sweep",
        "envs",
        "1",
        "2",
        "--game",
        "CartPole-v1",
        "--steps",
        "200",
        "--first-fill-steps",
        "50",
        "--seeds",
        "2",
    ]
    assert main([*args, *SMALL]) == 0
    out = capsys.readouterr().out
    assert "score over wall clock" in out and "score over steps" in out and "2 seeds per value" in out
    (file,) = (elsewhere / "sweeps").glob("n_envs-CartPole-v1-*.json")
    assert {(c["value"], c["seed"]) for c in json.loads(file.read_text())["curves"]} == {(1, 1), (2, 1), (1, 2), (2, 2)}


def test_ablate_and_ablate_cost(capsys):
    assert main(["ablate", "auto", "--game", "CartPole-v1", *QUICK, "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "nothing (recipe auto)" in out and "frame-replay" in out and "few-calls" in out
    assert main(["ablate", "cost", "--game", "CartPole-v1", *QUICK, "--json", "--out", "cost.json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads(pathlib.Path("cost.json").read_text())
    assert [r["without"] for r in result["rows"]] == [None, "sampling", "optimiser", "loss", "clipping", "reshape"]


def test_tune_env_and_forget(capsys, monkeypatch):
    fake_race.use(monkeypatch, lambda c: 200.0 if "few-calls" not in c.wrappers else 100.0)
    assert main(["env", "CartPole-v1"]) == 0 and "not tuned: `dqnitro tune`" in capsys.readouterr().out
    assert main(["tune", "CartPole-v1", "--recipe", "auto", "--minutes", "0"]) == 0
    out = capsys.readouterr().out
    assert "rung: without few-calls" in out and "kept in" in out
    assert main(["env", "CartPole-v1"]) == 0
    out = capsys.readouterr().out
    assert "tuned on this machine: 2.00x" in out and "not few-calls" in out
    assert main(["env", "CartPole-v1", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tuned"].startswith("2.00x") and "few-calls" not in facts["uses"]
    assert main(["tune", "--forget", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forgotten"] == ["auto/vector"]
    assert main(["tune", "--forget"]) == 0 and "nothing was tuned" in capsys.readouterr().out


def test_compare_in_words(capsys, tmp_path):
    from lab.test_compare import make

    a, b = make(tmp_path / "a", 0.0, 100.0, 1), make(tmp_path / "b", 8.0, 100.0, 2)
    assert main(["compare", a, b]) == 0
    assert "the difference is real, b is higher" in capsys.readouterr().out
    assert main(["compare", a, b, "--window", "0", "5e3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["window_steps"] == [0, 5000]


def test_the_page_shows_what_every_command_wrote(capsys, monkeypatch, tmp_path):
    from lab.test_compare import make

    fake_race.use(monkeypatch, lambda c: 100.0 if c.replay == "plain" else 200.0)
    a, b = make(tmp_path / "a", 0.0, 100.0, 1), make(tmp_path / "b", 8.0, 100.0, 2)
    game = ["--game", "CartPole-v1"]
    small = ["--steps", "120", "--first-fill-steps", "50", "--seeds", "1", *SMALL]
    commands = {
        "ladder": ["ladder", "CartPole-v1", "--rungs", "gradients-everywhere,frame-replay,channels-last,double"],
        "ablate": ["ablate", "auto", *game], "cost": ["ablate", "cost", *game],
        "tune": ["tune", "CartPole-v1", "--dry-run"],
        "compare": ["compare", a, b], "sweep": ["sweep", "envs", "1", "2", *game, *small],
    }  # fmt: skip
    for what, command in commands.items():
        assert main([*command, "--out", f"{what}.json"]) == 0
        assert json.loads(pathlib.Path(f"{what}.json").read_text())["what"] == what
    capsys.readouterr()
    assert main(["report", *(f"{what}.json" for what in commands), "--out", "page.html"]) == 0
    page = pathlib.Path("page.html").read_text()
    assert all(word in page for word in ("frame-replay", "channels-last", "fused-adam", "sampling", "n_envs", "real"))
    assert "there is no convolution in the network" in page, "a rung that cannot run is on the page with its reason"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["ladder", "pongg"], "unknown game or environment 'pongg'"),
        (["ladder", "--rungs", "fusd-adam"], "unknown rung 'fusd-adam'; hint: did you mean fused-adam"),
        (["ladder", "--rounds", "0"], "--rounds must be at least 1, got 0"),
        (["ladder", "--seconds", "0"], "--seconds must be at least 0.001, got 0"),
        (["ladder", "--minutes", "-1"], "--minutes must be at least 0, got -1"),
        (["ladder", "--solved", "nowhere"], "--solved nowhere: cannot be read"),
        (["ladder", "--n-env", "2"], "unknown option --n-env; hint: did you mean --n-envs"),
        (["sweep"], "required: setting"),
        (["sweep", "envz"], "cannot sweep 'envz'; hint: did you mean envs"),
        (["sweep", "envs"], "a sweep needs a limit for its runs; hint: give --minutes M or --steps N"),
        (["sweep", "envs", "--seeds", "0"], "--seeds must be at least 1"),
        (["sweep", "n-envs", "2", "--n-envs", "2"], "n-envs is swept and also given as an option"),
        (["ablate", "costs"], "unknown recipe 'costs'"),
        (["ablate", "baseline"], "recipe baseline uses no rungs"),
        (["tune", "--recipe", "baseline"], "recipe 'baseline' cannot be tuned; hint: these can: auto, fast"),
        (["tune", "--rounds", "2"], "--rounds must be at least 4, got 2"),
        (["compare", "x"], "the following arguments are required"),
        (["compare", "x", "y"], "x does not exist"),
        (["compare", "x", "y", "--window", "5", "1"], "--window needs FROM below TO, got 5 to 1"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_bad_input_is_one_line_and_exit_code_2(args, says, capsys):
    assert main(args) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("measuring on ")]
    assert out == "" and len(lines) == 1 and says in lines[0]


@pytest.mark.parametrize("command", ["ladder", "sweep", "ablate", "tune", "compare"])
def test_help_shows_examples_and_exit_codes(command, capsys):
    with pytest.raises(SystemExit) as e:
        main([command, "--help"])
    out = capsys.readouterr().out
    assert e.value.code == 0 and "Exit codes" in out
    assert f"dqnitro {command}" in "\n".join(out.splitlines()[:24]).split("Examples")[1]


def test_ctrl_c_keeps_the_complete_rounds(tmp_path):
    command = [
        sys.executable, "-m", "dqnitro", "ladder", "CartPole-v1", "--rungs", "frame-replay", "--rounds", "100000",
        "--seconds", "0.05", "--minutes", "0", "--log-every", "0.01", "--out", "l.json", *SMALL,
    ]  # fmt: skip
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    p = subprocess.Popen(command, cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert p.stderr is not None
    for line in p.stderr:
        if "round 3 of 100000, " in line:
            break
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=300)
    assert p.returncode == 130, err
    stored = json.loads((tmp_path / "l.json").read_text())
    assert stored["interrupted"] and stored["rounds"] >= 2 and "frame-replay" in out and "Traceback" not in err
    assert {len(r["rates"]) for r in stored["rows"]} == {stored["rounds"]}
