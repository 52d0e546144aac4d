"""The bookkeeping over an engine: scores, ends, lives, clipping, saved states."""

from __future__ import annotations

import numpy as np
import pytest

from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.envs.base import GameEnd, Step
from dqnitro.envs.bookkeeping import episode_seed
from dqnitro.errors import CheckpointError

BACKENDS = ("wrappers", "gym-sync", "gym-async")
SEED_1_0_0 = 1_835_504_127  # written down once: it is part of the checkpoint format


def play(env_id: str, ticks: int, backend: str = "wrappers", **settings) -> list[Step]:
    envs = make_envs(Config(env_id=env_id, envs=backend, **settings))
    try:
        envs.reset()
        steps = []
        for _ in range(ticks):
            envs.send(np.zeros(envs.spec.n_envs, np.int64))
            steps.append(envs.recv())
        return steps
    finally:
        envs.close()


def column(steps: list[Step], name: str) -> list:
    return [getattr(step, name)[0].item() for step in steps]


@pytest.mark.parametrize("backend", BACKENDS)
def test_scores_are_whole_and_rewards_are_clipped(backend: str) -> None:
    steps = play("TinyEnds-v0", 7, backend)
    assert column(steps, "reward_t") == [1, -1, 1, 0, 1, -1, 1]
    assert column(steps, "terminated") == [False, False, True, False, False, False, True]
    assert column(steps, "reset") == [False, False, False, True, False, False, False]
    assert [step.ends for step in steps if step.ends] == [(GameEnd(0, -0.5, 3),), (GameEnd(0, -0.5, 3),)]
    assert column(steps, "obs_t") == [1, 2, 3, 0, 1, 2, 3], "the last observation of a game is shown before the reset"


def test_rewards_stay_as_they_are_when_clipping_is_off() -> None:
    assert column(play("TinyEnds-v0", 3, clip_rewards=False), "reward_t") == [5, -7.5, 2]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_limit_truncates_and_is_no_termination(backend: str) -> None:
    steps = play("TinyCut-v0", 3, backend)
    assert column(steps, "truncated") == [False, True, False]
    assert column(steps, "terminated") == [False, False, False]
    assert column(steps, "reset") == [False, False, True]
    assert steps[1].ends == (GameEnd(0, 2.0, 2),)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lost_life_ends_the_return_but_not_the_game(backend: str) -> None:
    steps = play("TinyLives-v0", 8, backend, episodic_life=True)
    assert column(steps, "terminated") == [False, True, False, False, True, True, False, False]
    assert column(steps, "reset") == [False] * 6 + [True, False]
    assert [step.ends for step in steps if step.ends] == [(GameEnd(0, 6.0, 6),)]


def test_a_lost_life_is_nothing_when_lives_do_not_count() -> None:
    assert column(play("TinyLives-v0", 6), "terminated") == [False] * 5 + [True]


def test_a_life_lost_as_the_time_runs_out_terminates_and_the_game_is_over() -> None:
    steps = play("TinyCutWithLife-v0", 3, episodic_life=True)
    assert column(steps, "terminated") == [False, True, False]
    assert column(steps, "truncated") == [False, False, False]
    assert column(steps, "reset") == [False, False, True]
    assert steps[1].ends == (GameEnd(0, 2.0, 2),)


def test_environments_end_on_their_own() -> None:
    steps = play("TinyOwnLength-v0", 12, n_envs=2)
    ended = [{end.env for end in step.ends} for step in steps]
    resets = [set(np.flatnonzero(step.reset).tolist()) for step in steps]
    assert resets[1:] == ended[:-1]
    assert {0} in ended and {1} in ended


def test_seeds_of_games_are_distinct_reproducible_and_fit_a_c_int() -> None:
    seeds = [episode_seed(run, env, game) for run in range(3) for env in range(20) for game in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert episode_seed(1, 0, 0) == SEED_1_0_0, "saved runs could no longer be resumed"


def test_an_environment_that_does_not_replay_is_found_out() -> None:
    envs = make_envs(Config(env_id="TinyMoody-v0"))
    envs.reset()
    envs.send(np.zeros(1, np.int64))
    envs.recv()
    with pytest.raises(CheckpointError, match=r"environment 0 did not replay .* hint: an environment must depend"):
        envs.set_state(envs.get_state())
    with pytest.raises(RuntimeError, match="after reset"):
        envs.send(np.zeros(1, np.int64))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": None}, "no 'actions'"),
        ({"actions": np.zeros(5, np.uint8)}, "5 actions were saved for 2 steps"),
        ({"actions": np.array([0, 9], np.uint8)}, "action 9 was saved"),
        ({"game": np.zeros(3, np.int64)}, "3 environments were saved, this run has 1"),
        ({"steps": np.array([-1])}, "actions were saved"),
    ],
)
def test_a_damaged_state_is_refused_before_anything_is_played(change: dict, message: str) -> None:
    envs = make_envs(Config(env_id="TinyEnds-v0"))
    envs.reset()
    for _ in range(2):
        envs.send(np.zeros(1, np.int64))
        envs.recv()
    state = {k: v for k, v in {**envs.get_state(), **change}.items() if v is not None}
    with pytest.raises(CheckpointError, match=message):
        envs.set_state(state)


def test_a_game_longer_than_the_log_is_replayed_whole() -> None:
    long = make_envs(Config(env_id="TinyLong-v0"))
    long.reset()
    rng = np.random.default_rng(0)
    for _ in range(2500):
        long.send(rng.integers(0, 2, 1))
        last = long.recv()
    state = long.get_state()
    assert len(state["actions"]) == 2500
    fresh = make_envs(Config(env_id="TinyLong-v0"))
    np.testing.assert_array_equal(fresh.set_state(state), last.obs_t)
    for envs in (fresh, long):
        envs.send(np.ones(1, np.int64))
    np.testing.assert_array_equal(fresh.recv().obs_t, long.recv().obs_t)
