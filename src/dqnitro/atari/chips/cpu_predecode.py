# ruff: noqa: F403, F405
"""Predecoding: what every address of a ROM means as an instruction, computed once when the ROM is loaded.

A word for each program counter: handler, operand, length and cycles (`pack`), so that `chips/cpu_fast.py` fetches one
number instead of up to three bytes and decides nothing that is already certain:

* an operand in RAM, in a TIA register or in the RIOT's timer gets a handler of its own;
* a read of a fixed ROM byte becomes an immediate value;
* a load of A whose next instruction stores it into the TIA, or a count and the branch after it, become one handler;
* a loop that only waits (for the timer, or by counting X or Y down) gets a handler that skips all its rounds at once.

Everything else gets the handler `SLOW`, which leaves the instruction to the reference implementation (`step_unit` in
`chips/cpu_reference.py`): undocumented opcodes, rare forms, and instructions that are not wholly inside the plain
window of their bank (`P_LOW`, `P_HIGH`), where a byte can be read without a side effect.
"""

from __future__ import annotations

import numpy as np

from ..games.roms import Rom
from ..jit.target import compiled
from .cpu_opcodes import *
from .layout import *
from .memory_map import A7, A9, A12, A13, BANK_OFFSET, BANK_SIZE, E0_FIRST, E0_FIXED, SLICE_OFFSET, SLICE_SIZE
from .riot_registers import INTIM, RIOT_LINES, SWCHA, SWCHB, TIMINT
from .tia import LOGGED
from .tia_registers import INPT0, INPT5, READ_LINES, WRITE_LINES, WSYNC

