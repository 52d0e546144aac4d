"""`gpu-replay` is the run without it, bit for bit: on a CPU, and with a GPU's own path through updates and choices.

What differs on a GPU are page-locked memory, events and graphs. Here recordings repeat the function on the same memory,
and the event is a stand-in that notes what came before the wait.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError, DivergedError
from dqnitro.ladder import RUNGS
from dqnitro.learn.gpu.cuda_graphs import WARM_CALLS, Recorded
from dqnitro.learn.transforms import TRANSFORMS
from dqnitro.run import make_run
from support import fakes_envs
from support.fakes_graphs import StandIn

fakes_envs.register()
CONFIG = Config(
    env_id="dqnitro_test/Corridor-v0", envs="gym-sync", n_envs=3, frame_stack=1, hidden_units=16, batch_size=8,
    first_fill_steps=20, replay_capacity=120, target_sync_steps=10, epsilon_start=0.5, epsilon_end=0.3,
    torch_threads=1, steps_per_update=2.0, wrappers=("no-grad", "fused-adam"),
)  # fmt: skip


def with_it(config: Config) -> Config:
    return RUNGS["gpu-replay"].apply(config)


def parameters(agent):
    return [p.detach().clone() for p in agent.learner.online.parameters()]


class NotedMark:
    """Notes the order of what happens on a GPU's side of the host."""

    def __init__(self, notes):
        self.notes = notes

    def set(self):
        self.notes.append("asked")

    def wait(self):
        self.notes.append("waited")


@pytest.fixture
def like_on_a_gpu(monkeypatch):
    """Makes runs whose updates and choices are those of a GPU, on the CPU."""
    found = TRANSFORMS["gpu-replay"]

    def apply(parts, device):
        return replace(found.apply(parts, device), record=lambda f: Recorded(f, StandIn))

    monkeypatch.setitem(TRANSFORMS, "gpu-replay", replace(found, apply=apply))

    def make(config):
        agent, ticks = make_run(with_it(config))
        notes = []
        agent.learner._is_cpu = False
        agent.learner.actor._done = NotedMark(notes)
        update = agent.learner.update
        agent.learner.update = lambda batch: (notes.append("learned"), update(batch))[1]
        return agent, ticks, notes

    return make


@pytest.mark.parametrize("changes", [{}, {"n_envs": 1, "steps_per_update": 0.5, "n_step": 3}, {"double": True}])
def test_it_ends_with_the_parameters_of_the_run_without_it(changes):
    config = CONFIG.replace(**changes)
    (one, ticks), (two, others) = make_run(config), make_run(with_it(config))
    a, b = ([next(t) for _ in range(60)] for t in (ticks, others))
    assert [(t.steps, t.updates, t.ends) for t in a] == [(t.steps, t.updates, t.ends) for t in b]
    assert [t.loss is None or t.loss.item() for t in a] == [t.loss is None or t.loss.item() for t in b]
    assert one.clock.updates > 20
    assert all(torch.equal(x, y) for x, y in zip(parameters(one), parameters(two), strict=True))
    assert one.rng_act.random() == two.rng_act.random() and one.rng_replay.random() == two.rng_replay.random()


@pytest.mark.parametrize("changes", [{}, {"n_envs": 1, "steps_per_update": 0.5, "n_step": 3}, {"double": True}])
def test_the_path_of_a_gpu_ends_with_them_too(changes, like_on_a_gpu):
    config = CONFIG.replace(**changes)
    one, ticks = make_run(config)
    two, others, notes = like_on_a_gpu(config)
    a, b = ([next(t) for _ in range(60)] for t in (ticks, others))
    assert [(t.steps, t.updates, t.ends) for t in a] == [(t.steps, t.updates, t.ends) for t in b]
    assert [t.loss is None or t.loss.item() for t in a] == [t.loss is None or t.loss.item() for t in b], "kept losses"
    assert all(torch.equal(x, y) for x, y in zip(parameters(one), parameters(two), strict=True))
    placed = two.learner._placed
    assert placed._run.n_replays == two.clock.updates - WARM_CALLS > 20 and int(placed.good) == two.clock.updates
    assert "asked,learned,waited" in ",".join(notes).replace("learned,learned", "learned"), (
        "the host starts the updates that are owed before it waits for the actions"
    )


@pytest.mark.parametrize("gpu", [False, True])
def test_a_state_goes_on_bit_for_bit_with_it_and_without(gpu, like_on_a_gpu):
    def made(config):
        return like_on_a_gpu(config)[:2] if gpu else make_run(with_it(config))

    one, ticks = made(CONFIG)
    for _ in range(30):
        next(ticks)
    arrays, record = one.get_state()
    arrays = {group: {k: np.asarray(v).copy() for k, v in values.items()} for group, values in arrays.items()}
    went_on = [next(ticks) for _ in range(30)]
    for other, others in (made(CONFIG), make_run(CONFIG)):
        other.set_state(arrays, record)
        again = [next(others) for _ in range(30)]
        assert [(t.steps, t.updates, t.ends) for t in went_on] == [(t.steps, t.updates, t.ends) for t in again]
        assert all(torch.equal(x, y) for x, y in zip(parameters(one), parameters(other), strict=True))


def test_the_first_bad_update_is_known_by_its_number(like_on_a_gpu):
    agent, ticks, _ = like_on_a_gpu(CONFIG)
    while next(ticks).updates < 8:
        pass
    agent.learner.check_finite()
    with torch.no_grad():
        next(agent.learner.online.parameters()).fill_(float("nan"))
    done = agent.clock.updates
    while next(ticks).updates < done + 5:
        pass
    with pytest.raises(DivergedError, match=f"update {done + 1}"):
        agent.learner.check_finite()
    agent.learner._placed.restart(3)
    agent.learner.n_updates = 3
    agent.learner.check_finite()


def test_on_a_cpu_a_loss_that_is_not_finite_is_noticed_at_once():
    agent, ticks = make_run(with_it(CONFIG))
    while next(ticks).updates < 8:
        pass
    with torch.no_grad():
        next(agent.learner.online.parameters()).fill_(float("nan"))
    with pytest.raises(DivergedError):
        list(itertools.islice(ticks, 3))


def test_settings_that_it_does_not_support_are_refused():
    for changes, why in (
        ({"prioritized": True}, "priorities are kept on the host"),
        ({"noisy_sigma": 0.5}, "its passes draw no random numbers"),
        ({"replay_device": "cuda", "device": "cpu"}, "the replay has to be where the learner is"),
    ):
        with pytest.raises(ConfigError, match=why):
            make_run(with_it(CONFIG).replace(**changes))
