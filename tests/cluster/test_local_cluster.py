"""What `--on ray` starts, and a cluster that is reached through Ray's client server. Both in processes of their own."""

import contextlib
import os
import re
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not os.environ.get("DQNITRO_TEST_CLUSTER"), reason="real Ray nodes take a minute: make test-cluster"
)
LISTENS = """
import psutil
from dqnitro.cluster.connect import connect
with connect("ray"):
    for p in psutil.Process().children(recursive=True):
        for c in p.net_connections("inet"):
            if c.status == psutil.CONN_LISTEN:
                print("listens", c.laddr.ip)
"""
SEEDS = ("CartPole-v1", "--seeds", "2", "--steps", "600", "--no-video", "--eval-games", "0", "--torch-threads", "1")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def client_server():
    """The address of a cluster of one node with a client server, as `ray start --head` begins it."""
    pytest.importorskip("ray.util.client", reason="pip install 'dqnitro[cluster]'")
    ray, port, client = [sys.executable, "-m", "ray.scripts.scripts"], free_port(), free_port()
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    start = [
        *ray, "start", "--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--num-cpus=2",
        f"--ray-client-server-port={client}", "--include-dashboard=false", "--object-store-memory=100000000",
    ]  # fmt: skip
    subprocess.run(start, check=True, env=environment, timeout=120, stdout=subprocess.DEVNULL)
    try:
        yield f"ray://127.0.0.1:{client}"
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([*ray, "stop"], env=environment, timeout=60, stdout=subprocess.DEVNULL)


def test_a_cluster_of_our_own_listens_on_localhost_only():
    done = subprocess.run([sys.executable, "-c", LISTENS], capture_output=True, text=True, timeout=180, check=True)
    assert set(re.findall(r"listens (\S+)", done.stdout)) == {"127.0.0.1"}, done.stdout


@pytest.mark.parametrize("words", [SEEDS, ("CartPole-v1", "--runner", "cluster", "--players", "2", "--steps", "600")])
def test_a_cluster_is_reached_through_its_client_server(words, client_server, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "dqnitro", "train", *words, "--on", client_server, "--run-dir", str(run)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(list(run.rglob("metrics.jsonl"))) == (2 if "--seeds" in words else 1)
