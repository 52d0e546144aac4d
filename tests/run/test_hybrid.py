"""The hybrid runner, here with both halves on the CPU: the GPU's tensors against what the environments showed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from dqnitro import train
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.replay.gpu_ring import space_to_depth
from dqnitro.run import make_run
from support import fakes_envs

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", envs="gym-sync", runner="hybrid", frame_stack=2, screen_size=36, n_envs=8,
    gamma=0.95,
    learning_rate=5e-4, steps_per_update=4.0, first_fill_steps=400, epsilon_decay_steps=4_000, hidden_units=64,
    n_step=3,
    batch_size=32, target_sync_steps=200, replay_capacity=8 * 300, torch_threads=1, wrappers=("no-grad", "fused-adam"),
)  # fmt: skip


def test_the_gpu_sees_what_the_environments_show():
    agent, ticks = make_run(CATCH)
    seen = []
    recv = agent.envs.recv
    agent.envs.recv = lambda k: seen.append(recv(k)) or seen[-1]
    resets = 0
    for _ in range(60):
        next(ticks)
        step = seen[-1]
        assert np.array_equal(agent.players[0].obs.numpy(), step.obs_t)
        ended = np.zeros(8, bool)
        ended[[end.env for end in step.ends]] = True
        assert np.array_equal(agent.players[0].resetting.numpy() != 0, ended)
        resets += int(step.reset.sum())
    assert resets > 8
    agent.close()


def test_the_newest_stacks_of_the_ring_are_the_observations_to_act_on():
    """`own-kernels` acts on the ring alone: through ends, resets and the ring's seam."""
    agent, ticks = make_run(CATCH.replace(replay_capacity=8 * 40, first_fill_steps=300))
    ring, envs = agent.ring, torch.arange(8)
    assert ring.deep
    for _ in range(100):  # more than twice around
        next(ticks)
        ring.see(agent.players[0].obs[:, -1], agent.age)  # as `choose` begins
        depth = space_to_depth(agent.players[0].obs)  # (8, stack, 9, 9, 16)
        expected = depth.permute(0, 1, 4, 2, 3).reshape(8, -1, 9, 9)
        assert torch.equal(ring.stacks(ring.head.expand(8), envs), expected)
    agent.close()


def test_the_ring_holds_the_decisions_and_nothing_else():
    agent, ticks = make_run(CATCH)
    steps, resets = [], []
    recv = agent.envs.recv
    agent.envs.recv = lambda k: steps.append(recv(k)) or steps[-1]
    for _ in range(50):
        next(ticks)
        resets.append(steps[-1].reset.copy())
    ring = agent.ring
    assert torch.equal(ring.valid[:50], torch.from_numpy(~np.stack(resets)))
    assert int(ring.head) == int(ring.filled) == 50
    assert int(ring.valid[:50].sum()) == agent.clock.steps
    agent.close()


def test_updates_and_syncs_are_owed_as_in_the_inline_loop():
    counts = {}
    for runner in ("inline", "hybrid"):
        agent, ticks = make_run(CATCH.replace(runner=runner, replay="frames"))
        for tick in itertools.islice(ticks, 150):
            if tick.steps >= 900:
                break
        counts[runner] = agent.clock.updates_due() - agent.clock.updates, agent.clock.owes_sync()
        assert agent.clock.updates > 50
        agent.close()
    # one tick's steps are owed until the next tick begins, in both
    assert counts["inline"] == counts["hybrid"]


def test_it_solves_catch(monkeypatch):
    monkeypatch.setattr("dqnitro.session.check_runner", lambda config: None)  # here it runs on the CPU
    quickly = {"learning_rate": 1e-3, "epsilon_decay_steps": 2_000, "batch_size": 16}
    result = train(CATCH.replace(max_steps=30_000, stop_at_score=0.8, **quickly))
    assert result.ended == "solved", f"mean score {result.mean_score} after {result.steps} steps"


def test_a_saved_run_goes_on_as_if_it_had_not_stopped():
    def weights(stop_at):
        agent, ticks = make_run(CATCH)
        for _ in range(stop_at):
            next(ticks)
        arrays, record = agent.get_state()
        agent.close()
        other, more = make_run(CATCH)
        other.set_state(arrays, record)
        for _ in range(160 - stop_at):
            next(more)
        other.close()
        return [p.detach().clone() for p in other.learner.online.parameters()]

    for x, y in zip(weights(0), weights(90), strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"env_id": "CartPole-v1"}, "needs images")],
)
def test_what_it_cannot_do_is_said_in_a_line(changes, says):
    with pytest.raises(ConfigError, match=says):
        make_run(CATCH.replace(**changes))


@pytest.mark.parametrize("double", [False, True])
def test_updates_made_together_are_the_updates_made_one_by_one(double, monkeypatch):
    """Same draws, same parameters: the target network's pass over all batches at once changes nothing."""

    def parameters(sizes):
        agent, ticks = make_run(CATCH.replace(double=double, n_envs=32, steps_per_update=4.0, replay_capacity=32 * 100))
        assert agent.together == 8 and agent.sizes(19) == [8, 8, 1, 1, 1]
        while next(ticks).steps < 390:  # nothing learned yet
            pass
        group = agent.groups[0]
        group.head.copy_(agent.ring.head), group.filled.copy_(agent.ring.filled)
        draws = [agent.ring.draw(32, 3, group.head, group.filled) for _ in range(8)]
        for size in sizes:
            taken, draws = draws[:size], draws[size:]
            monkeypatch.setattr(
                agent.ring, "draw", lambda *_, d=taken: tuple(torch.cat(x) for x in zip(*d, strict=True))
            )
            agent.learn(size)
        assert agent.report[1] == 8
        agent.close()
        return [p.detach().clone() for p in agent.learner.online.parameters()]

    together, one_by_one = parameters([8]), parameters([1] * 8)
    for a, b in zip(together, one_by_one, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_the_first_bad_update_of_a_group_is_the_one_reported():
    agent, _ = make_run(CATCH)
    agent.count_updates(torch.tensor([1.0, 2.0, 3.0]))
    assert agent.report[1:].tolist()[0] == 3 and agent.report[3] == 3.0 and agent.report[4] == -1
    agent.count_updates(torch.tensor([1.0, float("nan"), 3.0, float("inf")]))
    agent.count_updates(torch.tensor([float("nan")]))
    assert agent.report[1] == 8 and agent.report[4] == 5
    agent.close()
