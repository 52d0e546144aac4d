"""Climbing: which rungs are in force, what is a detour, what cannot run and why."""

import importlib.util
import sys

import pytest
import torch

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.ladder import RUNGS, climb, default_climb, fitted, full_climb, in_force, path, rung

BASE = Config(env_id="pong", replay="plain")


def test_a_later_rung_takes_off_those_that_cannot_stand_beside_it():
    assert in_force(("ale-vector", "fused-adam", "console")) == ("fused-adam", "console")
    assert in_force(("console", "ale-vector")) == ("ale-vector",)
    assert in_force(("fused-adam", "fused-adam")) == ("fused-adam",)
    once, twice = climb(BASE, ("four-envs",)), climb(BASE, ("two-envs", "four-envs"))
    assert once == twice and once.batch_size == 4 * BASE.batch_size


def test_conflicts_are_between_rungs_that_exist():
    for r in RUNGS.values():
        assert set(r.replaces) <= set(RUNGS), r.name


def test_more_environments_with_a_larger_batch_train_as_many_samples_a_step():
    for name in ("two-envs", "three-envs", "four-envs", "six-envs"):
        c = rung(name).apply(BASE)
        assert c.batch_size / c.steps_per_update == BASE.batch_size / BASE.steps_per_update and c.n_envs > 1


def test_what_stands_aside_is_measured_and_then_gone():
    places = {p.name: p for p in path(BASE, ("gradients-everywhere", "frame-replay", "two-envs", "eight-envs"))}
    assert places["gradients-everywhere"].config.wrappers == ()
    assert places["frame-replay"].config.wrappers == ("no-grad",)
    assert places["two-envs"].climbed == ("frame-replay", "two-envs")
    assert places["eight-envs"].climbed == ("frame-replay", "eight-envs")
    assert places["eight-envs"].config == climb(BASE, ("frame-replay", "eight-envs"))


def test_a_rung_that_cannot_run_is_listed_last_with_its_reason():
    base = recipes.baseline("CartPole-v1")
    names = full_climb(base)
    assert sorted(names) == sorted(RUNGS), "nothing is left out"
    whys = [p.why for p in path(base, names)]
    n_runnable = whys.index(next(w for w in whys if w))
    assert not any(whys[:n_runnable]) and all(whys[n_runnable:])
    assert "CartPole-v1 is not an Atari game" in whys


def test_a_reason_is_asked_for_where_what_is_replaced_is_gone():
    after_console, alone = path(BASE, ("console", "linear-resize"))[1], path(BASE, ("linear-resize",))[0]
    assert after_console.why is None and after_console.config == alone.config
    (place,) = path(BASE.replace(envs="ale"), ("linear-resize",))
    assert "envs ale downscales by area only" in place.why


def test_double_takes_off_the_targets_that_it_cannot_stand_beside():
    config = climb(Config(munchausen=True, quantiles=32), ("double",))
    assert config.double and not config.munchausen and config.quantiles == 32


def test_a_rung_that_changes_nothing_says_so():
    (place,) = path(BASE.replace(replay="frames"), ("frame-replay",))
    assert "would change nothing" in place.why and place.climbed == ()


def test_the_default_climb_leaves_learning_as_it_is():
    names = default_climb(BASE)
    assert {RUNGS[n].promise for n in names} == {"exact", "close"}
    assert set(full_climb(BASE)) - set(names) == {r.name for r in RUNGS.values() if r.promise == "learning"}


def test_every_rung_says_what_it_does_and_when_it_hurts():
    for r in RUNGS.values():
        assert r.what.endswith(".") and r.hurts.endswith(".") and r.what.count(". ") <= 1, r.name


def test_everything_on_the_gpu_trains_as_many_samples_a_step():
    for c in (BASE, climb(BASE, ("four-envs",)), BASE.replace(steps_per_update=4.0, first_fill_steps=100)):
        on_gpu = rung("all-on-gpu").apply(c.replace(device="auto", slack_steps=0))
        assert on_gpu.runner == "device" and on_gpu.n_envs == 256 and on_gpu.wrappers == c.wrappers
        assert on_gpu.batch_size / on_gpu.steps_per_update == c.batch_size / c.steps_per_update
    after = in_force(("console", "eight-envs", "two-steps-per-update", "fused-adam", "all-on-gpu"))
    assert after == ("fused-adam", "all-on-gpu")


def test_everything_on_the_gpu_says_what_is_missing(monkeypatch):
    needs, c = rung("all-on-gpu").needs, BASE.replace(device="auto")
    assert needs(c.replace(env_id="CartPole-v1")) == "CartPole-v1 is not an Atari game"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert needs(c) == "torch finds no GPU on this machine"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (6, 1))
    assert "too old" in needs(c)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "numba-cuda, which is not installed" in needs(c)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert needs(c) is None


def test_an_unknown_rung_gets_the_nearest_names():
    with pytest.raises(ConfigError, match="unknown rung 'consol'; hint: did you mean console"):
        climb(BASE, ("consol",))


def test_what_also_adds_to_a_recipe_takes_off_what_it_replaces():
    plan = recipes.Plan("mine", BASE, ("ale-vector", "fused-adam"))
    assert plan.climbed(also=("console",)) == ("fused-adam", "console")
    assert plan.config(also=("console",)).envs == "console"


OWN = Config(runner="hybrid", wrappers=("no-grad", "fused-adam", "bfloat16", "own-kernels"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"grad_clip": 10.0}, "grad_clip 10"),
        ({"hidden_units": 300}, "hidden_units 300"),
        ({"network": "small", "screen_size": 60}, "network small, screen_size 60"),
        ({"frame_stack": 2}, "frame_stack 2"),
        ({"implicit_quantiles": 8}, "implicit_quantiles 8"),
        ({"noisy_sigma": 0.5}, "noisy_sigma 0.5"),
        ({"quantiles": 200}, "quantiles 200 (at most 128)"),
        ({"categorical": True, "atoms": 201}, "atoms 201 (at most 128)"),
        ({"runner": "inline"}, "this run uses inline"),
        ({"batch_size": 32_768, "first_fill_steps": 40_000, "replay_capacity": 80_000}, "32 bits"),
        ({"wrappers": ("no-grad", "own-kernels")}, "bfloat16"),
    ],
)
def test_settings_that_own_kernels_is_not_written_for_are_compiled_instead(changes, why, monkeypatch):
    monkeypatch.setattr(sys.modules["dqnitro.requirements"], "needs_triton", lambda c: None)
    config, rungs, said = fitted(OWN.replace(**changes), ("console", "own-kernels"))
    assert said is not None and why in said
    assert rungs == ("console", "compile")
    assert "compile" in config.wrappers and "own-kernels" not in config.wrappers


@pytest.mark.parametrize(
    "changes",
    [
        {"dueling": True, "double": True, "n_step": 5},
        {"categorical": True, "dueling": True, "double": True, "prioritized": True, "replay": "frames"},
        {"quantiles": 64, "munchausen": True},
        {"munchausen": True, "prioritized": True, "replay": "frames"},
        {"atoms": 201, "quantiles": 0},  # atoms that nobody uses
    ],
    ids=str,
)
def test_settings_that_own_kernels_is_written_for_stay(changes, monkeypatch):
    monkeypatch.setattr(sys.modules["dqnitro.requirements"], "needs_triton", lambda c: None)
    assert fitted(OWN.replace(**changes), ("own-kernels",)) == (OWN.replace(**changes), ("own-kernels",), None)
    plain = OWN.replace(wrappers=("no-grad",), network="small")
    assert fitted(plain) == (plain, (), None)
