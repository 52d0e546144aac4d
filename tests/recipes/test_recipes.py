"""`auto` chooses a runner for the machine that is described, says why, and what it chooses is a config that can run."""

import json
from dataclasses import replace

import pytest
import torch

from dqnitro import planning, recipes
from dqnitro.cli import main
from dqnitro.cli.terminal.training import planned
from dqnitro.cli.train import make_parser
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab import tune
from dqnitro.ladder import RUNGS
from dqnitro.recipes import ON_GPU, Here, tuned
from dqnitro.requirements import needs_bfloat16, needs_compiler, runner_needs

H200 = Here(16, "NVIDIA H200")


def use(monkeypatch, here: Here) -> None:
    monkeypatch.setattr(recipes, "this_machine", lambda: here)


@pytest.mark.parametrize(
    ("here", "runner", "says"),
    [
        (H200, "hybrid", "16 cores play 64 consoles while the NVIDIA H200 learns"),
        (Here(8, "GPU", "too old"), "hybrid", "8 cores play"),
        (Here(7, "GPU"), "device", "7 cores cannot keep the GPU busy, so it runs the games as well"),
        (Here(1, "GPU"), "device", "1 core cannot keep"),
        (Here(4, "GPU", "it is too old"), "inline", "it cannot run the games: it is too old"),
        (Here(64), "inline", "there is no GPU that torch can use"),
    ],
)
def test_the_runner_follows_cores_and_gpu(here, runner, says, monkeypatch):
    use(monkeypatch, here)
    plan = recipes.untuned("auto", "breakout")
    assert plan.config().runner == runner and says in plan.why


def test_on_a_gpu_all_numbers_come_from_one_place(monkeypatch):
    use(monkeypatch, H200)
    config = recipes.auto("pong")
    assert {k: getattr(config, k) for k in ON_GPU} == ON_GPU
    assert (
        config.envs == "console" and config.device == "cuda" and config.network == "nature" and config.screen_size == 84
    )
    assert {"fused-adam", "channels-last", "bfloat16"} <= set(config.wrappers)
    assert "compile" in config.wrappers or "compiler" in recipes.plan("auto", "pong").left_out["compile"]
    monkeypatch.setitem(ON_GPU, "n_envs", 96)
    assert recipes.auto("pong").n_envs == 96 and "play 96 consoles" in recipes.plan("auto", "pong").why
    use(monkeypatch, Here(2, "GPU"))
    assert recipes.auto("pong").n_envs == recipes.ON_DEVICE["n_envs"]


def test_on_a_cpu_pong_has_settings_of_its_own(monkeypatch):
    use(monkeypatch, Here(2))
    pong, other = (recipes.untuned("auto", game) for game in ("pong", "breakout"))
    assert recipes.own_settings(pong) == recipes.SMALL_ON_CPU
    assert {k: getattr(pong.config(), k) for k in recipes.SMALL_ON_CPU} == recipes.SMALL_ON_CPU
    assert (pong.config().screen_size, other.config().screen_size) == (60, 84)
    assert {"eight-envs", "three-step"} <= set(other.rungs) - set(pong.rungs) <= {
        "eight-envs", "three-step", *recipes.LARGE_LAYER_RUNGS
    }  # fmt: skip
    other_settings = recipes.UNSEEN_ON_CPU | {"idle_frames": recipes.IDLE_FRAMES}
    assert recipes.own_settings(other) | {"double": False} == other_settings and not other.config().double


@pytest.mark.parametrize(
    ("here", "runner", "n_envs"),
    [
        (H200, "hybrid", 64),
        (Here(2, "GPU"), "device", 16_384),
        (Here(2, "GPU", None, 8.0), "device", 1024),
        (Here(2), "inline", 8),
    ],
)
def test_classic_is_the_published_dqn_at_eight_samples_a_step_everywhere(here, runner, n_envs, monkeypatch):
    use(monkeypatch, here)
    config = recipes.classic("breakout")
    assert (config.runner, config.n_envs) == (runner, n_envs)
    assert config.batch_size / config.steps_per_update == 8
    assert (config.n_step, config.double, config.dueling, config.network) == (1, False, False, "nature")
    assert (config.sticky_actions, config.noop_max, config.fire_reset, config.episodic_life) == (0.25, 0, False, False)
    with pytest.raises(ConfigError, match="classic is for Atari games"):
        recipes.classic("CartPole-v1")


