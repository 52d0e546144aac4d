"""Bringing a run's files away while the storage fails, and the copy of a folder that a command has."""

import json
import os
import subprocess
import sys
import tempfile
import uuid

import pytest

from dqnitro.common.files import temporary_folder
from dqnitro.errors import StorageError
from dqnitro.storage import away
from dqnitro.storage.away import Away, Courier
from dqnitro.storage.base import LocalStorage, whole
from dqnitro.storage.by_url import storage_at
from dqnitro.storage.home import home_at
from dqnitro.store.run_folder import RunFolder

AWAY = Away("/home/r", ("s1", "s1.log"), {"seeds.json": b"{}"}, "/home/r")


class Fails(LocalStorage):
    failing = False

    def write(self, name, pieces):
        if self.failing:
            raise StorageError("no connection")
        super().write(name, pieces)


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """A courier that is always due, and its storage."""
    monkeypatch.setattr(away.Mirror, "due", lambda self: True)
    monkeypatch.setattr(away, "AGAIN_S", 0.0)
    storage, scratch = Fails(tmp_path / "far"), tmp_path / "scratch"
    scratch.mkdir()
    courier = Courier(AWAY, storage, scratch)
    courier.begin()
    assert (scratch / "seeds.json").read_bytes() == b"{}"
    (scratch / "s1.log").write_text("said")
    return courier, storage


def test_a_storage_may_fail_for_a_while(pair, monkeypatch):
    courier, storage = pair
    storage.failing = True
    courier.look()
    assert storage.files(AWAY.tops) == {}
    storage.failing = False
    courier.look()
    assert storage.files(AWAY.tops) == {"s1.log": 4}


def test_a_storage_that_fails_for_long_ends_the_run(pair, monkeypatch):
    courier, storage = pair
    storage.failing = True
    courier.look()
    monkeypatch.setattr(away, "PATIENCE_S", -1.0)
    with pytest.raises(StorageError, match="files of the run cannot be stored: no connection"):
        courier.look()
    with pytest.raises(StorageError):
        courier.end()


def test_folders_of_processes_that_were_killed_are_removed_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    old, mine = tmp_path / f"{away.PREFIX}{gone.pid}-x", tmp_path / f"{away.PREFIX}{os.getpid()}-y"
    for folder in (old, mine):
        folder.mkdir()
    with temporary_folder(away.PREFIX) as folder:
        assert folder.parent == tmp_path and not old.exists() and mine.exists()
    assert list(tmp_path.iterdir()) == [mine]


def test_the_copy_of_a_command_has_all_but_the_data_of_checkpoints():
    url = f"memory://{uuid.uuid4().hex}/r"
    storage = storage_at(url)
    for name in ("manifest.json", "replay.safetensors"):
        storage.write(f"s1/checkpoints/000000000100/{name}", [b"{}"])
    storage.write("s1/model.safetensors", [b"weights"])
    with home_at(url, "seeds.json", resume=False) as home:
        home.fetch(["s1"])
        found = {p.relative_to(home.path).as_posix() for p in home.path.rglob("*") if p.is_file()}
        assert found == {"s1/checkpoints/000000000100/manifest.json", "s1/model.safetensors"}
        RunFolder(home.path).write_summary("done", run_dir=str(home.path))
        (home.path / "page.html").write_text(f"resume {home.path}")
        home.keep(["summary.json", "page.html", "seeds.json"])
        assert json.loads(b"".join(whole(storage, "summary.json")))["run_dir"] == url
        assert b"".join(whole(storage, "page.html")) == f"resume {url}".encode()
        assert home.named({"a": [f"{home.path}/s1", 1]}) == {"a": [f"{url}/s1", 1]}
        (home.path / "page.html").unlink()
        home.keep(["page.html"])
        assert not storage.files(["page.html", "seeds.json"])
    assert not home.path.exists()
