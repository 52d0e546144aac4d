"""The baseline recipe is the textbook DQN: same parameters, bit for bit."""

import pytest
import torch

from dqnitro import recipes, reference
from dqnitro.config import Config
from dqnitro.envs.atari import make_atari_env
from dqnitro.envs.serial import SeededGames
from dqnitro.session import train

STEPS, FILL, SYNC = 1000, 950, 10


@pytest.fixture(scope="module")
def book():
    """1,000 steps of Pong: the first game ends (about step 800), the replay overflows, the target is synced."""
    env = SeededGames(make_atari_env("pong", Config(), clip_rewards=True), run_seed=3, index=0)
    return list(reference.train(env, 3, STEPS, FILL, replay_size=FILL, sync_every=SYNC).parameters())


def baseline(**changes):
    config = recipes.baseline("pong").replace(
        seed=3, max_steps=STEPS, first_fill_steps=FILL, replay_capacity=FILL, target_sync_steps=SYNC, **changes
    )
    return train(config)


def test_the_baseline_ends_with_the_textbooks_parameters(book):
    result = baseline()
    assert result.updates == STEPS - FILL and result.games >= 1
    ours = list(result.agent.learner.online.parameters())
    assert [p.shape for p in ours] == [p.shape for p in book]
    assert all(torch.equal(a, b) for a, b in zip(ours, book, strict=True))


def test_a_slightly_different_run_ends_elsewhere(book):
    """The comparison can fail: one setting off, and the parameters differ."""
    ours = baseline(gamma=0.98).agent.learner.online.parameters()
    assert not all(torch.equal(a, b) for a, b in zip(ours, book, strict=True))