# Handlers, by how often 20 games use them: the first HOT are 93 % of all instructions and share one jump table (the
# compiler joins at most 64 cases). RUN_xxx are instructions without an operand in memory; xxx_STA and xxx_Bxx are two
# instructions in one; xxx_TIA, xxx_INPUT, xxx_INTIM and xxx_PORT read a chip; xxx_ANY may read anything.
HOT = 60
(
    STA_TIA, LDA_IZY_STA, STORE_WSYNC, LDA_ZP, STA_ZP, LDA_IZY, RUN_BCS, RUN_BEQ, LDY_ZP, AND_IMM, LSR_A, RUN_BNE,
    LDX_ZP,
    LDA_IMM, STX_TIA, RUN_BPL, DEX_BPL, STY_TIA, RUN_TXA, RUN_DEY, ASL_A, DEC_ZP, DEY_BPL, RUN_NOP, RUN_TAY,
    CMP_IMM, LDA_ZPX, RUN_BCC, RUN_BMI, RUN_SEC, LDA_ZP_STA, RUN_INY, LDA_ABY_STA, LDX_IMM, LDA_IMM_STA, RUN_TAX,
    RUN_JMP, STA_ZPX, CPY_IMM, SBC_ZP, RUN_PHP, LDA_ABX_STA, SBC_IMM, STY_ZP, RUN_DEX, LDY_IMM, AND_ZP, RUN_INX,
    CPX_IMM, RUN_RTS, RUN_JSR, RUN_PLA, LDA_ABX, STX_ZP, CPX_ZP, CPY_ZP, INC_ZP, LDA_ABY,
    RUN_CLC, EOR_ZP,
    # ---- the rare ones
    LDA_ABY_ANY, SLOW, LDA_ZPX_STA, BIT_ZP, RUN_TYA, ADC_ZP, CMP_ZP, JMP_IND, DEX_BNE, LDY_INTIM, ORA_ZP, LDA_ABX_ANY,
    ADC_IMM,
    RUN_TXS, LDX_ABY, SET_TIA, ORA_TIA, EOR_IMM, DEY_BNE, ADC_ZPX, RUN_PHA, AND_ABX, STA_ABY, LDX_ABY_ANY, RUN_BVC,
    LDY_ABX, LDY_ZPX, STY_ZPX, LSR_ZP, LDA_PORT, CMP_ZPX, LDA_TIA, RUN_BVS, DEC_ZPX, WAIT_ZERO, ROL_A, BIT_TIA,
    ORA_ABX, ROL_ZP, LDY_ABX_ANY, CMP_TIA, DEX_LOOP, ADC_ABX, ORA_ZPX, LDA_INTIM, ROR_A, EOR_ABX, LDX_ZPY, INC_ZPX,
    ASL_ZP, STX_ZPY, CMP_ABX, ORA_IMM, ASL_ZPX, ROR_ZPX, RUN_PLP, AND_ABY, CMP_ABY, RUN_TSX, DEY_LOOP, SBC_ABY,
    SBC_ZPX, STA_ABX, LDX_TIA, RUN_CLD, WAIT_ZERO_X, ROR_ZP, LSR_ZPX, LDA_INPUT, RUN_SED, WAIT_ZERO_Y, ORA_ABY,
    BIT_INPUT, SBC_ABX, WAIT_MINUS, ROL_ZPX, AND_ZPX, LDX_INTIM, EOR_ZPX, STA_IZY, ADC_ABY, AND_TIA, BIT_CONSTANT,
    EOR_TIA, LDY_TIA,
) = range(145)  # fmt: skip
# Handler of an opcode in its usual meaning.
HANDLER = np.full(256, SLOW, np.int64)
for _code, _handler in (
    (0x05, ORA_ZP), (0x06, ASL_ZP), (0x08, RUN_PHP), (0x09, ORA_IMM), (0x0A, ASL_A), (0x10, RUN_BPL),
    (0x15, ORA_ZPX), (0x16, ASL_ZPX), (0x18, RUN_CLC), (0x19, ORA_ABY), (0x1D, ORA_ABX), (0x20, RUN_JSR),
    (0x24, BIT_ZP), (0x25, AND_ZP), (0x26, ROL_ZP), (0x28, RUN_PLP), (0x29, AND_IMM), (0x2A, ROL_A),
    (0x30, RUN_BMI), (0x35, AND_ZPX), (0x36, ROL_ZPX), (0x38, RUN_SEC), (0x39, AND_ABY), (0x3D, AND_ABX),
    (0x45, EOR_ZP), (0x46, LSR_ZP), (0x48, RUN_PHA), (0x49, EOR_IMM), (0x4A, LSR_A), (0x4C, RUN_JMP),
    (0x50, RUN_BVC), (0x55, EOR_ZPX), (0x56, LSR_ZPX), (0x5D, EOR_ABX), (0x60, RUN_RTS), (0x65, ADC_ZP),
    (0x66, ROR_ZP), (0x68, RUN_PLA), (0x69, ADC_IMM), (0x6A, ROR_A), (0x6C, JMP_IND), (0x70, RUN_BVS),
    (0x75, ADC_ZPX), (0x76, ROR_ZPX), (0x79, ADC_ABY), (0x7D, ADC_ABX), (0x84, STY_ZP), (0x85, STA_ZP),
    (0x86, STX_ZP), (0x88, RUN_DEY), (0x8A, RUN_TXA), (0x90, RUN_BCC), (0x91, STA_IZY), (0x94, STY_ZPX),
    (0x95, STA_ZPX), (0x96, STX_ZPY), (0x98, RUN_TYA), (0x99, STA_ABY), (0x9A, RUN_TXS), (0x9D, STA_ABX),
    (0xA0, LDY_IMM), (0xA2, LDX_IMM), (0xA4, LDY_ZP), (0xA5, LDA_ZP), (0xA6, LDX_ZP), (0xA8, RUN_TAY),
    (0xA9, LDA_IMM), (0xAA, RUN_TAX), (0xB0, RUN_BCS), (0xB1, LDA_IZY), (0xB4, LDY_ZPX), (0xB5, LDA_ZPX),
    (0xB6, LDX_ZPY), (0xB9, LDA_ABY), (0xBA, RUN_TSX), (0xBC, LDY_ABX), (0xBD, LDA_ABX), (0xBE, LDX_ABY),
    (0xC0, CPY_IMM), (0xC4, CPY_ZP), (0xC5, CMP_ZP), (0xC6, DEC_ZP), (0xC8, RUN_INY), (0xC9, CMP_IMM),
    (0xCA, RUN_DEX), (0xD0, RUN_BNE), (0xD5, CMP_ZPX), (0xD6, DEC_ZPX), (0xD8, RUN_CLD), (0xD9, CMP_ABY),
    (0xDD, CMP_ABX), (0xE0, CPX_IMM), (0xE4, CPX_ZP), (0xE5, SBC_ZP), (0xE6, INC_ZP), (0xE8, RUN_INX),
    (0xE9, SBC_IMM), (0xEA, RUN_NOP), (0xF0, RUN_BEQ), (0xF5, SBC_ZPX), (0xF6, INC_ZPX), (0xF8, RUN_SED),
    (0xF9, SBC_ABY), (0xFD, SBC_ABX),
):  # fmt: skip
    HANDLER[_code] = _handler

