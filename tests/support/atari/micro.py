"""Small test programs for the console, made of random pieces, and ROM images around them."""

from __future__ import annotations

import random

from dqnitro.atari.chips.cpu_opcodes import ABS, ABX, ABY, IMM, IMP, IZX, IZY, LENGTH, MODE, NAMES, ZP, ZPX, ZPY

GAME = "asterix"  # its rules hardly ever end a game of somebody else's program, and it has no mode selection
WSYNC, VSYNC, VBLANK = 0x02, 0x00, 0x01


def image(program: bytes, size: int = 4096) -> bytearray:
    """A ROM with the program at its start (in every bank) and the vectors at the end of every bank."""
    rom = bytearray(size)
    assert len(program) < 0xFD0, f"{len(program)} bytes do not fit"
    for bank in range(size // 4096):
        rom[4096 * bank : 4096 * bank + len(program)] = program
        rom[4096 * bank + 0xFFA : 4096 * bank + 0x1000] = bytes([0x00, 0xF0] * 3)
    return rom


def store(value: int, register: int) -> bytes:
    return bytes([0xA9, value, 0x85, register])


def frame(body: bytes, lines_before: int, lines_after: int, at: int = 0xF000) -> bytes:
    """A program that shows one frame for ever: VSYNC, blank lines, the body, blank lines."""
    wait = lambda n: bytes([0xA2, n, 0x85, WSYNC, 0xCA, 0xD0, 0xFB]) if n else b""  # noqa: E731
    code = store(2, VSYNC) + wait(3) + store(0, VSYNC) + wait(lines_before) + body + wait(lines_after)
    return code + bytes([0x4C, at & 0xFF, at >> 8])


def opcode_trials(seed: int, trials: int = 23) -> bytes:
    """Opcodes with random registers and flags; what they leave goes to RAM 80..DB."""
    rng = random.Random(seed)
    jumps = {"JMP", "JSR", "RTS", "RTI", "BRK", "JAM", "TXS", "PLA", "PHA", "PLP", "PHP", "LAS", "SHS"}
    usable = [
        code
        for code in range(256)
        if NAMES[code] not in jumps and MODE[code] in (IMP, IMM, ZP, ZPX, ZPY, ABS, ABX, ABY, IZX, IZY)
    ]
    code = bytearray([0xA2, 0xFF, 0x9A])
    for k in range(trials):
        opcode = rng.choice(usable)
        mode = MODE[opcode]
        x, y = rng.randrange(8), rng.randrange(8)
        # pointers at DC..DF and data at E0..EF, both rewritten before every trial
        for address in range(0xE0, 0xE4):
            code += store(rng.randrange(256), address)
        code += store(0xE0, 0xDC) + store(0x00, 0xDD)
        code += bytes([0xA9, rng.randrange(256), 0x48, 0x28])  # flags, decimal mode included
        code += bytes([0xA2, x, 0xA0, y, 0xA9, rng.randrange(256)])
        operand = {
            IMP: [], IMM: [rng.randrange(256)], ZP: [0xE0 + rng.randrange(4)],
            ZPX: [0xE0 - x + rng.randrange(4)], ZPY: [0xE0 - y + rng.randrange(4)],
            ABS: [0xE0 + rng.randrange(4), 0x00], ABX: [0xE0 - x, 0x00], ABY: [0xE0 - y, 0x01],
            IZX: [0xDC - x], IZY: [0xDC],
        }[mode]  # fmt: skip
        code.append(opcode)
        code += bytes(operand)
        assert len(operand) + 1 == LENGTH[mode]
        at = 0x80 + 4 * k
        code += bytes([0x08, 0x85, at, 0x86, at + 1, 0x84, at + 2, 0x68, 0x85, at + 3, 0xD8])
    return bytes(code)


def tia_lines(seed: int, lines: int = 130) -> bytes:
    """Random stores into picture registers at random places of each line, then all collisions into RAM."""
    rng = random.Random(seed)
    registers = [*range(0x04, 0x15), *range(0x1B, 0x2D), 0x10, 0x11, 0x2A, 0x1B, 0x1C, 0x0D, 0x0E, 0x0F]
    values = (0x00, 0xFF, 0x02, 0x10, 0x35, 0x70, 0x60, 0x80, 0x08, 0x05, 0x07, 0x26)
    code = bytearray(store(0, VBLANK))
    for _ in range(lines):
        code += bytes([0x85, WSYNC])
        code += bytes([0xEA] * rng.randrange(4))
        if rng.random() < 0.2:  # HMM0 right after HMOVE: the missile that moves on every line
            code += store(0x70, 0x22) + bytes([0x85, 0x2A]) + bytes([0xEA] * 7) + store(0x60, 0x22)
        for _ in range(rng.randrange(1, 4)):
            value = rng.choice(values) if rng.random() < 0.7 else rng.randrange(256)
            code += store(value, rng.choice(registers))
            code += bytes([0xEA] * rng.randrange(3))
    for port in range(8):
        code += bytes([0xA5, 0x30 + port, 0x85, 0x90 + port])
    return bytes(code) + store(rng.choice((0, 2)), VBLANK)


def timer_trials(seed: int, trials: int = 40) -> bytes:
    """Timers of all speeds, read at random moments, also after they ran out."""
    rng = random.Random(seed)
    code = bytearray()
    for k in range(trials):
        if rng.random() < 0.5:
            code += bytes([0xA9, rng.choice((0, 1, 2, 5, 0x40, 0xFF)), 0x8D, 0x94 + rng.randrange(4), 0x02])
        code += bytes([0xA2, rng.randrange(1, 60), 0xCA, 0xD0, 0xFD])
        code += bytes([0xEA] * rng.randrange(4))
        port = rng.choice((0x84, 0x84, 0x85, 0x80, 0x82, 0x81, 0x83, 0x86, 0x87))
        code += bytes([0xAD, port, 0x02, 0x85, 0x80 + k])
    return bytes(code)


def bank_trials(seed: int, hot: range, ram_port: bool) -> bytes:
    """Touch hot spots, then copy bytes that differ between the banks into RAM."""
    rng = random.Random(seed)
    code = bytearray()
    for k in range(40):
        spot = rng.choice(hot)
        code += bytes([rng.choice((0xAD, 0x8D, 0x2C)), spot & 0xFF, 0x10 | spot >> 8])
        code += bytes([0xAD, rng.randrange(0xC0), 0x1F, 0x85, 0x80 + k])
        if ram_port:
            at = rng.randrange(128)
            code += bytes([0x8D, at, 0x10, 0xAD, 0x80 + rng.randrange(128), 0x10, 0x85, 0xA8 + k])
    return bytes(code)


def in_tia_space(pattern: bytes) -> bytearray:
    """A program that fills RAM with a pattern and ends a frame with an instruction at the end of RAM: the next ones are
    TIA registers, whose lower bits are the last byte on the bus. BRK, or whatever comes out in RAM, leaves its mark."""
    ram = bytearray(pattern)
    ram[0:3] = [0x4C, 0x80, 0xF1]  # the way out, behind the TIA: to the second mark
    ram[0x7E:] = [0x85, VSYNC]
    sync = store(2, VSYNC) + bytes([0x85, WSYNC] * 3 + [0xA9, 0])
    fill = bytes([0x78, 0xD8, 0xA2, 0xFF, 0x9A, 0xA2, 0x7F, 0xBD, 0x00, 0xF2, 0x95, 0x80, 0xCA, 0x10, 0xF8])
    rom = image(fill + sync + bytes([0x4C, 0xFE, 0x00]))
    show = sync + bytes([0x85, VSYNC, 0xA2, 200, 0x85, WSYNC, 0xCA, 0xD0, 0xFB, 0x4C, 0x04, 0xF1])
    rom[0x100 : 0x104 + len(show)] = store(0x5A, 0x80) + show
    rom[0x180:0x187] = store(0xA5, 0x81) + bytes([0x4C, 0x04, 0xF1])
    rom[0x200:0x280] = ram
    rom[0xFFE:] = [0x00, 0xF1]
    return rom
