"""One learner on several ranks, here as threads on the CPU, beside one process with all shards."""

from __future__ import annotations

import itertools

import pytest
import torch

from dqnitro.learn import averaging
from dqnitro.learn.ring_update import TorchUpdate
from dqnitro.run.gpu.device import DeviceAgent, Graphs, ticks
from dqnitro.run.gpu.share import config_of
from support.fakes_device import Catch, config
from support.replicas_reference import AllShards, ThreadRanks, in_threads

N_ENVS = 8


def several(gpus: int, **changes):
    base = {"n_envs": N_ENVS, "steps_per_update": 16.0, "target_sync_steps": 120, "first_fill_steps": 60}
    return config(**base | {"batch_size": 16} | changes).replace(runner="device", gpus=gpus)


@pytest.fixture(autouse=True)
def one_thread_each():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(c, rank, ranks) -> DeviceAgent:
    return DeviceAgent(c, torch.device("cpu"), Catch(c.n_envs, rank * c.n_envs), ranks)


def run_ranks(c, n_ticks: int) -> list[tuple[DeviceAgent, list]]:
    ranks = ThreadRanks.make(c.gpus)
    agents = [make(config_of(c), rank, ranks[rank]) for rank in range(c.gpus)]
    runs = [ticks(a, Graphs(a)) for a in agents]
    seen = in_threads(lambda rank: list(itertools.islice(runs[rank], n_ticks)), c.gpus)
    return list(zip(agents, seen, strict=True))


def weights(learner) -> list[torch.Tensor]:
    return [p.detach() for network in (learner.online, learner.target) for p in network.parameters()]


@pytest.mark.parametrize(
    ("gpus", "changes"), [(2, {}), (4, {"grad_clip": 0.5}), (2, {"double": True, "n_step": 2})], ids=str
)
def test_ranks_end_with_the_weights_of_one_process_with_all_shards(gpus, changes, monkeypatch):
    """Bit for bit: on a CPU both add in the order of the ranks."""
    monkeypatch.setattr(averaging, "MOST_BYTES", 20_000)
    c = several(gpus, **changes)
    n = 5
    runs = run_ranks(c, n)
    update = runs[0][0].update
    assert isinstance(update, TorchUpdate) and isinstance(update.step, averaging.AveragedStep)
    assert len(update.step.buckets) > 2
    twin = AllShards(c, make)
    begun = [w.clone() for w in weights(twin.learner)]
    for _ in range(n):
        twin.tick()
    for agent, seen in runs:
        assert all(torch.equal(x, y) for x, y in zip(weights(agent.learner), weights(twin.learner), strict=True))
        assert seen[-1].steps == twin.steps and seen[-1].updates == len(twin.losses) > 20
        assert float(seen[-1].loss) == pytest.approx(twin.losses[-1], rel=1e-6)
    assert [t[:3] for t in runs[0][1]] == [t[:3] for t in runs[1][1]]
    assert not any(torch.equal(x, y) for x, y in zip(weights(twin.learner), begun, strict=True))
    assert {end.env for _, seen in runs for t in seen for end in t.ends}  # games ended everywhere


def test_ranks_end_close_to_one_learner_with_the_whole_batch():
    """The same samples in one batch: the gradient of a mean, not the mean of gradients."""
    c = several(2)
    twin = AllShards(c, make, whole=True)
    for _ in range(6):
        twin.tick()
    (agent, seen), _ = run_ranks(c, 6)
    for x, y in zip(weights(agent.learner), weights(twin.learner), strict=True):
        assert torch.allclose(x, y, rtol=0, atol=2e-4), float((x - y).abs().max())
    assert seen[-1].updates == len(twin.losses) > 20
