"""Kernels of our own on a card: the checks that run without one, in bfloat16, and whole runs beside the plain learner's."""

import pytest
import torch

import own_kernels_checks as checks

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def plain_float32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("kind", checks.KINDS)
def test_gradients_are_autograds(kind):
    checks.check_gradients(kind, "cuda", torch.bfloat16, 0.98, batch=48)


@pytest.mark.parametrize("actions", [5, 18])
@pytest.mark.parametrize("kind", checks.KINDS)
def test_updates_learn_the_same(kind, actions, monkeypatch):
    monkeypatch.setattr(checks, "ACTIONS", actions)
    checks.check_updates(kind, "cuda", torch.bfloat16, 0.2, batch=48)


def test_looking_and_acting():
    checks.check_looking_and_acting("cuda", torch.bfloat16, 5e-3)


def test_copies():
    checks.check_copies("cuda", torch.bfloat16)


def test_hybrid_acts_on_what_its_environments_show():
    """Our kernels act on the frames in the ring, the plain pass on the stacks beside it."""
    from dqnitro.config import Config
    from dqnitro.run.hybrid import make

    config = Config(
        env_id="breakout", envs="console", n_envs=16, runner="hybrid", device="cuda", replay_capacity=16 * 100, first_fill_steps=200,
        batch_size=32, steps_per_update=16.0, max_episode_frames=200, epsilon_start=0.5,
        wrappers=("no-grad", "fused-adam", "bfloat16", "own-kernels"),
    )  # fmt: skip
    agent, ticks = make(config)
    try:
        for _ in range(60):
            next(ticks)
            agent.ring.see(agent.player.obs[:, -1], agent.age)  # as `choose` begins
            plain = agent._act(agent.learner.online, agent.player.obs).squeeze(-1)
            torch.testing.assert_close(agent.values(), plain.float(), rtol=0, atol=1e-2)
        assert agent.clock.updates > 20
    finally:
        agent.close()