# Opcodes that have a handler when their operand is an immediate value, a RAM byte or nothing.
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
_PLAIN[NOP_OPCODE] = True  # the others called NOP are undocumented
_PLAIN[[JMP_INDIRECT_OPCODE, 0xEB]] = False  # 0xEB: an undocumented SBC
PLAIN = _PLAIN

# The same operation with a zero-page operand, or an immediate one, for an opcode with an absolute operand.
TO_ZP = np.zeros(256, np.int64)
TO_IMM = np.zeros(256, np.int64)
for _code in range(256):
    if MODE[_code] in (ZP, ABS) and PLAIN[_code] | (MODE[_code] == ABS):
        for _other in range(256):
            if NAMES[_other] == NAMES[_code] and PLAIN[_other] and _other not in (JSR_OPCODE, JMP_OPCODE):
                if MODE[_other] == ZP:
                    TO_ZP[_code] = _other
                elif MODE[_other] == IMM:
                    TO_IMM[_code] = _other

TIA_READ = np.zeros(FIRST_STORE, np.int64)
for _name in "LDA LDX LDY BIT AND ORA EOR CMP".split():
    TIA_READ[OPERATION[_name]] = globals()[f"{_name}_TIA"]


@compiled
def pack(handler, operand, length, cycles, extra):
    """A word: handler (8 bits), operand (16), bytes (2), cycles (4), cycles more for a branch that is taken (2)."""
    return np.uint32(handler | ((operand & 0xFFFF) << 8) | (length << 24) | (cycles << 26) | (extra << 30))


@compiled
def decode_operand(opcode, operand, cycles, length, image, bank, prop):
    """The word of an instruction whose operand is a fixed address: it depends on the chip at that address."""
    low, high, cart = prop[P_LOW], prop[P_HIGH], prop[P_CART]
    op = OP[opcode]
    a = operand & BANK_OFFSET
    # ---- the cartridge: a byte that never changes is an immediate value
    if operand & A12:
        constant = low <= a < high and op < FIRST_STORE and (TO_IMM[opcode] != 0 or op == BIT)
        if cart == CART_E0:
            constant = constant and a >= 0xC00  # the slice that is never switched
            bank = BANK_SIZE
        elif cart == CART_FE:
            bank = 0 if operand & A13 else BANK_SIZE
        if constant:
            handler = BIT_CONSTANT if op == BIT else HANDLER[TO_IMM[opcode]]
            return pack(handler, np.int64(image[bank + a]), length, cycles, 0)
    # ---- the TIA: stores by what the log needs, reads by port
    elif operand & A7 == 0:
        reg = operand & WRITE_LINES
        if op == STA or op == STX or op == STY:
            if reg == WSYNC:
                return pack(STORE_WSYNC, reg, length, cycles, 0)
            if not LOGGED[reg] or reg <= WSYNC:
                return pack(SET_TIA, reg | ((op - STA) << 8), length, cycles, 0)
            return pack(STA_TIA if op == STA else STX_TIA if op == STX else STY_TIA, reg, length, cycles, 0)
        latch = operand >> 8 if length == 3 else operand  # the byte that the bus carried last: it shows in the low bits
        if (op == LDA or op == BIT) and INPT0 <= operand & READ_LINES <= INPT5:
            return pack(
                LDA_INPUT if op == LDA else BIT_INPUT, (operand & READ_LINES) | ((latch & 0x3F) << 8), length, cycles, 0
            )
        if op < FIRST_STORE and TIA_READ[op]:
            return pack(TIA_READ[op], (operand & READ_LINES) | ((latch & 0x3F) << 8), length, cycles, 0)
    # ---- RAM
    elif operand & A9 == 0:
        if TO_ZP[opcode]:
            return pack(HANDLER[TO_ZP[opcode]], operand & 0x7F, length, cycles, 0)
    # ---- the RIOT: its timer, joysticks and switches
    elif operand & TIMINT == INTIM:
        if op == LDA:
            return pack(LDA_INTIM, 0, length, cycles, 0)
        if op == LDX:
            return pack(LDX_INTIM, 0, length, cycles, 0)
        if op == LDY:
            return pack(LDY_INTIM, 0, length, cycles, 0)
    elif op == LDA and (operand & RIOT_LINES == SWCHA or operand & RIOT_LINES == SWCHB):
        return pack(LDA_PORT, operand & RIOT_LINES, length, cycles, 0)
    return pack(SLOW, 0, 0, 0, 0)


