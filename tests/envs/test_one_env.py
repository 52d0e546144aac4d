"""Videos and agents of a run make one environment, however many the run has and whoever plays and learns."""

import pytest

from dqnitro.config import Config
from dqnitro.envs import make_watched_envs

RUNS = {
    "inline": {},
    "processes": {"runner": "processes", "slack_steps": 8},
    "players": {"runner": "cluster", "players": 4, "slack_steps": 8},
    "players that change": {"runner": "cluster", "players": 2, "most_players": 4, "player_changes": "8:4"},
    "groups": {"runner": "hybrid", "env_parts": 4},
    "replicas": {"runner": "device", "gpus": 4},
    "replicas of groups": {"runner": "hybrid", "gpus": 2, "env_parts": 2},
}


@pytest.mark.parametrize("name", RUNS)
def test_one_environment_of_any_run_can_be_watched(name):
    config = Config(env_id="pong", noop_max=0, n_envs=8, batch_size=32, **RUNS[name])
    frames = []
    envs, _ = make_watched_envs(config, frames.append)
    try:
        assert len(envs.reset()) == 1 and envs.spec.n_envs == 1 and frames
    finally:
        envs.close()
