"""A learning rate that falls over a run, beside torch's own scheduler."""

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import ConfigError
from dqnitro.learn.learner import Learner
from dqnitro.learn.rate import Rate, set_rate

SPEC = EnvSpec(3, 4, (5,), np.dtype(np.float32), 1, 1, False)
CONFIG = Config(
    env_id="CartPole-v1", batch_size=8, hidden_units=16, frame_stack=1, seed=3, steps_per_update=2.0,
    learning_rate=1e-2, learning_rate_end=1e-3, learning_rate_decay_steps=8,
)  # fmt: skip
WRAPPERS = [("no-grad",), ("no-grad", "one-pass-adam"), ("no-grad", "few-calls"), ("no-grad", "fused-adam")]


def batch(seed: int) -> Batch:
    rng = np.random.default_rng(seed)
    n, floats = CONFIG.batch_size, np.float32
    arrays = (
        rng.normal(0, 1, (n, 5)).astype(floats), rng.integers(0, 4, n), rng.normal(0, 2, n).astype(floats),
        rng.choice([0.0, 0.9], n).astype(floats), rng.normal(0, 1, (n, 5)).astype(floats), np.ones(n, floats),
    )  # fmt: skip
    return Batch(*map(torch.from_numpy, arrays))


def test_the_rate_falls_linearly_and_then_stays():
    rate = Rate.of(CONFIG)
    assert [rate.at(u) for u in (0, 1, 2, 4, 5, 1000)] == pytest.approx([1e-2, 7.75e-3, 5.5e-3, 1e-3, 1e-3, 1e-3])
    updates = torch.tensor([0.0, 1, 2, 4, 5, 1000])
    torch.testing.assert_close(rate.at_tensor(updates), torch.tensor([rate.at(float(u)) for u in updates]))


def test_without_a_decay_it_stays():
    rate = Rate.of(CONFIG.replace(learning_rate_end=0.0, learning_rate_decay_steps=0))
    assert rate.per_update == 0 and rate.at(10**9) == 1e-2


def scheduled() -> Learner:
    """The reference implementation: torch's optimiser and torch's scheduler."""
    learner = Learner(CONFIG.replace(learning_rate_end=0.0, learning_rate_decay_steps=0), SPEC, "cpu")
    schedule = torch.optim.lr_scheduler.LinearLR(learner.optimizer, 1.0, 0.1, total_iters=4)
    for i in range(7):
        learner.update(batch(i))
        schedule.step()
    return learner


@pytest.mark.parametrize("wrappers", WRAPPERS)
def test_learners_follow_it_as_with_torchs_scheduler(wrappers):
    slow, fast = scheduled(), Learner(CONFIG.replace(wrappers=wrappers), SPEC, "cpu")
    for i in range(7):
        fast.update(batch(i))
    still = Learner(CONFIG.replace(learning_rate_end=0.0, learning_rate_decay_steps=0), SPEC, "cpu")
    for i in range(7):
        still.update(batch(i))
    pairs = zip(slow.online.parameters(), fast.online.parameters(), still.online.parameters(), strict=True)
    for p, q, r in pairs:
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-5)
        assert (p - r).abs().max() > 1e-3, "the rate made a difference"


@pytest.mark.parametrize("wrappers", WRAPPERS)
def test_a_resumed_learner_goes_on_with_the_rate_that_it_had(wrappers):
    config = CONFIG.replace(wrappers=wrappers)
    whole, resumed = Learner(config, SPEC, "cpu"), Learner(config.replace(seed=9), SPEC, "cpu")
    for i in range(6):
        if i == 2:
            resumed.set_state(whole.get_state())
        whole.update(batch(i))
        if i >= 2:
            resumed.update(batch(i))
    for p, q in zip(whole.online.parameters(), resumed.online.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_rate_that_a_graph_holds_is_written_in_place():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([p], lr=1e-2, foreach=True)
    optimizer.param_groups[0]["capturable"] = True  # as on a GPU, where the count is a tensor beside the parameters
    set_rate(optimizer, Rate(1e-2, 1e-3, 0.25))
    held = optimizer.param_groups[0]["lr"]
    assert float(held) == pytest.approx(1e-2)
    optimizer.state[p]["step"] = torch.tensor(2.0)
    set_rate(optimizer, Rate(1e-2, 1e-3, 0.25))
    assert optimizer.param_groups[0]["lr"] is held and float(held) == pytest.approx(5.5e-3)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"learning_rate_decay_steps": 0}, "learning_rate_end 0.001 needs learning_rate_decay_steps, which is 0"),
        ({"optimizer": "mine:make"}, "learning_rate_decay_steps is for adam"),
    ],
)
def test_a_decay_that_cannot_be_is_refused_in_one_line(changes, what):
    with pytest.raises(ConfigError, match=what):
        CONFIG.replace(**changes)
