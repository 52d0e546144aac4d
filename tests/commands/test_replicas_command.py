"""`dqnitro train --gpus 2` on the CPU, over gloo: as it is, and on demand with four processes, and with such that are
killed, stopped and interrupted: `make test-replicas`.

Every rank imports torch, so `make test` has one test of processes; it has sessions of ranks in threads (`tests/run/`).
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from dqnitro.config import Config
from dqnitro.distributed.watch import BEAT_S
from dqnitro.distributed.watch import PATIENCE_S as PATIENCE_OF_RANKS_S
from dqnitro.run.gpu.replicas import build
from dqnitro.store.checkpoint import complete, load_weights
from support import fakes_envs
from support.replicas_reference import ThreadRanks, in_threads

TESTS = pathlib.Path(__file__).parents[1]
PATIENCE_S = 300.0
STEPS = 1024
WORDS = [
    "support.fakes_envs:dqnitro_test/Catch-v0", "--recipe", "baseline", "--envs", "gym-sync", "--images", "grey",
    "--frame-stack", "2", "--screen-size", "36", "--gpus", "2", "--device", "cpu", "--steps", str(STEPS),
    "--n-envs", "4", "--batch-size", "8", "--first-fill-steps", "100", "--replay-capacity", "400",
    "--network", "small", "--hidden-units", "8", "--steps-per-update", "16", "--torch-threads", "1", "--no-video",
    "--checkpoint-every-s", "0.01", "--target-sync-steps", "200",
]  # fmt: skip

on_demand = pytest.mark.skipif(
    "DQNITRO_TEST_REPLICAS" not in os.environ, reason="processes that import torch: make test-replicas"
)


def rank_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("RANK")
    except psutil.Error:
        return None


def undisturbed(config: Config, steps: int) -> dict[str, torch.Tensor]:
    """The weights after so many steps with threads as ranks, which nobody disturbs."""
    fakes_envs.register()
    torch.set_num_threads(1)
    ranks = ThreadRanks.make(config.gpus)
    agents, starts = zip(*(build(config, r, torch.device("cpu")) for r in ranks), strict=True)

    def run(rank: int) -> None:
        for tick in starts[rank]():
            if tick.steps >= steps:
                return

    in_threads(run, config.gpus)
    for agent in agents:
        agent.close()
    return agents[0].learner.weights()


def weights_are_those_of_threads(run: pathlib.Path, steps: int) -> None:
    manifest = json.loads((complete(run / "checkpoints")[-1] / "manifest.json").read_text())
    expected, weights = (
        undisturbed(Config.from_dict(manifest["config"]), steps),
        load_weights(run / "model.safetensors"),
    )
    assert weights.keys() == expected.keys() and all(torch.equal(weights[k], expected[k]) for k in weights)


def began(run: pathlib.Path, *words: str, launcher: tuple[str, ...] = ("-m", "dqnitro")) -> subprocess.Popen[str]:
    """The command, with a checkpoint already there."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, *launcher, "train", *WORDS, *words, "--run-dir", str(run)]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE_S
    while not complete(run / "checkpoints"):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(process.communicate())
        time.sleep(0.02)
    return process


def ranks_below(process: subprocess.Popen[str]) -> dict[str | None, psutil.Process]:
    return {rank_of(child): child for child in psutil.Process(process.pid).children()}


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()


def nobody_is_left(run: pathlib.Path) -> bool:
    return not [c for c in psutil.process_iter() if str(run) in " ".join(_words(c))]


def test_two_processes_over_gloo_end_with_the_weights_of_two_threads(tmp_path):
    process = began(tmp_path / "run", "--steps", "400")
    _, said = ended(process)
    assert process.returncode == 0, said
    weights_are_those_of_threads(tmp_path / "run", 400)


@on_demand
def test_a_rank_that_is_killed_costs_nothing(tmp_path):
    run = tmp_path / "run"
    process = began(run, "--restarts", "1")
    ranks_below(process)["1"].send_signal(signal.SIGKILL)
    out, said = ended(process)
    assert process.returncode == 0, said
    told = re.search(
        r"rank 1 of 2 was lost \(killed by SIGKILL\); the last checkpoint is of step ([\d,]+); starting", said
    )
    assert told and "resuming" in said and "stopped by --steps" in out, said
    manifest = json.loads((complete(run / "checkpoints")[-1] / "manifest.json").read_text())
    assert manifest["ranks"] == 2 and manifest["clock"]["steps"] >= STEPS
    assert 0 < int(told[1].replace(",", "")) < manifest["clock"]["steps"] and manifest["clock"]["updates"] > 30
    weights_are_those_of_threads(run, STEPS)
    games = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["event"] == "game" for line in games) == manifest["tally"]["games"] > 20
    assert nobody_is_left(run)


@on_demand
def test_rank_0_that_is_killed_stops_all_at_the_last_checkpoint(tmp_path):
    process = began(tmp_path / "run", "--steps", "1_000_000")
    begun = time.monotonic()
    ranks_below(process)["0"].send_signal(signal.SIGKILL)
    _, said = ended(process)
    assert process.returncode == 6 and time.monotonic() - begun < 30
    assert re.search(
        r"rank 0 of 2 was lost \(killed by SIGKILL\); the last checkpoint is of step .* hint: dqnitro", said
    )
    assert nobody_is_left(tmp_path / "run") and complete(tmp_path / "run" / "checkpoints")


@on_demand
def test_a_rank_that_is_stopped_is_lost_within_seconds(tmp_path):
    process = began(tmp_path / "run", "--steps", "1_000_000")
    ranks = ranks_below(process)
    time.sleep(2 * BEAT_S)  # the run is under way on all ranks
    ranks["1"].send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    _, said = ended(process)
    assert process.returncode == 6 and "was stopped for 8 s" in said, said
    assert time.monotonic() - begun < 3 * PATIENCE_OF_RANKS_S
    assert nobody_is_left(tmp_path / "run")


@on_demand
def test_ctrl_c_saves_on_all_ranks(tmp_path):
    run = tmp_path / "run"
    process = began(run, "--steps", "1_000_000", "--checkpoint-every-s", "2")
    process.send_signal(signal.SIGINT)
    out, said = ended(process)
    assert process.returncode == 130 and "stopped by Ctrl-C" in out, said
    manifest = json.loads((complete(run / "checkpoints")[-1] / "manifest.json").read_text())
    summary = json.loads((run / "summary.json").read_text())
    assert summary["state"] == "stopped" and summary["steps"] == manifest["clock"]["steps"]
    assert nobody_is_left(run)


@on_demand
def test_torchrun_starts_the_same_run(tmp_path):
    run = tmp_path / "run"
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "-m", "dqnitro")
    words = ["--gpus", "4", "--steps", "200"]
    process = began(run, *words, launcher=launcher)
    out, said = ended(process)
    assert process.returncode == 0 and "stopped by --steps" in out, said
    manifest = json.loads((complete(run / "checkpoints")[-1] / "manifest.json").read_text())
    assert manifest["ranks"] == 4 and manifest["config"]["gpus"] == 4
    weights_are_those_of_threads(run, 200)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
