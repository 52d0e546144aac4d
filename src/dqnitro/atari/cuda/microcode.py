# ruff: noqa: F403, F405
"""The tables of `cuda/cpu_warp.py`: what each opcode does, as bits, and what each byte of a ROM means as an
instruction.

`HOW[opcode]`: length, cycles, where the operand lies, whether the bus reads or writes it, and jumps. `DO[opcode]`: two
operands P and Q, the function that combines them, where the result goes. Nearly everything is P + Q + carry: a load is
0 + M, a comparison A + ~M + 1, a decrement M + ~0, a shift to the left M + M.

A word of a ROM's table: opcode (8 bits), operand (16), note (8). A note is 0, or `FOR_REFERENCE` (an instruction that
`step_unit` in `chips/cpu_reference.py` executes), or describes a loop that only waits: its kind and the cycles of a
round.
"""

from __future__ import annotations

import numpy as np

from ..chips import cpu_opcodes
from ..chips.cpu_opcodes import (
    ABS,
    ABX,
    ABY,
    BNE_OPCODE,
    BPL_OPCODE,
    CYCLES,
    IMM,
    IMP,
    IND,
    IZX,
    IZY,
    LENGTH,
    MODE,
    NAMES,
    REL,
    ZPX,
    ZPY,
)
from ..chips.layout import *
from ..chips.memory_map import (
    A7,
    A9,
    A12,
    BANK_OFFSET,
    BANK_SIZE,
    E0_FIRST,
    E0_FIXED,
    RAM_LINES,
    SLICE_OFFSET,
    SLICE_SIZE,
)
from ..chips.riot_registers import INTIM, TIMINT
from ..chips.tia import LOGGED

# ---- bits of HOW: bytes, cycles, the index register, then how the address is made and used, then what is not a plain
# access
LENGTH_BITS = 3
CYCLES_AT = 2
INDEX_AT = 3  # a register's shift (0, 8, 16, 24) lies in bits 6..7 times 8: (how >> 3) & 24
INDEXED, ZERO_PAGE, INDIRECT, BEFORE, PAYS, READS, WRITES, PUSHES, PULLS = (1 << k for k in range(8, 17))
SPECIAL_AT = 17
(
    BRANCH, JUMP, JUMP_INDIRECT, CALL, RETURN, RETURN_FLAGS, BREAK, FLAGS_IN, SET_D, SET_I, CLEAR_V,
) = range(1, 12)  # fmt: skip
# ---- bits of DO: the function, the registers of P, Q and the result, then where P and Q come from and what is set
FUNCTION_BITS = 7
ADD, OR, AND, XOR, RIGHT = range(5)
P_AT, Q_AT, TO_AT = 0, 2, 4  # registers' shifts in bits 3..4, 5..6 and 7..8: (do >> P_AT) & 24
(
    P_REGISTER, P_MEMORY, Q_REGISTER, Q_MEMORY, INVERTED, WITH_C, WITH_ONE,
    SETS_NZ, SETS_C, SETS_V, TESTS, TO_REGISTER, FROM_FLAGS,
) = (1 << k for k in range(9, 22))  # fmt: skip
FLAG_N, FLAG_V, FLAG_C, FLAG_Z = range(4)  # of a branch: in bits 0..1 of its DO, the value wanted in bit 2
# ---- notes: an instruction for the reference; loops that count X or Y down, or wait until the timer shows 0, or turns
# negative
FOR_REFERENCE = 255
COUNT_X, COUNT_Y, UNTIL_ZERO, UNTIL_MINUS = range(1, 5)

# The TIA registers whose stores go to the log, as two sets of 32 bits.
LOGGED_LOW = int(sum(1 << k for k in range(32) if LOGGED[k]))
LOGGED_HIGH = int(sum(1 << k for k in range(32) if LOGGED[32 + k]))

A, X, Y, SP = range(4)
M = -1
_NZ, _C = SETS_NZ, SETS_C


def _do(function: int = ADD, p: int | None = None, q: int | None = None, to: int | None = None, more: int = 0) -> int:
    """Operands and target: a register, M (memory), or None (an operand of 0). HOW says whether memory is written."""
    word = function | more
    for operand, at, register, memory in ((p, P_AT, P_REGISTER, P_MEMORY), (q, Q_AT, Q_REGISTER, Q_MEMORY)):
        if operand == M:
            word |= memory
        elif operand is not None:
            word |= register | (operand << (3 + at))
    if to is not None and to != M:
        word |= TO_REGISTER | (to << (3 + TO_AT))
    return word


