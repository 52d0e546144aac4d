"""Fresh games with the network on the card."""

import numpy as np
import pytest

from dqnitro import play
from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.session import train

pytestmark = pytest.mark.gpu


def test_scores_of_a_network_on_the_card(tmp_path, monkeypatch):
    """It plays 32 games at a time there, and picks what it picks on a CPU."""
    config = Config(
        env_id="breakout", envs="console", n_envs=16, runner="hybrid", device="cuda", replay_capacity=16 * 100,
        first_fill_steps=200, max_steps=2_000, max_episode_frames=400, wrappers=("no-grad", "fused-adam", "bfloat16"),
    )  # fmt: skip
    train(config, tmp_path / "run")
    made = []

    class Watched(play.Policy):
        def __init__(self, network, atoms, n_actions, epsilon, seed, device):
            made.append(device)
            super().__init__(network, atoms, n_actions, epsilon, seed, device)

        def __call__(self, obs):
            network, atoms = play.load_network(tmp_path / "run", config, spec)
            there, here = super().__call__(obs), play.Policy(network, atoms, self._n_actions, 0.0, 0)(obs)
            made.append((len(obs), float(np.mean(there == here))))
            return there

    monkeypatch.setattr(play, "Policy", Watched)
    envs = make_envs(config)
    spec = envs.spec
    envs.close()
    scored = play.score(tmp_path / "run", 40, epsilon=0.0)
    assert len(scored.scores) == 40 and made[0] == "cuda"
    assert {n for n, _ in made[1:]} == {32}
    assert np.mean([same for _, same in made[1:]]) > 0.9
