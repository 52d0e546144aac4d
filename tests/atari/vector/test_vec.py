"""`AtariVec` beside ale-py's `AtariVectorEnv`: every byte of every result, over all options."""

from __future__ import annotations

import inspect
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from ale_py import AtariVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnitro.atari import AtariVec
from dqnitro.atari.games.game_table import NAMES
from support.atari.oracle import KEEPERS, Options, Oracle

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)

OPTIONS: list[dict[str, Any]] = [
    {},
    {"autoreset_mode": "SameStep"},
    {"episodic_life": True},
    {"episodic_life": True, "autoreset_mode": "SameStep"},
    {"life_loss_info": True},
    {"life_loss_info": True, "autoreset_mode": "SameStep"},
    {"maxpool": False},
    {"maxpool": False, "frameskip": 1, "max_num_frames_per_episode": 21},
    {"frameskip": 1, "episodic_life": True},
    {"frameskip": 2, "max_num_frames_per_episode": 31},
    {"frameskip": 7, "stack_num": 2, "max_num_frames_per_episode": 55},
    {"noop_max": 0},
    {"noop_max": 1, "use_fire_reset": False},
    {"noop_max": 200},
    {"reward_clipping": False, "full_action_space": True},
    {"max_num_frames_per_episode": 50},
    {"max_num_frames_per_episode": 51, "autoreset_mode": "SameStep"},
    {"repeat_action_probability": 0.25},
    {"repeat_action_probability": 1.0, "stack_num": 1},
    {"grayscale": False, "max_num_frames_per_episode": 52},
    {"grayscale": False, "img_height": 210, "img_width": 160},
    {"img_height": 64, "img_width": 100, "episodic_life": True},
    {"img_height": 300, "img_width": 200},
]  # fmt: skip


def same(ours: Any, theirs: Any, where: str, ended: np.ndarray | None = None) -> None:
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key in theirs:
            if key == "final_obs":
                # ale-py leaves the rows of environments that go on uninitialised; ours are zero
                assert ended is not None
                same(ours[key][ended], theirs[key][ended], f"{where} {key}")
                assert not ours[key][~ended].any()
            else:
                same(ours[key], theirs[key], f"{where} {key}")
        return
    assert ours.dtype == theirs.dtype, where
    if not np.array_equal(ours, theirs):  # twenty times as fast as its own way to find that nothing differs
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


def side_by_side(game: str, steps: int, n: int = 3, seed: int = 0, threads: int = 1, **options: Any) -> int:
    """Step both; returns how many episodes ended."""
    theirs = AtariVectorEnv(game, n, num_threads=1, **options)
    ours = AtariVec(game, n, num_threads=threads, **options)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    rng = np.random.default_rng(seed)
    first, second = ours.reset(seed=seed), theirs.reset(seed=seed)
    same(first[0], second[0], "reset")
    same(first[1], second[1], "reset info")
    count, held = 0, 0
    before = second[1]
    actions = np.zeros(n, np.int64)
    for t in range(steps):
        if t >= held:  # actions held for a while play more of a game than fresh noise in every step
            actions = rng.integers(0, ours.single_action_space.n, n)  # type: ignore[attr-defined]
            held = t + int(rng.integers(1, 6))
        a, b = ours.step(actions), theirs.step(actions)
        # a new game shows as an episode's frame counter that did not advance with the machine's
        passed = [b[4][k] - before[k] for k in ("episode_frame_number", "frame_number")]
        ended = passed[0] != passed[1]
        before = b[4]
        for name, x, y in zip(("observation", "reward", "terminated", "truncated", "info"), a, b, strict=True):
            same(x, y, f"step {t} {name}", ended)
        count += int((b[2] | b[3]).sum())
    ours.close()
    return count


def test_signature_is_ale_pys() -> None:
    def of(cls: type) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.default, p.kind) for p in inspect.signature(cls.__init__).parameters.values()]

    *same_as_theirs, ours_alone = of(AtariVec)
    assert same_as_theirs == of(AtariVectorEnv)
    assert ours_alone == ("device", "cpu", inspect.Parameter.KEYWORD_ONLY)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("game", ["breakout", "seaquest"])
def test_options_equal_ale(game: str, options: dict[str, Any]) -> None:
    side_by_side(game, 75, seed=3, **options)


@pytest.mark.parametrize("game", ["qbert", "entombed", "tetris", "hangman", "pong"])
@pytest.mark.parametrize("frameskip", [1, 3])
def test_first_frames_of_a_game_equal_ale(game: str, frameskip: int) -> None:
    """Some games begin in the middle of a picture, which the next step goes on drawing."""
    side_by_side(
        game, 14, n=2, noop_max=0, use_fire_reset=False, frameskip=frameskip, max_num_frames_per_episode=4 * frameskip
    )


