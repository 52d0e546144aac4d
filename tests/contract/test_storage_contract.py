"""What every storage of run folders promises, wherever its files are; without Ray."""

from __future__ import annotations

import itertools
import json
import pathlib
import shutil
import sys
import threading
import uuid

import numpy as np
import pytest

from dqnitro.errors import ConfigError, StorageError
from dqnitro.storage import base, mirror
from dqnitro.storage.base import LocalStorage
from dqnitro.storage.by_url import storage_at
from dqnitro.storage.mailbox import Collected, Mailbox, MailboxStorage, serve
from dqnitro.storage.mirror import Mirror, Superseded, current
from dqnitro.store import checkpoint
from dqnitro.store.run_folder import RunFolder

TOPS = ("s1", "s1.log")


def in_this_process(tmp_path):
    return LocalStorage(tmp_path / "storage")


def by_messages(tmp_path):
    """The other side is a thread with a folder, as that of a command is one of another machine."""
    box, there, over = Mailbox(), LocalStorage(tmp_path / "storage"), threading.Event()

    def other_side():
        answer = None
        while not over.is_set():
            answer = serve(there, box.exchange(answer, 0.05))

    threading.Thread(target=other_side, daemon=True).start()
    storage = MailboxStorage(box.call)
    storage.__dict__["end"] = over.set
    return storage


KINDS = {
    "folder": in_this_process,
    "file URL": lambda tmp_path: storage_at(f"file://{tmp_path}/storage"),
    "memory URL": lambda tmp_path: storage_at(f"memory://{uuid.uuid4().hex}/runs/"),
    "messages": by_messages,
}


@pytest.fixture(params=KINDS)
def storage(request, tmp_path, monkeypatch):
    for module in (base, mirror):
        monkeypatch.setattr(module, "PIECE_BYTES", 1000)  # so that files have several
    found = KINDS[request.param](tmp_path)
    yield found
    getattr(found, "end", lambda: None)()


def content(storage, name: str) -> bytes:
    return b"".join(base.whole(storage, name))


def test_what_was_written_is_read(storage):
    assert storage.files(TOPS) == {}
    big = bytes(range(256)) * 10
    storage.write("s1/a/b.bin", [big[:1000], big[1000:2500], big[2500:]])
    storage.write("s1.log", [b"said"])
    storage.write("s1/empty", [])
    storage.write("s2/a", [b"another run"])
    assert storage.files(TOPS) == {"s1/a/b.bin": 2560, "s1.log": 4, "s1/empty": 0}
    assert content(storage, "s1/a/b.bin") == big and storage.read("s1/a/b.bin", 2550, 100) == big[2550:]
    assert storage.read("s1/a/b.bin", 2560, 100) == b"" and content(storage, "s1/empty") == b""
    storage.write("s1/a/b.bin", [b"short"])
    assert content(storage, "s1/a/b.bin") == b"short"
    storage.delete(["s1/a/b.bin", "s1/none", "s1/empty"])
    assert storage.files(TOPS) == {"s1.log": 4}


def test_what_is_not_there_and_names_that_lead_elsewhere(storage):
    with pytest.raises(FileNotFoundError):
        storage.read("s1/none", 0, 10)
    for name in ("../x", "/etc/passwd", "s1//x", "s1/../../x", "", "c:/x", "s1\\x"):
        with pytest.raises((ValueError, StorageError)):
            storage.write(name, [b"x"])


def test_a_file_whose_writing_fails_stays_as_it_was(storage):
    def breaks():
        yield b"x" * 1500
        raise KeyboardInterrupt

    storage.write("s1/summary.json", [b"old"])
    for name in ("s1/summary.json", "s1/new.json"):
        with pytest.raises(KeyboardInterrupt):
            storage.write(name, breaks())
    assert storage.files(TOPS) == {"s1/summary.json": 3} and content(storage, "s1/summary.json") == b"old"
    storage.write("s1/summary.json", [b"new"])
    assert content(storage, "s1/summary.json") == b"new"


