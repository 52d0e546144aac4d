"""A measurement that nodes share out is typed again: what is kept, and what is measured; without a cluster."""

import contextlib
import json
import pathlib
import types

import pytest

from dqnitro.cli import ablate as command
from dqnitro.cli import main
from dqnitro.cluster import nodes
from dqnitro.cluster.nodes import Node
from dqnitro.lab.ablate_parts import FILE, Parts, begin, missing
from lab.test_sweep_runs import part

WORDS = ["fast", "--rounds", "12"]


def measured(path, interrupted=None):
    path.write_text(json.dumps(part([50.0, 51.0], [100.0, 102.0]) | {"interrupted": interrupted}))


def test_the_same_words_keep_the_number_of_parts_and_their_rounds(tmp_path):
    first = begin(tmp_path / "s", WORDS, 4, 12)
    assert first == Parts(tuple(WORDS), 4, 3)
    for path in first.paths(tmp_path / "s")[:2]:
        measured(path)
    for machines in (1, 9):
        assert begin(tmp_path / "s", WORDS, machines, 12) == first
    assert missing(first.paths(tmp_path / "s")) == [2, 3]


def test_in_the_usual_folder_a_complete_measurement_is_made_again(tmp_path):
    paths = begin(tmp_path, WORDS, 2, 12).paths(tmp_path)
    measured(paths[0])
    assert missing(begin(tmp_path, WORDS, 2, 12, named=False).paths(tmp_path)) == [1], "it was cut short: it goes on"
    measured(paths[1])
    assert missing(begin(tmp_path, WORDS, 2, 12).paths(tmp_path)) == []
    assert missing(begin(tmp_path, WORDS, 2, 12, named=False).paths(tmp_path)) == [0, 1]


@pytest.mark.parametrize("words", [["fast", "--rounds", "13"], ["auto", "--rounds", "12"], WORDS[:1], [*WORDS, "-x"]])
def test_other_words_begin_anew(words, tmp_path):
    for path in begin(tmp_path, WORDS, 2, 12).paths(tmp_path):
        measured(path)
    new = begin(tmp_path, words, 3, 12)
    assert new == Parts(tuple(words), 3, 4) and missing(new.paths(tmp_path)) == [0, 1, 2]


@pytest.mark.parametrize("text", ["", "[]", '["fast", "--rounds", "12"]', "{}", '{"words": 3, "number": 2}', "\xff"])
def test_a_request_that_cannot_be_read_begins_anew(text, tmp_path):
    (tmp_path / FILE).write_text(text)
    measured(tmp_path / "part-1.json")
    assert begin(tmp_path, WORDS, 2, 12).rounds == 6 and not (tmp_path / "part-1.json").exists()


def test_a_part_that_was_cut_short_or_damaged_is_missing(tmp_path):
    paths = begin(tmp_path, WORDS, 4, 12).paths(tmp_path)
    measured(paths[0])
    measured(paths[1], "SIGINT")
    paths[2].write_text('{"what": "abl')
    assert missing(paths) == [1, 2, 3]


def test_few_rounds_are_not_cut_into_parts_without_an_interval(tmp_path):
    assert [begin(tmp_path / str(r), WORDS, 8, r)[1:] for r in (1, 5, 6, 7, 40)] == [
        (1, 1), (1, 5), (2, 3), (2, 4), (8, 5),
    ]  # fmt: skip


# ---- the command


class Measures:
    """A team whose jobs leave their parts, except those that fail, one after the other."""

    def __init__(self, jobs, failing, log):
        self.members, self.waiting, self.running = {}, list(jobs), []
        self._jobs, self._failing, self._log = jobs, failing, log

    @property
    def over(self):
        return not self.waiting

    def poll(self):
        i = self.waiting.pop(0)
        words = self._jobs[i].command()
        self._log.append((i, words[words.index("--rounds") + 1]))
        if i not in self._failing:
            measured(pathlib.Path(words[words.index("--out") + 1]), self._failing.get("cut short"))
        return []

    def close(self):
        pass


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Types a command; returns which parts were measured, with how many rounds, what came out and what was said."""
    monkeypatch.chdir(tmp_path)
    found = []
    monkeypatch.setattr(nodes, "alive", lambda cluster: found)

    def type_it(*words, machines=3, failing=()):
        log = []
        found[:] = [Node(str(i), str(i), 4, 0, 8e9) for i in range(machines)]
        failing = failing if isinstance(failing, dict) else dict.fromkeys(failing)

        def team(jobs, *more):
            return Measures(jobs, failing, log)

        here = types.SimpleNamespace(cluster="cluster", team=team)
        monkeypatch.setattr(command, "place", lambda on: contextlib.nullcontext(here))
        code = main(["ablate", *words, "--json"])
        out, err = capsys.readouterr()
        return code, log, json.loads(out) if out else None, err

    return type_it


def test_typed_again_only_what_is_missing_is_measured(typed):
    words = ["fast", "--rounds", "12"]
    code, log, result, err = typed(*words, "--on", "auto", "--state", "s", failing=(1,))
    assert (code, log) == (0, [(0, "4"), (1, "4"), (2, "4")]) and result["rounds"] == 4
    assert "not done: 1 of 3 parts; the same command goes on" in err
    code, log, result, err = typed("--on=ray", *words, "--state=s", "--out", "x.json", machines=1)
    assert (code, log) == (0, [(1, "4")]) and result["rounds"] == 6 and len(result["notes"]["machines"]) == 3
    assert "3 parts of 4 rounds, 1 to measure" in err and "not done" not in err
    code, log, again, err = typed(*words, "--on", "auto", "--state", "s", machines=0)
    assert (code, log) == (0, []) and again["rows"] == result["rows"] and "0 to measure" in err


def test_what_was_cut_short_is_measured_again(typed):
    code, log, result, err = typed("--on", "auto", failing={"cut short": "SIGINT"})
    assert len(log) == 3 and result["interrupted"] == "SIGINT" and code == 130 and "not done: 3 of 3 parts" in err
    code, log, result, _ = typed("--on", "auto")
    assert len(log) == 3 and result["interrupted"] is None and code == 0


def test_with_other_words_all_is_measured_anew(typed):
    assert typed("--on", "auto", "--state", "s")[1] == [(0, "4"), (1, "4"), (2, "4")]
    assert typed("--on", "auto", "--state", "s", "--game", "breakout")[1] == [(0, "4"), (1, "4"), (2, "4")]
    assert typed("--on", "auto", "--state", "s")[1] == [(0, "4"), (1, "4"), (2, "4")]
    assert typed("--on", "auto", "--state", "other")[1] == [(0, "4"), (1, "4"), (2, "4")]


def test_a_part_that_fails_again_and_again_is_told_and_asked_for_again(typed):
    code, log, result, err = typed("--on", "auto", "--state", "s", failing=(0, 1, 2))
    assert code == 2 and result is None and "no node completed its rounds (no part came back)" in err
    assert len(log) == 3 and len(typed("--on", "auto", "--state", "s")[1]) == 3
