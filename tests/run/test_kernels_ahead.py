"""The kernels of an update, compiled while the console is compiled."""

import types

import pytest
import torch

from dqnitro.atari.jit import compile_early
from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.run.gpu import kernels_ahead
from dqnitro.run.gpu.kernels_ahead import blank_groups, gpu_meanwhile, with_small_ring

KERNELS = Config(
    env_id="pong", envs="console", n_envs=64, device="cuda", runner="hybrid", wrappers=("bfloat16", "own-kernels")
)
GPU = torch.device("cuda")


class Agent:
    """Says which passes it was asked to compile."""

    def __init__(self, config, groups):
        self.config, self.groups, self.compiled = config, groups, []
        self.update = types.SimpleNamespace(compile_for=self.compiled.append)

    def all_passes(self): ...


def test_the_console_is_not_needed_for_its_shapes():
    groups = blank_groups(KERNELS)
    envs = make_envs(Config(env_id="pong", envs="wrappers"))
    envs.close()
    assert groups.spec.n_envs == 64 and groups.n_each == 32
    assert groups.spec.obs_shape == envs.spec.obs_shape and groups.spec.n_actions == envs.spec.n_actions
    assert groups.reset().shape == (64, 4, 84, 84)


@pytest.mark.parametrize("capacity", [100_000, 1_000_000, 64 * 40, 64 * 1_568])
def test_a_small_ring_wants_the_same_kernels(capacity):
    slots = capacity // 64
    small = with_small_ring(KERNELS.replace(replay_capacity=capacity, first_fill_steps=500)).replay_capacity // 64
    assert small <= min(slots, 80) and (small % 16 == 0) == (slots % 16 == 0) and small >= 32


def test_they_are_compiled_beside_the_block(monkeypatch):
    monkeypatch.setattr(compile_early, "under_way", lambda: True)
    made = []

    def make(config, groups):
        made.append(Agent(config, groups))
        return made[-1]

    with gpu_meanwhile(KERNELS, GPU, make):
        pass
    (agent,) = made
    assert agent.compiled == [agent.all_passes]


def test_a_failure_is_left_to_who_reports_it(monkeypatch):
    monkeypatch.setattr(compile_early, "under_way", lambda: True)
    asked = []

    def fail(config, groups):
        asked.append(config)
        raise RuntimeError("no memory")

    with gpu_meanwhile(KERNELS, GPU, fail):
        pass
    assert asked


@pytest.mark.parametrize(
    ("config", "compiling", "triton"),
    [(KERNELS, False, True), (KERNELS.replace(wrappers=("no-grad",)), True, False)],
    ids=["nothing to wait for", "no kernels"],
)
def test_otherwise_the_gpu_is_only_woken(config, compiling, triton, monkeypatch):
    woken = []
    monkeypatch.setattr(compile_early, "under_way", lambda: compiling)
    monkeypatch.setattr(kernels_ahead, "compile_kernels", lambda *a: pytest.fail("begun"))
    monkeypatch.setattr(kernels_ahead, "wake", lambda *a: woken.append(a))
    with gpu_meanwhile(config, GPU, Agent):
        pass
    assert woken == [(GPU, triton)]


def test_without_a_gpu_there_is_nothing_to_prepare(monkeypatch):
    monkeypatch.setattr(kernels_ahead, "_try", lambda *a: pytest.fail("begun"))
    with gpu_meanwhile(KERNELS, torch.device("cpu"), Agent):
        pass
    kernels_ahead.wake(torch.device("cpu"), False)