_LESS_ONE, _PLUS_ONE, _MINUS = INVERTED, WITH_ONE, INVERTED | WITH_ONE
_LEFT = {"ASL": 0, "ROL": WITH_C}
_DO = {
    "LDA": _do(q=M, to=A, more=_NZ), "LDX": _do(q=M, to=X, more=_NZ), "LDY": _do(q=M, to=Y, more=_NZ),
    "ORA": _do(OR, A, M, A, _NZ), "AND": _do(AND, A, M, A, _NZ), "EOR": _do(XOR, A, M, A, _NZ),
    "ADC": _do(ADD, A, M, A, _NZ | _C | SETS_V | WITH_C),
    "SBC": _do(ADD, A, M, A, _NZ | _C | SETS_V | WITH_C | INVERTED),
    "CMP": _do(ADD, A, M, None, _NZ | _C | _MINUS), "CPX": _do(ADD, X, M, None, _NZ | _C | _MINUS),
    "CPY": _do(ADD, Y, M, None, _NZ | _C | _MINUS), "BIT": _do(AND, A, M, None, _NZ | TESTS), "NOP": 0,
    "STA": _do(p=A), "STX": _do(p=X), "STY": _do(p=Y),
    "INC": _do(p=M, more=_NZ | _PLUS_ONE), "DEC": _do(p=M, more=_NZ | _LESS_ONE),
    "TAX": _do(p=A, to=X, more=_NZ), "TXA": _do(p=X, to=A, more=_NZ), "TAY": _do(p=A, to=Y, more=_NZ),
    "TYA": _do(p=Y, to=A, more=_NZ), "TSX": _do(p=SP, to=X, more=_NZ), "TXS": _do(p=X, to=SP),
    "INX": _do(p=X, to=X, more=_NZ | _PLUS_ONE), "DEX": _do(p=X, to=X, more=_NZ | _LESS_ONE),
    "INY": _do(p=Y, to=Y, more=_NZ | _PLUS_ONE), "DEY": _do(p=Y, to=Y, more=_NZ | _LESS_ONE),
    "CLC": _do(more=_C), "SEC": _do(more=_C | _MINUS), "CLD": 0, "SED": 1, "CLI": 0, "SEI": 1, "CLV": 0,
    "PHA": _do(p=A), "PHP": _do(p=M, more=FROM_FLAGS), "PLA": _do(q=M, to=A, more=_NZ), "PLP": 0,
    "BPL": FLAG_N, "BMI": FLAG_N | 4, "BVC": FLAG_V, "BVS": FLAG_V | 4,
    "BCC": FLAG_C, "BCS": FLAG_C | 4, "BNE": FLAG_Z, "BEQ": FLAG_Z | 4,
    "JMP": 0, "JSR": 0, "RTS": 0, "RTI": 0, "BRK": 0,
}  # fmt: skip
for _name, _with in (("ASL", 0), ("ROL", WITH_C)):
    _DO[_name], _DO[_name + "A"] = _do(ADD, M, M, M, _NZ | _C | _with), _do(ADD, A, A, A, _NZ | _C | _with)
for _name, _with in (("LSR", 0), ("ROR", WITH_C)):
    _DO[_name], _DO[_name + "A"] = _do(RIGHT, M, None, M, _NZ | _C | _with), _do(RIGHT, A, None, A, _NZ | _C | _with)

_SPECIAL = {
    "JMP": JUMP, "JSR": CALL, "RTS": RETURN, "RTI": RETURN_FLAGS, "BRK": BREAK, "PLP": FLAGS_IN,
    "CLD": SET_D, "SED": SET_D, "CLI": SET_I, "SEI": SET_I, "CLV": CLEAR_V,
}  # fmt: skip
_MODE = {
    ZPX: INDEXED | ZERO_PAGE | (X << 6), ZPY: INDEXED | ZERO_PAGE | (Y << 6),
    ABX: INDEXED | (X << 6), ABY: INDEXED | (Y << 6),
    IZX: INDEXED | INDIRECT | BEFORE | (X << 6), IZY: INDEXED | INDIRECT | (Y << 6),
}  # fmt: skip
_STACK = INDEXED | ZERO_PAGE | (SP << 6)


