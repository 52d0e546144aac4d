"""`dqnitro train --seeds N --on CLUSTER`: nodes die, Ctrl-C comes, and each seed is the run it would be alone."""

import json
import os
import pathlib
import signal
import threading

import psutil
import pytest
from safetensors.numpy import load_file

from cluster_small import CORRIDOR, SMALL, wait_for
from dqnitro.cli import main
from dqnitro.seeds.summary import last_progress
from dqnitro.store.checkpoint import complete
from dqnitro.store.run_folder import RunFolder


def saved(folder: pathlib.Path) -> int:
    """Steps of the newest checkpoint; 0 without one."""
    found = complete(folder / "checkpoints") if (folder / "checkpoints").is_dir() else []
    return int(found[-1].name) if found else 0


def trainer(run: pathlib.Path) -> int | None:
    """The process that trains a run, or did so last."""
    return RunFolder(run).read_summary().get("pid")


def kill_a_node(cluster, folder: str) -> tuple[int, pathlib.Path]:
    """kill -9 the raylet of a node that trains and is not the head: the parent of the parent of a seed's process."""
    head = cluster.head_node.all_processes["raylet"][0].process.pid
    for p in psutil.process_iter(["cmdline"]):
        if "dqnitro.cli.one_seed" in (line := p.info["cmdline"] or []) and folder in line:
            raylet = p.parent().parent()
            if raylet.pid != head:
                raylet.kill()
                return p.pid, pathlib.Path(folder) / f"s{line[line.index(folder) + 1]}"
    raise AssertionError("two seeds run, and both on the head")


def test_a_lost_node_and_ctrl_c_change_nothing(three_nodes, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder, killed = tmp_path / "r", []

    def accidents() -> None:
        try:
            wait_for(lambda: all(saved(folder / f"s{s}") for s in (4, 5)))
            process, lost = kill_a_node(three_nodes, str(folder))
            killed.append(lost)
            wait_for(lambda: trainer(lost) not in (process, None))  # another process has taken the run over
            at = saved(lost)
            wait_for(lambda: saved(lost) > at)
        finally:  # the seeds have no other end
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=accidents)
    thread.start()
    code = main(["train", CORRIDOR, *SMALL, "--seed", "4", "--seeds", "3", "--at-once", "2", "--on", "auto",
                 "--run-dir", "r", "--json"])  # fmt: skip
    thread.join()
    out, err = capsys.readouterr()
    facts = json.loads(out)
    assert killed and "it goes on from its last checkpoint (1 of 3)" in err and "3 nodes, 1 CPU" in err
    assert code == 130, facts
    assert [r["state"] for r in facts["runs"]] == ["stopped", "stopped", "waiting"]

    most = max(r["steps"] for r in facts["runs"] if r["steps"]) + 100
    assert (
        main(["train", "--resume", "r", "--trust", "--steps", str(most), "--no-video", "--on", "auto", "--quiet"]) == 0
    )
    out = capsys.readouterr().out
    assert "3 seeds, 3 at --steps" in out and "resume   dqnitro train --resume r --trust --on auto" in out
    seed = killed[0].name.removeprefix("s")
    assert main(["train", CORRIDOR, *SMALL, "--seed", seed, "--steps", str(most), "--run-dir", "alone"]) == 0
    a, b = (load_file(p / "model.safetensors") for p in (tmp_path / "alone", killed[0]))
    assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)
    assert (folder / "page.html").is_file() and last_progress(folder / "s6" / "metrics.jsonl")


BAD = {
    "nonsense": (["--on", "nonsense"], "not the address of a cluster; hint: ray (started on this machine)"),
    "port": (["--on", "ray://localhost:0"], "not the address of a cluster"),
    "closed": (["--on", "ray://127.0.0.1:1"], "nothing answers there"),
    "no seeds": (["--on", "auto", "--single"], "--on auto needs --seeds, or --runner cluster"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_address_is_one_line(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    options, message = BAD[name]
    seeds = [] if "--single" in options else ["--seeds", "2"]
    options = [o for o in options if o != "--single"]
    assert main(["train", CORRIDOR, *SMALL, *seeds, *options]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and len([x for x in err.splitlines() if x.startswith("dqnitro train:")]) == 1
    assert list(tmp_path.iterdir()) == []
