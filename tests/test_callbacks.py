"""Callbacks: what they see, what they may ask for, and what happens when one fails."""

import json
import sys
import types

import pytest

import dqnitro
from dqnitro import Callback
from dqnitro.callbacks import EarlyStop, Evaluate, Mlflow, Trackio, Wandb
from dqnitro.common.intervals import Scored
from dqnitro.errors import CallbackFailed, ConfigError
from dqnitro.store import checkpoint
from support import fakes_envs

fakes_envs.register()
QUICK = {
    "hidden_units": 16,
    "batch_size": 8,
    "first_fill_steps": 40,
    "n_envs": 1,
    "steps_per_update": 1.0,
    "replay_capacity": 200,
    "max_steps": 150,
    "progress": False,
}
CORRIDOR = "dqnitro_test/Corridor-v0"


class Seen(Callback):
    def __init__(self):
        self.calls = []

    def on_start(self, run):
        self.calls.append(("start", run.steps))

    def on_tick(self, run, tick):
        assert tick.steps == run.steps and tick.updates == run.updates
        self.calls.append(("tick", tick.steps))

    def on_game(self, run, game):
        self.calls.append(("game", game.score))
        assert run.mean_score is not None

    def on_snapshot(self, run, snapshot):
        self.calls.append(("snapshot", snapshot.steps))

    def on_end(self, run, ended):
        self.calls.append(("end", ended))


def test_a_callback_sees_every_tick_and_every_game():
    seen = Seen()
    result = dqnitro.train(CORRIDOR, callbacks=[seen], **QUICK)
    kinds = [kind for kind, _ in seen.calls]
    assert seen.calls[0] == ("start", 0) and seen.calls[-1] == ("end", "steps")
    assert kinds.count("game") == result.games > 3 and kinds.count("tick") >= 150 and "snapshot" in kinds


def test_a_callback_stops_the_run_which_is_saved(tmp_path):
    class Stop(Callback):
        def on_tick(self, run, tick):
            if tick.steps == 70:
                run.stop("enough")

    result = dqnitro.train(CORRIDOR, tmp_path / "run", callbacks=[Stop()], **QUICK)
    assert (result.ended, result.reason, result.steps, result.exit_code) == ("callback", "enough", 70, 0)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "stopped"
    assert dqnitro.resume(tmp_path / "run", progress=False).steps == 150


def test_a_callback_asks_for_a_checkpoint(tmp_path):
    saved = []

    class Save(Callback):
        def on_tick(self, run, tick):
            if tick.steps == 60:
                run.checkpoint()
            if tick.steps == 61:
                saved.append(checkpoint.load(run.run_dir)[1]["clock"]["steps"])

    dqnitro.train(CORRIDOR, tmp_path / "run", callbacks=[Save()], **QUICK)
    assert saved == [60]


def test_what_a_callback_logs_is_stored_and_shown_to_the_others(tmp_path):
    heard = []

    class Log(Callback):
        def on_game(self, run, game):
            run.log({"at": game.steps, "steps": 2})

        def on_log(self, run, values):
            heard.append(values["at"])

    result = dqnitro.train(CORRIDOR, tmp_path / "run", callbacks=[Log()], **QUICK)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    stored = [x for x in lines if x["event"] == "log"]
    assert [x["values"]["at"] for x in stored] == heard and len(heard) == result.games
    assert all(x["values"]["steps"] == 2 and x["steps"] > 0 for x in stored)


@pytest.mark.parametrize("where", ["on_start", "on_tick", "on_game", "on_snapshot", "on_end"])
def test_a_callback_that_fails_ends_the_run_with_a_checkpoint(where, tmp_path):
    ends = []

    class Bad(Callback):
        pass

    def fail(self, run, *args):
        if run.steps >= 50 or where == "on_start":
            raise ValueError("boom")

    setattr(Bad, where, fail)

    class Last(Callback):
        def on_end(self, run, ended):
            ends.append(ended)

    with pytest.raises(CallbackFailed, match=rf"test_callbacks.py:\d+: ValueError: boom \(in Bad.{where}\)") as caught:
        dqnitro.train(CORRIDOR, tmp_path / "run", callbacks=[Bad(), Last()], **QUICK)
    assert caught.value.exit_code == 5 and isinstance(caught.value.__cause__, ValueError)
    assert "in fail\n" in caught.value.trace and ends == ["steps" if where == "on_end" else "CallbackFailed"]
    steps = dqnitro.resume(tmp_path / "run", max_steps=160, progress=False).steps
    assert steps == 160


