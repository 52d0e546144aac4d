"""Each chip on its own, by small programs that run here and in ale-py, which takes any image named like a game."""

from __future__ import annotations

import random

import ale_py
import numpy as np
import pytest

from dqnitro.atari import Console
from dqnitro.atari.compare_with_ale import check_game
from dqnitro.atari.games import roms
from support.atari import micro


def same_as_ale(rom: bytes, tmp_path, frames: int = 6) -> None:
    path = tmp_path / f"{micro.GAME}.bin"
    path.write_bytes(bytes(rom))
    result = check_game(micro.GAME, frames, rom=path)
    assert result.equal, result.difference


@pytest.mark.parametrize("seed", range(12))
def test_opcodes_documented_or_not_leave_the_same_registers(seed, tmp_path):
    same_as_ale(micro.image(micro.frame(micro.opcode_trials(seed), 30, 200)), tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_picture_and_collisions_after_stores_at_any_clock(seed, tmp_path):
    body = micro.tia_lines(seed)
    same_as_ale(micro.image(micro.frame(body, 37 + seed, 60)), tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_timer_counts_and_runs_out_alike(seed, tmp_path):
    same_as_ale(micro.image(micro.frame(micro.timer_trials(seed), 37, 100)), tmp_path, frames=12)


@pytest.mark.parametrize(
    ("size", "hot", "ram"),
    [(8192, range(0xFF8, 0xFFA), False), (16384, range(0xFF6, 0xFFA), False),
     (8192, range(0xFF8, 0xFFA), True), (16384, range(0xFF6, 0xFFA), True)],
    ids=["F8", "F6", "F8SC", "F6SC"],
)  # fmt: skip
def test_banks_switch_on_reads_and_writes(size, hot, ram, tmp_path):
    code = micro.frame(micro.bank_trials(1, hot, ram), 37, 150, at=0xF100)
    rom = micro.image(code, size)
    for bank in range(size // 4096):
        at = 4096 * bank
        # The program starts behind the RAM ports; the page 1F00 differs from bank to bank.
        rom[at : at + len(code) + 256] = bytes(256) + code
        rom[at + 0xF00 : at + 0xFC0] = bytes(random.Random(bank).randrange(256) for _ in range(0xC0))
        rom[at + 0xFFA : at + 0x1000] = bytes([0x00, 0xF1] * 3)
        if not ram:
            rom[at] = 1 + bank  # RAM would hide these bytes: now they are not all alike
    same_as_ale(rom, tmp_path)


# 3 and 9 end up with TIA registers as code while the machine restarts; 48 dies in a frame that a restart goes on
# drawing.
@pytest.mark.parametrize("seed", [*range(12), 48])
def test_random_bytes_as_a_program_go_the_same_way(seed, tmp_path):
    rom = np.random.default_rng(seed).integers(0, 256, 4096, np.uint8)
    rom[0xFFA:] = [0x00, 0xF0] * 3
    same_as_ale(rom.tobytes(), tmp_path, frames=30)


@pytest.mark.parametrize("game", sorted(roms.LAST_READ)[::5])
def test_the_bus_keeps_what_the_rules_read_last_between_frames_of_a_restart(game, tmp_path):
    """With BRK and CLC spread over RAM in another way for each bit of an address, one byte alone fits all results."""
    ways = set()
    for bit in range(7):
        pattern = bytes(0x18 if k >> bit & 1 else 0x00 for k in range(128))
        path = tmp_path / f"{game}.bin"
        path.write_bytes(micro.in_tia_space(pattern))
        ale = ale_py.ALEInterface()
        ale.setInt("random_seed", 0)
        ale.loadROM(str(path))
        # RAM alone: ale-py knows the picture's height by the image, not by its name
        np.testing.assert_array_equal(Console(game, rom=path).ram[0], ale.getRAM())
        ways.add(tuple(ale.getRAM()[:2] == [0x5A, 0xA5]))
    assert len(ways) == 2, "both BRK and CLC were met"
