"""A run on this machine whose folder is at a URL: the process beside it brings its files there, however it ends."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import uuid

import pytest

from dqnitro.storage.away import Away
from dqnitro.storage.by_url import storage_at
from dqnitro.storage.host import order_of

RUN = """
import pathlib, signal, sys, time
print("it began", flush=True)
signal.signal(signal.SIGTERM, lambda *_: (place.with_name("saved").write_text("yes"), sys.exit(143)))
place = pathlib.Path(sys.argv[1]) / "s1" / "metrics.jsonl"
place.parent.mkdir(parents=True, exist_ok=True)
place.write_text("x")
time.sleep(float(sys.argv[2]))
sys.exit(5)
"""


@pytest.fixture
def start(tmp_path):
    def started(seconds: float, parent: int) -> subprocess.Popen[str]:
        root, url = tmp_path / "home", f"local://{tmp_path}/far"
        away = Away(str(root), ("s1", "s1.log"), {"seeds.json": b"{}"}, url, url)
        words = ["python", "-c", RUN, str(root), str(seconds)]
        (tmp_path / "order").write_bytes(pickle.dumps(order_of(words, root / "s1.log", root / "s1", {}, away)))
        source = str(pathlib.Path(__file__).parents[2] / "src")
        (tmp_path / "tmp").mkdir()
        return subprocess.Popen(
            [sys.executable, "-m", "dqnitro.cli.carried", str(tmp_path / "order"), str(parent)], text=True,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": source}, stderr=subprocess.PIPE,
        )  # fmt: skip

    return started


def stored(tmp_path: pathlib.Path) -> list[str]:
    assert list((tmp_path / "tmp").iterdir()) == [], "the scratch folder is gone"
    far = tmp_path / "far"
    return sorted(str(p.relative_to(far)) for p in far.rglob("*") if p.is_file())


def test_what_a_run_leaves_is_at_the_url_and_its_exit_code_is_told(start, tmp_path):
    process = start(0.0, os.getpid())
    assert process.communicate()[1] == "" and process.returncode == 5
    assert stored(tmp_path) == ["s1.log", "s1/metrics.jsonl"]
    assert (tmp_path / "far" / "s1.log").read_text() == "it began\n"


@pytest.mark.skipif(not hasattr(signal, "SIGCONT"), reason="processes of Windows have no signals: run it on Linux")
@pytest.mark.parametrize("gone", [False, True])
def test_a_run_that_is_told_to_stop_or_has_lost_its_command_saves_first(gone, start, tmp_path):
    process = start(600.0, 1 if gone else os.getpid())
    if not gone:
        while not list((tmp_path / "tmp").glob("*/s1/metrics.jsonl")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == (1 if gone else 143)
    assert gone or "s1/saved" in stored(tmp_path)
    assert "s1.log" in stored(tmp_path)


def test_a_folder_at_a_url_knows_what_is_in_it_and_below_it():
    storage = storage_at(f"memory://{uuid.uuid4().hex}/state")
    assert storage.top() == set()
    storage.below("pong").write("seeds.json", [b"{}"])
    storage.write("atari.json", [b"{}"])
    storage.write(".part", [b"half"])
    assert storage.top() == {"pong", "atari.json"} and storage.below("pong").top() == {"seeds.json"}
    assert storage.files(["pong"]) == {"pong/seeds.json": 2} and storage.below("pong").url == f"{storage.url}/pong"
    with pytest.raises(ValueError, match="not a name of a file"):
        storage.below("../other")
