"""Machines that keep their screens: under 100 KB, and yet every byte as in ale-py, at the moments at which something must be worked out."""

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

from dqnitro.atari import AtariVec, games, keeping
from dqnitro.atari.batches import make_memory, restore_one, saved
from dqnitro.atari.rng import MT_SIZE, mt_drawn, mt_next, mt_restore, mt_seed
from dqnitro.atari.target import device

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)

# A frame of these may be left unfinished and go on later, over what an older one left.
KEEPERS = {"entombed", "koolaid", "qbert", "tetris", "tic_tac_toe_3d", "trondead", "video_checkers", "video_chess"}


SPARE_SEEDS = np.array(
    [3, 4, 6, 7]
)  # with FIRE, the second step of the two in the middle shows a frame that then goes on
TWELVE_FRAMES: dict[str, Any] = {
    "max_num_frames_per_episode": 12
}  # an episode ends in the last frame of its third step


def test_memory_of_a_machine_in_all_games() -> None:
    """Under 100 KB at the default options. Spare screens are reserved, but hardly any is ever touched: see below."""
    n, need, keepers = 3, {}, set()
    for game in games.GAMES:
        envs = AtariVec(game, n, num_threads=1)
        need[game] = sum(array.nbytes for key, array in envs._memory.items() if key != "spares") / n
        if len(envs._memory["kept"]):
            keepers.add(game)
        envs.close()
    assert keepers == KEEPERS
    assert max(need.values()) < 100_000
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


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel which pages are in memory")
def test_memory_that_is_really_there() -> None:
    """In the one game in which spare screens are used in play."""
    n = 96
    envs = AtariVec("tic_tac_toe_3d", n, **TWELVE_FRAMES)
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(np.ones(n, np.int64))
    in_use = int(spare_in_use(envs).sum())
    assert 1 <= in_use <= n // 2
    spares = resident(envs._memory["spares"])
    assert 0 < spares <= (in_use + 1) * 33_600 + mmap.PAGESIZE, "the lowest ones, and no other"
    assert spares + sum(array.nbytes for key, array in envs._memory.items() if key != "spares") < n * 120_000
    envs.close()


def test_the_observation_space_takes_no_memory_and_is_still_one() -> None:
    space = AtariVec("pong", 3).observation_space
    usual = Box(0, 255, (3, 4, 84, 84), np.uint8)
    assert space == usual and usual == space and hash(repr(space)) == hash(repr(usual))
    assert all(0 in array.strides for array in (space.low, space.high, space.bounded_below, space.bounded_above))  # type: ignore[attr-defined]
    assert space.sample() in space and pickle.loads(pickle.dumps(space)) == usual and copy.deepcopy(space) == usual


def spare_in_use(envs: AtariVec) -> np.ndarray:
    kept = envs._memory["kept"]
    used = kept[:, keeping.K_OTHER] == keeping.SPARE
    assert (used == (kept[:, keeping.K_SPARE] > 0)).all()
    assert envs._memory["owners"].sum() == used.sum(), "every spare screen in use belongs to one machine"
    assert len(set(kept[used, keeping.K_SPARE].tolist())) == used.sum()
    return used


def test_an_episode_that_ends_after_a_spare_screen_was_shown_equals_ale() -> None:
    """The last picture of such an episode is pooled with the step's before, one of whose frames is in no buffer any more."""
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
    assert len(state["spares"]) == 2, "only what is in use is copied"
    two.reset(seed=99)
    two.set_state(state)
    two.put_state(0, single.get_state())  # takes a third spare screen
    two.put_state(1, single.get_state())  # gives one back and takes it again
    assert spare_in_use(two).tolist() == [True, True, True, False]
    last, expected = two.step(fire)[0], one.step(fire)[0]
    for here, there in enumerate((2, 2, 2, 3)):
        np.testing.assert_array_equal(last[here], expected[there])


def test_putting_a_state_gives_back_the_spare_screen_that_was_in_use() -> None:
    memory, one = make_memory(3, 210, 4, 7056, 1, True), make_memory(1, 210, 4, 7056, 1, True)
    memory["owners"][1], memory["kept"][2, keeping.K_SPARE] = 1, 2
    restore_one(memory, 2, saved(one))
    assert not memory["owners"].any() and not memory["kept"].any()


@device
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


def test_spare_screens_are_claimed_once_by_many_threads() -> None:
    """Machines of several threads remember at once; compared with the same games on one thread."""
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
