"""Results stay readable: what was written comes back, what cannot be read says so in one line."""

import json
import math
import pathlib

import pytest

from dqnitro.common.files import alone_in
from dqnitro.common.intervals import Interval
from dqnitro.errors import ConfigError
from dqnitro.lab import store

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "results"


def test_a_result_comes_back_with_its_intervals_and_its_machine(tmp_path):
    path = tmp_path / "deep" / "x.json"
    result = store.header("ladder", "pong", rounds=3) | {
        "fps": Interval(1.0, 0.5, math.inf, 3),
        "rows": ({"a": math.nan},),
    }
    store.save(path, result)
    back = store.load(path)
    assert back["fps"] == {"mean": 1.0, "low": 0.5, "high": None, "n": 3} and back["rows"] == [{"a": None}]
    assert (back["what"], back["format"], back["game"], back["rounds"]) == ("ladder", store.FORMAT, "pong", 3)
    assert back["machine"]["cores"] >= 1 and back["commit"] and back["command"] and back["date"].startswith("20")
    assert store.kind(path) == "ladder"
    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"what": "ladder", "format": 2}', "has format 2, this version reads formats up to 1; hint: update"),
        ('{"rows": []}', "the key `what` is missing"),
        ("[1]", "the key `what` is missing"),
        ("{", "is not JSON"),
    ],
)
def test_what_cannot_be_read_is_one_line(text, says, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as e:
        store.load(path)
    assert says in str(e.value) and "\n" not in str(e.value)


def test_a_file_that_is_not_there_and_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        store.load(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="is a folder"):
        store.save(tmp_path, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        store.save(tmp_path / "file" / "x.json", {})


@pytest.mark.parametrize("name", ["learn-2-cores.json", "console-2-cores.json"])
def test_results_from_before_formats_are_still_read(name):
    assert store.kind(RESULTS / name) == name.split("-")[0]


def test_default_names_never_overwrite(tmp_path):
    first = store.default_path("ladder", "ALE/Pong-v5", tmp_path / "ladders")
    store.save(first, {"what": "ladder"})
    second = store.default_path("ladder", "ALE/Pong-v5", tmp_path / "ladders")
    assert first != second and first.name.startswith("ALE-Pong-v5-")


def test_one_command_at_a_time_works_in_a_folder_and_one_that_does_nothing_leaves_nothing(tmp_path):
    folder = tmp_path / "a" / "b"
    with (
        alone_in(folder),
        pytest.raises(ConfigError, match="another command is at work on .*b; hint: wait"),
        alone_in(folder),
    ):
        pytest.fail("two at once")
    assert not list(tmp_path.iterdir())
    with alone_in(folder):
        (folder / "kept").write_text("")
    with alone_in(folder):
        pass
    assert (folder / "kept").is_file()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_request_is_one_line(content, tmp_path):
    path = tmp_path / "sweep.json"
    assert store.kept(path) is None
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="sweep.json is damaged"):
        store.kept(path)


def test_a_folder_with_files_of_others_is_refused(tmp_path):
    (tmp_path / ".lock").write_text("")
    assert store.kept(tmp_path / "sweep.json") is None
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not empty and has no sweep.json; hint: give a new folder with --state"):
        store.kept(tmp_path / "sweep.json")
