# ruff: noqa: F403, F405
"""Predecoding: what every address of a ROM means as an instruction, worked out once when the ROM is loaded.

A word for each program counter: handler, operand, length and cycles, so that the loop in ``machine.py`` fetches one
number instead of up to three bytes and decides nothing that is already certain:

* an operand in RAM, in a TIA register or in the RIOT's timer gets a handler of its own;
* a read of a fixed ROM byte becomes an immediate value;
* a load of A whose next instruction stores it into the TIA, or a count and the branch after it, become one handler;
* a loop that only waits (for the timer, or by counting X or Y down) gets a handler that skips it in one go.

Handlers have the number of their opcode where the meaning is the usual one; others use numbers of undocumented
opcodes, which always take the plain way (`SLOW`: ``cpu.step``), as does every instruction that is not wholly
inside the plain window of its bank.
"""

from __future__ import annotations

import numpy as np

from .layout import *
from .opcodes import *
from .roms import Rom
from .target import device
from .tia import LOGGED

(
    SLOW, STA_TIA, STX_TIA, STY_TIA, WSYNC, LDA_INTIM, LDX_INTIM, LDY_INTIM, WAIT_ZERO, WAIT_MINUS,
    DEX_LOOP, DEY_LOOP, LDA_INPUT, BIT_INPUT, LDA_PORT, LDA_ABX_ANY, LDA_ABY_ANY, LDX_ABY_ANY, LDY_ABX_ANY,
    BIT_CONSTANT, SET_TIA, WAIT_ZERO_X, WAIT_ZERO_Y, LDA_ZP_STA, LDA_IMM_STA, LDA_IZY_STA, LDA_ABX_STA, LDA_ABY_STA,
    LDA_ZPX_STA, DEX_BPL, DEY_BPL, DEX_BNE, DEY_BNE,
) = (
    0x02, 0x03, 0x07, 0x0B, 0x0F, 0x13, 0x17, 0x1B, 0x1F, 0x23, 0x27, 0x2B, 0x33, 0x37, 0x3B, 0x43, 0x47, 0x4B, 0x4F,
    0x73, 0x77, 0x7B, 0x7F, 0x80, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8F, 0x93, 0x97, 0x9B,
)  # fmt: skip
# Operations on a TIA register that is read.
LDA_TIA, LDX_TIA, LDY_TIA, BIT_TIA, AND_TIA, ORA_TIA, EOR_TIA, CMP_TIA = (
    0x53, 0x57, 0x5B, 0x5F, 0x63, 0x67, 0x6B, 0x6F,
)  # fmt: skip

# Opcodes that the loop handles when their operand is an immediate value, a RAM byte or nothing.
_PLAIN = np.zeros(256, np.bool_)
for _code in range(256):
    _name, _mode = NAMES[_code], MODE[_code]
    _fits = (
        (_mode == IMP and _name not in ("BRK", "RTI", "JAM", "NOP"))
        or (_mode == IMM and _name in "LDA LDX LDY ORA AND EOR ADC SBC CMP CPX CPY".split())
        or (_mode in (ZP, ZPX) and OPERATION[_name] < FIRST_REGISTER)
        or _mode == REL
        or _name in ("JSR", "JMP")
        or (_mode == ZPY and _name in ("LDX", "STX"))
        or (_mode in (ABX, ABY, IZY) and _name in "LDA LDX LDY ORA AND EOR ADC SBC CMP STA".split())
    )
    _PLAIN[_code] = _fits and _name not in "NOP LAX SAX SLO RLA SRE RRA DCP ISB".split()
_PLAIN[[0xEA]] = True
_PLAIN[[0x6C, 0xEB]] = False
PLAIN = _PLAIN

# The same operation with a zero-page operand, or an immediate one, for an opcode with an absolute operand.
TO_ZP = np.zeros(256, np.int64)
TO_IMM = np.zeros(256, np.int64)
for _code in range(256):
    if MODE[_code] in (ZP, ABS) and PLAIN[_code] | (MODE[_code] == ABS):
        for _other in range(256):
            if NAMES[_other] == NAMES[_code] and PLAIN[_other] and _other not in (0x20, 0x4C):
                if MODE[_other] == ZP:
                    TO_ZP[_code] = _other
                elif MODE[_other] == IMM:
                    TO_IMM[_code] = _other

TIA_READ = np.zeros(FIRST_STORE, np.int64)
for _name in "LDA LDX LDY BIT AND ORA EOR CMP".split():
    TIA_READ[OPERATION[_name]] = globals()[f"{_name}_TIA"]


