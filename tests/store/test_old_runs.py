"""Runs that an older version left behind (fixtures/runs) are taken up, played and shown by this one."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import torch

from dqnitro import resume
from dqnitro.cli import report
from dqnitro.config import Config
from dqnitro.errors import CheckpointError
from dqnitro.play import score
from dqnitro.run import make_run
from dqnitro.run.gpu.device import DeviceAgent, Graphs, ticks
from dqnitro.store import checkpoint
from run.test_device import Catch
from support import fakes_envs

fakes_envs.register()
RUNS = pathlib.Path(__file__).parents[1] / "fixtures" / "runs"
# What an agent no longer keeps: in `hybrid` the host counts the games.
GONE = {"catch-hybrid": {"score", "length", "ends"}}
WHOLE = ("pong-inline", "catch-hybrid", "catch-processes")


@pytest.fixture(autouse=True)
def threads_put_back(monkeypatch):
    """Also: the hybrid runner may run without a GPU here, with its tensors on the CPU."""
    monkeypatch.setattr("dqnitro.session.check_runner", lambda config: None)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def copied(name: str, to: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(RUNS / name, to / name))


def same(saved, again, but=frozenset()):
    """All that was saved is in the agent that took it up, and nothing else."""
    for group in ("learner", "agent", "replay"):
        if group in saved:
            assert set(saved[group]) - but == set(again[group]), group
            for key in again[group]:
                assert np.array_equal(saved[group][key], np.asarray(again[group][key])), (group, key)


@pytest.mark.parametrize("name", WHOLE)
def test_an_agent_takes_up_all_that_was_saved(name, tmp_path):
    arrays, manifest = checkpoint.load(copied(name, tmp_path))
    agent, _ = make_run(Config.from_dict(manifest["config"]))
    try:
        with pytest.raises(AssertionError):  # of a fresh agent it is not true
            same(arrays, agent.get_state()[0], GONE.get(name, frozenset()))
        agent.set_state(arrays, manifest)
        again, record = agent.get_state()
    finally:
        agent.close()
    same(arrays, again, GONE.get(name, frozenset()))
    assert record["clock"] == manifest["clock"]


@pytest.mark.parametrize("name", WHOLE)
def test_a_run_goes_on(name, tmp_path):
    run = copied(name, tmp_path)
    _, manifest = checkpoint.load(run)
    story, clock = (run / "metrics.jsonl").read_bytes(), manifest["clock"]
    c = Config.from_dict(manifest["config"])
    result = resume(run, max_steps=clock["steps"] + 60)
    assert result.ended == "steps" and 60 <= result.steps - clock["steps"] < 60 + c.n_envs
    # A tick learns from the steps before it: the last vector step is still owed.
    owed = (result.steps - clock["steps"]) / c.steps_per_update
    assert abs(result.updates - clock["updates"] - owed) <= max(1.0, c.n_envs / c.steps_per_update)
    assert result.games >= manifest["tally"]["games"]
    assert (run / "metrics.jsonl").read_bytes().startswith(story[: manifest["metrics_bytes"]])
    after, manifest = checkpoint.load(run)
    assert manifest["clock"]["steps"] == result.steps and not set(after["agent"]) & GONE.get(name, set())


def test_a_run_with_something_missing_is_refused(tmp_path):
    run = copied("catch-hybrid", tmp_path)
    arrays, manifest = checkpoint.load(run)
    record = {k: v for k, v in manifest.items() if k not in ("magic", "format", "steps", "files")}
    arrays["agent"].pop("was_away")
    checkpoint.save(run / "checkpoints", manifest["steps"], arrays, record)
    with pytest.raises(CheckpointError, match="does not fit its config"):
        resume(run, max_steps=200)


def test_an_agent_of_the_device_runner_takes_up_all_that_was_saved_and_goes_on():
    arrays, record = checkpoint.load(RUNS / "catch-device")
    config = Config.from_dict(json.loads((RUNS / "catch-device" / "config.json").read_text()))
    agent = DeviceAgent(config, torch.device("cpu"), Catch(config.n_envs))
    agent.set_state(arrays, record)
    same(arrays, agent.get_state()[0])
    run = ticks(agent, Graphs(agent))
    seen = [next(run) for _ in range(4)]
    assert record["clock"]["steps"] == 48 < seen[0].steps and seen[-1].updates > 0


def test_a_network_plays_and_its_page_is_written(tmp_path, capsys):
    run = copied("pong-inline", tmp_path)
    assert -21 <= score(run, 1, epsilon=0.05).scores[0] <= 21
    assert report.main([str(run), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    page = pathlib.Path(facts["page"]).read_text()
    assert page.startswith("<!doctype html>") or "<html" in page[:500].lower()
    assert "pong" in page and "120" in page