def test_environments_without_images_stay_on_the_cpu(monkeypatch):
    """Neither a described GPU nor a missing one changes it."""
    plans = []
    for here in (H200, Here(2)):
        use(monkeypatch, here)
        plans.append(recipes.untuned("auto", "CartPole-v1"))
    assert plans[0] == plans[1] and plans[0].config().device == "cpu" and plans[0].config().runner == "inline"


@pytest.mark.parametrize("here", [H200, Here(2, "GPU"), Here(2)], ids=["hybrid", "device", "inline"])
def test_strong_is_a_config_that_can_run_and_has_four_samples_a_step(here, monkeypatch):
    use(monkeypatch, here)
    config = recipes.plan("strong", "breakout").config()
    assert config.network == "impala" and config.quantiles and config.munchausen and config.prioritized
    assert config.batch_size / config.steps_per_update == 4.0 and config.sticky_actions == 0.25
    with pytest.raises(ConfigError, match="strong is for Atari games"):
        recipes.plan("strong", "CartPole-v1")


def test_a_runner_that_is_asked_for_brings_its_own_settings(monkeypatch):
    use(monkeypatch, H200)
    asked = {runner: recipes.plan("classic", "pong", runner=runner) for runner in ("device", "hybrid")}
    assert asked["device"].config().n_envs == 16_384 and asked["device"].why == "runner device was asked for"
    assert asked["hybrid"] == recipes.plan("classic", "pong") and "16 cores play" in asked["hybrid"].why
    assert recipes.plan("auto", "pong", runner="device").config().n_envs == recipes.ON_DEVICE["n_envs"]
    monkeypatch.setattr("dqnitro.planning.check_runner", lambda config: None)  # it asks torch, not `Here`
    wish = planning.Wish("pong", "classic", changes={"runner": "device", "seed": 3})
    assert planning.planned(wish).config == asked["device"].config().replace(seed=3)


def test_device_cpu_on_a_gpu_machine_gives_the_recipe_of_a_cpu(monkeypatch):
    use(monkeypatch, Here(16))
    without = recipes.untuned("auto", "pong")
    use(monkeypatch, H200)
    monkeypatch.setattr("dqnitro.planning.check_runner", lambda config: None)  # it asks torch, not `Here`
    assert (
        recipes.plan("auto", "pong", "cpu") == without
        and recipes.plan("auto", "pong", "cuda").config().runner == "hybrid"
    )
    args = make_parser().parse(["pong", "--device", "cpu"])
    assert planned(args)[0].runner == "inline" and planned(make_parser().parse(["pong"]))[0].runner == "hybrid"


