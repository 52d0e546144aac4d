"""Every rung keeps its promise: `exact` bit for bit, `close` within tolerance and unbiased, `learning` differs."""

import functools
from typing import Any

import numpy as np
import pytest
import torch

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.ladder import RUNGS
from dqnitro.session import train
from support.fakes_player import in_threads

UPDATES = 24
# Adam turns the sign of a tiny gradient into a whole step, so rounding can change a parameter by up to
# UPDATES * learning_rate. Therefore the Q-values of real observations are compared. bfloat16 has 8 bits of mantissa.
TOLERANCE = {
    "fused-adam": 1e-4,
    "channels-last": 1e-4,
    "compile": 1e-4,
    "bfloat16": 1e-2,
    "written-out": 1e-2,
    "distinct-patches": 1e-2,
    "one-pass-adam": 1e-4,
    "side-by-side": 1e-4,
    "split-network": 1e-2,  # with written-out, which it brings along
    "one-pass-acting": 1e-4,
    "few-calls": 1e-4,
    "float16": 1e-2,
    "cuda-graphs": 1e-4,
    "play-on-cpu": 1e-4,
    "play-on-second-gpu": 1e-4,
    "own-kernels": 1e-2,
}
ON_GPU = (
    "pinned-copies",
    "play-on-cpu",
    "play-on-second-gpu",
    "float16",
    "cuda-graphs",
    "gpu-replay",
    "play-on-second-gpu-every-4",
    "play-on-second-gpu-every-10",
    "hybrid",
    "all-on-gpu",
    "own-kernels",
)  # promised for a learner on a GPU
ALSO_ON_CPU = ("gpu-replay",)  # of those, what is the same there, too, and only of no use
VECTORS = {"few-calls": "CartPole-v1"}  # rungs for environments that show no images
NO_GPU = "torch finds no GPU on this machine"
# Learning rungs only have to change the run, for which a small batch and a small layer are enough.
SMALL = {"batch_size": 8, "hidden_units": 32, "first_fill_steps": 50, "max_steps": 62}
# Pong has no lives, and clipping does not change its rewards. Double DQN differs only if the two networks disagree.
OTHERWISE = {
    "hybrid": {"max_steps": 1_000, "envs": "console", "replay": "frames"},  # 64 consoles
    "all-on-gpu": {"max_steps": 4_000},  # 256 consoles: 16 vector steps
    "own-kernels": {
        "runner": "hybrid",
        "envs": "console",
        "replay": "frames",
        "wrappers": ("no-grad", "fused-adam", "bfloat16"),
    },
    # Acting on older weights matters only if the network acts at all and its weights change quickly.
    "processes": {"epsilon_start": 0.02, "learning_rate": 1e-3, "max_steps": 74},
    "double": {"batch_size": 32, "hidden_units": 128, "max_steps": 74},
    "no-episodic-life": {"env_id": "breakout", "episodic_life": True},
    # The first dot is eaten after 65 steps.
    "no-clipping": {"env_id": "ms_pacman", "first_fill_steps": 80, "max_steps": 104},
}


def base(name: str | None = None, device: str = "cpu") -> Config:
    """The config that the rung is applied to."""
    config = recipes.baseline(VECTORS.get(name or "", "pong"))
    config = config.replace(
        first_fill_steps=80, max_steps=80 + UPDATES, replay_capacity=95, target_sync_steps=7, seed=5
    )
    if device != "cpu":
        return config.replace(device=device, **OTHERWISE.get(name or "", {}))
    if name is not None and RUNGS[name].promise == "learning":
        return config.replace(**{**SMALL, **OTHERWISE.get(name, {})})
    return config


@functools.cache
def trained(config: Config):
    return train(config)


def without(name: str, device: str = "cpu"):
    return trained(base(name, device))


def run(name: str, device: str = "cpu"):
    return trained(RUNGS[name].apply(base(name, device)))


def here(name: str, device: str = "cpu") -> None:
    why = NO_GPU if device == "cuda" and not torch.cuda.is_available() else RUNGS[name].needs(base(name, device))
    if device == "cpu" and name in ALSO_ON_CPU:
        why = None
    if why:
        pytest.skip(f"{name} cannot run here: {why}")


@pytest.fixture(autouse=True)
def same_kernels(monkeypatch):
    """cuDNN may sum gradients in any order and in TF32; the promise is only about the rung."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    in_threads(monkeypatch)  # tests/run/ has the real processes


def kept(promise: str) -> list[Any]:
    """Rungs and the devices to test them on: the CPU, and a GPU for those that promise the same function there."""
    names = [r.name for r in RUNGS.values() if r.promise == promise]
    long = {"compile": [pytest.mark.long]}  # half a minute of a C++ compiler
    on_cpu = [pytest.param(n, "cpu", id=n, marks=long.get(n, [])) for n in names if n not in ON_GPU or n in ALSO_ON_CPU]
    on_gpu = [n for n in names if n in ON_GPU or promise != "learning"]
    return on_cpu + [pytest.param(n, "cuda", id=f"{n}-on-gpu", marks=pytest.mark.gpu) for n in on_gpu]


def values(result, name: str, n: int = 64) -> np.ndarray:
    """Q-values of the trained network, in plain float32, on observations of the run itself."""
    replay = trained(base(name if name in VECTORS else None)).agent.replay
    obs = replay.sample(n, np.random.default_rng(0), 1.0).batch.obs_tm1
    with torch.no_grad():
        return result.agent.learner.online(obs.contiguous().to(result.agent.learner.device)).squeeze(-1).cpu().numpy()


@pytest.mark.parametrize(("name", "device"), kept("exact"))
def test_exact_rungs_end_with_the_same_parameters(name, device):
    here(name, device)
    a, b = without(name, device), run(name, device)
    assert a.config != b.config, "the rung changed nothing"
    assert a.updates == b.updates == UPDATES
    pairs = zip(a.agent.learner.online.parameters(), b.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize(("name", "device"), kept("close"))
def test_close_rungs_learn_the_same_function_but_for_rounding(name, device):
    here(name, device)
    a, b = without(name, device), run(name, device)
    assert a.config != b.config, "the rung changed nothing"
    assert a.updates == b.updates == UPDATES
    before = values(trained(base(name, device).replace(max_steps=1)), name)
    va, vb = values(a, name), values(b, name)
    moved = np.abs(va - before).max()
    assert moved > 5 * TOLERANCE[name], "nothing was learned: a comparison would prove nothing"
    assert np.abs(va - vb).max() <= TOLERANCE[name]
    assert abs((va - vb).mean()) <= TOLERANCE[name] / 3  # rounding, not bias


@pytest.mark.parametrize(("name", "device"), kept("learning"))
def test_learning_rungs_change_the_run_and_still_learn(name, device):
    here(name, device)
    a, b = without(name, device), run(name, device)
    assert a.config != b.config
    assert b.updates > 0 and b.steps >= a.steps
    pairs = zip(a.agent.learner.online.parameters(), b.agent.learner.online.parameters(), strict=True)
    assert not all(torch.equal(x, y) for x, y in pairs)


def test_processes_keep_the_ratio_of_steps_to_updates_and_are_exact_without_slack():
    """The rung promises less only because its slack makes the acting weights older."""
    here("processes")
    a, b = without("processes"), run("processes")
    assert (a.steps, a.updates) == (b.steps, b.updates) and b.config.slack_steps > 0
    exact = train(b.config.replace(slack_steps=0))
    pairs = zip(a.agent.learner.online.parameters(), exact.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)
