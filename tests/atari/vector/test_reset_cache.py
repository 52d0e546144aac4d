"""The start after power-on, worked out once: used where it may be, and the same as without it."""

from __future__ import annotations

import numpy as np
import pytest

from dqnitro.atari import AtariVec
from dqnitro.atari.vector import reset_cache


@pytest.mark.parametrize(
    ("game", "known"), [("pong", True), ("tetris", True), ("berzerk", False), ("double_dunk", False)]
)
def test_it_is_kept_where_the_seed_has_no_say(game: str, known: bool) -> None:
    """In the other two, actions choose the variant, and every action draws a number."""
    envs = AtariVec(game, 2, num_threads=1)
    assert envs._shared.start.flag[0] == reset_cache.EMPTY
    envs.reset(seed=0)
    assert bool(envs._shared.start.flag[0] == reset_cache.READY) == known
    envs.close()


@pytest.mark.parametrize("game", ["breakout", "qbert", "pitfall2"])
def test_games_that_begin_from_it_go_on_as_those_that_do_not(game: str) -> None:
    """(`test_vec.py` compares them with ale-py.) Power-on must forget whatever the machine did before."""
    fresh, used = AtariVec(game, 3, num_threads=1), AtariVec(game, 3, num_threads=1)
    used.reset(seed=50)
    for _ in range(30):
        used.step(np.array([1, 2, 3]))
    fresh._shared.start.flag[0] = reset_cache.TAKEN  # nobody may keep it, so nobody begins from it
    a, b = fresh.reset(seed=7), used.reset(seed=7)
    assert fresh._shared.start.flag[0] == reset_cache.TAKEN and used._shared.start.flag[0] == reset_cache.READY
    np.testing.assert_array_equal(a[0], b[0])
    for k in range(40):
        a, b = fresh.step(np.array([k % 4, 1, 0])), used.step(np.array([k % 4, 1, 0]))
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(x, y)
    mine, other = fresh.get_state(), used.get_state()
    for key in ("state", "ram", "rules", "rng_actions", "rng_machine", "rng_noops", "kept"):
        np.testing.assert_array_equal(mine[key], other[key], err_msg=key)


def test_many_threads_begin_at_once() -> None:
    one, many = AtariVec("breakout", 12, num_threads=1), AtariVec("breakout", 12, num_threads=4)
    for seed in range(4):
        np.testing.assert_array_equal(many.reset(seed=seed)[0], one.reset(seed=seed)[0])
        np.testing.assert_array_equal(many.step(np.ones(12, np.int64))[0], one.step(np.ones(12, np.int64))[0])
    many.close()
