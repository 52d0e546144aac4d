"""`dqnitro train --seeds`, the real one: stopped, resumed, listed and reported; and with seeds that fail."""

import json
import os
import pathlib
import shutil
import signal
import sys
import threading
import time

import pytest
from safetensors.numpy import load_file

from dqnitro.cli import main, one_seed
from dqnitro.seeds.summary import last_progress

HERE = pathlib.Path(__file__).resolve().parents[1]
CORRIDOR = "support.fakes_envs:dqnitro_test/Corridor-v0"
SMALL = [
    "--recipe", "baseline", "--hidden-units", "16", "--batch-size", "8", "--first-fill-steps", "50", "--torch-threads",
    "1", "--replay-capacity", "400", "--target-sync-steps", "20", "--n-envs", "2", "--no-video", "--stop-at", "1000",
]  # fmt: skip


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path]))


def when_all_have_begun(folder: pathlib.Path, seeds: list[int]) -> threading.Thread:
    """Press Ctrl-C once these seeds have reported: a process that is stopped before it trains has nothing to save."""

    def press() -> None:
        end = time.monotonic() + 300
        while time.monotonic() < end and not all(last_progress(folder / f"s{s}" / "metrics.jsonl") for s in seeds):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


@pytest.mark.long
def test_stopped_resumed_and_each_the_run_it_would_have_been_alone(tmp_path, capsys):
    folder = tmp_path / "r"
    press = when_all_have_begun(folder, [4, 5])
    code = main(
        ["train", CORRIDOR, *SMALL, "--seed", "4", "--seeds", "3", "--at-once", "2", "--run-dir", "r", "--json",
         "--log-every", "0.2"]
    )  # fmt: skip
    press.join()
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert code == 130 and "every seed saves first" in err and "\x1b" not in err
    assert "· 3 seeds   " in err and "2 starting, 1 waiting" in err, "a line for all seeds through a pipe"
    assert [r["state"] for r in facts["runs"]] == ["stopped", "stopped", "waiting"] and facts["ended"] == "SIGINT"
    assert [r["exit_code"] for r in facts["runs"]] == [130, 130, None]
    shutil.rmtree(folder / "s5" / "checkpoints")  # as if killed before its first checkpoint

    most = max(r["steps"] for r in facts["runs"] if r["steps"]) + 100
    limit = ["--trust", "--steps", str(most), "--no-video"]
    assert main(["train", "--resume", "r", *limit, "--json-lines", "--log-every", "0.2"]) == 0
    *events, facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {e["event"] for e in events} == {"progress"} and [s["seed"] for s in events[0]["seeds"]] == [4, 5, 6]
    assert [r["state"] for r in facts["runs"]] == ["steps"] * 3 and facts["score"]["n"] == 3
    assert (
        facts["score"]["min"] <= facts["score"]["median"] <= facts["score"]["max"]
        and facts["score"]["interval"]["n"] == 3
    )
    assert facts["seconds_to_solve"] is None and facts["solved"] == 0
    assert [json.loads((folder / f"s{s}" / "config.json").read_text())["config"]["seed"] for s in (4, 5, 6)] == [
        4,
        5,
        6,
    ]

    assert main(["train", CORRIDOR, *SMALL, "--seed", "4", "--steps", str(most), "--run-dir", "alone"]) == 0
    a, b = (load_file(tmp_path / p / "model.safetensors") for p in ("alone", "r/s4"))
    assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)
    assert not all((a[k] == v).all() for k, v in load_file(folder / "s5" / "model.safetensors").items())
    the_rest_of_the_commands_know_it(capsys)


