"""`dqnitro train --seeds N --on CLUSTER`: nodes die, Ctrl-C comes, and each seed is the run it would be alone."""

import contextlib
import json
import os
import pathlib
import signal
import sys
import threading
import types
import uuid

import fsspec
import psutil
import pytest
from safetensors.numpy import load_file

from dqnitro.cli import main
from dqnitro.cluster.nodes import Node
from dqnitro.seeds.summary import last_progress
from dqnitro.store.checkpoint import complete
from dqnitro.store.run_folder import RunFolder
from support.cluster_small import CORRIDOR, SMALL, wait_for


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
    "URL of one run": (["--run-dir", "s3://b/x", "--single"], "s3://b/x: only runs of --seeds are stored at a URL"),
    "URL without a cluster": (["--run-dir", "memory://x"], "memory://x: what is in memory:// ends with its process"),
    "unknown URL": (
        ["--on", "auto", "--run-dir", "nothing://x"],
        "nothing://x cannot be used (ValueError: Protocol not",
    ),
    "no package": (["--on", "auto", "--run-dir", "oci://b/x"], "hint: pip install the package of this kind of storage"),
    "half a file URL": (["--on", "auto", "--run-dir", "file://x"], "not the URL of a folder; hint: file:///path"),
    "not to be written": (["--on", "auto", "--run-dir", "local:///proc/x"], "local:///proc/x cannot be used ("),
    "read only": (["--on", "auto", "--run-dir", "data://x"], "data://x cannot be used (NotImplementedError"),
    "a file": (["--on", "auto", "--run-dir", "local:///dev/null/x"], "local:///dev/null/x cannot be used ("),
    "nothing to resume": (["--on", "auto", "--resume", "memory://none/r"], "memory://none/r has no seeds.json; hint: "),
    "resume without a cluster": (["--resume", "memory://none/r"], "memory://none/r has no seeds.json; hint: "),
}


def refused(words, capsys) -> str:
    """The one line of a command that must not begin."""
    assert main(["train", *words]) == 2
    out, err = capsys.readouterr()
    lines = [x for x in err.splitlines() if x.startswith("dqnitro train:")]
    assert out == "" and len(lines) == 1 and "; hint: " in lines[0] and "Traceback" not in err
    return lines[0]


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A command in an empty folder, which stays empty."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_address_is_one_line(name, alone, capsys):
    options, message = BAD[name]
    words = [] if "--resume" in options else [CORRIDOR, *SMALL, *([] if "--single" in options else ["--seeds", "2"])]
    assert message in refused([*words, *(o for o in options if o != "--single")], capsys)


def test_without_ray_it_is_one_line_and_nothing_is_left_at_the_url(alone, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    where = f"memory://{uuid.uuid4().hex}"
    words = [CORRIDOR, *SMALL, "--seeds", "2", "--on", "auto", "--run-dir", where]
    assert "--on auto needs Ray, which cannot be imported" in refused(words, capsys)
    assert fsspec.filesystem("memory").find(where) == []


def test_more_cpus_than_any_node_has_are_refused_and_nothing_is_left(alone, capsys, monkeypatch):
    monkeypatch.setattr("dqnitro.cluster.connect.connect", lambda on: contextlib.nullcontext(types.SimpleNamespace()))
    monkeypatch.setattr("dqnitro.cluster.nodes.alive", lambda cluster: [Node("a", "small", 2, 0, 8e9)])
    where = f"memory://{uuid.uuid4().hex}"
    words = [CORRIDOR, *SMALL, "--torch-threads", "64", "--seeds", "2", "--on", "auto"]
    for more in ([], ["--run-dir", where]):
        told = refused([*words, *more], capsys)
        assert "a run needs 64 CPUs and 1.0 GiB, and no node of the cluster has that (small: 2 CPUs" in told
    assert fsspec.filesystem("memory").find(where) == []


def test_a_url_that_has_a_run_is_not_written_over(alone, capsys):
    where = f"memory://{uuid.uuid4().hex}"
    fsspec.filesystem("memory").pipe(f"{where}/seeds.json", b"{}")
    words = [CORRIDOR, *SMALL, "--seeds", "2", "--on", "auto", "--run-dir", where]
    assert f"{where} is not empty; hint: continue it with --resume {where}" in refused(words, capsys)
    assert fsspec.filesystem("memory").cat(f"{where}/seeds.json") == b"{}"