@device
def pack(handler, operand, length, cycles, extra):
    return np.uint32(handler | ((operand & 0xFFFF) << 8) | (length << 24) | (cycles << 26) | (extra << 30))


@device
def decode_operand(opcode, o, cycles, length, image, bank, prop):
    """Instructions with a fixed address `o`: what lies there?"""
    low, high, cart = prop[P_LOW], prop[P_HIGH], prop[P_CART]
    op = OP[opcode]
    a = o & 0xFFF
    if o & 0x1000:
        constant = low <= a < high and op < FIRST_STORE and (TO_IMM[opcode] != 0 or op == BIT)
        if cart == CART_E0:
            constant = constant and a >= 0xC00
            bank = 0x1000
        elif cart == CART_FE:
            bank = 0 if o & 0x2000 else 0x1000
        if constant:
            handler = BIT_CONSTANT if op == BIT else TO_IMM[opcode]
            return pack(handler, np.int64(image[bank + a]), length, cycles, 0)
    elif o & 0x80 == 0:
        reg = o & 63
        if op == STA or op == STX or op == STY:
            if reg == 2:
                return pack(WSYNC, reg, length, cycles, 0)
            if not LOGGED[reg] or reg < 3:
                return pack(SET_TIA, reg | ((op - STA) << 8), length, cycles, 0)
            return pack(STA_TIA if op == STA else STX_TIA if op == STX else STY_TIA, reg, length, cycles, 0)
        latch = o >> 8 if length == 3 else o
        if (op == LDA or op == BIT) and 8 <= o & 15 < 14:
            return pack(LDA_INPUT if op == LDA else BIT_INPUT, (o & 15) | ((latch & 0x3F) << 8), length, cycles, 0)
        if op < FIRST_STORE and TIA_READ[op]:
            return pack(TIA_READ[op], (o & 15) | ((latch & 0x3F) << 8), length, cycles, 0)
    elif o & 0x200 == 0:
        if TO_ZP[opcode]:
            return pack(TO_ZP[opcode], o & 0x7F, length, cycles, 0)
    elif o & 5 == 4:
        if op == LDA:
            return pack(LDA_INTIM, 0, length, cycles, 0)
        if op == LDX:
            return pack(LDX_INTIM, 0, length, cycles, 0)
        if op == LDY:
            return pack(LDY_INTIM, 0, length, cycles, 0)
    elif op == LDA and (o & 7 == 0 or o & 7 == 2):
        return pack(LDA_PORT, o & 7, length, cycles, 0)
    return pack(SLOW, 0, 0, 0, 0)