class Failing:
    """A storage that is lost with its n-th operation, in the middle of it if it writes."""

    def __init__(self, storage, after: int):
        self.storage, self.left = storage, after
        self.files, self.read = storage.files, storage.read

    def _use(self) -> bool:
        self.left -= 1
        return self.left < 0

    def write(self, name, pieces):
        lost = self._use()

        def some():
            for i, piece in enumerate(pieces):
                if lost and i:
                    break
                yield piece[: len(piece) // 2] if lost else piece
            if lost:
                raise ConnectionError("lost")

        self.storage.write(name, some())

    def delete(self, names):
        for name in names:
            if self._use():
                raise ConnectionError("lost")
            self.storage.delete([name])


class Run:
    """A run folder whose process saves now and then."""

    def __init__(self, root: pathlib.Path):
        self.root, self.path = root, root / "s1"
        self.path.mkdir(parents=True)
        (root / "s1.log").write_text("begun\n")
        (self.path / "config.json").write_text("{}")

    def save(self, steps: int) -> None:
        with (self.path / "metrics.jsonl").open("a") as f:
            f.write(json.dumps({"steps": steps}) * 50 + "\n")
        arrays = {
            "learner": {"w": np.arange(1000.0) + steps},
            "replay": {"x": np.random.default_rng(steps).random(900)},
        }
        size = (self.path / "metrics.jsonl").stat().st_size
        checkpoint.save(self.path / "checkpoints", steps, arrays, {"metrics_bytes": size})
        (self.path / "model.safetensors").write_bytes(b"%d" % steps * 700)

    def mirror(self, storage, **options) -> Mirror:
        return Mirror(self.root, storage, TOPS, **options)


def fetched(storage, tmp_path) -> pathlib.Path:
    """What another node would go on from."""
    folder = tmp_path / "elsewhere"
    shutil.rmtree(folder, ignore_errors=True)
    Mirror(folder, storage, TOPS).fetch()
    return folder


def steps_of(folder: pathlib.Path) -> int:
    """Of the newest checkpoint, which has to be whole, with metrics that go at least as far; 0 without one."""
    if not checkpoint.complete(folder / "s1" / "checkpoints"):
        return 0
    arrays, manifest = checkpoint.load(folder / "s1")
    assert arrays["learner"]["w"][0] == manifest["steps"]
    assert (folder / "s1" / "metrics.jsonl").stat().st_size >= manifest["metrics_bytes"]
    return manifest["steps"]


def test_a_run_goes_on_elsewhere_from_its_newest_checkpoint(storage, tmp_path):
    run = Run(tmp_path / "node")
    mine = run.mirror(storage)
    mine.publish()
    assert steps_of(fetched(storage, tmp_path)) == 0
    for steps in (100, 200):
        run.save(steps)
        mine.publish()
        assert steps_of(fetched(storage, tmp_path)) == steps
    names = storage.files(TOPS)
    assert {n.split("/")[2] for n in names if "/checkpoints/" in n} == {"000000000200"}, "older ones are removed"
    (run.path / "page.html").write_text("<html>")
    (run.path / "config.json").unlink()
    mine.publish(everything=True)
    there = fetched(storage, tmp_path)
    same = {p.relative_to(run.root): p.read_bytes() for p in run.root.rglob("*") if p.is_file()}
    assert {p.relative_to(there): p.read_bytes() for p in there.rglob("*") if p.is_file()} == same


def test_wherever_it_is_lost_a_whole_checkpoint_is_there(storage, tmp_path):
    """The node dies with each of its operations in turn; the next one has the old checkpoint or the new one."""
    run, seen = Run(tmp_path / "node"), []
    run.save(100)
    run.mirror(storage).publish()
    for after in itertools.count():
        run.save(200 + after)
        lossy = Failing(storage, after)
        try:
            run.mirror(lossy).publish()
            break
        except (ConnectionError, StorageError):
            seen.append(steps_of(fetched(storage, tmp_path)))
            assert seen[-1] in (100, 199 + after, 200 + after) and seen[-1] >= max(seen)
    assert 100 in seen and max(seen) > 200 and after > 8, "it was lost before and after the manifest"
    assert steps_of(fetched(storage, tmp_path)) == 200 + after


def test_a_checkpoint_that_the_run_removes_meanwhile_is_sent_whole(storage, tmp_path):
    run = Run(tmp_path / "node")
    run.save(100)

    class Meanwhile(Failing):
        def write(self, name, pieces):
            if self.left:
                self.left -= 1
                run.save(1000 - self.left)
            self.storage.write(name, pieces)

    run.mirror(Meanwhile(storage, 5)).publish()
    assert steps_of(fetched(storage, tmp_path)) == 100
    assert not list((run.root / ".staged").rglob("*.safetensors")), "what was held is let go"


def test_only_what_changed_is_sent_and_between_checkpoints_only_what_is_shown(storage, tmp_path):
    run, sent = Run(tmp_path / "node"), []

    class Watched(Failing):
        def write(self, name, pieces):
            sent.append(name)
            self.storage.write(name, pieces)

    mine = run.mirror(Watched(storage, 0))
    run.save(100)
    mine.publish()
    assert len(sent) == 7 and sent[-1] == "s1/checkpoints/000000000100/manifest.json"
    del sent[:]
    mine.publish()
    (run.path / "model.safetensors").write_bytes(b"other")
    (run.root / "s1.log").write_text("begun\nmore\n")
    mine.publish()
    assert sent == ["s1.log"]


def test_one_that_was_replaced_writes_no_more(storage, tmp_path):
    run = Run(tmp_path / "node")
    first = run.mirror(storage, owner="first")
    first.fetch()
    run = Run(tmp_path / "node-1")
    first = Mirror(run.root, storage, TOPS, owner="first")
    run.save(100)
    first.publish()
    second = Mirror(tmp_path / "node-2", storage, TOPS, owner="second")
    second.fetch()
    assert steps_of(tmp_path / "node-2") == 100
    run.save(200)
    with pytest.raises(Superseded):
        first.publish()
    assert steps_of(fetched(storage, tmp_path)) == 100
    second.release()
    assert storage.files(["s1.owner"]) == {}


def test_a_summary_names_the_folder_that_a_user_knows(storage, tmp_path):
    run = Run(tmp_path / "node")
    RunFolder(run.path).write_summary("steps", run_dir=str(run.path))
    run.mirror(storage, shown_as="s3://bucket/runs").publish()
    there = RunFolder(fetched(storage, tmp_path) / "s1").read_summary()
    assert there["run_dir"] == "s3://bucket/runs/s1" and there["state"] == "steps"


def test_the_newest_complete_checkpoint_counts():
    names = [f"s1/checkpoints/{n}/{f}" for n in ("9", "10", "10.1", "11") for f in ("manifest.json", "a.safetensors")]
    names.remove("s1/checkpoints/11/manifest.json")
    assert current(dict.fromkeys([*names, "s1/x"], 1)) == {
        "s1/x", "s1/checkpoints/10.1/manifest.json", "s1/checkpoints/10.1/a.safetensors",
    }  # fmt: skip


@pytest.mark.parametrize("url", ["nothing://x", "s3n+x://y"])
def test_a_url_that_this_machine_cannot_use_is_one_line(url):
    with pytest.raises(ConfigError) as e:
        storage_at(url)
    assert url in str(e.value) and "; hint: " in str(e.value) and "\n" not in str(e.value)


def test_without_fsspec_a_url_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        ConfigError, match="s3://x needs fsspec, which cannot be imported .*; hint: pip install 'dqnitro"
    ):
        storage_at("s3://x")


def test_pieces_that_come_by_messages_are_collected_for_a_storage_that_takes_whole_files(tmp_path):
    storage = storage_at(f"memory://{uuid.uuid4().hex}")
    there = Collected(storage, tmp_path)
    there.put("s1/x", 0, b"one ", False)
    assert storage.files(TOPS) == {}
    there.put("s1/x", 4, b"two", True)
    assert content(storage, "s1/x") == b"one two"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_a_full_disk_on_the_other_side_is_told_to_the_run(tmp_path):
    class Full(LocalStorage):
        def put(self, name, at, piece, last):
            raise OSError(28, "No space left on device")

    answer = serve(Full(tmp_path), mirror_request("put", "s1/x", 0, b"", True))
    assert isinstance(answer.error, StorageError) and "No space left" in str(answer.error)
    answer = serve(LocalStorage(tmp_path), mirror_request("write", "s1/x"))
    assert isinstance(answer.error, ValueError), "only what belongs to a storage can be asked for"


def mirror_request(operation, *arguments):
    from dqnitro.storage.mailbox import Request

    return Request(1, operation, arguments)
