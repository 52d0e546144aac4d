"""Machines that keep their screens: under 100 KB, and yet every byte as in ale-py, at the moments at which something
must be worked out.
"""

from __future__ import annotations

import copy
import ctypes
import mmap
import os
import pickle
import sys
from typing import Any

import ale_py
import numpy as np
import pytest
from ale_py import AtariVectorEnv
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnitro.atari import AtariVec
from dqnitro.atari.chips import layout
from dqnitro.atari.chips.cpu_predecode import predecode
from dqnitro.atari.chips.rng import MT_SIZE, mt_drawn, mt_next, mt_restore, mt_seed
from dqnitro.atari.games import game_table, roms
from dqnitro.atari.jit.target import compiled
from dqnitro.atari.vector import screen_store
from dqnitro.atari.vector.memory import make_memory, make_shared, restore_one, saved
from dqnitro.atari.vector.options import VecOptions
from support.atari.oracle import KEEPERS

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


SPARE_SEEDS = np.array(
    [3, 4, 6, 7]
)  # with FIRE, the second step of the two in the middle shows a frame that then goes on
TWELVE_FRAMES: dict[str, Any] = {
    "max_num_frames_per_episode": 12
}  # an episode ends in the last frame of its third step


def test_memory_of_a_machine_in_all_games() -> None:
    """At the default options. For rows of screens more is reserved than most machines ever touch: see below."""
    n, need, keepers = 3, {}, set()
    for game in game_table.GAMES:
        envs = AtariVec(game, n, num_threads=1)
        need[game] = sum(array.nbytes for key, array in envs._memory._asdict().items() if key != "rows") / n
        if len(envs._memory.kept):
            keepers.add(game)
        envs.close()
    assert keepers == KEEPERS
    assert max(size for game, size in need.items() if game in KEEPERS) < 35_000
    assert max(size for game, size in need.items() if game not in KEEPERS) < 80_000