@device
def decode_at(image, bank, a, size, prop):
    """The word for offset `a` of a bank (or of an E0 slice) of `size` bytes that starts at `bank`."""
    low, high, cart = prop[P_LOW], prop[P_HIGH], prop[P_CART]
    slow = pack(SLOW, 0, 0, 0, 0)
    opcode = np.int64(image[bank + a])
    mode, op, cycles = MODE[opcode], OP[opcode], CYCLES[opcode]
    length = LENGTH[mode]
    if cart == CART_E0:
        high = 0x3E0 if bank == 7 << 10 else 0x400
    if a < low or a + length > high or a + length > size or (not PLAIN[opcode] and mode != ABS and opcode != 0x6C):
        return slow
    # An instruction that ends, or may jump, outside the ROM needs the bus latch, which only the plain way keeps.
    if size == 4096 and a + length == size:
        return slow
    o = np.int64(image[bank + a + 1]) if length > 1 else 0
    if length > 2:
        o |= np.int64(image[bank + a + 2]) << 8
    if mode == IMP or mode == IMM:
        if a + length < size:
            after = np.int64(image[bank + a + length])
            if (op == DEX or op == DEY) and after == 0xD0 and a + 2 < high:
                # DEX; BNE back to it: 5 cycles a round, 6 when the branch crosses a page
                if image[bank + a + 2] == 0xFD:
                    extra = 2 if ((a + 3) ^ a) & ~0xFF else 1
                    return pack(DEX_LOOP if op == DEX else DEY_LOOP, 4 + extra, length, cycles, 0)
        return pack(opcode, o, length, cycles, 0)
    if mode == REL:
        offset = (o ^ 0x80) - 0x80
        if not 0 <= a + 2 + offset < size and cart != CART_E0:
            return slow
        extra = 2 if ((a + 2) ^ (a + 2 + offset)) & ~0xFF else 1
        return pack(opcode, offset, length, cycles, extra)
    if opcode == 0x4C or opcode == 0x20:
        return pack(opcode, o, length, cycles, 0) if o & 0x1000 else slow
    if opcode == 0x6C:
        return pack(opcode, o, length, cycles, 0) if 0x80 <= o < 0xFF else slow
    if mode == ZP or mode == ABS:
        word = decode_operand(opcode, o, cycles, length, image, bank, prop)
        handler = np.int64(word) & 0xFF
        if (handler == LDA_INTIM or handler == LDX_INTIM or handler == LDY_INTIM) and a + 5 <= high and a + 5 <= size:
            branch, back = np.int64(image[bank + a + 3]), np.int64(image[bank + a + 4])
            if back == 0xFB and (branch == 0xD0 or (branch == 0x10 and op == LDA)):
                round_cycles = 4 + (4 if ((a + 5) ^ a) & ~0xFF else 3)
                waiting = WAIT_ZERO if op == LDA else WAIT_ZERO_X if op == LDX else WAIT_ZERO_Y
                return pack(waiting if branch == 0xD0 else WAIT_MINUS, round_cycles, length, cycles, 0)
        return word
    if mode == ABX or mode == ABY:
        # ROM whatever the index is, and no hot spot in reach; a store must be to RAM, which is looked at when it runs.
        if op == STA:
            return pack(opcode, o, length, cycles, 0) if o & 0x1000 == 0 else slow
        if o & 0x1000 == 0 or (o + 255) & 0x1000 == 0 or o & 0xFFF < prop[P_LOW] or (o & 0xFFF) + 255 >= prop[P_HIGH]:
            if op == LDA:
                return pack(LDA_ABX_ANY if mode == ABX else LDA_ABY_ANY, o, length, cycles, 0)
            if op == LDX or op == LDY:
                return pack(LDX_ABY_ANY if op == LDX else LDY_ABX_ANY, o, length, cycles, 0)
            return slow
        return pack(opcode, o, length, cycles, 0)
    return pack(opcode, o, length, cycles, 0)


@device
def decode_image(image, prop, dec):
    cart = prop[P_CART]
    slow = pack(SLOW, 0, 0, 0, 0)
    for k in range(dec.shape[0]):
        dec[k] = slow
    if cart == CART_E0:
        for k in range(8192):
            dec[k] = decode_at(image, k & ~0x3FF, k & 0x3FF, 1024, prop)
    else:
        banks = 2 if cart == CART_DPC else image.shape[0] // 4096
        for b in range(banks):
            for a in range(4096):
                # FE: bit 13 of the address chooses, and its lower 4K lie at the higher addresses
                row = 1 - b if cart == CART_FE else b
                dec[8192 * row + 4096 + a] = decode_at(image, 4096 * b, a, 4096, prop)


@device
def fuse(dec):
    """Join a load with the store into the TIA that follows it, and a count with its branch.

    Both words stay where they are: the first says what comes next, and a jump to the second still works.
    """
    for k in range(dec.shape[0] - 3):
        word = np.int64(dec[k])
        handler, length = word & 0xFF, (word >> 24) & 3
        after = np.int64(dec[k + length]) & 0xFF
        new = handler
        if after == STA_TIA:
            if handler == 0xA5:
                new = LDA_ZP_STA
            elif handler == 0xA9:
                new = LDA_IMM_STA
            elif handler == 0xB1:
                new = LDA_IZY_STA
            elif handler == 0xBD:
                new = LDA_ABX_STA
            elif handler == 0xB9:
                new = LDA_ABY_STA
            elif handler == 0xB5:
                new = LDA_ZPX_STA
        elif after == 0x10:
            if handler == 0xCA:
                new = DEX_BPL
            elif handler == 0x88:
                new = DEY_BPL
        elif after == 0xD0:
            if handler == 0xCA:
                new = DEX_BNE
            elif handler == 0x88:
                new = DEY_BNE
        dec[k] = np.uint32((word & ~0xFF) | new)


def predecode(rom: Rom) -> np.ndarray:
    """The decoded program of a ROM; read-only, shared by all its machines."""
    banks = 2 if rom.cartridge == "DPC" else rom.image.size // 4096
    dec = np.zeros(8192 * (1 if rom.cartridge == "E0" else banks), np.uint32)
    decode_image(rom.image, rom.prop, dec)
    if rom.cartridge != "E0":  # there the next instruction may lie in another slice
        fuse(dec)
    return dec
