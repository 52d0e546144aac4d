"""`--on ray://HOST:PORT`: the command is not a node of the cluster, and the run is the run of this machine."""

import os
import pathlib
import subprocess
import sys

import pytest
from safetensors.numpy import load_file

TESTS = pathlib.Path(__file__).resolve().parents[1]
SMALL = [
    "CartPole-v1", "--steps", "300", "--hidden-units", "8", "--batch-size", "4", "--first-fill-steps", "20",
    "--replay-capacity", "200", "--torch-threads", "1", "--env-threads", "1", "--no-video",
]  # fmt: skip
PLAYERS = ["--runner", "cluster"]
WAYS = {"seeds": (["--seeds", "1"], []), "players": (PLAYERS, [*PLAYERS, "--on", "ray"])}  # there, and here


def train(folder: pathlib.Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), **variables}
    env.pop("RAY_ADDRESS", None)
    command = [sys.executable, "-m", "dqnitro", "train", *SMALL, *words, "--run-dir", str(folder)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("way", WAYS)
def test_a_client_with_the_token_gets_the_run_of_this_machine(ray_cluster, way, tmp_path):
    address = f"ray://127.0.0.1:{ray_cluster.head_node._ray_params.ray_client_server_port}"
    words_there, words_here = WAYS[way]
    there = train(tmp_path / "there", *words_there, "--on", address)
    assert there.returncode == 0, there.stderr
    here = train(tmp_path / "here", *words_here)
    assert here.returncode == 0, here.stderr
    (model,) = (tmp_path / "there").rglob("model.safetensors")
    a, b = load_file(model), load_file(tmp_path / "here" / "model.safetensors")
    assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)


def test_a_client_with_another_token_is_told_of_it(ray_cluster, tmp_path):
    address = f"ray://127.0.0.1:{ray_cluster.head_node._ray_params.ray_client_server_port}"
    done = train(tmp_path / "run", "--seeds", "1", "--on", address, RAY_AUTH_TOKEN="another")
    assert done.returncode == 2 and "or it asks for another token; hint: copy ~/.ray/auth_token" in done.stderr
    assert not (tmp_path / "run").exists()