def test_one_callback_needs_no_list_and_what_is_none_is_refused_before_the_run(tmp_path):
    class Stop(Callback):
        def on_tick(self, run, tick):
            run.stop("at once")

    assert dqnitro.train(CORRIDOR, callbacks=Stop(), **QUICK).ended == "callback"
    for given, said in ((Stop, "the class Stop; hint: pass an object: Stop"), ([5], "got 5; hint: pass objects of")):
        with pytest.raises(ConfigError, match=said):
            dqnitro.train(CORRIDOR, tmp_path / "run", callbacks=given, **QUICK)
    assert not (tmp_path / "run").exists()


# ---- ready ones


def test_evaluations_reach_every_callback_and_change_no_step_of_the_run(tmp_path):
    seen = []

    class Watch(Callback):
        def on_evaluation(self, run, evaluation):
            seen.append((run.steps, len(evaluation.scores)))

    evaluate = Evaluate(every_steps=50, games=3)
    result = dqnitro.train(CORRIDOR, tmp_path / "run", callbacks=[evaluate, Watch()], **QUICK)
    assert seen == [(50, 3), (100, 3), (150, 3)] and evaluate.last is not None
    alone = dqnitro.train(CORRIDOR, **QUICK)
    same = zip(result.agent.network.parameters(), alone.agent.network.parameters(), strict=True)
    assert all((a == b).all() for a, b in same)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [x["values"]["evaluation/games"] for x in lines if x["event"] == "log"] == [3, 3, 3]


def test_early_stop_waits_for_its_patience_and_for_its_score():
    class Scores(Callback):
        def on_tick(self, run, tick):
            if tick.steps % 10 == 0:
                run.report_evaluation(Scored([1.0], *[min(tick.steps, 60) / 10] * 3))

    result = dqnitro.train(CORRIDOR, callbacks=[Scores(), EarlyStop(patience_steps=30)], **QUICK)
    assert result.steps == 90 and result.reason == "no gain over 6.00 for 30 steps"
    result = dqnitro.train(CORRIDOR, callbacks=[Scores(), EarlyStop(at_score=4)], **QUICK)
    assert result.steps == 40 and result.reason == "score 4.00 reached 4"
    with pytest.raises(ConfigError, match="EarlyStop needs"):
        EarlyStop()


class FakeTracker(types.ModuleType):
    """Stands in for wandb, trackio and mlflow: remembers every call."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **keywords):
            self.calls.append((name, args, keywords))
            return self

        return call


@pytest.mark.parametrize(
    ("kind", "first", "send", "last"),
    [
        (Wandb, "init", "log", "finish"),
        (Trackio, "init", "log", "finish"),
        (Mlflow, "start_run", "log_metrics", "end_run"),
    ],
)
def test_trackers_get_config_games_and_logs(kind, first, send, last, monkeypatch):
    fake = FakeTracker(kind.module)
    monkeypatch.setitem(sys.modules, kind.module, fake)

    class Log(Callback):
        def on_start(self, run):
            run.log({"mine": 7})

    result = dqnitro.train(CORRIDOR, callbacks=[kind(name="x"), Log()], **QUICK)
    names = [name for name, _, _ in fake.calls]
    assert names[0] == first and fake.calls[0][2]["name"] == "x" and names[-1] == last
    sent = [args[0] for name, args, _ in fake.calls if name == send]
    assert sum("game/score" in values for values in sent) == result.games
    assert any("train/mean_score" in values for values in sent) and any(values.get("mine") == 7 for values in sent)
    config = next(k["config"] if "config" in k else a[0] for n, a, k in fake.calls if n in ("init", "log_params"))
    assert config["env_id"] == CORRIDOR


def test_a_tracker_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(CallbackFailed, match="Wandb needs wandb; hint: pip install wandb"):
        dqnitro.train(CORRIDOR, callbacks=[Wandb()], **QUICK)
