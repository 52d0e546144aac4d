"""A search with several trials at a time: who is quick changes nothing, and it goes on from what is in its folders."""

import json
import pathlib
import random

import pytest

pytest.importorskip("optuna")

from dqnitro.callback import Callback
from dqnitro.cli import main, one_seed
from dqnitro.errors import ConfigError
from dqnitro.lab import search
from dqnitro.lab.search import LOOKS, Asked, parse_dimension
from dqnitro.lab.search_runs import LOOK, Looks, Marks, Runs, looks_of, planned
from dqnitro.seeds.allocation import Share
from dqnitro.seeds.folder import SeedsFolder
from dqnitro.seeds.launcher import Member
from dqnitro.session import resume, train
from dqnitro.store.run_folder import RunFolder

SMALL = {"hidden_units": 16, "batch_size": 8, "first_fill_steps": 50, "replay_capacity": 500, "max_steps": 200}
SPACE = (parse_dimension("learning-rate=1e-4..1e-2"), parse_dimension("n-step=1,3"))
ASKED = Asked(["CartPole-v1"], SPACE, 16, "baseline", changes=SMALL)


def opened(state: pathlib.Path, at_once: int, asked: Asked = ASKED) -> Runs:
    return Runs(state, asked, planned(asked), Share(at_once, 1, 1, "a test"))


def play(runs: Runs, trial, score: float, looks=(), **facts) -> None:
    """What a run leaves behind that has ended."""
    game, seed = trial.next
    folder = RunFolder(runs.folder(trial.number, game) / f"s{seed}")
    checkpoint = folder.path / "checkpoints" / "000000000200"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    lines = [{"event": "log", "values": {f"{LOOK}{k + 1}": x}} for k, x in enumerate(looks)]
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    folder.write_summary(**({"state": "steps", "ended": "steps", "steps": 200, "mean_score": score} | facts))


def good(settings) -> float:
    return 100.0 - 1e4 * settings["learning_rate"] + settings["n_step"]


def searched(state: pathlib.Path, at_once: int, order: int, anew: bool = False) -> list[dict]:
    """A whole search whose runs end in some order; the settings of its trials. `anew`: opened again after every run."""
    runs, rng, most = opened(state, at_once), random.Random(order), 0
    while True:
        runs.propose()
        under_way = [t for t in runs.trials() if t.next]
        most = max(most, len(under_way))
        if not under_way:
            assert most == at_once, "so many were under way at the same time"
            return [t.settings for t in runs.trials()]
        trial = rng.choice(under_way)
        play(runs, trial, good(trial.settings))
        runs = opened(state, at_once) if anew else runs


def test_who_is_quick_and_where_it_was_stopped_change_no_trial(tmp_path):
    first = searched(tmp_path / "a", 4, order=1)
    assert len(first) == 16 and first[0] == {"learning_rate": 5e-4, "n_step": 1}, "it begins with the recipe"
    assert searched(tmp_path / "b", 4, order=2) == first
    assert searched(tmp_path / "c", 4, order=3, anew=True) == first
    assert searched(tmp_path / "d", 1, order=1) != first, "what a trial knows depends on how many there are at a time"
    assert len({json.dumps(s) for s in first}) > 10


def test_as_many_as_at_the_start_whatever_the_machine_has_now(tmp_path):
    runs = opened(tmp_path, 3)
    runs.propose()
    again = opened(tmp_path, 8)
    again.propose()
    assert again.at_once == 3 and len(again.trials()) == 3
    with pytest.raises(ConfigError, match="begun with other options; hint: give another --state"):
        opened(tmp_path, 3, Asked(["CartPole-v1"], SPACE[:1], 16, "baseline", changes=SMALL))
    (tmp_path / "search.json").write_text('{"trials": [1]}')
    with pytest.raises(ConfigError, match="begun with other options"):
        opened(tmp_path, 3)


def test_a_trial_is_compared_with_those_that_it_may_know(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "BEFORE_STOPPING", 2)
    runs = opened(tmp_path, 2)
    for looks in ((4, 5, 6), (6, 7, 8), (99, 99, 99)):
        runs.propose()
        trial = next(t for t in runs.trials() if t.next)
        assert runs.marks(trial).medians == (None, None, None)
        play(runs, trial, 9.0, looks)
    runs.propose()
    fourth = runs.trials()[3]
    assert runs.marks(fourth).medians == (5, 6, 7), "the third had ended too, but it counts as running"
    play(runs, fourth, 3.0, (3,), state="stopped", ended="callback")
    fourth = runs.trials()[3]
    assert fourth.state == "PRUNED" and fourth.shown == {1: 3.0} and fourth.points is None
    rows = runs.result(None, "here")["rows"]
    assert [r["state"] for r in rows][:4] == ["measured"] * 3 + ["stopped early"] and rows[0]["points"] == 9.0


