"""One console behind Gymnasium's interface: equal to ale-py's, and at home in Gymnasium's own tools."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import RecordVideo

from dqnitro.atari import AtariEnv, AtariVec

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
gymnasium.register_envs(ale_py)


def both(game: str, **options: Any) -> tuple[gymnasium.Env, gymnasium.Env]:
    return gymnasium.make(f"DQNitro/{game}-v5", **options), gymnasium.make(f"ALE/{game}-v5", **options)


def same(ours: Any, theirs: Any, where: Any) -> None:
    assert ours[1:] == theirs[1:], where
    assert [type(x) for x in ours[1:]] == [type(x) for x in theirs[1:]], where
    assert ours[0].dtype == theirs[0].dtype
    np.testing.assert_array_equal(ours[0], theirs[0], err_msg=str(where))


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("Pong", {}),  # actions stick with a chance of a quarter, drawn from the seed
        ("Breakout", {"obs_type": "grayscale", "max_num_frames_per_episode": 90, "full_action_space": True}),
        ("AirRaid", {"obs_type": "ram", "frameskip": 3}),  # a screen of 250 lines
    ],
)
def test_a_seed_gives_the_game_that_ale_gives(game: str, options: dict[str, Any]) -> None:
    ours, theirs = both(game, **options)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert ours.unwrapped.get_action_meanings() == theirs.unwrapped.get_action_meanings()
    random, ends = np.random.default_rng(0), 0
    for seed in (7, None, 2**31 - 1):
        same(ours.reset(seed=seed), theirs.reset(seed=seed), ("reset", seed))
        for step in range(60):
            action = int(random.integers(ours.action_space.n))
            got = ours.step(action)
            same(got, theirs.step(action), (seed, step))
            ends += got[2] or got[3]
    assert ends or not options.get("max_num_frames_per_episode")


def test_gymnasium_finds_nothing_to_complain_about(recwarn: pytest.WarningsRecorder) -> None:
    env = gymnasium.make("dqnitro.atari:DQNitro/Pong-v5", render_mode="rgb_array")
    check_env(env.unwrapped, skip_render_check=False)
    assert [str(w.message) for w in recwarn if "WARN" in str(w.message)] == []


def test_pictures_are_the_screen_in_colour() -> None:
    env = gymnasium.make("DQNitro/Pong-v5", render_mode="rgb_array", obs_type="ram")
    env.reset(seed=1)
    picture = env.render()
    assert picture.shape == (210, 160, 3) and picture.dtype == np.uint8 and len(np.unique(picture)) > 3
    assert gymnasium.make("DQNitro/Pong-v5").unwrapped.render() is None


def test_a_window_shows_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame", reason="pygame is not installed; pip install -c constraints.txt pygame-ce")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    env = gymnasium.make("DQNitro/Pong-v5", render_mode="human")
    env.metadata["render_fps"] = 1000
    env.reset(seed=1)
    for _ in range(20):
        env.step(0)
    screen = pygame.surfarray.array3d(pygame.display.get_surface())
    shown = env.unwrapped._rgb().swapaxes(0, 1)
    assert screen.shape == (960, 630, 3)
    np.testing.assert_array_equal(screen[::6, ::3], shown)
    env.close()
    assert not pygame.display.get_init()


def test_triton_can_be_imported_after_a_window() -> None:
    """SDL's OpenGL brings an LLVM of its own, where Mesa is installed; Triton's LLVM does not survive it."""
    pytest.importorskip("pygame", reason="pygame is not installed; pip install -c constraints.txt pygame-ce")
    pytest.importorskip("triton", reason="Triton is not installed; it comes with torch on Linux")
    code = (
        "import gymnasium; env = gymnasium.make('dqnitro.atari:DQNitro/Pong-v5', render_mode='human')\n"
        "env.reset(); env.step(0); import triton; print('imported')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if "video" in done.stderr and "No available" in done.stderr:
        pytest.skip("no screen and no offscreen driver: run it on a desktop, or with a pygame that has one")
    assert done.stdout.endswith("imported\n"), done.stderr


def test_a_window_without_pygame_is_one_line_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    env = AtariEnv("pong", render_mode="human")
    with pytest.raises(
        gymnasium.error.DependencyNotInstalled, match="needs pygame.*hint: pip install pygame-ce"
    ) as caught:
        env.reset(seed=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_make_vec_makes_vectors_of_single_environments(mode: str) -> None:
    envs = gymnasium.make_vec("DQNitro/Pong-v5", num_envs=2, vectorization_mode=mode)
    one = gymnasium.make("DQNitro/Pong-v5")
    obs, _ = envs.reset(seed=4)
    assert obs.shape == (2, 210, 160, 3)
    first, _ = one.reset(seed=5)
    np.testing.assert_array_equal(obs[1], first)
    for action in (2, 3, 3):
        obs = envs.step(np.array([0, action]))[0]
        np.testing.assert_array_equal(obs[1], one.step(action)[0])
    envs.close()


def test_constructors_travel_to_other_processes() -> None:
    """AsyncVectorEnv pickles what makes an environment; `spawn` starts processes that have nothing of this one."""
    make = functools.partial(AtariEnv, "breakout", frameskip=2)
    envs = AsyncVectorEnv([make], context="spawn")
    obs, _ = envs.reset(seed=[3])
    envs.close()
    np.testing.assert_array_equal(obs[0], make().reset(seed=3)[0])
    many = pickle.loads(pickle.dumps(functools.partial(AtariVec, "pong", 2, num_threads=1)))()
    assert many.reset(seed=1)[0].shape == (2, 4, 84, 84)


def test_a_video_is_recorded(tmp_path: Any) -> None:
    pytest.importorskip("moviepy", reason="Gymnasium's RecordVideo needs moviepy; pip install moviepy")
    env = RecordVideo(gymnasium.make("DQNitro/Pong-v5", render_mode="rgb_array"), str(tmp_path), video_length=5)
    env.reset(seed=1)
    for _ in range(8):
        env.step(0)
    env.close()
    assert [f.suffix for f in tmp_path.iterdir()] == [".mp4"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"obs_type": "sound"}, "obs_type must be one of rgb, grayscale, ram, got 'sound'"),
        ({"frameskip": 0}, "frameskip must be a positive int"),
        ({"render_mode": "ansi"}, "render_mode must be human, rgb_array or None"),
        ({"repeat_action_probability": 2.0}, "from 0 to 1"),
    ],
)
def test_what_cannot_be_played_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((gymnasium.error.Error, ValueError), match=message):
        AtariEnv("pong", **options)


@pytest.mark.parametrize("action", [6, -1, 1.5, "fire", None])
def test_actions_that_do_not_exist_are_refused(action: Any) -> None:
    env = AtariEnv("pong")
    env.reset(seed=1)
    with pytest.raises(ValueError, match="an action is .* hint: see action_space"):
        env.step(action)