def the_rest_of_the_commands_know_it(capsys) -> None:
    capsys.readouterr()
    assert main(["runs", "--root", ".", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["run"] for r in rows] == ["alone", "r", "r/s4", "r/s5", "r/s6"]
    assert rows[1]["state"] == "3 steps" and rows[1]["seeds"] == [4, 5, 6] and rows[2]["of"] == "r"
    assert main(["report", "r", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (
        shown["page"] == "r/page.html"
        and len(shown["runs"]) == 3
        and "(3 seeds)" in pathlib.Path(shown["page"]).read_text()
    )
    assert (
        main(["play", "r"]) == 2
        and "holds the runs of several seeds; hint: give one of them" in capsys.readouterr().err
    )
    assert main(["train", "--resume", "r", "--trust", "--json"]) == 0  # nothing is left to do
    assert [r["exit_code"] for r in json.loads(capsys.readouterr().out)["runs"]] == [None] * 3


PRETEND = """
import json, pathlib, sys
folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
if seed in {fails}:
    print("dqnitro one_seed: the loss became nan at update 7; hint: lower it", file=sys.stderr)
    sys.exit(3)
run = folder / f"s{{seed}}"
(run / "checkpoints" / "1").mkdir(parents=True)
(run / "checkpoints" / "1" / "manifest.json").write_text("{{}}")
(run / "config.json").write_text(json.dumps({{"config": json.loads((folder / "seeds.json").read_text())["config"]}}))
summary = dict(state="solved", mean_score=490.0 + seed, steps=1000 * seed, wall_s=10.0 * seed, steps_per_s=100.0)
(run / "summary.json").write_text(json.dumps(summary))
"""


def pretend(monkeypatch, fails: tuple[int, ...]) -> None:
    def command(folder, seed, *options):
        return [sys.executable, "-S", "-c", PRETEND.format(fails=fails), str(folder), str(seed), *options]

    monkeypatch.setattr(one_seed, "command", command)


def test_a_seed_that_fails_stops_nobody_and_gives_its_exit_code(monkeypatch, capsys):
    pretend(monkeypatch, fails=(2,))
    assert main(["train", "CartPole-v1", "--seeds", "5", "--run-dir", "r"]) == 3
    out = capsys.readouterr().out
    assert "5 seeds, 4 solved, 1 failed" in out
    (line,) = [line for line in out.splitlines() if "seed 2" in line]
    assert "failed" in line and "the loss became nan at update 7" in line and "one_seed" not in line
    # without seed 2: 1, 3, 4, 5 thousand and one that never came
    assert "to solve median 40 s, range 10 s to 50 s (4 of 5 seeds)" in out
    assert "steps    median 4,000, range 1,000 to 5,000 (4 of 5 seeds) to solve" in out
    assert "page     r/page.html" in out and "resume   dqnitro train --resume r" in out
    page = pathlib.Path("r/page.html").read_text()
    assert "4 of 4" in page and "median time to solve" in page


def test_what_nobody_could_begin_with_is_one_line_and_leaves_nothing(monkeypatch, capsys, tmp_path):
    pretend(monkeypatch, fails=(1, 2))
    assert main(["train", "CartPole-v1", "--seeds", "2", "--quiet"]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines()[1:] == ["dqnitro train: the loss became nan at update 7; hint: lower it"]
    assert list(tmp_path.iterdir()) == []


def test_the_block_shows_every_seed(tmp_path):
    from dqnitro.cli.seeds import block_lines
    from dqnitro.config import Config
    from dqnitro.seeds.folder import SeedsFolder
    from dqnitro.seeds.launcher import Team

    folder = SeedsFolder.create(tmp_path / "f", Config(env_id="pong"), [1, 2, 3], "auto", (), 1)
    team = Team(lambda s: [sys.executable, "-S", "-c", "import time; time.sleep(60)"], [1, 2, 3], 1, folder.log)
    team.poll()
    try:
        assert [line.split() for line in block_lines(folder, team, 0.0)[1:]] == [
            ["seed", "1", "starting"],
            ["seed", "2", "waiting"],
            ["seed", "3", "waiting"],
        ]
        folder.run_dir(1).mkdir()
        progress = {"event": "progress", "mean_score": -20.5, "steps": 12345, "steps_per_s": 678.0, "wall_s": 61.0}
        (folder.run_dir(1) / "metrics.jsonl").write_text(json.dumps(progress) + "\n")
        head, first, *_ = block_lines(folder, team, 62.0)
        assert head == "pong · auto · 3 seeds   1:02 min   1 running, 2 waiting"
        assert " ".join(first.split()) == "seed 1 running score -20.5 12,345 steps 678 steps/s 1:01 min"
    finally:
        team.close()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "pong", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["train", "pong", "--seeds", "2", "--at-once", "0"], "--at-once must be at least 1, got 0"),
        (["train", "pong", "--at-once", "2"], "--at-once needs --seeds"),
        (["train", "--seeds", "2"], "no game was given"),
        (["train", "--resume", "r", "--seeds", "2"], "--seeds cannot be used with --resume"),
        (["train", "pong", "--seeds", "2", "--run-dir", "/proc/none"], "cannot write the folder /proc/none"),
        (["sweep", "envs", "--seeds", "0", "--steps", "5"], "--seeds must be at least 1, got 0"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(args, says, capsys, tmp_path):
    assert main(args) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1 and "hint:" in err
    assert list(tmp_path.iterdir()) == []
