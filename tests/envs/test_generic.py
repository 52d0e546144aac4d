"""Names, other people's environments, and inputs that cannot work."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence, Tuple

from dqnitro.config import Config
from dqnitro.envs import atari_game, atari_games, env_kind, make_envs, make_watched_envs
from dqnitro.envs.generic import FlatFloats, Grey, Planes, space_kind
from dqnitro.errors import ConfigError


@pytest.mark.parametrize(
    ("env_id", "game"),
    [
        ("pong", "pong"),
        ("space_invaders", "space_invaders"),
        ("SpaceInvaders", "space_invaders"),
        ("ALE/Pong-v5", "pong"),
        ("PongNoFrameskip-v4", "pong"),
        ("DQNitro/Pong-v5", "pong"),
        ("dqnitro.atari:DQNitro/MsPacman-v5", "ms_pacman"),
        ("MsPacmanDeterministic-v0", "ms_pacman"),
        ("CartPole-v1", None),
        ("some.module:Pong-v0", None),
    ],
)
def test_all_spellings_of_a_game_are_understood(env_id: str, game: str | None) -> None:
    assert atari_game(env_id) == game


def test_every_game_for_one_player_is_there() -> None:
    assert len(atari_games()) == 104
    assert all(atari_game(game) == game for game in atari_games())


def test_an_environment_of_ones_own_may_be_called_like_a_game() -> None:
    gym.register("Pong-v77", "nowhere:Nothing")
    assert atari_game("Pong-v77") is None


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("pnog", "unknown game or environment 'pnog'; hint: did you mean pong"),
        ("CartPole-v9", r"unknown .* did you mean CartPole-v1"),
        ("ALE/Brakout-v5", r"unknown .* did you mean breakout"),
        ("qqqqqqqq", "unknown .* give an Atari game"),
        ("", "unknown .* give an Atari game"),
        ("combat", "no mode for one player"),
        ("no_such_module:Foo-v0", "no module named 'no_such_module'"),
        ("gymnasium:Foo-v0", "module 'gymnasium' neither has 'Foo-v0' nor registers it with Gymnasium"),
        ("support.fakes_envs:Nothing", "neither has 'Nothing' nor .* hint: it has support.fakes_envs:dqnitro_test/"),
        ("Pendulum-v1", r"Box\(-2.0, 2.0, \(1,\), float32\), DQN needs Discrete"),
    ],
)
@pytest.mark.parametrize("backend", ["wrappers", "gym-async", "ale"])
def test_a_name_that_cannot_work_gets_one_line_with_a_way_out(env_id: str, message: str, backend: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make_envs(Config(env_id=env_id, envs=backend))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backend", ["ale", "console"])
def test_atari_backends_refuse_other_environments(backend: str) -> None:
    with pytest.raises(ConfigError, match="plays Atari only, got 'CartPole-v1'; hint: use --envs gym-sync"):
        make_envs(Config(env_id="CartPole-v1", envs=backend))


def test_a_console_that_cannot_be_loaded_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dqnitro.atari", None)
    with pytest.raises(ConfigError, match=r"console .*cannot be loaded .* hint: use --envs ale"):
        make_envs(Config(envs="console"))


def test_other_action_spaces_are_refused() -> None:
    class Many(gym.Env):
        action_space = MultiDiscrete([2, 3])
        observation_space = Box(0, 1, (2,))

    gym.register("TinyMany-v0", Many)
    with pytest.raises(ConfigError, match=r"MultiDiscrete\(\[2 3\]\), DQN needs Discrete"):
        make_envs(Config(env_id="TinyMany-v0"))


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (Discrete(5), "vector"),
        (Box(-1, 1, ()), "vector"),
        (Box(-1, 1, (4,)), "vector"),
        (Box(-np.inf, np.inf, (7, 7, 3)), "vector"),
        (Box(0, 1, (4, 9)), "vector"),
        (Box(0, 1, (7, 7, 3)), "image"),
        (Box(0, 1, (10, 10)), "image"),
        (Box(0, 255, (84, 84), np.uint8), "image"),
        (Box(0, 255, (96, 90, 3), np.uint8), "image"),
        (Box(0, 255, (1, 60, 70), np.uint8), "image"),
        (Box(0.0, 1.0, (60, 70, 1), np.float32), "image"),
        (Box(0, 255, (4, 84, 84), np.uint8), "image"),
        (Box(0, 255, (4, 40, 50, 3), np.uint8), "image"),
        (Box(0, 1, (2, 3, 4, 84, 84)), "vector"),
    ],
)
def test_what_is_an_image_and_what_a_vector(space: gym.Space, kind: str) -> None:
    assert space_kind(space, "x") == kind


@pytest.mark.parametrize(
    ("shape", "kind"), [((7, 7, 3), "vector"), ((10, 10), "vector"), ((16, 16, 3), "image"), ((84, 84), "image")]
)
def test_runs_of_older_versions_see_what_they_saw(shape: tuple[int, ...], kind: str) -> None:
    """Their configs have no `images`, which means grey."""
    assert Config().images == "grey"
    assert space_kind(Box(0, 255, shape, np.uint8), "x", "grey") == kind


@pytest.mark.parametrize(
    ("space", "images", "message"),
    [
        (Dict({"a": Sequence(Discrete(2))}), "full", "observation space Dict"),
        (Box(0, 255, (4, 84, 84), np.uint8), "grey", r"images of shape \(4, 84, 84\).*--images full"),
        (Box(0, 255, (2, 3, 84, 84), np.uint8), "grey", r"images of shape \(2, 3, 84, 84\)"),
        (Box(-np.inf, np.inf, (84, 84), np.float32), "grey", "without bounds"),
        (Box(-np.inf, np.inf, (84, 84), np.float32), "full", "without bounds"),
    ],
)
def test_observations_that_are_not_supported_are_refused(space: gym.Space, images: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        space_kind(space, "x", images)


@pytest.mark.parametrize(
    ("shape", "planes"),
    [
        ((10, 10), (1, 10, 10)),
        ((10, 10, 4), (4, 10, 10)),  # a board with four kinds of pieces
        ((16, 16, 3), (3, 16, 16)),
        ((3, 20, 30), (3, 20, 30)),
        ((64, 48, 3), (3, 84, 84)),
        ((4, 84, 84), (4, 84, 84)),  # frames that the environment has stacked
        ((4, 40, 50, 3), (12, 84, 84)),
        ((20, 168), (1, 10, 84)),  # small in one direction: the longer side becomes screen_size
    ],
)
def test_images_keep_their_channels_and_small_ones_their_size(shape: tuple[int, ...], planes: tuple[int, ...]) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    out = Planes(Shows(Box(0, 255, shape, np.uint8), picture), 84).observation(picture)
    assert out.shape == planes and out.dtype == np.uint8
    if out.size == picture.size:
        assert sorted(out.ravel()) == sorted(picture.ravel())


def test_each_channel_is_the_plane_that_it_was() -> None:
    last = np.random.default_rng(0).integers(0, 256, (12, 15, 3), np.uint8)
    first = np.ascontiguousarray(last.transpose(2, 0, 1))
    stacked = np.stack([last, last[::-1]])
    out = {
        name: Planes(Shows(Box(0, 255, x.shape, np.uint8), x), 84).observation(x)
        for name, x in {"last": last, "first": first, "stacked": stacked}.items()
    }
    np.testing.assert_array_equal(out["last"], first)
    np.testing.assert_array_equal(out["first"], first)
    np.testing.assert_array_equal(out["stacked"], np.concatenate([first, first[:, ::-1]]))


def test_the_bounds_of_a_box_become_black_and_white() -> None:
    board = np.zeros((6, 6), np.uint8)
    board[2, 3] = 1
    assert Planes(Shows(Box(0, 1, (6, 6), np.uint8), board), 84).observation(board)[0, 2, 3] == 255
    floats = np.full((6, 6), -1.0, np.float32)
    floats[0, 0] = 0.0
    out = Planes(Shows(Box(-1, 1, (6, 6)), floats), 84).observation(floats)
    assert out[0, 0, 0] in (127, 128) and out[0, 1, 1] == 0
    with pytest.raises(ValueError, match="not finite"):
        Planes(Shows(Box(-1, 1, (6, 6)), floats), 84).observation(floats * np.nan)


@pytest.mark.parametrize(
    ("space", "observation", "flat"),
    [
        (Discrete(3, start=5), 6, [0, 1, 0]),
        (MultiDiscrete([2, 3]), [1, 2], [0, 1, 0, 0, 1]),
        (Dict({"b": Box(-1, 1, (2,)), "a": Discrete(2)}), {"a": 1, "b": [0.5, -1]}, [0, 1, 0.5, -1]),
        (Tuple([Discrete(2), Dict({"x": Box(0, 9, (1, 2))})]), (0, {"x": [[3, 4]]}), [1, 0, 3, 4]),
    ],
)
def test_everything_of_a_fixed_size_becomes_one_vector(space: gym.Space, observation: Any, flat: list[float]) -> None:
    assert space_kind(space, "x") == "vector"
    env = FlatFloats(Shows(space, observation))
    np.testing.assert_array_equal(env.observation(observation), np.array(flat, np.float32))
    assert env.observation_space.shape == (len(flat),)


def test_a_game_of_cards_is_played() -> None:
    envs = make_envs(Config(env_id="Blackjack-v1", n_envs=2))
    assert envs.reset().shape == (2, 32 + 11 + 2)
    envs.close()


class Shows(gym.Env):
    action_space = Discrete(2)

    def __init__(self, space: gym.Space, obs: Any) -> None:
        self.observation_space, self.obs = space, obs


@pytest.mark.parametrize("layout", ["HWC", "CHW", "HW"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_every_layout_becomes_the_same_grey_picture(layout: str, dtype: str) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (20, 30), np.uint8)
    grey[0, :2] = 0, 255
    picture = {"HWC": np.repeat(grey[..., None], 3, 2), "CHW": np.repeat(grey[None], 3, 0), "HW": grey}[layout]
    space = Box(0, 255, picture.shape, np.uint8)
    if dtype == "float32":
        picture, space = picture.astype(np.float32) / 255 * 2 - 1, Box(-1.0, 1.0, picture.shape, np.float32)
    env = Grey(Shows(space, picture))
    assert env.observation_space == Box(0, 255, (20, 30), np.uint8)
    np.testing.assert_array_equal(env.observation(picture), grey)


def test_colours_are_weighed_as_the_eye_does() -> None:
    picture = np.zeros((16, 16, 3), np.uint8)
    picture[..., 1] = 100
    assert Grey(Shows(Box(0, 255, (16, 16, 3), np.uint8), picture)).observation(picture)[0, 0] == 59


def test_vectors_are_flat_and_numbers_are_one_hot() -> None:
    matrix = np.arange(6, dtype=np.int64).reshape(2, 3)
    out = FlatFloats(Shows(Box(0, 9, (2, 3), np.int64), matrix)).observation(matrix)
    assert out.dtype == np.float32 and out.tolist() == [0, 1, 2, 3, 4, 5]
    envs = make_envs(Config(env_id="TinyOneHot-v0"))
    assert envs.reset().tolist() == [[0, 1, 0, 0]]


def test_actions_that_begin_at_five_are_numbered_from_zero() -> None:
    envs = make_envs(Config(env_id="TinyFromFive-v0", clip_rewards=False))
    assert envs.spec.n_actions == 3
    envs.reset()
    envs.send(np.array([2]))
    assert envs.recv().reward_t.tolist() == [7]


@pytest.mark.parametrize("backend", ["wrappers", "gym-sync", "gym-async"])
def test_rewards_may_be_any_single_number(backend: str) -> None:
    envs = make_envs(Config(env_id="TinyOddRewards-v0", envs=backend, clip_rewards=False))
    envs.reset()
    rewards = []
    for _ in range(4):
        envs.send(np.array([0]))
        step = envs.recv()
        rewards.append(step.reward_t.item())
    envs.close()
    assert rewards == [2, 0.25, 1, 1]
    assert step.ends[0].score == 4.25


def test_two_rewards_at_once_are_refused() -> None:
    envs = make_envs(Config(env_id="TinyTwoRewards-v0"))
    envs.reset()
    envs.send(np.array([0]))
    with pytest.raises(ValueError, match="reward must be one number"):
        envs.recv()


def test_kinds() -> None:
    assert [env_kind(e) for e in ("pong", "CartPole-v1", "TinyOneHot-v0")] == ["atari", "vector", "vector"]


def test_a_module_is_imported_for_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_games.py").write_text(
        textwrap.dedent("""
        import gymnasium as gym, numpy as np
        class Theirs(gym.Env):
            action_space = gym.spaces.Discrete(2)
            observation_space = gym.spaces.Box(0, 255, (32, 32), np.uint8)
            def reset(self, *, seed=None, options=None):
                return np.full((32, 32), 7, np.uint8), {}
            def step(self, action):
                return np.full((32, 32), 9, np.uint8), 1, False, False, {}
        gym.register("Theirs-v0", Theirs)
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert env_kind("their_games:Theirs-v0") == "image"
    for backend in ("wrappers", "gym-async"):
        envs = make_envs(Config(env_id="their_games:Theirs-v0", envs=backend))
        assert envs.reset()[0, -1, 0, 0] == 7
        assert envs.spec.obs_shape == (4, 84, 84) and envs.spec.frames_per_step == 1
        envs.close()


