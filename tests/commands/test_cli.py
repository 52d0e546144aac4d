"""The real command line: exit codes, one-line errors, signals, kill -9.

What needs no process of its own calls `main` here: a process that imports torch takes three seconds.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parents[1]
PATIENCE_S = 300.0  # with a process, on a machine with much else to do
CORRIDOR = "support.fakes_envs:dqnitro_test/Corridor-v0"
SMALL = [
    "--recipe", "baseline", "--hidden-units", "16", "--batch-size", "8", "--first-fill-steps", "50",
    "--replay-capacity", "400", "--target-sync-steps", "20", "--n-envs", "2", "--no-video", "--stop-at", "1000",
]  # fmt: skip


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def start(*args: str, cwd: pathlib.Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dqnitro", *args], cwd=cwd, env=environment(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE
    )  # fmt: skip


def run(*args: str, cwd: pathlib.Path) -> tuple[int, str, str]:
    p = start(*args, cwd=cwd)
    out, err = p.communicate(timeout=PATIENCE_S)
    return p.returncode, out, err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "pongg"], "unknown game or environment 'pongg'; hint: did you mean pong"),
        (["train", "NoSuch-v0"], "unknown game or environment 'NoSuch-v0'"),
        (["train", "pong", "--lerning-rate", "1"], "unknown option --lerning-rate; hint: did you mean --learning-rate"),
        (["train", "pong", "--batch-size", "20000"], "batch_size 20000 is larger than first_fill_steps 10000"),
        (["train", "pong", "--n-envs", "0"], "n_envs must be at least 1, got 0"),
        (["train", "pong", "--n-envs", "two"], "--n-envs: expected a whole number, got 'two'"),
        (["train", "pong", "--learning-rate", "-1"], "learning_rate must be over 0, got -1"),
        (["train", "pong", "--device", "cuda"], "sees no CUDA device; hint: use --device cpu"),
        (["train", "pong", "--recipe", "fastest"], "unknown recipe 'fastest'"),
        (["train", "pong", "--without", "cuda-graf"], "unknown rung 'cuda-graf'"),
        (["train", "pong", "--recipe", "baseline", "--without", "compile"], "recipe baseline does not use it"),
        (["train", "pong", "--recipe", "baseline", "--replay-capacity", "1e9"], "GiB of main memory"),
        (["train", "pong", "--run-dir", "/proc/none"], "cannot write the run folder /proc/none"),
        (["train", "Pendulum-v1"], "discrete"),
        (["train"], "no game was given"),
        (["train", "pong", "breakout"], "unexpected argument 'breakout'"),
        (["train", "pong", "--runner", "hybrid", "--device", "cpu"], "runner hybrid: "),
        (["train", "pong", "--runner", "device", "--device", "cpu"], "runner device: "),
        (["train", "--resume", "nowhere"], "nowhere is not a run folder"),
        (["play", "nowhere"], "nowhere is not a run folder"),
        (["play", "x", "--epsilon", "2"], "--epsilon must be at most 1, got 2"),
        (["runs", "--root", "nowhere"], "nowhere is not a folder"),
        (["env", "pongg"], "unknown game or environment 'pongg'"),
        (["trian"], "unknown command 'trian'; hint: did you mean train"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else None,
)
def test_bad_input_is_one_line_and_exit_code_2(args, says, tmp_path, call):
    if "cuda" in args:
        import torch

        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU, so --device cuda is right")
    if args == ["train", "Pendulum-v1"]:
        says = "Discrete"
    code, out, err = call(*args)
    lines = [line for line in err.splitlines() if not line.startswith(("pong, recipe", "pong ·", "compiling"))]
    assert code == 2 and out == ""
    assert len(lines) == 1, err
    assert says in lines[0]
    assert not (tmp_path / "runs").exists() or "GiB" in says


def test_the_exit_code_is_that_of_the_process(tmp_path):
    code, out, err = run("train", "pong", "--n-envs", "two", cwd=tmp_path)
    assert (code, out) == (2, "") and "expected a whole number, got 'two'" in err


@pytest.mark.parametrize("command", ["train", "play", "runs", "env", "report", "bench"])
def test_help_shows_working_examples_on_its_first_screen(command, call):
    code, out, _ = call(command, "--help")
    assert code == 0
    first_screen = "\n".join(out.splitlines()[:24])
    assert "Examples" in first_screen and f"dqnitro {command}" in first_screen


def test_the_top_help_lists_every_command(call):
    from dqnitro.cli import COMMANDS

    code, out, _ = call("--help")
    assert code == 0 and all(f"\n  {name} " in out for name in COMMANDS)


def test_help_loads_nothing_heavy():
    code = (
        "import sys, dqnitro.cli as c; c.main(['--help']); c.main(['--version']); print([m for m in "
        "('torch','numpy','gymnasium','rich','numba') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    ).stdout
    assert out.splitlines()[-1] == "[]"


def test_train_then_runs_then_play_then_resume(tmp_path, call):
    code, out, err = call("train", CORRIDOR, *SMALL, "--steps", "400", "--run-dir", "r", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["ended"] == "steps" and facts["steps"] >= 400 and facts["updates"] > 300
    assert "\x1b" not in err  # no live block where there is no terminal
    assert (tmp_path / "r" / "page.html").is_file()
    code, out, _ = call("runs", "--root", ".", "--json")
    (row,) = json.loads(out)
    assert (row["state"], row["resumable"], row["recipe"]) == ("steps", True, "baseline")
    code, out, _ = call("runs", "--root", ".")
    assert code == 0 and "steps" in out
    code, out, err = call("play", "r", "--games", "5", "--trust", "--json")
    assert code == 0, err
    assert len(json.loads(out)["evaluation"]["scores"]) == 5
    code, out, err = call("train", "--resume", "r", "--trust", "--steps", "500", "--no-video")
    assert code == 0, err
    assert "stopped by --steps after" in out and "resume  dqnitro train --resume r" in out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_exits_with_its_code(number, code, tmp_path, call):
    p = start("train", CORRIDOR, *SMALL, "--run-dir", "r", cwd=tmp_path)
    wait_for(tmp_path / "r" / "metrics.jsonl", p)
    p.send_signal(number)
    out, err = p.communicate(timeout=PATIENCE_S)
    assert p.returncode == code, err
    assert "Traceback" not in err
    assert "stopped by" in out
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert summary["state"] == "stopped"
    code, out, err = call("train", "--resume", "r", "--trust", "--steps", str(summary["steps"] + 100), "--json")
    assert code == 0 and json.loads(out)["steps"] >= summary["steps"] + 100, err


def wait_for(path: pathlib.Path, p: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.stat().st_size):
        assert p.poll() is None, p.communicate()[1]
        assert time.monotonic() < end, "nothing was written"
        time.sleep(0.02)


def wait_for_a_checkpoint(folder: pathlib.Path, p: subprocess.Popen[str]) -> None:
    """One that was not there before."""

    def newest() -> int:
        return max((int(m.parent.name) for m in folder.glob("[0-9]*/manifest.json")), default=-1)

    before, end = newest(), time.monotonic() + PATIENCE_S
    while newest() == before:
        assert p.poll() is None, p.communicate()[1]
        assert time.monotonic() < end, "nothing was saved"
        time.sleep(0.02)


@pytest.mark.long
def test_kill_9_at_random_moments_changes_nothing(tmp_path, call):
    """Killed and resumed twice, the run ends with the parameters of the one that was left alone. tests/chaos kills more
    often: here each time costs the start of a process.
    """
    rng = random.Random(7)
    args = [*SMALL, "--seed", "4", "--steps", "2500"]
    code, _, err = call("train", CORRIDOR, *args, "--run-dir", "whole")
    assert code == 0, err
    p = start("train", CORRIDOR, *args, "--checkpoint-every-s", "0.15", "--run-dir", "killed", cwd=tmp_path)
    for seconds in ("0.15", "600"):  # between checkpoints, after this kill
        wait_for_a_checkpoint(tmp_path / "killed" / "checkpoints", p)
        time.sleep(rng.uniform(0.0, 0.3))
        p.kill()
        p.communicate()
        assert p.returncode == -signal.SIGKILL, "the run was over before it could be killed"
        again = ["--trust", "--no-video", "--checkpoint-every-s", seconds]
        p = start("train", "--resume", "killed", *again, cwd=tmp_path)
    _, err = p.communicate(timeout=PATIENCE_S)
    assert p.returncode == 0, err
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)
