"""Which instructions of an image are programs: found from known entries by following the code.

An instruction has a *place*, its offset in the image, and a program counter of 16 bits; a place is translated for one
program counter, the first that is found. Entries are places that the program can be entered at from outside: the
reset vector, what a trial run jumped to indirectly (`trace.py`), where a subroutine returns to, and what follows an
instruction that is left to the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..chips.cpu_opcodes import ABS, BRK, CYCLES, JAM, JMP, JSR, LENGTH, MODE, OP, RTI, RTS, STA, STX, STY
from ..chips.cpu_predecode import (
    JMP_IND,
    LDA_IZY,
    RUN_BCC,
    RUN_BCS,
    RUN_BEQ,
    RUN_BMI,
    RUN_BNE,
    RUN_BPL,
    RUN_BVC,
    RUN_BVS,
    RUN_JMP,
    RUN_JSR,
    RUN_RTS,
    SET_TIA,
    SLOW,
    STA_IZY,
    STORE_WSYNC,
)
from ..chips.layout import (
    CART_DPC,
    CART_E0,
    CART_F6,
    CART_F6SC,
    CART_F8,
    CART_F8SC,
    CART_FE,
    P_CART,
    P_HIGH,
    P_LOW,
)
from ..chips.memory_map import (
    A7,
    A9,
    A12,
    A13,
    BANK_OFFSET,
    BANK_SIZE,
    BREAK_VECTOR,
    E0_FIRST,
    E0_FIXED,
    F6_BANK0,
    F6_BANK3,
    F8_BANK0,
    F8_BANK1,
    SLICE_OFFSET,
)
from ..chips.riot_registers import RIOT_WRITE_LINES, TIM1T
from ..chips.tia_registers import VBLANK, VSYNC, WRITE_LINES

BRANCHES = {RUN_BPL, RUN_BMI, RUN_BVC, RUN_BVS, RUN_BCC, RUN_BCS, RUN_BNE, RUN_BEQ}
# Handlers that only translated programs have.
SET_VSYNC, SET_VBLANK, SET_TIMER, RUN_BRK, RUN_RTI = range(200, 205)
RIOT_CHIP = A12 | A9 | A7
NOT_SEQUENTIAL = {int(op) for op in (JMP, JSR, RTS, RTI, BRK, JAM)}
MOST_INSTRUCTIONS = 6000  # translated of one image; what is beyond stays with the interpreter


@dataclass(frozen=True)
class Instruction:
    """One predecoded word, taken apart."""

    place: int
    pc: int
    handler: int
    operand: int
    length: int
    cycles: int
    extra: int  # cycles more if a branch is taken

    @property
    def next_pc(self) -> int:
        return (self.pc + self.length) & 0xFFFF

    @property
    def target(self) -> int:
        """Of a branch or jump."""
        if self.handler in BRANCHES:
            return (self.next_pc + (self.operand ^ 0x8000) - 0x8000) & 0xFFFF
        return self.operand


@dataclass
class Code:
    """The instructions found, and where blocks begin."""

    cart: int
    image: np.ndarray
    dec: np.ndarray
    low: int
    high: int
    instructions: dict[int, Instruction] = field(default_factory=dict)
    leaders: set[int] = field(default_factory=set)
    entries: set[int] = field(default_factory=set)

    def place(self, pc: int, here: int | None, bank: int) -> int | None:
        """The place of a program counter, seen from the place `here`; None: it depends on slices."""
        if not pc & A12:
            return None
        if self.cart == CART_FE:
            return (0 if pc & A13 else BANK_SIZE) + (pc & BANK_OFFSET)
        if self.cart != CART_E0:
            return bank + (pc & BANK_OFFSET)
        if (pc >> 10) & 3 == 3:
            return E0_FIXED + (pc & SLICE_OFFSET)
        if here is None or (self.instructions[here].pc >> 10) & 3 != (pc >> 10) & 3:
            return None
        return (here & ~SLICE_OFFSET) + (pc & SLICE_OFFSET)

    def bank(self, place: int) -> int:
        return place & ~BANK_OFFSET if self.cart not in (CART_E0, CART_FE) else 0

    def word(self, place: int, pc: int) -> int:
        if self.cart == CART_E0:
            return int(self.dec[place])
        if self.cart == CART_FE:
            return int(self.dec[pc & 0x3FFF])
        return int(self.dec[2 * self.bank(place) + (pc & 0x1FFF)])

    def decoded(self, place: int, pc: int) -> Instruction:
        word = self.word(place, pc)
        handler, operand = word & 0xFF, (word >> 8) & 0xFFFF
        if handler == SET_TIA and operand & WRITE_LINES <= VBLANK:
            handler = SET_VSYNC if operand & WRITE_LINES == VSYNC else SET_VBLANK
        elsewhere = handler in (LDA_IZY, STA_IZY) and not 0x80 <= operand < 0xFF
        if handler == SLOW or elsewhere:
            return self.rare(place, pc)
        return Instruction(place, pc, handler, operand, (word >> 24) & 3, (word >> 26) & 15, (word >> 30) & 3)

    def rare(self, place: int, pc: int) -> Instruction:
        """An instruction that the interpreter leaves to the reference: a few of them are translated all the same."""
        opcode = int(self.image[place])
        op, length, cycles = int(OP[opcode]), int(LENGTH[MODE[opcode]]), int(CYCLES[opcode])
        slow = Instruction(place, pc, SLOW, 0, length, 0, 0)
        size = SLICE_OFFSET if self.cart == CART_E0 else BANK_OFFSET
        offset, end = place & size, (place & size) + max(length, 2)
        if self.cart == CART_E0:
            low, high = 0, E0_FIRST & SLICE_OFFSET if place & ~SLICE_OFFSET == E0_FIXED else size
        else:
            low, high = self.low, min(self.high, size)
        if offset < low or end > high:
            return slow
        if op == RTI:
            return Instruction(place, pc, RUN_RTI, 0, length, cycles, 0)
        if op == BRK and self.cart != CART_DPC:
            vector = self.place(BREAK_VECTOR, None, self.bank(place))
            assert vector is not None
            target = int(self.image[vector]) | int(self.image[vector + 1]) << 8
            return Instruction(place, pc, RUN_BRK, target, 2, cycles, 0) if target & A12 else slow
        if op in (STA, STX, STY) and MODE[opcode] == ABS:
            operand = int(self.image[place + 1]) | int(self.image[place + 2]) << 8
            if operand & RIOT_CHIP == A9 | A7 and operand & RIOT_WRITE_LINES >= TIM1T:
                return Instruction(place, pc, SET_TIMER, (operand & 3) | (op - STA) << 8, length, cycles, 0)
        return slow


def after_slow(code: Code, it: Instruction) -> int | None:
    """Where the program goes on after an instruction that the reference executes, if that is easy to say."""
    image, bank = code.image, code.bank(it.place)
    length = it.length
    if int(OP[int(image[it.place])]) in NOT_SEQUENTIAL:
        return None
    if code.cart == CART_E0:
        inside = (it.place & SLICE_OFFSET) + length <= SLICE_OFFSET
    else:
        inside = (it.place & BANK_OFFSET) + length <= BANK_OFFSET
    if not inside:
        return None
    if length == 3:  # a hot spot?
        operand = int(image[it.place + 1]) | int(image[it.place + 2]) << 8
        a = operand & BANK_OFFSET
        if operand & A12 and code.cart in (CART_F8, CART_F8SC, CART_DPC) and F8_BANK0 <= a <= F8_BANK1:
            bank = (a - F8_BANK0) << 12
        elif operand & A12 and code.cart in (CART_F6, CART_F6SC) and F6_BANK0 <= a <= F6_BANK3:
            bank = (a - F6_BANK0) << 12
    if code.cart in (CART_E0, CART_FE):
        return it.place + length
    return bank + ((it.place + length) & BANK_OFFSET)


def discover(
    image: np.ndarray,
    prop: np.ndarray,
    dec: np.ndarray,
    entries: Iterable[tuple[int, int]],
    most: int = MOST_INSTRUCTIONS,
) -> Code:
    """Follow the code from the entries, given as (place, program counter), to at most `most` instructions."""
    code = Code(int(prop[P_CART]), image, dec, int(prop[P_LOW]), int(prop[P_HIGH]))
    limit = BANK_SIZE * 2 if code.cart == CART_DPC else image.size
    todo = [(place, pc, True) for place, pc in entries]
    while todo:
        place, pc, entry = todo.pop()
        code.leaders.add(place)
        if entry:
            code.entries.add(place)
        while place not in code.instructions and place < limit and len(code.instructions) < most:
            it = code.instructions[place] = code.decoded(place, pc)
            if it.handler == SLOW:
                after = after_slow(code, it)
                if after is not None:
                    todo.append((after, it.next_pc, True))
                break
            if it.handler in BRANCHES or it.handler in (RUN_JMP, RUN_JSR, RUN_BRK):
                target = code.place(it.target, place, code.bank(place))
                if target is not None:
                    todo.append((target, it.target, False))
            following = code.place(it.next_pc, place, code.bank(place))
            if it.handler in (RUN_JMP, RUN_RTS, RUN_RTI, JMP_IND) or following is None:
                break
            if it.handler in (RUN_JSR, RUN_BRK, SET_VSYNC):  # it comes back here, or the next frame begins here
                todo.append((following, it.next_pc, True))
                break
            if it.handler in BRANCHES:
                code.leaders.add(following)
            place, pc = following, it.next_pc
    code.entries |= line_loops(code)
    code.leaders &= set(code.instructions)
    code.entries &= set(code.instructions)
    return code


def line_loops(code: Code) -> set[int]:
    """Where loops begin that wait for a line in every round: a program that was left comes back there soon."""
    waits = np.array(sorted(place for place, it in code.instructions.items() if it.handler == STORE_WSYNC))
    found: set[int] = set()
    for it in code.instructions.values():
        if it.handler in BRANCHES or it.handler == RUN_JMP:
            target = code.place(it.target, it.place, code.bank(it.place))
            if target is not None and target <= it.place and np.any((waits >= target) & (waits <= it.place)):
                found.add(target)
    return found
