"""What the GPU runners refuse to resume from: a kernel would not notice an index outside its array."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dqnitro.config import Config
from dqnitro.run import make_run
from support import fakes_envs

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", envs="gym-sync", runner="hybrid", frame_stack=2, screen_size=36, n_envs=2,
    network="small", hidden_units=8, batch_size=4, first_fill_steps=10, replay_capacity=2 * 40, steps_per_update=4.0,
    torch_threads=1, prioritized=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def saved():
    agent, ticks = make_run(CATCH)
    list(itertools.islice(ticks, 20))
    state = agent.get_state()
    agent.close()
    return state


@pytest.fixture(scope="module")
def other():
    agent, _ = make_run(CATCH)
    yield agent
    agent.close()


def with_array(state, group, name, change):
    arrays, record = state
    return {**arrays, group: {**arrays[group], name: change(np.asarray(arrays[group][name]).copy())}}, record


def test_what_was_saved_is_taken(saved, other):
    other.set_state(*saved)


@pytest.mark.parametrize(
    ("group", "name", "change"),
    [
        ("agent", "ring.head", lambda a: a + 40), ("agent", "ring.filled", lambda a: a * 0 - 1),
        ("agent", "ring.action", lambda a: a * 0 + 3), ("agent", "ring.frames", lambda a: a[None]),
        ("agent", "ring.reward", lambda a: a * np.nan), ("agent", "ring.valid", lambda a: a.astype(np.float32)),
        ("agent", "ring.age", lambda a: a[:1]), ("agent", "ring.priorities", lambda a: a - 5),
        ("agent", "age", lambda a: a * 0 - 1), ("agent", "report", lambda a: a * np.nan),
        ("agent", "obs", lambda a: a.astype(np.int64)), ("agent", "away", lambda a: a * 0 + 7),
        ("agent", "heads", lambda a: a * 0 + 10**6), ("agent", "readable", lambda a: a * 0 - 2),
        ("learner", "adam.0.step", lambda a: np.float32(a * 0 - 1)),
        ("learner", "adam.1.step", lambda a: np.float32(a * np.nan)),
    ],
)  # fmt: skip
def test_a_place_or_a_number_that_cannot_be_is_refused(saved, other, group, name, change):
    with pytest.raises(ValueError, match=r"is|has values|counts|places"):
        other.set_state(*with_array(saved, group, name, change))


@pytest.mark.parametrize(
    "parts",
    [
        {"playing": [0], "early": {}}, {"playing": [5], "early": {"5": [1, []]}},
        {"playing": [], "early": {"0": [1, []]}}, {"playing": ["x"], "early": {}},
    ],
)  # fmt: skip
def test_groups_that_cannot_be_at_play_are_refused(saved, other, parts):
    arrays, record = saved
    with pytest.raises(ValueError, match=r"groups|invalid literal"):
        other.set_state(arrays, {**record, "parts": parts})
