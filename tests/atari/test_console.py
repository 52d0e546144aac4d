"""The Python side of the console: arguments, states, errors."""

from __future__ import annotations

import numpy as np
import pytest

from dqnitro.atari.console import Console
from dqnitro.atari.games import roms
from dqnitro.atari.games.roms import UnsupportedRom


def play(console: Console, frames: int, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    seen = []
    for _ in range(frames):
        rewards = console.act(random.integers(0, 18, console.n))
        seen += [rewards, console.ram.copy(), console.screen, console.lives]
    return seen


def test_machines_are_independent():
    console = Console("breakout", n=3)
    for _ in range(60):
        console.act([1, 3, 4])
    assert not np.array_equal(console.ram[1], console.ram[2])
    alone = Console("breakout")
    for _ in range(60):
        alone.act(3)
    assert np.array_equal(console.ram[1], alone.ram[0])
    assert np.array_equal(console.screen[1], alone.screen[0])


@pytest.mark.parametrize("name", ["pong", "pitfall2", "klax", "montezuma_revenge"])
def test_a_restored_state_goes_on_the_same_way(name):
    console = Console(name, n=2, repeat_action_probability=0.25)
    play(console, 37, 1)
    state = console.get_state()
    first = play(console, 40, 2)
    play(console, 11, 3)
    console.set_state(state)
    again = play(console, 40, 2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_frame_without_pixels_changes_nothing_else():
    drawn, blind = Console("seaquest"), Console("seaquest")
    for k in range(200):
        drawn.act(k % 18)
        blind.act(k % 18, draw=k % 4 >= 2)
        assert np.array_equal(drawn.ram, blind.ram)
        if k % 4 >= 2:
            assert np.array_equal(drawn.screen, blind.screen)


def test_a_rom_file_of_ones_own_runs(tmp_path):
    image = (roms.folder() / "pong.bin").read_bytes()
    path = tmp_path / "mine.bin"
    path.write_bytes(image)
    console = Console(rom=path)
    assert console.rom.cartridge == "2K" and console.game is None
    console.act(1)
    assert console.screen.any() and not console.game_over[0] and console.lives[0] == 0
    named = Console(rom=image, game="pong")
    assert named.game is not None and named.game.name == "pong"


def test_a_european_rom_is_found_by_its_frames():
    image = (roms.folder() / "adventure.bin").read_bytes()
    console = Console(rom=image)
    assert console.rom.pal and console.screen.shape == (1, 250, 160)


def test_types_of_all_shipped_cartridges_are_found_by_their_bytes():
    kinds = {name: roms.load(name).cartridge for name in roms.shipped()}
    assert {kind: sum(k == kind for k in kinds.values()) for kind in ("E0", "FE", "F8SC", "F6SC", "DPC", "F6")} == {
        "E0": 3, "FE": 1, "F8SC": 1, "F6SC": 2, "DPC": 1, "F6": 4
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Console(), ValueError, "hint: Console"),
        (lambda: Console("pong", n=0), ValueError, "at least 1"),
        (lambda: Console("pnog"), KeyError, "did you mean"),
        (lambda: Console(rom="nowhere.bin"), FileNotFoundError, "nowhere.bin"),
        (lambda: Console(rom=bytes(5000)), UnsupportedRom, "supported sizes"),
        (lambda: Console(rom=bytes(4096), cartridge="F8"), UnsupportedRom, "8,192"),
        (lambda: Console(rom=bytes(8192), cartridge="3F"), UnsupportedRom, "not supported"),
        (lambda: Console(rom=b""), UnsupportedRom, "empty"),
        (lambda: Console("pong").act(18), ValueError, "0..17"),
        (lambda: Console("pong").set_state(Console("pong", n=2).get_state()), ValueError, "does not fit"),
        (lambda: Console("pong").set_state(Console("surround").get_state()), ValueError, "another ROM"),
    ],
)
def test_errors_say_what_to_do(make, error, says):
    with pytest.raises(error, match=says):
        make()