def test_this_machine_is_asked_only_once_it_matters(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    here = recipes.this_machine()
    assert here.gpu is None and here.cores >= 1


def test_env_says_which_runner_and_why(monkeypatch, capsys):
    use(monkeypatch, H200)
    assert main(["env", "breakout", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["runner"] == "hybrid" and f"{ON_GPU['n_envs']} consoles" in facts["why"]
    assert facts["settings"]["batch_size"] == ON_GPU["batch_size"] and "console" in facts["uses"]
    assert main(["env", "breakout"]) == 0
    out = capsys.readouterr().out
    assert "runner hybrid" in out and f"batch_size {ON_GPU['batch_size']}" in out


# ---------- tuning the runner


def runners(monkeypatch, game: str, here: Here, why=lambda runner, config: None):
    use(monkeypatch, here)
    monkeypatch.setattr(tune, "runner_needs", why)
    monkeypatch.setattr(tune, "usable_cores", lambda: here.cores)
    knobs, why_not = tune.knobs_of(tune.choice_of("auto", game, {}))
    return {k.value: k for k in knobs if k.knob == "runner"}, {
        k: v for k, v in why_not.items() if k.startswith("runner")
    }


def test_the_other_runners_of_a_gpu_are_tried(monkeypatch):
    found, why_not = runners(monkeypatch, "pong", H200)
    assert set(found) == {"inline", "device"} and not why_not
    assert found["device"].settings == {"runner": "device"} and found["device"].promise == tune.ALIKE
    choice = tune.choice_of("auto", "pong", {})
    assert choice.turn(found["device"]).config() == choice.config().replace(runner="device")
    found, _ = runners(monkeypatch, "pong", Here(2, "GPU"))
    assert set(found) == {"inline", "hybrid"}


def test_environments_that_do_not_take_turns_are_tried(monkeypatch):
    use(monkeypatch, H200)
    choice = tune.choice_of("auto", "pong", {})
    (whole,) = (k for k in tune.knobs_of(choice)[0] if k.knob == "environment groups")
    assert whole.promise == tune.ALIKE and choice.turn(whole).config() == choice.config().replace(env_parts=1)
    # whatever else is chosen beside it
    for runner in ("inline", "device"):
        choice.turn(whole).config().replace(runner=runner)
    use(monkeypatch, Here(2))
    assert not [k for k in tune.knobs_of(tune.choice_of("auto", "pong", {}))[0] if k.knob == "environment groups"]


def test_a_runner_that_cannot_be_tried_says_why(monkeypatch):
    found, why_not = runners(monkeypatch, "pong", Here(4, "GPU", "too old"))
    assert set(found) == {"processes, slack 0", "hybrid"}
    assert f"{recipes.SMALL_ON_CPU['n_envs']} environments are too few" in why_not["runner: device"]
    found, why_not = runners(monkeypatch, "pong", Here(2), why=runner_needs)
    if not torch.cuda.is_available():
        assert set(found) == {"processes, slack 0"} and "no GPU" in why_not["runner: hybrid"]
    _, why_not = runners(monkeypatch, "CartPole-v1", Here(2), why=runner_needs)
    assert "no convolution" in why_not["runner: hybrid"] and "not an Atari game" in why_not["runner: device"]
    assert tune._blocked("auto", "runner: device", "why")["promise"] == tune.ALIKE


def test_a_runner_that_was_tuned_is_used_and_said(monkeypatch, tmp_path):
    use(monkeypatch, H200)
    monkeypatch.setenv("DQNITRO_TUNED", str(tmp_path / "tuned.json"))
    entry = {
        "rungs": ["console", "fused-adam"],
        "settings": {"runner": "device"},
        "dropped": {},
        "date": "2026-01-31",
        "torch": "0",
        "gain": "2x",
    }
    tuned.remember("auto", "pong", entry)
    plan = recipes.plan("auto", "pong")
    assert plan.config().runner == "device" and plan.config().n_envs == ON_GPU["n_envs"]
    assert plan.why.startswith("measured by `dqnitro tune` (before: 16 cores play")
    for bad in ({"runner": "processes"}, {"runner": "device", "slack_steps": 8}, {"slack_steps": 8}):
        tuned.remember("auto", "pong", entry | {"settings": bad})
        assert recipes.plan("auto", "pong").config().runner == "hybrid", bad
    tuned.remember("fast", "pong", entry)
    assert recipes.plan("fast", "pong").config().runner == "inline", "fast is the baseline's run, not one like it"


def test_an_old_gpu_is_not_asked_for_what_it_cannot_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = recipes.baseline("pong").replace(device="cuda")
    for capability, bfloat16, compile_ in (((6, 1), True, True), ((7, 5), True, False), ((9, 0), False, False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None, c=capability: c)
        assert bool(needs_bfloat16(config)) is bfloat16
        assert ("7.0 or newer" in (needs_compiler(config) or "")) is compile_


def test_few_cores_learn_with_one_thread_each_unless_told_otherwise(monkeypatch):
    use(monkeypatch, Here(2))
    monkeypatch.setattr("dqnitro.common.host.usable_cores", lambda: 2)
    for name in ("fast", "auto"):
        plan = recipes.untuned(name, "pong")
        wanted = (*recipes.FEW_CORES_RUNGS, *recipes.LARGE_LAYER_RUNGS * (name == "fast"))
        possible = tuple(n for n in wanted if n not in plan.left_out)
        assert possible and plan.rungs[-len(possible) :] == possible
        if "side-by-side" in plan.rungs:
            assert plan.config().torch_threads == 1 and "fused-adam" not in plan.config().wrappers
            assert replace(plan, base=plan.base.replace(torch_threads=3)).config().torch_threads == 3
    monkeypatch.setattr("dqnitro.common.host.usable_cores", lambda: 16)
    assert not set(recipes.FEW_CORES_RUNGS) & set(recipes.untuned("fast", "pong").rungs)


@pytest.mark.parametrize(
    "head",
    ["--double --dueling --categorical", "--double --dueling --categorical --prioritized", "--dueling --quantiles 64",
     "--dueling --quantiles 64 --munchausen", "--dueling --munchausen"],
)  # fmt: skip
def test_classic_on_a_gpu_takes_other_heads_and_targets_with_own_kernels(head, monkeypatch):
    for name in recipes.ON_GPU_RUNGS:
        monkeypatch.setitem(RUNGS, name, replace(RUNGS[name], needs=lambda c: None))
    use(monkeypatch, H200)
    monkeypatch.setattr("dqnitro.planning.check_runner", lambda config: None)  # it asks torch, not `Here`
    monkeypatch.setattr("dqnitro.requirements.needs_triton", lambda c: None)
    line = f"battle_zone --recipe classic --runner device --n-step 3 --batch-size 512 {head}"
    config, *_ = planned(make_parser().parse(line.split()))
    assert config.wrappers == ("no-grad", "fused-adam", "channels-last", "bfloat16", "own-kernels")
    assert config.runner == "device" and config.dueling and config.batch_size / config.steps_per_update == 8


def test_what_took_a_rungs_place_can_be_put_off_and_on(monkeypatch):
    monkeypatch.setitem(RUNGS, "own-kernels", replace(RUNGS["own-kernels"], needs=lambda c: None))
    for name in ("compile", "bfloat16"):
        monkeypatch.setitem(RUNGS, name, replace(RUNGS[name], needs=lambda c: None))
    plan = recipes._plan_if_possible("auto", Config(runner="hybrid"), ("bfloat16", "compile", "own-kernels"))
    assert plan.rungs == ("bfloat16", "own-kernels")
    assert plan.climbed(without=("own-kernels",)) == ("bfloat16", "compile")
    assert plan.climbed(also=("compile",)) == ("bfloat16", "compile"), "the one that is named stays"
    assert "compile" not in plan.config(without=("own-kernels", "compile")).wrappers
    with pytest.raises(ConfigError, match="--without compile: recipe auto does not use it"):
        plan.config(without=("compile",))


def test_on_a_gpu_games_other_than_pong_learn_distributions_and_notice_when_they_idle():
    large, little = (recipes.Here(16, "NVIDIA H200", None, gib) for gib in (139.0, 8.0))
    pong, other, small = (
        recipes._auto(game, here).base for game, here in (("pong", large), ("breakout", large), ("breakout", little))
    )
    assert {k: getattr(pong, k) for k in recipes.ON_GPU} == recipes.ON_GPU and not pong.idle_frames
    assert {k: getattr(other, k) for k in recipes.UNSEEN_ON_GPU} == recipes.UNSEEN_ON_GPU
    assert other.quantiles and other.munchausen and other.idle_frames == recipes.IDLE_FRAMES
    assert small == other.replace(replay_capacity=recipes.SMALL_GPU_REPLAY)
