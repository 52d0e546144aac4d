"""The campaign of faults, aimed at a cluster that is there and that knows nothing of it."""

import json
import os
import pathlib
import subprocess
import sys

TESTS = str(pathlib.Path(__file__).resolve().parents[1])
FAULTS = "kill a player,stop a player,kill a whole run,kill its worker"


def test_players_and_whole_runs_are_struck_and_nothing_is_lost(three_nodes, tmp_path):
    environ = {**os.environ, "RAY_ADDRESS": three_nodes.address}
    environ["PYTHONPATH"] = os.pathsep.join([TESTS, *sys.path])
    words = ["--address", "auto", "--minutes", "10", "--faults", "4", "--only", FAULTS, "--steps", "12000"]
    done = subprocess.run(
        [sys.executable, "-m", "chaos.ray_session", str(tmp_path), *words, "--seed-steps", "4000"],
        env=environ, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout.strip().splitlines()[-1])
    assert out["faults"] == 4 and not any(out["bad"].values()), out["notes"]
    assert "no node is struck" in done.stderr and set(out["seconds"]) == set(FAULTS.split(","))
