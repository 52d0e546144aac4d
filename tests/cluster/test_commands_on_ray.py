"""`sweep`, `ablate` and `atari` on a real cluster: the runs are those of one machine."""

import json
import os
import threading
import uuid

import psutil
import pytest
from safetensors.numpy import load

from dqnitro.cli import main
from dqnitro.lab.sweep import base_of, sweep, variant
from dqnitro.session import train
from dqnitro.storage.base import whole
from dqnitro.storage.by_url import storage_at
from support.cluster_small import wait_for

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


@pytest.mark.parametrize("kind", ["url", "memory"])
def test_a_sweep_at_a_url_goes_on_there(long, kind, tmp_path, capsys):
    """In memory the nodes do not reach it, so that files travel through Ray."""
    where = f"local://{tmp_path}/far" if kind == "url" else f"memory://{uuid.uuid4().hex}/far"
    words = ["sweep", "envs", "1", "--game", "CartPole-v1", "--seed", "5", "--seeds", "1", "--steps", "150", *WORDS]
    for values in ([], ["2"], []):
        options = ["--on", "auto", "--state", where, "--quiet", "--json", "--out", "x.json"]
        assert main([*words[:3], *values, *words[3:], *options]) == 0
    assert "0 runs to do" in capsys.readouterr().err
    storage = storage_at(where)
    assert storage.top() == {"sweep.json", "n_envs-1", "n_envs-2"}
    summary = json.loads(b"".join(whole(storage, "n_envs-2/s5/summary.json")))
    assert summary["run_dir"] == f"{where}/n_envs-2/s5" and not storage.files(["n_envs-2/s5.owner"])
    a = load(b"".join(whole(storage, "n_envs-2/s5/model.safetensors")))
    train(variant(base_of("CartPole-v1", "baseline", {**SMALL, "max_steps": 150}), "n_envs", 2, 5), "alone")
    b = load((tmp_path / "alone" / "model.safetensors").read_bytes())
    assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)


def test_games_at_a_url_are_kept_there_with_their_table_and_page(long, tmp_path, capsys):
    where = f"memory://{uuid.uuid4().hex}/far"
    words = ["atari", "pong", "--minutes", "0.02", "--fresh-games", "1", "--envs", "ale", "--n-envs", "2", "--runner",
             "inline", "--device", "cpu", *WORDS, "--on", "auto", "--state", where, "--quiet"]  # fmt: skip
    assert main(words) == 0
    storage = storage_at(where)
    assert storage.top() == {"atari.json", "atari-result.json", "page.html", "pong"}
    result = json.loads(b"".join(whole(storage, "atari-result.json")))
    assert result["state"] == where and result["rows"][0]["runs"][0]["run_dir"] == f"{where}/pong/s1"
    assert result["rows"][0]["fresh"] is not None and f"page {where}/page.html" in capsys.readouterr().out
    assert main(words) == 0 and "0 runs to do" in capsys.readouterr().err


def test_a_search_on_nodes_is_the_search_of_this_machine_whatever_is_lost(three_nodes, long, tmp_path):
    words = ["sweep", "learning-rate=1e-4..1e-2", "n-step=1,3", "--game", "CartPole-v1", "--steps", "2000", *WORDS]
    words += ["--trials", "5", "--at-once", "2", "--quiet"]
    killed = []

    def accident() -> None:
        wait_for(lambda: list(tmp_path.glob("nodes/t2-*/s1/metrics.jsonl")))
        for p in psutil.process_iter(["cmdline"]):
            line = p.info["cmdline"] or []
            if "dqnitro.cli.one_seed" in line and str(tmp_path / "nodes" / "t2-CartPole-v1") in line:
                p.kill()
                killed.append(p.pid)

    thread = threading.Thread(target=accident)
    thread.start()
    (tmp_path / "here").mkdir()
    assert main([*words, "--on", "auto", "--state", str(tmp_path / "nodes"), "--out", "a.json"]) == 0
    thread.join()
    assert killed and main([*words, "--state", str(tmp_path / "here"), "--out", "b.json"]) == 0
    a, b = (json.loads((tmp_path / name).read_text())["rows"] for name in ("a.json", "b.json"))
    names = ("trial", "settings", "state", "points", "steps", "scores")
    assert len(a) == 5 and [[r[k] for k in names] for r in a] == [[r[k] for k in names] for r in b]
