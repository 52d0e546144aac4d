"""Fresh games at fixed points of a run: the run stays what it is, and the best and the last weights are kept."""

import json
import os
import pathlib
import shutil
import signal
import time

import pytest
import torch

from dqnitro import evaluation
from dqnitro.callback import Callback
from dqnitro.cli import main
from dqnitro.config import Config
from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.play import score
from dqnitro.report import write_run_page
from dqnitro.run.processes import watchdog
from dqnitro.session import resume, train
from dqnitro.store import checkpoint
from dqnitro.store import evaluations as stored
from dqnitro.store.read_run import read_run
from dqnitro.store.run_folder import BEST, LAST
from dqnitro.trained import load
from support import fakes_envs

fakes_envs.register()
CORRIDOR = Config(
    env_id="dqnitro_test/Corridor-v0", frame_stack=1, clip_rewards=False, hidden_units=16, batch_size=8,
    first_fill_steps=40, replay_capacity=200, target_sync_steps=10, epsilon_decay_steps=100, max_steps=300,
    torch_threads=1, checkpoint_every_s=0.0, games_per_eval=5,
)  # fmt: skip
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", envs="gym-sync", runner="hybrid", frame_stack=2, screen_size=36, n_envs=4,
    first_fill_steps=100, hidden_units=16, batch_size=16, target_sync_steps=50, replay_capacity=400, torch_threads=1,
    max_steps=240, checkpoint_every_s=0.0, games_per_eval=3, wrappers=("no-grad", "fused-adam"),
)  # fmt: skip
RUNNERS = {"inline": CORRIDOR, "processes": CORRIDOR.replace(runner="processes"), "hybrid on the CPU": CATCH}


@pytest.fixture
def here(monkeypatch):
    """Play the games in this process, at once: the tests that follow are about files, not about processes."""

    class Here:
        def __init__(self, order, config):
            self.order, self.asked = order, []

        def looked_after(self):
            return True

        def ask(self, steps):
            self.asked.append(steps)
            stored.write(self.order.run_dir, evaluation.evaluate(self.order, steps))

        def close(self): ...

    monkeypatch.setattr(evaluation, "_Worker", Here)
    monkeypatch.setattr(evaluation, "LOOK_EVERY_S", 1e-9)


def weights(result):
    return [*result.agent.learner.online.parameters(), *result.agent.learner.target.parameters()]


def same_run(a, b):
    assert (a.steps, a.updates, a.games, a.mean_score) == (b.steps, b.updates, b.games, b.mean_score)
    assert a.updates > 10 and all(torch.equal(x, y) for x, y in zip(weights(a), weights(b), strict=True))


class Kill(Callback):
    """Kills the process that plays, once."""

    done = False

    def on_tick(self, run, tick):
        if tick.steps >= 110 and not self.done:
            # The kernel's list may be short of a child while another one ends: then the next tick finds it.
            for mine in [int(p) for p in children() if "dqnitro.evaluation" in command(int(p))]:
                self.done = True
                os.kill(mine, signal.SIGKILL)


def children():
    return pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


