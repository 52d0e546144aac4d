"""`sweep`, `ablate` and `atari` on a real cluster: the runs are those of one machine."""

import json
import os

import pytest

from dqnitro.cli import main
from dqnitro.lab.sweep import sweep

SMALL = {
    "hidden_units": 8, "batch_size": 4, "first_fill_steps": 20, "replay_capacity": 200, "torch_threads": 1,
    "env_threads": 1,
}  # fmt: skip
WORDS = [w for name, v in SMALL.items() for w in (f"--{name.replace('_', '-')}", str(v))]


@pytest.fixture
def long(request, monkeypatch, tmp_path):
    if not os.environ.get("DQNITRO_TEST_CLUSTER"):
        pytest.skip("processes on Ray take minutes: make test-cluster")
    monkeypatch.chdir(tmp_path)
    return request.getfixturevalue("ray_cluster")


def test_a_sweep_has_the_curves_of_one_process(long, tmp_path):
    words = ["sweep", "envs", "1", "2", "--game", "CartPole-v1", "--seed", "5", "--seeds", "1", "--steps", "150"]
    assert main([*words, *WORDS, "--on", "auto", "--quiet", "--json", "--out", "x.json"]) == 0
    mine = json.loads((tmp_path / "x.json").read_text())
    theirs = sweep("CartPole-v1", "n_envs", (1, 2), seeds=(5,), changes={**SMALL, "max_steps": 150})
    assert len(mine["curves"]) == 2
    for a, b in zip(mine["curves"], theirs["curves"], strict=True):
        names = ("steps", "updates", "games", "score")
        assert a["value"] == b["value"] and all(a["points"][-1][k] == b["points"][-1][k] for k in names)
    assert (tmp_path / "sweeps" / "n_envs-CartPole-v1-baseline" / "n_envs-2" / "s5" / "model.safetensors").is_file()


def test_ablate_brings_the_rounds_of_its_nodes_together(long, tmp_path):
    words = ["ablate", "cost", "--game", "CartPole-v1", "--rounds", "3", "--seconds", "0.05", "--minutes", "0"]
    assert main([*words, *WORDS[:-8], "--on", "auto", "--quiet", "--json", "--out", "x.json"]) == 0
    result = json.loads((tmp_path / "x.json").read_text())
    assert result["what"] == "cost" and result["rounds"] == 3 and len(result["notes"]["machines"]) == 1
    measured = [r for r in result["rows"] if r["state"] == "measured"]
    assert len(measured) > 2 and all(len(r["rates"]) == 3 for r in measured)
