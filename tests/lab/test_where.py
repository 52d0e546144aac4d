"""The lab measures on a GPU where there is one: the textbook DQN, too, and every rung that a GPU can use."""

from types import SimpleNamespace

import pytest
import torch

from dqnitro import ladder, recipes, requirements
from dqnitro.lab import ladder as climbing
from dqnitro.lab import where as places
from dqnitro.lab.race import Budget
from dqnitro.lab.where import lab_plan, where
from dqnitro.recipes import Here
from dqnitro.run.processes import thread_budget
from lab import fake_race


@pytest.fixture
def h200(monkeypatch):
    """A described machine: one modern GPU that torch and the console can use, 16 cores."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    facts = SimpleNamespace(name="NVIDIA H200", total_memory=2**37, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: facts)
    monkeypatch.setattr("dqnitro.common.host.usable_cores", lambda: 16)
    for module in (requirements, recipes):
        monkeypatch.setattr(module, "usable_cores", lambda: 16, raising=False)
    monkeypatch.setattr(recipes, "this_machine", lambda: Here(16, "NVIDIA H200"))
    monkeypatch.setattr("dqnitro.ladder.rungs.needs_cuda_console", lambda c: None)
    for name in ("all-on-gpu", "hybrid", "own-kernels", "compile"):
        rung = ladder.RUNGS[name]
        needs = (lambda c: requirements.needs_ring(c)) if name == "own-kernels" else (lambda c: None)
        monkeypatch.setitem(ladder.RUNGS, name, replace_needs(rung, needs))


def replace_needs(rung, needs):
    from dataclasses import replace

    return replace(rung, needs=needs)


def test_without_a_gpu_it_measures_on_the_cpu_and_says_why(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("dqnitro.common.host.usable_cores", lambda: 2)
    here = where()
    assert here.settings == {"device": "cpu"}, "two cores: what torch does by itself"
    assert here.text.startswith("measuring on the CPU (2 cores, 2 torch threads") and "no GPU" in here.text
    monkeypatch.setattr("dqnitro.common.host.usable_cores", lambda: 16)
    assert where().settings == {"device": "cpu", "torch_threads": 4}
    assert where({"torch_threads": 9}).settings["torch_threads"] == 9


def test_it_says_what_the_recipe_uses_not_what_torch_would(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("dqnitro.common.host.usable_cores", lambda: 2)
    text = where({}, lab_plan("auto", "CartPole-v1").config()).text
    assert text.startswith("measuring on the CPU (2 cores, 1 torch thread for a network pass)"), text
    assert "2 torch threads" in where({}, lab_plan("baseline", "CartPole-v1").config()).text
    assert "2 torch threads" in where({"torch_threads": 2}, lab_plan("auto", "CartPole-v1").config()).text


def test_a_recipe_that_stays_off_the_gpu_says_so(h200):
    text = where({}, lab_plan("auto", "CartPole-v1").config()).text
    assert text.startswith("measuring on the CPU (16 cores, 1 torch thread for a network pass): ")
    assert text.endswith("the recipe's network is too small for a GPU")
    assert where({}, lab_plan("auto", "pong").config()).text.startswith("measuring on the GPU (NVIDIA H200")


def test_with_a_gpu_it_measures_there_unless_told_otherwise(h200):
    assert where().settings == {"device": "cuda", "torch_threads": 1}
    assert "on the GPU (NVIDIA H200; on the host 16 cores, 1 torch thread" in where().text
    assert where({"device": "cpu"}).settings == {"device": "cpu", "torch_threads": places.FEW_THREADS}
    assert "as --device says" in where({"device": "cpu"}).text
    assert lab_plan("baseline", "pong").config().device == "cuda"
    assert lab_plan("baseline", "pong", {"device": "cpu"}).config().device == "cpu"
    assert recipes.baseline("pong").device == "cpu", "`train --recipe baseline` stays as it was"
    assert lab_plan("fast", "pong").config().torch_threads == 1
    assert lab_plan("auto", "CartPole-v1").config().device == "cpu", "a recipe's own choice stays"


def test_on_a_gpu_every_rung_that_it_can_use_is_climbed_in_one_table(h200, monkeypatch):
    built = fake_race.use(monkeypatch, lambda config: 100.0 * config.n_envs * (1 + len(config.wrappers)))
    result = climbing.climb_ladder("pong", budget=Budget(0, 3))
    rows = {r["name"]: r for r in result["rows"]}
    measured = [n for n, r in rows.items() if r["state"] == "measured"]
    wanted = [
        "baseline", "gradients-everywhere", "pinned-copies", "play-on-cpu", "frame-replay", "linear-resize",
        "pillow-resize", "console", "fused-adam", "channels-last", "torchscript", "float16", "bfloat16", "compile",
        "cuda-graphs", "gpu-replay", "no-noop-reset", "skip-without-max", "stack-of-two", "tuned-wrappers", "two-envs",
        "three-envs", "four-envs", "six-envs", "two-steps-per-update", "four-steps-per-update", "processes", "hybrid",
        "all-on-gpu", "own-kernels", "auto",
    ]  # fmt: skip
    assert [n for n in measured if n in wanted] == wanted, "in this order, up to auto"
    assert built[0].device == "cuda" and built[0].torch_threads == 1, "the baseline is on the GPU, too"
    assert {c.device for c in built} == {"cuda"}
    skipped = {n: r["why"] for n, r in rows.items() if r["state"] == "skipped"}
    assert "runs on a GPU" in skipped["distinct-patches"] and "two GPUs" in skipped["play-on-second-gpu"]
    assert rows["auto"]["promise"] == "learning" and rows["own-kernels"]["on"] == "all-on-gpu"
    assert result["notes"]["where"].startswith("measuring on the GPU")
    assert climbing.top(result["rows"], ("exact", "close"))["name"] == "gpu-replay"


def test_the_player_of_many_cores_gets_few_threads():
    config = lab_plan("baseline", "pong").config().replace(runner="processes", slack_steps=8)
    assert thread_budget(config, 16, 16, on_gpu=True) == (1, 4)
    assert thread_budget(config, 2, 2, on_gpu=False) == (1, 1), "two cores: as before"
