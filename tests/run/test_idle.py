"""Environments that idle: noticed alike on the host and on the GPU's side, and given random actions."""

import numpy as np
import pytest
import torch

from dqnitro import dqn
from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.run import make_run
from dqnitro.run.inline import choose_actions
from support import fakes_envs

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", envs="gym-sync", frame_stack=2, screen_size=36, n_envs=4, hidden_units=16,
    first_fill_steps=40, batch_size=8, replay_capacity=4 * 200, steps_per_update=16.0, torch_threads=1,
    network="small", wrappers=("no-grad", "fused-adam"), idle_frames=4,
)  # fmt: skip


def test_an_environment_is_idle_after_so_many_frames_without_a_reward():
    envs = make_envs(CATCH)
    envs.reset()
    without, seen = np.zeros(4, int), []
    rng = np.random.default_rng(1)
    for _ in range(60):
        did = rng.integers(0, envs.spec.n_actions, 4)
        envs.send(did)
        step = envs.recv()
        without = np.where((step.reward_t != 0) | step.reset, 0, without + 1)
        assert np.array_equal(envs.idle, without >= 4)
        assert np.array_equal(envs.last_actions[~step.reset], did[~step.reset])
        seen.append(envs.idle.copy())
    assert np.any(seen) and not np.all(seen)
    state = {k: np.array(v) for k, v in envs.get_state().items()}
    other = make_envs(CATCH)
    other.set_state(state)
    assert np.array_equal(other.idle, envs.idle) and np.array_equal(other.last_actions, envs.last_actions)
    off = make_envs(CATCH.replace(idle_frames=0))
    off.set_state(state)  # a state may know more than is asked for
    assert off.idle is None and off.last_actions is None and "without_reward" not in off.get_state()
    for e in (envs, other, off):
        e.close()


def test_idle_environments_explore_and_others_do_not():
    pending = np.zeros(4, bool)
    idle = np.array([True, False, True, False])
    rng = np.random.default_rng(0)
    chosen = np.stack([choose_actions(rng, 0.0, pending, 9, lambda: np.full(4, 8), idle) for _ in range(600)])
    assert (chosen[:, ~idle] == 8).all()
    share = (chosen[:, idle] == 8).mean()
    assert share == pytest.approx(1 - dqn.IDLE_EPSILON * 8 / 9, abs=0.06)
    last = np.full(4, 3)
    held = np.stack([choose_actions(rng, 0.0, pending, 9, lambda: np.full(4, 8), idle, last) for _ in range(600)])
    assert (held[:, ~idle] == 8).all()
    assert (held[:, idle] == 3).mean() == pytest.approx(dqn.IDLE_HOLDS + (1 - dqn.IDLE_HOLDS) / 18, abs=0.03)
    assert (choose_actions(rng, 0.0, ~pending, 9, lambda: np.full(4, 8), idle, last) == 0).all(), "they reset"
    # Random numbers are drawn as without it: where nobody idles, the run stays the same.
    same = [
        choose_actions(np.random.default_rng(3), 0.3, pending, 9, lambda: np.full(4, 8), *none)
        for none in ((None, None), (np.zeros(4, bool), last))
    ]
    assert np.array_equal(*same)


def test_the_gpu_counts_as_the_environments_do():
    agent, ticks = make_run(CATCH.replace(runner="hybrid"))
    idle = held = idled = 0
    for _ in range(60):
        before = agent.groups[0].ring.last_actions().clone(), agent.idle(agent.groups[0]).clone()
        next(ticks)
        chosen = agent.groups[0].ring.last_actions()
        held += int((chosen == before[0])[before[1]].sum())
        idled += int(before[1].sum())
        mine = agent.without_reward >= agent.idle_steps
        host = agent.envs.groups[0].idle & ~agent.players[0].resetting.numpy().astype(bool)
        assert np.array_equal(mine.numpy(), host)
        chance = agent.chance_of_random(agent.groups[0])
        assert torch.equal(chance >= dqn.IDLE_EPSILON, mine | (agent.epsilon() >= dqn.IDLE_EPSILON))
        idle += int(mine.sum())
    assert idle
    assert held / idled > 0.85, "they mostly make their last action again"
    agent.close()


@pytest.mark.parametrize("runner", ["inline", "hybrid"])
def test_a_run_goes_on_where_it_was_saved(runner):
    config = CATCH.replace(runner=runner, epsilon_end=0.0, epsilon_start=0.0, epsilon_decay_steps=0)
    agent, ticks = make_run(config)
    for _ in range(33):
        next(ticks)
    arrays, record = agent.get_state()
    arrays = {group: {k: np.asarray(v).copy() for k, v in values.items()} for group, values in arrays.items()}
    went_on = [(t.steps, t.updates, t.ends) for t in (next(ticks) for _ in range(30))]
    other, others = make_run(config)
    other.set_state(arrays, record)
    assert [(t.steps, t.updates, t.ends) for t in (next(others) for _ in range(30))] == went_on
    agent.close()
    other.close()
