"""Seeds on nodes that share no disk with the command: files travel, a worker dies, and each seed is the run it would be
alone.
"""

import json
import threading
import uuid

import psutil
import pytest
from safetensors.numpy import load

from dqnitro.cli import main
from dqnitro.cluster import nodes
from dqnitro.storage.base import LocalStorage, whole
from dqnitro.storage.by_url import storage_at
from support.cluster_small import CORRIDOR, SMALL, wait_for

STEPS = ["--steps", "3000"]


def seed_processes(seed: int) -> list[psutil.Process]:
    found = []
    for p in psutil.process_iter(["cmdline"]):
        line = p.info["cmdline"] or []
        if "dqnitro.cli.one_seed" in line and line[line.index("dqnitro.cli.one_seed") + 2] == str(seed):
            found.append(p)
    return found


@pytest.fixture
def own_folders(ray_cluster, tmp_path):
    """Two nodes more, each with temporary files of its own."""
    added = [
        ray_cluster.add_node(num_cpus=1, object_store_memory=100 << 20, env_vars={"TMPDIR": str(folder)})
        for folder in (tmp_path / "node-1", tmp_path / "node-2")
        if folder.mkdir() is None
    ]
    yield tmp_path
    for node in added:
        ray_cluster.remove_node(node, allow_graceful=False)


@pytest.mark.parametrize("kind", ["messages", "url", "memory"])
def test_a_lost_worker_resumes_elsewhere_without_a_shared_disk(own_folders, kind, monkeypatch, capsys):
    tmp_path, seen, check = own_folders, [], nodes.check_nodes
    monkeypatch.chdir(tmp_path)
    where = {"messages": "r", "url": f"local://{tmp_path}/far", "memory": f"memory://{uuid.uuid4().hex}/r"}[kind]
    storage = LocalStorage(tmp_path / "r") if kind == "messages" else storage_at(where)
    # All nodes of this test are on one disk; this is how it looks where they are not.
    monkeypatch.setattr(nodes, "check_nodes", lambda cluster, found, shared=None: check(cluster, found) or list(found))

    def accident() -> None:
        wait_for(lambda: any(n.endswith("manifest.json") for n in storage.files(["s5"])))
        process = seed_processes(5)[0]
        seen.append(process.cmdline())
        process.parent().kill()
        wait_for(lambda: [p for p in seed_processes(5) if p.pid != process.pid])
        seen.extend(p.cmdline() for p in seed_processes(5) if p.pid != process.pid)

    thread = threading.Thread(target=accident)
    thread.start()
    code = main(["train", CORRIDOR, *SMALL, *STEPS, "--seed", "4", "--seeds", "2", "--on", "auto", "--run-dir", where,
                 "--json"])  # fmt: skip
    thread.join()
    out, err = capsys.readouterr()
    assert code == 0, err
    facts = json.loads(out)
    assert "seed 5: " in err and "it goes on from its last checkpoint (1 of 3)" in err
    assert len(seen) >= 2 and all("/dqnitro-run-" in " ".join(line) for line in seen), "trained in scratch folders"
    assert [r["state"] for r in facts["runs"]] == ["steps", "steps"]
    assert facts["run_dir"] == where and facts["runs"][1]["run_dir"] == f"{where}/s5"
    assert len(storage.files(["s5/tensorboard"])) == 2, "the second process went on in the folder of the first"
    assert {"seeds.json", "summary.json", "page.html"} <= storage.files(
        ["seeds.json", "summary.json", "page.html"]
    ).keys()
    assert json.loads(b"".join(whole(storage, "s5/summary.json")))["run_dir"] == f"{where}/s5"
    assert not storage.files(["s4.owner", "s5.owner"])

    assert main(["train", CORRIDOR, *SMALL, *STEPS, "--seed", "5", "--run-dir", "alone"]) == 0
    a = load((tmp_path / "alone" / "model.safetensors").read_bytes())
    b = load(b"".join(whole(storage, "s5/model.safetensors")))
    assert a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)

    capsys.readouterr()
    words = ["train", "--resume", where, "--trust", "--steps", "3200", "--no-video", "--on", "auto", "--quiet"]
    assert main(words) == 0
    assert f"resume   dqnitro train --resume {where} --trust --on auto" in capsys.readouterr().out
    assert json.loads(b"".join(whole(storage, "s4/summary.json")))["steps"] >= 3200