def resident(array: np.ndarray) -> int:
    """Bytes of an array that are in memory, in whole pages."""
    page = mmap.PAGESIZE
    first, last = array.ctypes.data // page, -(-(array.ctypes.data + array.nbytes) // page)
    there = np.zeros(last - first, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.mincore(*(ctypes.c_void_p(v) for v in (first * page, (last - first) * page, there.ctypes.data)))
    assert done == 0, os.strerror(ctypes.get_errno())
    return int((there & 1).sum()) * page


def taken(envs: AtariVec) -> float:
    """Bytes of memory for each machine."""
    memory = envs._memory
    return (
        resident(memory.rows) + sum(a.nbytes for key, a in memory._asdict().items() if key != "rows")
    ) / envs.num_envs


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel which pages are in memory")


@on_linux
@pytest.mark.parametrize("game", sorted(KEEPERS))
def test_memory_that_is_really_there_in_play(game: str) -> None:
    n, rng = 16, np.random.default_rng(0)
    envs = AtariVec(game, n)
    before = taken(envs)
    envs.reset(seed=0)
    for _ in range(60):
        envs.step(rng.integers(0, envs.single_action_space.n, n))  # type: ignore[attr-defined]
    rows = envs._memory.kept[:, screen_store.K_ROWS]
    assert rows.min() > 0 and taken(envs) - before > 150 * rows.mean(), "this measures nothing"
    assert taken(envs) < 95_000
    envs.close()


@on_linux
def test_memory_that_is_really_there_when_every_machine_has_a_third_screen() -> None:
    n = 64
    one, many = AtariVec("tic_tac_toe_3d", 1, **TWELVE_FRAMES), AtariVec("tic_tac_toe_3d", n, **TWELVE_FRAMES)
    one.reset(seed=int(SPARE_SEEDS[1]))
    many.reset(seed=0)
    for _ in range(2):
        one.step(np.ones(1, np.int64))
    for i in range(n):
        many.put_state(i, one.get_state())
    assert spare_in_use(many).all()
    assert taken(many) < 95_000
    fire = np.ones(n, np.int64)
    last, there = many.step(fire), one.step(fire[:1])
    np.testing.assert_array_equal(last[0], np.repeat(there[0], n, axis=0))


def test_the_observation_space_takes_no_memory_and_is_still_one() -> None:
    space = AtariVec("pong", 3).observation_space
    usual = Box(0, 255, (3, 4, 84, 84), np.uint8)
    assert space == usual and usual == space and hash(repr(space)) == hash(repr(usual))
    assert all(0 in array.strides for array in (space.low, space.high, space.bounded_below, space.bounded_above))  # type: ignore[attr-defined]
    assert space.sample() in space and pickle.loads(pickle.dumps(space)) == usual and copy.deepcopy(space) == usual


def spare_in_use(envs: AtariVec) -> np.ndarray:
    kept, where = envs._memory.kept, envs._memory.where
    used = kept[:, screen_store.K_OTHER] == screen_store.SPARE
    for k in range(len(kept)):
        screens = where[k, : 3 if used[k] else 2]
        assert screens.min() == 0 and screens.max() == kept[k, screen_store.K_ROWS] - 1, (
            "every row that is kept is needed"
        )
    return used


def test_an_episode_that_ends_after_a_spare_screen_was_shown_equals_ale() -> None:
    """The last picture of such an episode is pooled with the step's before, one of whose frames is in no buffer any
    more.
    """
    theirs = AtariVectorEnv("tic_tac_toe_3d", 4, num_threads=1, **TWELVE_FRAMES)
    ours = AtariVec("tic_tac_toe_3d", 4, num_threads=1, **TWELVE_FRAMES)
    theirs.reset(seed=SPARE_SEEDS)
    ours.reset(seed=SPARE_SEEDS)
    before, seen = np.zeros(4, bool), 0
    for _ in range(5):
        a, b = ours.step(np.ones(4, np.int64)), theirs.step(np.ones(4, np.int64))
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(x, y)
        seen += int((before & a[3]).sum())
        before = spare_in_use(ours)
    assert seen == 2, "no episode ended after a spare screen was shown: this test proves nothing"


def test_states_carry_spare_screens_along() -> None:
    def make(n: int) -> AtariVec:
        return AtariVec("tic_tac_toe_3d", n, num_threads=1, **TWELVE_FRAMES)

    fire = np.ones(4, np.int64)
    one, two, single = make(4), make(4), make(1)
    one.reset(seed=SPARE_SEEDS)
    single.reset(seed=SPARE_SEEDS[2:3])
    for _ in range(2):
        one.step(fire)
        single.step(fire[:1])
    assert spare_in_use(one).tolist() == [False, True, True, False] and spare_in_use(single).all()
    state = one.get_state()
    rows = state["kept"][:, screen_store.K_ROWS]
    assert state["rows"].shape[1] == rows.max(), "only what is in use is copied"
    assert not any(state["rows"][k, rows[k] :].any() for k in range(4)), "nothing that is left over from before"
    two.reset(seed=99)
    two.set_state(state)
    two.put_state(0, single.get_state())
    two.put_state(1, single.get_state())
    assert spare_in_use(two).tolist() == [True, True, True, False]
    last, expected = two.step(fire)[0], one.step(fire)[0]
    for here, there in enumerate((2, 2, 2, 3)):
        np.testing.assert_array_equal(last[here], expected[there])


def test_a_state_can_be_put_where_a_machine_is_and_nowhere_else() -> None:
    memory, one = make_memory(3, 210, VecOptions(), True), saved(make_memory(1, 210, VecOptions(), True))
    rom = roms.load("pong")
    shared = make_shared(VecOptions(), game_table.game("pong"), rom, predecode(rom))
    for array in memory:
        array[:] = 1
    restore_one(memory, shared, -1, one)
    assert not memory.where[2].any() and memory.where[:2].all()
    for i in (3, -4):
        with pytest.raises(IndexError):
            restore_one(memory, shared, i, one)
    with pytest.raises(ValueError, match="hint: is num_envs the same"):
        restore_one(memory, shared, 0, saved(make_memory(2, 210, VecOptions(), True)))
    with pytest.raises(ValueError, match="where is not in the state. hint"):
        restore_one(memory, shared, 0, {key: array for key, array in one.items() if key != "where"})


@compiled
def draw_many(mt, n):
    x = 0
    for _ in range(n):
        x = mt_next(mt)
    return x


@pytest.mark.parametrize("draws", [0, 1, 2, 623, 624, 625, 1247, 1248, 1249, 5000])
def test_a_generator_is_its_seed_and_its_draws(draws: int) -> None:
    there, here = np.zeros(MT_SIZE, np.uint32), np.full(MT_SIZE, 7, np.uint32)
    mt_seed(there, 4753849)
    draw_many(there, draws)
    assert mt_drawn(there) == draws
    mt_restore(here, 4753849, draws)
    np.testing.assert_array_equal(here, there)
    assert draw_many(here, 3) == draw_many(there, 3)


def test_many_threads_keep_screens_at_once() -> None:
    """Compared with the same games on one thread."""
    n = 24
    one, many = (AtariVec("tic_tac_toe_3d", n, num_threads=threads, **TWELVE_FRAMES) for threads in (1, 4))
    one.reset(seed=0)
    many.reset(seed=0)
    seen = 0
    for _ in range(7):
        np.testing.assert_array_equal(many.step(np.ones(n, np.int64))[0], one.step(np.ones(n, np.int64))[0])
        assert (spare_in_use(many) == spare_in_use(one)).all()
        seen = max(seen, int(spare_in_use(many).sum()))
    assert seen >= 4
    many.close()


def plainly(screens: np.ndarray, now: int, other: int, luts: np.ndarray) -> np.ndarray:
    """The reference implementation of `recall`: from whole screens."""
    codes = screens.view(np.uint8)
    return np.maximum(luts[:, codes[now]], luts[:, codes[other]])


def draw_screens(rng: np.random.Generator, height: int, kinds: int, change: float) -> np.ndarray:
    """Rows of some kinds, mostly equal to the row above; screens that differ in some rows only."""
    few = rng.integers(0, 2**64, (kinds, layout.WORDS), np.uint64)
    first = few[np.where(rng.random(height) < 0.5, 0, rng.integers(0, kinds, height))]
    screens = np.repeat(first[None], screen_store.SCREENS, axis=0)
    for c in range(screen_store.SCREENS):
        for y in np.flatnonzero(rng.random(height) < change):
            screens[c, y, rng.integers(0, layout.WORDS)] ^= np.uint64(1) << np.uint64(rng.integers(0, 64))
    return screens


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    height=st.sampled_from([1, 2, 50, 210, 250]),
    kinds=st.sampled_from([1, 2, 5, 600]),
    change=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    now=st.integers(0, 1),
    other=st.integers(0, 2),
    channels=st.sampled_from([1, 3]),
)
def test_what_is_packed_is_what_was_there(
    seed: int, height: int, kinds: int, change: float, now: int, other: int, channels: int
) -> None:
    rng = np.random.default_rng(seed)
    screens = np.zeros((screen_store.SCREENS, layout.ROWS, layout.WORDS), np.uint64)
    before = screens[:, :height] = draw_screens(rng, height, kinds, change)
    luts = rng.integers(0, 256, (channels, 256), np.uint8)
    memory = make_memory(2, height, VecOptions(grayscale=channels == 1), True)
    neighbour = memory.rows[1].copy()
    kept, where, rows = memory.kept[0], memory.where[0], memory.rows[0]
    kept[screen_store.K_NOW], kept[screen_store.K_OTHER] = now, other
    screen_store.pack(screens, kept, where, rows)
    back = np.ones_like(screens)
    screen_store.unpack(where, rows, back[:2])
    np.testing.assert_array_equal(back[:2, :height], before[:2])
    assert (back[:2, height:] == 1).all() and (back[2] == 1).all(), "nothing beyond the picture"
    raw, source = np.zeros((channels, height, 160), np.uint8), np.zeros(height, np.int32)
    screen_store.recall(kept, where, rows, luts, raw, source, channels)
    np.testing.assert_array_equal(raw[:, source], plainly(before, now, other, luts))
    np.testing.assert_array_equal(memory.rows[1], neighbour)
    many = 3 if other == screen_store.SPARE else 2
    assert kept[screen_store.K_ROWS] <= height * many < len(rows)
    if change == 0:
        assert kept[screen_store.K_ROWS] <= height, "the other screens add nothing"