def test_settings_that_cannot_run_and_runs_that_diverge_are_told(tmp_path):
    asked = Asked(["CartPole-v1"], (parse_dimension("n-envs=1,400"),), 6, "baseline", changes=SMALL)
    runs = opened(tmp_path, 6, asked)
    runs.propose()
    refused = [t for t in runs.trials() if t.settings["n_envs"] == 400]
    assert refused and all(t.state == "FAIL" and "replay_capacity 500" in t.why for t in refused)
    open_ones = [t for t in runs.trials() if t.next]
    play(runs, open_ones[0], 1.0, state="diverged")
    assert runs.trials()[open_ones[0].number - 1].why == "the loss diverged"
    runs.refuse(open_ones[1].number, "no such game")
    assert opened(tmp_path, 6, asked).trials()[open_ones[1].number - 1].why == "no such game"


def test_games_of_a_trial_come_one_after_the_other_and_the_next_knows_the_mean(tmp_path):
    asked = Asked(["pong", "breakout"], SPACE, 3, "baseline", changes={**SMALL, "envs": "ale"})
    runs = opened(tmp_path, 1, asked)
    runs.propose()
    (trial,) = runs.trials()
    assert trial.next == ("pong", 1)
    play(runs, trial, -20.7, (0.0, 0.0, 0.0))
    (trial,) = runs.trials()
    assert trial.next == ("breakout", 1) and runs.marks(trial).before == (pytest.approx(0.0),)
    play(runs, trial, 30.5, (0.5, 0.5, 0.5))
    (trial,) = runs.trials()
    assert trial.points == pytest.approx(0.5) and trial.shown[LOOKS + 1] == pytest.approx(0.25)


def run_of(path: pathlib.Path, marks: Marks, *more: Callback):
    config = ASKED.config("CartPole-v1", {}, 1)
    return train(config, path, callbacks=[Looks(marks), *more])


class Halfway(Callback):
    def on_tick(self, run, tick):
        if run.steps == 120:
            run.stop()


def test_a_run_is_stopped_where_its_trial_is_behind_and_a_resumed_one_at_the_same_step(tmp_path):
    assert Marks.of(Marks((1.0,), 2.5, (None, 3.0, 4.0)).text()) == Marks((1.0,), 2.5, (None, 3.0, 4.0))
    free = Marks((), None, (None, None, None))
    whole = run_of(tmp_path / "whole", free)
    shown = looks_of(tmp_path / "whole")
    assert whole.ended == "steps" and sorted(shown) == [1, 2, 3]
    run_of(tmp_path / "two", free, Halfway())
    assert sorted(looks_of(tmp_path / "two")) == [1, 2]
    with (tmp_path / "two" / "metrics.jsonl").open("a") as f:  # of steps after the checkpoint, which it takes again
        f.write(json.dumps({"event": "log", "values": {f"{LOOK}3": 1e9}}) + "\n")
    resume(tmp_path / "two", callbacks=[Looks(free)])
    assert looks_of(tmp_path / "two") == shown
    above = max(shown.values()) + 1
    result = run_of(tmp_path / "behind", Marks((), None, (None, above, None)))
    assert result.ended == "callback" and result.steps == 100
    assert run_of(tmp_path / "best", Marks((), above, (None, above, None))).ended == "steps", "it was better before"


class InThisProcess:
    """Runs as a team has them, one after the other."""

    stopping = False

    def __init__(self, command, todo, at_once, log, environment):
        self._command, self.waiting, self.members, self.running = command, list(todo), {}, []

    @property
    def over(self):
        return not self.waiting

    def poll(self):
        if not self.waiting:
            return []
        i = self.waiting.pop(0)
        member = self.members[i] = Member(i, None, 0)  # type: ignore[arg-type]
        words = self._command(i)
        folder, seed = words[words.index("dqnitro.cli.one_seed") + 1 :][:2]
        one_seed._run(SeedsFolder.read(pathlib.Path(folder)), int(seed), 0.0, True, words[words.index("--marks") + 1])
        return [member]

    def close(self):
        pass


def test_the_command_goes_on_with_the_trials_that_are_not_done(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dqnitro.cli.terminal.launching.Team", InThisProcess)
    settings = [w for k, v in SMALL.items() if k != "max_steps" for w in (f"--{k.replace('_', '-')}", str(v))]
    words = [
        "sweep",
        "learning-rate=1e-4..1e-2",
        "--game",
        "CartPole-v1",
        "--steps",
        "200",
        *settings,
        "--at-once",
        "2",
    ]
    words += ["--quiet", "--json"]
    found = []
    for trials in (2, 3, 3):
        assert main([*words, "--trials", str(trials)]) == 0
        out, err = capsys.readouterr()
        found.append((json.loads(out)["rows"], err))
    assert [len(rows) for rows, _ in found] == [2, 3, 3] and "3 trials, 3 done, 2 at a time" in found[2][1]
    assert all(row in found[1][0] for row in found[0][0]) and found[1][0] == found[2][0]
    place = tmp_path / "sweeps" / "search-CartPole-v1-baseline-learning_rate"
    assert (place / "t3-CartPole-v1" / "s1" / "model.safetensors").is_file() and place.with_suffix(".json").is_file()
    alone = ASKED.config("CartPole-v1", found[1][0][0]["settings"], 1).replace(torch_threads=1)
    assert found[1][0][0]["points"] == train(alone).mean_score