def test_a_frame_left_unfinished_shows_what_its_own_machine_drew_before() -> None:
    """The first frame of a game of Q*bert; the thread's screens hold another machine's at that moment."""
    options = {"frameskip": 1, "stack_num": 1, "maxpool": False, "noop_max": 2, "use_fire_reset": False}
    side_by_side("qbert", 20, n=2, seed=0, max_num_frames_per_episode=5, **options)


def test_a_life_lost_in_the_step_in_which_time_is_up() -> None:
    """`life_loss_info` calls that terminated, not truncated; the game is over all the same."""
    options = {
        "frameskip": 6,
        "noop_max": 0,
        "use_fire_reset": False,
        "life_loss_info": True,
        "full_action_space": True,
    }
    options |= {"repeat_action_probability": 0.9, "max_num_frames_per_episode": 105}
    side_by_side("breakout", 20, n=2, seed=0, **options)


def test_episodes_do_end_in_these_tests() -> None:
    assert side_by_side("breakout", 200, seed=1, episodic_life=True) >= 5
    assert side_by_side("breakout", 250, seed=1, autoreset_mode="SameStep") >= 1


@pytest.mark.parametrize("game", NAMES)
def test_all_games_equal_ale(game: str) -> None:
    """Other screen heights, PAL, unfinished frames, paddles and long starts; sticky actions draw numbers."""
    n = 2 if game in KEEPERS else 1  # consoles that keep screens must not get each other's
    side_by_side(game, 25, n=n, seed=5, repeat_action_probability=0.25, max_num_frames_per_episode=70)


@settings(max_examples=25, deadline=None)
@given(
    game=st.sampled_from(
        ["breakout", "ms_pacman", "qbert", "double_dunk", "air_raid", "tetris", "freeway", "tic_tac_toe_3d"]
    ),
    options=st.fixed_dictionaries(
        {
            "frameskip": st.integers(1, 6),
            "stack_num": st.integers(1, 5),
            "maxpool": st.booleans(),
            "noop_max": st.integers(0, 40),
            "use_fire_reset": st.booleans(),
            "episodic_life": st.booleans(),
            "life_loss_info": st.booleans(),
            "reward_clipping": st.booleans(),
            "grayscale": st.booleans(),
            "full_action_space": st.booleans(),
            "repeat_action_probability": st.sampled_from([0.0, 0.1, 0.25, 0.9]),
            "max_num_frames_per_episode": st.integers(5, 120),
            "autoreset_mode": st.sampled_from(["NextStep", "SameStep"]),
            "img_height": st.sampled_from([84, 60, 100, 250]),
            "img_width": st.sampled_from([84, 61, 160]),
        }
    ),
    seed=st.integers(0, 2**31 - 10),
)  # fmt: skip
def test_any_options_equal_ale(game: str, options: dict[str, Any], seed: int) -> None:
    side_by_side(game, 20, n=2, seed=seed, **options)


@pytest.mark.parametrize("sticky", [0.0, 0.4])
@pytest.mark.parametrize("game", ["breakout", "seaquest"])
def test_continuous_actions_equal_ale(game: str, sticky: float) -> None:
    kwargs = {"continuous": True, "continuous_action_threshold": 0.3, "repeat_action_probability": sticky}
    theirs, ours = AtariVectorEnv(game, 2, num_threads=1, **kwargs), AtariVec(game, 2, num_threads=1, **kwargs)
    same(ours.reset(seed=2)[0], theirs.reset(seed=2)[0], "reset")
    ours.action_space.seed(0)
    assert ours.action_space == theirs.action_space
    for t in range(80):
        actions = ours.action_space.sample()
        for x, y in zip(ours.step(actions), theirs.step(actions), strict=True):
            same(x, y, f"step {t}")


def test_threads_change_nothing() -> None:
    side_by_side("seaquest", 60, n=9, threads=3, episodic_life=True)


def test_the_reference_says_the_same() -> None:
    """The plain-Python rules that `vector/agent_step.py` was written from."""
    options = {"episodic_life": True, "repeat_action_probability": 0.25}
    slow, fast = Oracle("breakout", 2, "NextStep", Options(**options)), AtariVec("breakout", 2, **options)
    same(fast.reset(seed=4)[0], slow.reset(4)[0], "reset")
    rng = np.random.default_rng(0)
    for t in range(150):
        actions = rng.integers(0, 4, 2)
        for x, y in zip(fast.step(actions), slow.step(actions), strict=True):
            same(x, y, f"step {t}")


def test_make_vec_finds_it() -> None:
    env = gymnasium.make_vec("DQNitro/Pong-v5", num_envs=2)
    assert isinstance(env.unwrapped, AtariVec)
    ale = gymnasium.make_vec("ALE/Pong-v5", num_envs=2)
    same(env.reset(seed=1)[0], ale.reset(seed=1)[0], "reset")
    actions = np.array([2, 3])
    for _ in range(30):
        for x, y in zip(env.step(actions), ale.step(actions), strict=True):
            same(x, y, "step")
