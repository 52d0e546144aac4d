"""Fresh games with the network on the GPU."""

import numpy as np
import pytest

from dqnitro import play
from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.session import train

pytestmark = pytest.mark.gpu


def test_scores_of_a_network_on_the_gpu(tmp_path, monkeypatch):
    """It plays 32 games at a time there, and picks what it picks on a CPU."""
    config = Config(
        env_id="breakout", envs="console", n_envs=16, runner="hybrid", device="cuda", replay_capacity=16 * 100,
        first_fill_steps=200, max_steps=2_000, max_episode_frames=400, wrappers=("no-grad", "fused-adam", "bfloat16"),
    )  # fmt: skip
    train(config, tmp_path / "run")
    envs = make_envs(config)
    weights = play.weights_file(tmp_path / "run")
    here = play.Policy(*play.load_network(weights, config, envs.spec), envs.spec.n_actions, 0.0, 0)
    envs.close()
    devices, batches = [], []

    class Watched(play.Policy):
        def __init__(self, *arguments):
            devices.append(arguments[-1])
            super().__init__(*arguments)

        def __call__(self, obs):
            actions = super().__call__(obs)
            batches.append((len(obs), float(np.mean(actions == here(obs)))))
            return actions

    monkeypatch.setattr(play, "Policy", Watched)
    scored = play.score(tmp_path / "run", 40, epsilon=0.0)
    assert len(scored.scores) == 40 and devices == ["cuda", "cuda"], "32 games, then 8"
    assert batches[0][0] == 32 and batches[-1][0] <= 8, "only environments whose game goes on are asked for"
    assert np.mean([same for _, same in batches]) > 0.9
