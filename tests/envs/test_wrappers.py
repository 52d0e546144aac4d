"""Every wrapper on its own, with answers worked out by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from dqnitro.config import Config
from dqnitro.envs.atari import AtariFrames, make_atari_env
from dqnitro.envs.wrappers import (
    ClipReward,
    EpisodicLife,
    FireReset,
    FrameLimit,
    FrameStack,
    MaxAndSkip,
    NoopReset,
    Warp,
    draw_noops,
    shrink,
)


class Screens(gym.Env):
    """Frame t shows t in one pixel and 100 - t in the other, rewards t and ends at frame `length`."""

    action_space = Discrete(3)
    observation_space = Box(0, 255, (1, 2), np.uint8)

    def __init__(self, length: int = 100, meanings: tuple[str, ...] = ("NOOP", "RIGHT", "FIRE")) -> None:
        self.length = length
        self.meanings = list(meanings)
        self.calls: list[object] = []

    def get_action_meanings(self) -> list[str]:
        return self.meanings

    def reset(self, *, seed=None, options=None):
        self.frame = 0
        self.calls.append("reset")
        return self._screen(), {"lives": 0}

    def step(self, action):
        self.frame += 1
        self.calls.append(action)
        return self._screen(), self.frame, self.frame >= self.length, False, {"lives": 0}

    def _screen(self):
        return np.array([[self.frame, 100 - self.frame]], np.uint8)


def test_no_ops_are_drawn_as_cpp_draws_them() -> None:
    # The C++ standard fixes the stream: std::mt19937's default seed is 5489, its first output 3499211612.
    assert draw_noops(5489, 30) == 3499211612 * 30 >> 32 == 24
    assert draw_noops(5489, 1) == draw_noops(5489, 0) == 0
    draws = [draw_noops(seed, 30) for seed in range(3000)]
    assert min(draws) == 0 and max(draws) == 29
    assert np.bincount(draws).min() > 60


def test_fire_is_pressed_once_and_only_where_it_exists() -> None:
    with_fire, without = Screens(), Screens(meanings=("NOOP", "UP", "DOWN"))
    obs, _ = FireReset(with_fire).reset()
    assert with_fire.calls == ["reset", 2]
    assert obs[0, 0] == 1
    FireReset(without).reset()
    assert without.calls == ["reset"]


def test_idle_frames_begin_a_game_and_fire_counts_as_one() -> None:
    env = Screens()
    obs, _ = NoopReset(env, 30).reset(seed=5489)
    assert env.calls == ["reset"] + [0] * 24
    assert obs[0, 0] == 24
    env = Screens()
    NoopReset(FireReset(env), 30, pressed=1).reset(seed=5489)
    assert env.calls == ["reset", 2] + [0] * 23


def test_a_game_that_ends_in_its_idle_frames_is_begun_again_without_fire() -> None:
    env = Screens(length=20)
    NoopReset(FireReset(env), 30, pressed=1).reset(seed=5489)
    assert env.calls == ["reset", 2] + [0] * 19 + ["reset"] + [0] * 4


def test_no_ops_without_a_seed_are_refused() -> None:
    with pytest.raises(ValueError, match="needs a seed"):
        NoopReset(Screens(), 30).reset()


def test_a_step_skips_frames_sums_rewards_and_takes_the_maximum_of_two() -> None:
    env = MaxAndSkip(Screens(), 4)
    assert env.reset()[0].tolist() == [[0, 100]]
    obs, reward, *_ = env.step(1)
    assert reward == 1 + 2 + 3 + 4
    assert obs.tolist() == [[4, 97]], "frame 4 has the greater left pixel, frame 3 the greater right one"
    plain = MaxAndSkip(Screens(), 4, max_pool=False)
    plain.reset()
    assert plain.step(1)[0].tolist() == [[4, 96]]


def test_an_early_end_shows_what_the_buffers_still_hold() -> None:
    env = MaxAndSkip(Screens(length=6), 4)
    env.reset()
    env.step(1)
    obs, reward, terminated, *_ = env.step(1)
    assert terminated and reward == 5 + 6
    assert obs.tolist() == [[4, 97]], "frames 5 and 6 were never looked at"
    env = MaxAndSkip(Screens(length=8), 4)
    env.reset()
    env.step(1)
    assert env.step(1)[0].tolist() == [[7, 97]], "frame 7 was kept, frame 8 ended the game: max([4, 97], [7, 93])"


def test_nothing_of_the_game_before_is_in_the_buffers() -> None:
    env = MaxAndSkip(inner := Screens(), 4)
    env.reset()
    for _ in range(5):
        env.step(1)
    inner.length = 1
    env.reset()
    assert env.step(1)[0].tolist() == [[0, 100]]


def test_one_frame_a_step_pools_nothing() -> None:
    env = MaxAndSkip(Screens(), 1)
    env.reset()
    env.step(0)
    assert env.step(0)[0].tolist() == [[2, 98]]


def test_the_frame_limit_counts_from_the_end_of_the_reset() -> None:
    env = MaxAndSkip(FrameLimit(NoopReset(Screens(), 30), 6), 4)
    env.reset(seed=5489)
    assert env.step(0)[2:4] == (False, False)
    _, reward, terminated, truncated, _ = env.step(0)
    assert (terminated, truncated) == (False, True)
    assert reward == 29 + 30, "the step stopped at the sixth frame"


def test_an_end_at_the_frame_limit_is_an_end() -> None:
    env = FrameLimit(Screens(length=2), 2)
    env.reset()
    env.step(0)
    assert env.step(0)[2:4] == (True, False)


class WithLives(Screens):
    lives = (3, 3, 2, 2, 0)

    def step(self, action):
        obs, reward, _, truncated, _ = super().step(action)
        lives = self.lives[self.frame]
        return obs, reward, lives == 0, truncated, {"lives": lives}

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"lives": 3}


def test_a_lost_life_is_told_once_and_a_lost_game_is_not_one() -> None:
    env = EpisodicLife(WithLives())
    env.reset()
    told = [env.step(0)[4].get("life_lost", False) for _ in range(4)]
    assert told == [False, True, False, False]


def test_rewards_are_clipped_not_signed() -> None:
    env = ClipReward(Screens())
    assert [env.reward(r) for r in (-9, -1, -0.5, 0, 0.25, 1, 400)] == [-1, -1, -0.5, 0, 0.25, 1, 1]


def test_the_warp_averages_areas() -> None:
    env = Screens()
    env.observation_space = Box(0, 255, (4, 4), np.uint8)
    picture = np.array([[10, 30, 0, 0], [10, 30, 0, 4], [1, 1, 200, 0], [1, 1, 0, 0]], np.uint8)
    assert Warp(env, 2).observation(picture).tolist() == [[20, 1], [1, 50]]
    assert Warp(env, 4).observation(picture) is picture


def test_linear_looks_at_four_pixels_and_pillow_at_all_of_them() -> None:
    """Pixel 0 of the small picture lies between the second and third of eight: what stands in the first is lost."""
    corner, middle = np.zeros((8, 8), np.uint8), np.zeros((8, 8), np.uint8)
    corner[0, 0], middle[1:3, 1:3] = 160, 160
    seen = {m: [int(shrink(p, 2, m)[0, 0]) for p in (corner, middle)] for m in ("area", "linear", "pillow")}
    assert seen["area"] == [10, 40] and seen["linear"] == [0, 160]
    assert 0 < seen["pillow"][0] < seen["pillow"][1] < 160


@pytest.mark.parametrize("method", ["linear", "pillow"])
def test_the_setting_reaches_the_screen_of_a_game(method: str) -> None:
    frame = AtariFrames("pong").reset(seed=3)[0]
    env = make_atari_env("pong", Config(resize=method, noop_max=0, fire_reset=False))
    seen = env.reset(seed=3)[0][-1]
    assert np.array_equal(seen, shrink(frame, 84, method)) and not np.array_equal(seen, shrink(frame, 84))


def test_a_stack_begins_with_zeros_and_the_newest_is_last() -> None:
    env = FrameStack(Screens(), 3)
    assert env.reset()[0][:, 0, 0].tolist() == [0, 0, 0]
    assert env.step(0)[0][:, 0, 1].tolist() == [0, 100, 99]
    third = env.step(0)[0]
    assert third[:, 0, 0].tolist() == [0, 1, 2]
    env.step(0)
    assert third[:, 0, 0].tolist() == [0, 1, 2], "a returned stack stays as it was"
    assert env.reset()[0][:, 0, 1].tolist() == [0, 0, 100], "nothing of the game before is left"


def test_every_switch_changes_the_stack() -> None:
    def names(**settings) -> list[str]:
        env = make_atari_env("breakout", Config(**settings), clip_rewards=settings.get("clip_rewards", True))
        out = []
        while isinstance(env, gym.Wrapper):
            out.append(type(env).__name__)
            env = env.env
        return out

    assert names() == ["FrameStack", "Warp", "ClipReward", "MaxAndSkip", "FrameLimit", "NoopReset", "FireReset"]
    assert "EpisodicLife" in names(episodic_life=True)
    assert "FireReset" not in names(fire_reset=False)
    assert "ClipReward" not in names(clip_rewards=False)


def test_a_seeded_reset_depends_on_nothing_before_it(capfd: pytest.CaptureFixture[str]) -> None:
    played, fresh = AtariFrames("seaquest", sticky_actions=0.5), AtariFrames("seaquest", sticky_actions=0.5)
    played.reset(seed=1)
    for action in np.random.default_rng(0).integers(0, 18, 300):
        played.step(action)
    played.reset(seed=9), fresh.reset(seed=9)
    for action in np.random.default_rng(1).integers(0, 18, 60):
        np.testing.assert_array_equal(played.step(action)[0], fresh.step(action)[0])
    assert capfd.readouterr() == ("", ""), "the emulator prints nothing"
