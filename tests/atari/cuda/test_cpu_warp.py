"""The GPU's version of the console compared with the compiled one, without a GPU: every number after every frame."""

from __future__ import annotations

import numpy as np
import pytest

from dqnitro.atari.chips import cpu_opcodes
from dqnitro.atari.chips.layout import S_CYCLES, S_DEAD, S_LINES
from dqnitro.atari.console import Console
from dqnitro.atari.cuda import microcode
from support.atari.fuzz_random_roms import SIZES
from support.atari.gpu_model import HAPPENED, OnPaper

# Kinds of cartridge, paddles, collisions read in the picture, the stack in the TIA, BRK: what each game is known for.
GAMES = ["pong", "breakout", "qbert", "space_invaders", "beam_rider", "montezuma_revenge", "alien"]


def beside(console: Console, together: bool, frames: int) -> OnPaper:
    random = np.random.default_rng(2)
    twin = OnPaper(console, together)
    for k in range(frames):
        action, draw = int(random.integers(18)), k % 2 == 1
        assert twin.act(action, draw) == console.act(action, draw)[0]
        twin.compare()
    return twin


@pytest.mark.parametrize("together", [True, False], ids=["phases", "loop"])
@pytest.mark.parametrize("game", GAMES)
def test_frames_on_paper_are_the_compiled_ones(game, together):
    console = Console(game, seed=1, repeat_action_probability=0.25)
    random = np.random.default_rng(1)
    for _ in range(150):
        console.act(random.integers(18))
    HAPPENED.clear()
    beside(console, together, 4 if together else 2)
    ways = HAPPENED["replay_together"] > 0, HAPPENED["replay_apart"] > 0
    assert ways == (together, not together) and HAPPENED["store"] > 100, "the TIA's way for a warp, or for one console"
    assert (HAPPENED["play"] > 0) == together, "the loop that was asked for"


def program(random: np.random.Generator) -> bytes:
    """4K of official instructions with operands in RAM, ROM and all chips; short branches; at the end back to the
    start.
    """
    known = [
        k
        for k in range(256)
        if microcode.KNOWN[k] and cpu_opcodes.NAMES[k] not in ("RTI", "RTS", "BRK", "JSR", "JMP", "TXS")
    ]
    code = bytearray([0xA2, 0xFF, 0x9A])  # a stack to begin with
    while len(code) < 3800:
        opcode = int(random.choice(known))
        mode = cpu_opcodes.MODE[opcode]
        code.append(opcode)
        if mode == cpu_opcodes.REL:
            code += bytes([int(random.integers(3)), 0xEA, 0xEA])
        elif cpu_opcodes.LENGTH[mode] == 3:
            zero_page, rom = int(random.integers(256)), 0xF000 + int(random.integers(0xE00))
            code += int(random.choice([zero_page, zero_page, rom, 0x280 + (zero_page & 31)])).to_bytes(2, "little")
        elif cpu_opcodes.LENGTH[mode] == 2:
            code.append(int(random.choice([random.integers(256), 0x80 + random.integers(128)])))
    code += bytes([0xEA] * 16 + [0x4C, 0x00, 0xF0])
    return bytes(code) + bytes(4096 - len(code) - 4) + bytes([0x00, 0xF0, 0x00, 0xF0])


@pytest.mark.parametrize("seed", range(4))
def test_instructions_with_any_operand_on_paper_are_the_compiled_ones(seed):
    console = Console(rom=program(np.random.default_rng(seed)), cartridge="4K")
    HAPPENED.clear()
    beside(console, True, 3)
    assert HAPPENED["store"] > 50 and HAPPENED["chip_read"] > 200, "the chips were spoken to"
    assert HAPPENED["step_unit"] < 1000, "and most of some thousand instructions did not take the plain way"


@pytest.mark.parametrize("kind", list(SIZES))
def test_random_programs_on_paper_are_the_compiled_ones(kind):
    """Every opcode, every kind of cartridge, the stack and the program counter anywhere."""
    played = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        image = random.integers(0, 256, SIZES[kind], np.uint8)
        image[np.isin(image, range(0x02, 0x100, 0x10))] = 0x85
        console = Console(rom=image.tobytes(), cartridge=kind)
        if console._state[0, S_DEAD]:  # tests nothing
            continue
        beside(console, True, 1)
        played = 1
        break
    assert played


def test_a_frame_that_never_ends_stays_within_32_bits():
    """LDA $80; JMP to it: no store into the TIA, so cycles would pile up for ever."""
    image = bytes([0xA5, 0x80, 0x4C, 0x00, 0xF0]) + bytes(4096 - 9) + bytes([0x00, 0xF0, 0x00, 0xF0])
    console = Console(rom=image, cartridge="4K")
    console._state[0, S_CYCLES] += 76 * 10**6
    twin = OnPaper(console, True)
    assert twin.act(0, False) == console.act(0, False)[0]
    twin.compare()
    assert 1 << 24 < console._state[0, S_CYCLES] < 1 << 25, "called by smaller numbers"
    assert console._state[0, S_LINES] > 300, "and still far below the picture"


def test_the_tables_name_every_official_opcode():
    assert sum(microcode.KNOWN) == 151 + 28, "the official ones, 27 more ways to do nothing, a second SBC"
    assert not microcode.KNOWN[[0x07, 0xA3, 0xAB, 0x02]].any(), "SLO, LAX, LXA, JAM"
    how, do = microcode.HOW, microcode.DO
    assert (how & microcode.LENGTH_BITS > 0).all() and how.max() < 2**31 and do.max() < 2**31
    lda, inc, sbc = 0xA5, 0xE6, 0xE5  # zero page
    assert how[lda] & microcode.READS and not how[lda] & microcode.WRITES and do[lda] & microcode.TO_REGISTER
    assert how[inc] & microcode.READS and how[inc] & microcode.WRITES and not do[inc] & microcode.TO_REGISTER
    assert do[sbc] & microcode.INVERTED and do[sbc] & microcode.WITH_C and do[sbc] & microcode.SETS_V


def test_a_word_says_what_it_must_not_do_itself():
    """The first byte behind the window, a jump out of the ROM, an unknown opcode: the plain way."""
    image = np.full(4096, 0xEA, np.uint8)
    image[:6] = [0x4C, 0x00, 0x00, 0x4C, 0x00, 0xF0]  # JMP $0000, JMP $F000
    image[6:11] = [0xAD, 0x84, 0x02, 0xD0, 0xFB]  # LDA INTIM; BNE back to it
    image[16] = 0x07  # SLO
    words = microcode.microcode(image, Console(rom=image.tobytes(), cartridge="4K")._prop)
    notes = words >> 24
    assert notes[0] == notes[16] == notes[4095] == microcode.FOR_REFERENCE
    assert notes[3] == notes[20] == 0
    assert notes[6] == (microcode.UNTIL_ZERO << 4) | 7
    assert (words & 0xFF == image).all(), "the table is the ROM as well"
