"""The console beside ale-py, from power-on: RAM, screen, reward, lives and game over equal on every frame."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dqnitro.atari.compare_with_ale import CheckResult, check, check_game, check_vectors
from dqnitro.atari.games import game_table

FRAMES = 200


@pytest.mark.parametrize("name", sorted(game_table.GAMES))
def test_a_game_equals_ale_on_every_frame(name):
    result = check_game(name, FRAMES, seed=sum(name.encode()), hold=3)
    assert result.equal, result.difference
    assert result.frames == FRAMES


def test_check_plays_rewards_and_restarts():
    """A comparison in which nothing happens would prove nothing."""
    results = list(check(["pong", "breakout", "space_invaders"], frames=900, seed=1))
    assert [r.game for r in results] == ["pong", "breakout", "space_invaders"]
    assert all(r.equal for r in results)
    assert sum(r.games_started for r in results) > 3 and sum(r.rewards for r in results) > 3


def test_check_notices_a_difference(monkeypatch):
    """One wrong pixel column is found in the first frames."""
    from dqnitro.atari.games import roms

    monkeypatch.setitem(roms.Y_START, "pong", 35)
    result = check_game("pong", 50)
    assert not result.equal and "screen" in result.difference
    assert result.as_dict()["equal"] is False
    assert isinstance(result, CheckResult)


def test_vectors_of_consoles_equal_ale_on_every_frame():
    """What `--device cuda` compares on a GPU, here on the CPU: NTSC and PAL, several games at a time."""
    results = list(check_vectors(["breakout", "air_raid", "tic_tac_toe_3d"], frames=150, device="cpu", jobs=2))
    assert [r.difference for r in results] == ["", "", ""]
    assert all(r.frames == 150 and r.games_started >= 2 for r in results)
    assert sum(r.rewards for r in results) > 0


def test_a_comparison_of_vectors_notices_a_difference(monkeypatch):
    from dqnitro.atari import compare_with_ale

    monkeypatch.setitem(compare_with_ale.EVERY_FRAME, "noop_max", 0)
    real = compare_with_ale.AtariVec
    monkeypatch.setattr(compare_with_ale, "AtariVec", lambda *a, **k: real(*a, **k | {"use_fire_reset": False}))
    [result] = check_vectors(["breakout"], frames=50, device="cpu")
    assert "after power-on" in result.difference and "screen" in result.difference and result.frames == 0


@pytest.mark.skipif(
    not os.environ.get("DQNITRO_TEST_BOUNDS"),
    reason="compiling the console with bounds checks takes minutes: make test-bounds",
)
def test_random_roms_of_every_type_stay_inside_their_arrays():
    """With bounds checks compiled in, which needs a process (and a compiler's cache) of its own."""
    cache = Path(tempfile.gettempdir()) / "dqnitro-bounds-checked"
    env = os.environ | {"DQNITRO_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    script = Path(__file__).parents[1] / "support" / "atari" / "fuzz_random_roms.py"
    done = subprocess.run([sys.executable, script, "27", "100"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2700 frames" in done.stdout