@compiled
def decode_at(image, bank, a, size, prop):
    """The word for offset `a` of a bank (or of an E0 slice) of `size` bytes that starts at `bank`."""
    low, high, cart = prop[P_LOW], prop[P_HIGH], prop[P_CART]
    slow = pack(SLOW, 0, 0, 0, 0)
    opcode = np.int64(image[bank + a])
    mode, op, cycles = MODE[opcode], OP[opcode], CYCLES[opcode]
    length = LENGTH[mode]
    if cart == CART_E0:
        high = E0_FIRST & SLICE_OFFSET if bank == E0_FIXED else SLICE_SIZE
    if (
        a < low
        or a + length > high
        or a + length > size
        or (not PLAIN[opcode] and mode != ABS and opcode != JMP_INDIRECT_OPCODE)
    ):
        return slow
    # An instruction that ends, or may jump, outside the ROM needs the bus latch, which only the reference keeps.
    if size == BANK_SIZE and a + length == size:
        return slow
    operand = np.int64(image[bank + a + 1]) if length > 1 else 0
    if length > 2:
        operand |= np.int64(image[bank + a + 2]) << 8
    # ---- no operand, or a value in the program; DEX and DEY may be a loop that only waits
    if mode == IMP or mode == IMM:
        if (op == DEX or op == DEY) and a + 3 <= high and a + 3 <= size:
            branch, back = np.int64(image[bank + a + 1]), np.int64(image[bank + a + 2])
            if branch == BNE_OPCODE and back == 0xFD:
                # DEX, BNE back to it: 5 cycles a round, 6 when the branch crosses a page
                extra = 2 if ((a + 3) ^ a) & ~0xFF else 1
                return pack(DEX_LOOP if op == DEX else DEY_LOOP, 4 + extra, length, cycles, 0)
        return pack(HANDLER[opcode], operand, length, cycles, 0)
    # ---- branches and jumps
    if mode == REL:
        offset = (operand ^ 0x80) - 0x80
        if not 0 <= a + 2 + offset < size and cart != CART_E0:
            return slow
        extra = 2 if ((a + 2) ^ (a + 2 + offset)) & ~0xFF else 1
        return pack(HANDLER[opcode], offset, length, cycles, extra)
    if opcode == JMP_OPCODE or opcode == JSR_OPCODE:
        return pack(HANDLER[opcode], operand, length, cycles, 0) if operand & A12 else slow
    if opcode == JMP_INDIRECT_OPCODE:
        return pack(HANDLER[opcode], operand, length, cycles, 0) if 0x80 <= operand < 0xFF else slow
    # ---- a fixed address; a load of the timer may be a loop that only waits
    if mode == ZP or mode == ABS:
        word = decode_operand(opcode, operand, cycles, length, image, bank, prop)
        handler = np.int64(word) & 0xFF
        if (handler == LDA_INTIM or handler == LDX_INTIM or handler == LDY_INTIM) and a + 5 <= high and a + 5 <= size:
            branch, back = np.int64(image[bank + a + 3]), np.int64(image[bank + a + 4])
            if back == 0xFB and (branch == BNE_OPCODE or (branch == BPL_OPCODE and op == LDA)):
                round_cycles = 4 + (4 if ((a + 5) ^ a) & ~0xFF else 3)
                waiting = WAIT_ZERO if op == LDA else WAIT_ZERO_X if op == LDX else WAIT_ZERO_Y
                return pack(waiting if branch == BNE_OPCODE else WAIT_MINUS, round_cycles, length, cycles, 0)
        return word
    # ---- an indexed address: in the plain window of the ROM whatever the index is, or anywhere. A store must be to RAM
    # or to the TIA, which is decided when it runs.
    if mode == ABX or mode == ABY:
        if op == STA:
            return pack(HANDLER[opcode], operand, length, cycles, 0) if operand & A12 == 0 else slow
        first = operand & BANK_OFFSET
        if operand & A12 == 0 or (operand + 255) & A12 == 0 or first < prop[P_LOW] or first + 255 >= prop[P_HIGH]:
            if op == LDA:
                return pack(LDA_ABX_ANY if mode == ABX else LDA_ABY_ANY, operand, length, cycles, 0)
            if op == LDX or op == LDY:
                return pack(LDX_ABY_ANY if op == LDX else LDY_ABX_ANY, operand, length, cycles, 0)
            return slow
        return pack(HANDLER[opcode], operand, length, cycles, 0)
    return pack(HANDLER[opcode], operand, length, cycles, 0)


