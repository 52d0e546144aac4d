"""All Atari backends compared step by step, with each other and with ale-py's AtariVectorEnv as ale-py documents it."""

from __future__ import annotations

import ale_py
import numpy as np
import pytest

from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.envs.atari import make_atari_env

BACKENDS = ("wrappers", "gym-sync", "gym-async", "ale", "console")
CASES = [
    ("pong", 60, {}),
    ("breakout", 60, {"episodic_life": True, "sticky_actions": 0.25, "screen_size": 64}),
    ("seaquest", 60, {"max_pool": False, "full_actions": True, "frame_stack": 3}),
    ("seaquest", 40, {"frame_skip": 3, "fire_reset": False, "frame_stack": 2, "clip_rewards": False}),
    ("breakout", 60, {"frame_skip": 1, "noop_max": 0, "max_episode_frames": 50, "frame_stack": 1}),
    ("space_invaders", 30, {"frame_skip": 2, "noop_max": 7, "max_episode_frames": 19, "screen_size": 105}),
]


@pytest.mark.parametrize(("game", "ticks", "settings"), CASES)
def test_all_backends_agree_byte_for_byte(game: str, ticks: int, settings: dict) -> None:
    config = Config(env_id=game, n_envs=2, seed=11, **settings)
    # The processes of gym-async play what gym-sync plays: two cases show that settings and results reach them and us.
    names = [b for b in BACKENDS if b != "gym-async" or (game, ticks, settings) in CASES[:2]]
    backends = {name: make_envs(config.replace(envs=name)) for name in names}
    try:
        oracle, *others = backends.items()
        first = oracle[1].reset()
        assert first.any()
        for name, envs in others:
            np.testing.assert_array_equal(envs.reset(), first, err_msg=name)
            assert envs.spec == oracle[1].spec
        rng = np.random.default_rng(0)
        for tick in range(ticks):
            actions = rng.integers(0, oracle[1].spec.n_actions, 2)
            for envs in backends.values():
                envs.send(actions)
            want = oracle[1].recv()
            for name, envs in others:
                got = envs.recv()
                for field in ("obs_t", "reward_t", "terminated", "truncated", "reset"):
                    where = f"{name} {field} at tick {tick}"
                    np.testing.assert_array_equal(getattr(got, field), getattr(want, field), err_msg=where)
                assert got.ends == want.ends
    finally:
        for envs in backends.values():
            envs.close()


@pytest.mark.parametrize(
    ("game", "settings"),
    [
        ("breakout", {"episodic_life": True}),
        ("seaquest", {"episodic_life": True, "max_pool": False, "sticky_actions": 0.25}),
        ("pong", {"frame_skip": 6, "clip_rewards": False}),
    ],
)
def test_the_wrappers_are_ale_pys_vector_environment_over_whole_games(game: str, settings: dict) -> None:
    c = Config(env_id=game, **settings)
    env = make_atari_env(game, c, clip_rewards=c.clip_rewards)
    vec = ale_py.AtariVectorEnv(
        game,
        1,
        frameskip=c.frame_skip,
        maxpool=c.max_pool,
        life_loss_info=c.episodic_life,
        reward_clipping=c.clip_rewards,
        repeat_action_probability=c.sticky_actions,
    )
    rng = np.random.default_rng(1)
    rewards = lives = ends = 0
    for seed in (5, 6, 7):
        obs, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(obs, vec.reset(seed=seed)[0][0])
        over = False
        while not over:
            action = rng.integers(env.action_space.n)  # type: ignore[attr-defined]
            obs, reward, over, cut, info = env.step(action)
            vec_obs, vec_reward, vec_over, vec_cut, _ = vec.step(np.array([action]))
            np.testing.assert_array_equal(obs, vec_obs[0])
            lost = info.get("life_lost", False)
            assert (reward, over or lost, cut) == (vec_reward[0], vec_over[0], vec_cut[0])
            rewards, lives = rewards + (reward != 0), lives + lost
        ends += 1
    assert ends == 3 and rewards > 0 and (lives > 2) == c.episodic_life