def test_a_mistake_inside_the_users_module_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_games.py").write_text("import a_library_that_is_missing")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_missing"):
        make_envs(Config(env_id="broken_games:X-v0"))


def test_watching_atari_shows_every_console_frame_of_the_same_game() -> None:
    config = Config(env_id="breakout", noop_max=0, n_envs=3)
    frames: list[np.ndarray] = []
    watched, fps = make_watched_envs(config, frames.append)
    unwatched = make_envs(config.replace(n_envs=1))
    np.testing.assert_array_equal(watched.reset(), unwatched.reset())
    at_start = len(frames)
    for envs in (watched, unwatched):
        envs.send(np.array([2]))
    np.testing.assert_array_equal(watched.recv().obs_t, unwatched.recv().obs_t)
    assert fps == 60
    assert len(frames) - at_start == 4
    assert frames[-1].shape == (210, 160, 3) and frames[-1].dtype == np.uint8


def test_watching_another_environment_shows_what_it_renders() -> None:
    frames: list[np.ndarray] = []
    watched, fps = make_watched_envs(Config(env_id="TinyPaints-v0"), frames.append)
    watched.reset()
    watched.send(np.array([0]))
    watched.recv()
    assert [frame[0, 0, 0] for frame in frames] == [0, 1]
    assert fps == 12


def test_watching_an_environment_without_pictures_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"TinyEnds-v0 has the render modes \[\], a video needs 'rgb_array'"):
        make_watched_envs(Config(env_id="TinyEnds-v0"), print)


def test_a_drawing_library_that_is_missing_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    watched, _ = make_watched_envs(Config(env_id="CartPole-v1"), print)
    with pytest.raises(ConfigError, match="cannot draw itself: pygame"):
        watched.reset()


def test_the_protocol_imports_nothing_heavy() -> None:
    code = (
        "import sys, dqnitro.envs.base; print([m for m in ('gymnasium', 'cv2', 'ale_py', 'torch') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
