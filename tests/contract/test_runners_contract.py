"""What every runner promises, whoever does what where."""

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.run import RUNNERS, make_run
from support import fakes_envs
from support.fakes_hosts import in_this_process
from support.fakes_player import in_threads

fakes_envs.register()
CONFIG = Config(
    env_id="dqnitro_test/Corridor-v0", envs="gym-sync", n_envs=3, frame_stack=1, hidden_units=16, batch_size=8,
    first_fill_steps=20,
    replay_capacity=120, target_sync_steps=10, epsilon_start=0.3, torch_threads=1, checkpoint_every_s=0.0,
)  # fmt: skip
SETTINGS = {"processes": {"slack_steps": 6}, "cluster": {"slack_steps": 6, "players": 3, "chunk_vector_steps": 2}}


@pytest.fixture(params=RUNNERS)
def config(request, monkeypatch):
    in_threads(monkeypatch)  # tests/run/ has the real processes, tests/cluster/ the real Ray
    in_this_process(monkeypatch)
    config = CONFIG.replace(runner=request.param, **SETTINGS.get(request.param, {}))
    try:
        make_run(config)[0].close()
    except ConfigError as e:
        pytest.skip(f"{request.param} cannot run here: {e}")
    return config


def played(config, n):
    agent, ticks = make_run(config)
    return agent, ticks, [next(ticks) for _ in range(n)]


def weights(agent):
    return [p.detach().cpu().clone() for p in agent.learner.online.parameters()]


def test_ticks_count_steps_and_owed_updates(config):
    agent, _, ticks = played(config, 30)
    assert agent.config == config
    assert [t.steps for t in ticks] == sorted(t.steps for t in ticks) and ticks[0].steps == config.n_envs
    assert (ticks[-1].steps, ticks[-1].updates) == (agent.clock.steps, agent.clock.updates)
    assert agent.clock.updates >= agent.clock.updates_due() - config.n_envs > 10
    agent.close()
    agent.close()


def test_two_runs_of_one_config_are_equal(config):
    runs = [played(config, 30) for _ in range(2)]
    assert all(torch.equal(x, y) for x, y in zip(*(weights(r[0]) for r in runs), strict=True))
    for agent, *_ in runs:
        agent.close()


def test_a_state_taken_between_two_ticks_goes_on_in_a_fresh_agent(config):
    agent, ticks, _ = played(config, 15)
    arrays, record = agent.get_state()
    arrays = {group: {k: np.asarray(v).copy() for k, v in values.items()} for group, values in arrays.items()}
    went_on = [next(ticks) for _ in range(15)]
    other, others = make_run(config)
    other.set_state(arrays, record)
    again = [next(others) for _ in range(15)]
    assert [(t.steps, t.updates, t.ends) for t in went_on] == [(t.steps, t.updates, t.ends) for t in again]
    assert all(torch.equal(x, y) for x, y in zip(weights(agent), weights(other), strict=True))
    agent.close()
    other.close()