@pytest.mark.parametrize(
    ("threads", "options"),
    [
        (3, {"max_num_frames_per_episode": 12}),
        (1, {"max_num_frames_per_episode": 16, "autoreset_mode": "SameStep", "repeat_action_probability": 0.25}),
        (2, {"max_num_frames_per_episode": 9, "frameskip": 3, "grayscale": False, "noop_max": 60}),
    ],
    ids=str,
)
def test_many_short_episodes_of_unfinished_frames_equal_ale(threads: int, options: dict[str, Any]) -> None:
    """Each ends in the last frame of a step, so its last picture is worked out from the screens that are kept.

    Twice everything moves to another environment.
    """
    n, rng, fire = 8, np.random.default_rng(1), 1
    theirs = AtariVectorEnv("tic_tac_toe_3d", n, num_threads=1, **options)
    ours, other = (AtariVec("tic_tac_toe_3d", n, num_threads=threads, **options) for _ in range(2))
    np.testing.assert_array_equal(ours.reset(seed=40)[0], theirs.reset(seed=40)[0])
    other.reset(seed=0)
    before, recalled, ends = np.zeros(n, bool), 0, 0
    for t in range(40):
        if t in (11, 26):
            other.set_state(ours.get_state())
            ours, other = other, ours
        actions = np.where(rng.random(n) < 0.8, fire, rng.integers(0, ours.single_action_space.n, n))  # type: ignore[attr-defined]
        a, b = ours.step(actions), theirs.step(actions)
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(x, y, err_msg=f"step {t}")
        ended = a[2] | a[3]
        if "final_obs" in b[4]:
            np.testing.assert_array_equal(a[4]["final_obs"][ended], b[4]["final_obs"][ended])
        recalled, ends = recalled + int((before & ended).sum()), ends + int(ended.sum())
        before = spare_in_use(ours)
        assert not (before & ended).any(), "after an end nothing asks for the last picture"
    assert ends >= 60 and recalled >= 3, f"{recalled} of {ends} needed a third screen: this test proves nothing"
    ours.close()
    other.close()