@compiled
def decode_image(image, prop, dec):
    """All words of an image:

    8K for each bank, by 13 bits of the program counter (the half without ROM is `SLOW`); E0: by slice.
    """
    cart = prop[P_CART]
    slow = pack(SLOW, 0, 0, 0, 0)
    for k in range(dec.shape[0]):
        dec[k] = slow
    if cart == CART_E0:
        for k in range(8192):
            dec[k] = decode_at(image, k & ~SLICE_OFFSET, k & SLICE_OFFSET, np.int64(SLICE_SIZE), prop)
    else:
        banks = 2 if cart == CART_DPC else image.shape[0] // BANK_SIZE
        for b in range(banks):
            for a in range(BANK_SIZE):
                # FE: bit 13 of the address chooses, and its lower 4K lie at the higher addresses
                row = 1 - b if cart == CART_FE else b
                dec[2 * BANK_SIZE * row + BANK_SIZE + a] = decode_at(image, BANK_SIZE * b, a, np.int64(BANK_SIZE), prop)


@compiled
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
            if handler == LDA_ZP:
                new = LDA_ZP_STA
            elif handler == LDA_IMM:
                new = LDA_IMM_STA
            elif handler == LDA_IZY:
                new = LDA_IZY_STA
            elif handler == LDA_ABX:
                new = LDA_ABX_STA
            elif handler == LDA_ABY:
                new = LDA_ABY_STA
            elif handler == LDA_ZPX:
                new = LDA_ZPX_STA
        elif after == RUN_BPL:
            if handler == RUN_DEX:
                new = DEX_BPL
            elif handler == RUN_DEY:
                new = DEY_BPL
        elif after == RUN_BNE:
            if handler == RUN_DEX:
                new = DEX_BNE
            elif handler == RUN_DEY:
                new = DEY_BNE
        dec[k] = np.uint32((word & ~0xFF) | new)


def predecode(rom: Rom) -> np.ndarray:
    """The predecoded program of a ROM; read-only, shared by all its consoles."""
    banks = 2 if rom.cartridge == "DPC" else rom.image.size // BANK_SIZE
    dec = np.zeros(2 * BANK_SIZE * (1 if rom.cartridge == "E0" else banks), np.uint32)
    decode_image(rom.image, rom.prop, dec)
    if rom.cartridge != "E0":  # where the next instruction may lie in another slice
        fuse(dec)
    return dec