def _how(opcode: int) -> int:
    name, mode = NAMES[opcode], int(MODE[opcode])
    operation = cpu_opcodes.OPERATION[name]
    length = 2 if name == "BRK" else int(LENGTH[mode])
    word = length | (int(CYCLES[opcode]) << CYCLES_AT) | _MODE.get(mode, 0)
    if mode not in (IMP, IMM, REL, IND) and name not in ("JMP", "JSR"):
        reads = operation < cpu_opcodes.FIRST_STORE or operation >= cpu_opcodes.FIRST_CHANGE
        word |= (READS if reads else 0) | (WRITES if operation >= cpu_opcodes.FIRST_STORE else 0)
        if mode in (ABX, ABY, IZY) and operation < cpu_opcodes.FIRST_STORE:
            word |= PAYS
    if mode == REL:
        word |= BRANCH << SPECIAL_AT
    elif name in ("PHA", "PHP"):
        word |= _STACK | WRITES | PUSHES
    elif name in ("PLA", "PLP"):
        word |= _STACK | READS | PULLS
    word |= _SPECIAL.get(name, 0) << SPECIAL_AT
    return word if mode != IND else length | (int(CYCLES[opcode]) << CYCLES_AT) | (JUMP_INDIRECT << SPECIAL_AT)


KNOWN = np.array([name in _DO for name in NAMES])
HOW = np.array([_how(k) for k in range(256)], np.int32)
DO = np.array([_DO.get(name, 0) for name in NAMES], np.int32)


def _loop(image: np.ndarray, at: int, room: int) -> int:
    """The note of a loop that only waits and begins here, or 0."""
    code = int(image[at])
    name = NAMES[code]
    if name in ("DEX", "DEY") and room >= 3 and image[at + 1] == BNE_OPCODE and image[at + 2] == 0xFD:
        each = 4 + (2 if ((at + 3) ^ at) & ~0xFF else 1)
        return ((COUNT_X if name == "DEX" else COUNT_Y) << 4) | each
    if name in ("LDA", "LDX", "LDY") and MODE[code] == ABS and room >= 5 and image[at + 4] == 0xFB:
        address = int(image[at + 1]) | (int(image[at + 2]) << 8)
        each = 4 + (4 if ((at + 5) ^ at) & ~0xFF else 3)
        if address & RAM_LINES == A9 | A7 and address & TIMINT == INTIM:
            if image[at + 3] == BNE_OPCODE:
                return (UNTIL_ZERO << 4) | each
            if image[at + 3] == BPL_OPCODE and name == "LDA":
                return (UNTIL_MINUS << 4) | each
    return 0


def _word(image: np.ndarray, bank: int, a: int, size: int, low: int, high: int) -> int:
    """Offset `a` of a bank of `size` bytes as an instruction.

    Only offsets low..high-1 can be read without a side effect.
    """
    code = int(image[bank + a])
    name, mode, length = NAMES[code], int(MODE[code]), int(HOW[code]) & LENGTH_BITS
    rare = code | (FOR_REFERENCE << 24)
    # An instruction that ends, or may jump, outside the ROM needs the bus latch, which only the reference keeps.
    if (
        not KNOWN[code]
        or a < low
        or a + length > high
        or a + length > size
        or (size == BANK_SIZE and a + length == size)
    ):
        return rare
    operand = int(image[bank + a + 1]) if length > 1 else 0
    if length > 2:
        operand |= int(image[bank + a + 2]) << 8
    if mode == REL and size == BANK_SIZE and not 0 <= a + 2 + (operand ^ 0x80) - 0x80 < size:
        return rare
    if (mode == ABS and name in ("JMP", "JSR") and not operand & A12) or (mode == IND and not 0x80 <= operand < 0xFF):
        return rare
    if name in ("PLA", "PLP"):
        operand = 0x2801  # one above SP; the bus carried 0x28 last
    note = _loop(image[bank : bank + size], a, min(high, size) - a)
    return code | (operand << 8) | (note << 24)


def microcode(image: np.ndarray, prop: np.ndarray) -> np.ndarray:
    """The table of a ROM, by offset in its image (`image_offset` in `cuda/cpu_warp.py`)."""
    cart, low, high = int(prop[P_CART]), int(prop[P_LOW]), int(prop[P_HIGH])
    words = np.array([int(b) | (FOR_REFERENCE << 24) for b in image], np.uint32)
    if cart == CART_E0:
        for k in range(8192):
            bank = k & ~SLICE_OFFSET
            end = E0_FIRST & SLICE_OFFSET if bank == E0_FIXED else SLICE_SIZE
            words[k] = _word(image, bank, k & SLICE_OFFSET, SLICE_SIZE, low, end)
        return words
    for k in range(8192 if cart == CART_DPC else image.size):
        words[k] = _word(image, k & ~BANK_OFFSET, k & BANK_OFFSET, BANK_SIZE, low, high)
    return words