def command(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").is_dir(), reason="finds the process in /proc")
def test_a_run_is_the_same_with_evaluations_and_without(tmp_path, capfd):
    """In a process of their own, as they really are; it is killed on the way, and started again."""
    plain = train(CORRIDOR)
    seen = train(CORRIDOR.replace(eval_every_steps=100), tmp_path / "run", callbacks=[Kill()])
    same_run(plain, seen)
    done = stored.read_all(tmp_path / "run")
    assert [e.steps for e in done] == [100, 200, 300]
    assert all(len(e.scores) == CORRIDOR.games_per_eval and e.seconds > 0 for e in done)
    assert seen.evaluations["last"]["steps"] == seen.steps and seen.evaluations["waiting"] == 0
    assert "starting it again" in capfd.readouterr().err


@pytest.mark.parametrize("name", RUNNERS)
def test_copying_the_weights_leaves_every_runner_the_same(name, tmp_path, monkeypatch):
    """All that evaluations do in the run's own process. The games are played once it has ended, from the files."""
    monkeypatch.setattr("dqnitro.session.check_runner", lambda config: None)  # hybrid, here without a GPU
    monkeypatch.setattr(evaluation.Evaluations, "_look_for_worker", lambda self: None)
    monkeypatch.setattr(evaluation.Evaluations, "finish", lambda self, given_up: None)
    config = RUNNERS[name].replace(eval_every_steps=60)
    seen = train(config, tmp_path / "run")
    same_run(train(config.replace(eval_every_steps=0)), seen)
    taken = stored.waiting(tmp_path / "run")
    assert len(taken) == config.max_steps // 60 and taken[-1] <= seen.steps
    found = evaluation.evaluate(evaluation.Order(config, tmp_path / "run", []), taken[-1])
    assert len(found.scores) == config.games_per_eval


def test_an_evaluation_is_the_score_of_its_weights(tmp_path, here):
    """The last one's weights are model.safetensors; the games are those that `play` plays with the same seed."""
    train(CORRIDOR.replace(eval_every_steps=150, eval_epsilon=0.3), tmp_path / "run")
    last = stored.read_all(tmp_path / "run")[-1]
    again = score(tmp_path / "run", 5, epsilon=0.3, seed=last.steps)
    assert last.scores == again.scores and (last.mean, last.low, last.high) == (again.mean, again.low, again.high)
    assert last.protocol["counted"] == "fresh games" and last.protocol["games"] == 5
    assert last.protocol["epsilon"] == 0.3


def fixed_scores(monkeypatch, by_steps):
    real = evaluation.evaluate

    def made(order, steps):
        e = real(order, steps)
        return stored.Evaluation(e.steps, e.wall_s, [by_steps(steps)], by_steps(steps), 0.0, 9.0, 0, 0.1, e.protocol)

    monkeypatch.setattr(evaluation, "evaluate", made)


def test_the_best_weights_are_those_of_the_best_evaluation(tmp_path, here, monkeypatch):
    fixed_scores(monkeypatch, {100: 1.0, 200: 7.0, 300: 3.0}.get)
    copies = {}

    class Copy(Callback):
        def on_tick(self, run, tick):
            if tick.steps in (100, 200):
                copies.setdefault(tick.steps, run.agent.learner.weights())  # a tick that only resets counts no step

    result = train(CORRIDOR.replace(eval_every_steps=100), tmp_path / "run", callbacks=[Copy()])
    best = checkpoint.load_weights(tmp_path / "run" / BEST)
    assert all(torch.equal(best[k], v) for k, v in copies[200].items())
    facts = checkpoint.weights_facts(tmp_path / "run" / BEST)
    assert (facts["steps"], float(facts["score"]), facts["protocol.counted"]) == ("200", 7.0, "fresh games")
    assert (result.evaluations["best"]["steps"], result.evaluations["last"]["steps"]) == (200, 300)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["evaluations"]["best"]["mean"] == 7.0 and summary["evaluations"]["n"] == 3
    assert [p.stem for p in sorted((tmp_path / "run" / stored.FOLDER).glob("*.safetensors"))] == [f"{200:012d}"]
    a, b = (load(tmp_path / "run", best=x).network.state_dict() for x in (True, False))
    assert any(not torch.equal(a[k], b[k]) for k in a), "the last weights are others"
    assert (tmp_path / "run" / LAST).is_file()
    page = write_run_page(tmp_path / "run").read_text()
    assert "best evaluation" in page and "fresh games at step 200" in page and "evaluation: fresh games" in page
    assert read_run(tmp_path / "run").to_dict()["best"]["mean"] == 7.0


def test_play_takes_the_best_weights(tmp_path, here, monkeypatch, capsys):
    fixed_scores(monkeypatch, {100: 9.0, 200: 1.0}.get)
    train(CORRIDOR.replace(eval_every_steps=100, max_steps=200), tmp_path / "run")
    shutil.copy(tmp_path / "run" / LAST, tmp_path / "last")
    (tmp_path / "run" / LAST).write_bytes(b"not these")
    assert main(["play", str(tmp_path / "run"), "--best", "--games", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == "best.safetensors"
    assert main(["play", str(tmp_path / "run"), "--games", "2", "--json"]) == 2


def test_a_run_that_resumes_has_the_evaluations_of_one_that_never_stopped(tmp_path, here):
    whole = train(CORRIDOR.replace(eval_every_steps=50), tmp_path / "whole")
    train(CORRIDOR.replace(eval_every_steps=50, max_steps=150), tmp_path / "run")
    rest = resume(tmp_path / "run", max_steps=300)
    same_run(whole, rest)
    a, b = stored.read_all(tmp_path / "whole"), stored.read_all(tmp_path / "run")
    assert [(e.steps, e.scores) for e in a] == [(e.steps, e.scores) for e in b] and len(a) == 6
    x, y = (checkpoint.load_weights(tmp_path / n / BEST) for n in ("whole", "run"))
    assert all(torch.equal(x[k], y[k]) for k in x)


def test_evaluations_after_the_checkpoint_are_forgotten(tmp_path, here, monkeypatch):
    """The best one was after it: the best one before it is the best again."""
    fixed_scores(monkeypatch, {100: 5.0, 200: 4.0, 240: 3.0, 300: 9.0, 320: 1.0}.get)

    class Save(Callback):
        def on_tick(self, run, tick):
            if tick.steps == 220:
                run.checkpoint()
            if tick.steps == 310 and not (tmp_path / "killed").exists():
                shutil.copytree(run.run_dir, tmp_path / "killed")

    train(CORRIDOR.replace(eval_every_steps=100, max_steps=320), tmp_path / "run", callbacks=[Save()])
    run = tmp_path / "killed"
    assert checkpoint.weights_facts(run / BEST)["steps"] == "300"
    rest = resume(run, max_steps=240)
    assert rest.steps == 240 and checkpoint.weights_facts(run / BEST)["steps"] == "100"
    assert [e.steps for e in stored.read_all(run)] == [100, 200, 240]


def test_what_was_left_to_play_is_played_after_a_resume(tmp_path, here, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as m:
        m.setattr(evaluation.Evaluations, "_look_for_worker", lambda self: None)  # a process that never gets to it
        m.setattr(evaluation.Evaluations, "finish", lambda self, given_up: None)
        first = train(CORRIDOR.replace(eval_every_steps=100, max_steps=200), run)
    assert first.evaluations == {"n": 0, "waiting": 2} and stored.waiting(run) == [100, 200]
    rest = resume(run, max_steps=200)
    assert rest.evaluations["n"] == 2 and stored.waiting(run) == []
    assert read_run(run).evaluations == stored.read_all(run)


def test_a_process_that_cannot_play_is_given_up(tmp_path, monkeypatch, capfd):
    class Dead:
        def __init__(self, order, config): ...

        def looked_after(self):
            return False

        def ask(self, steps): ...

        def close(self): ...

        def last_words(self):
            return "no such game"

    monkeypatch.setattr(evaluation, "_Worker", Dead)
    result = train(CORRIDOR.replace(eval_every_steps=100), tmp_path / "run")
    assert result.ended == "steps" and result.evaluations == {"n": 0, "waiting": 3}
    assert "given up; the run goes on (no such game)" in capfd.readouterr().err


def test_callbacks_hear_of_evaluations_at_their_own_step(tmp_path, here):
    heard = []

    class Hear(Callback):
        def on_evaluation(self, run, evaluation):
            heard.append(len(evaluation.scores))

    train(CORRIDOR.replace(eval_every_steps=100), tmp_path / "run", callbacks=[Hear()])
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = [x["steps"] for x in lines if x["event"] == "log" and "evaluation/mean" in x["values"]]
    assert heard == [5, 5, 5] and logged == [100, 200, 300]


def test_a_run_without_a_folder_leaves_nothing_behind(here, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = train(CORRIDOR.replace(eval_every_steps=100))
    assert result.evaluations["n"] == 3 and list(tmp_path.iterdir()) == []


def test_there_are_no_best_weights_without_evaluations(tmp_path):
    train(CORRIDOR.replace(max_steps=60), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"no best\.safetensors; hint: a run with --eval-every-steps"):
        score(tmp_path / "run", 1, best=True)
    with pytest.raises(ConfigError, match="games_per_eval must be at least 1"):
        CORRIDOR.replace(games_per_eval=0)


def test_a_damaged_result_is_played_again(tmp_path, here):
    run = tmp_path / "run"
    train(CORRIDOR.replace(eval_every_steps=100, max_steps=200), run)
    best = stored.best_of(stored.read_all(run))
    path = stored.result_path(run, best.steps)
    path.write_text(path.read_text().replace('"mean"', '"meat"'))
    assert stored.read(path) is None
    rest = resume(run, max_steps=200)
    assert stored.read(path) == best or stored.read(path).scores == best.scores
    assert rest.evaluations["n"] == 2
    assert time.time() - path.stat().st_mtime < 60


def test_damaged_weights_cost_an_evaluation_and_not_the_run(tmp_path, here, monkeypatch, capfd):
    """Weights that `best.safetensors` is made of, and weights whose games are still to be played."""
    run = tmp_path / "run"
    fixed_scores(monkeypatch, {100: 9.0, 200: 1.0, 300: 5.0}.get)
    train(CORRIDOR.replace(eval_every_steps=100, max_steps=200), run)
    path = stored.weights_path(run, 100)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    (run / BEST).write_bytes(b"")
    path = stored.weights_path(run, 150)
    path.write_bytes(b"nothing")
    lost = []
    monkeypatch.setattr(evaluation._Worker, "ask", lambda self, steps: lost.append(steps) or self.play(steps))
    monkeypatch.setattr(
        evaluation._Worker, "play",
        lambda self, steps: evaluation.play(self.order, steps) or stored.weights_path(run, steps).is_file(),
        raising=False,
    )  # fmt: skip
    result = resume(run, max_steps=300)
    said = capfd.readouterr().err
    assert result.steps == 300 and result.evaluations["waiting"] == 0 and lost == [150, 300]
    assert "000000000100.safetensors is damaged" in said and "evaluation at step 150 is left out" in said
    assert checkpoint.weights_facts(run / BEST)["steps"] == "300"


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped here; run it on Linux or macOS")
def test_a_process_that_was_stopped_is_ended_and_named(monkeypatch):
    real = evaluation.subprocess.Popen
    monkeypatch.setattr(evaluation.subprocess, "Popen", lambda words, **more: real(["sleep", "600"], **more))
    monkeypatch.setattr(watchdog, "STOPPED_S", 1.0)
    worker = evaluation._Worker(evaluation.Order(CORRIDOR, pathlib.Path(), []), CORRIDOR)
    try:
        assert worker.looked_after()
        os.kill(worker._process.pid, signal.SIGSTOP)
        end = time.monotonic() + 120
        while worker.looked_after() and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        worker.close()
    assert worker._process.returncode == -signal.SIGKILL and worker.last_words().endswith("was stopped for 1 s")
