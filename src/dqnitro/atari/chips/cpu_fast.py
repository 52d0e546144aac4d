# ruff: noqa: F403, F405
"""The CPU at full speed: predecoded instructions, registers in locals, one long chain of cases.

The compiler turns the chain into a jump table. A case that does not hold (an operand elsewhere than expected, a rare
instruction) falls through to `chips/cpu_reference.py`, which executes that one instruction from memory, so this loop
needs to know only the frequent forms. It does the same as the reference, flag for flag and cycle for cycle; V, D and I
stay in memory because few instructions touch them.
"""

from __future__ import annotations

from numpy import int64, uint32, uintp

from ..jit.target import as_bytes, as_log, as_ram, as_state, as_words, compiled, inlined
from .bus import input_read, tia_read, tia_write
from .cpu_predecode import *
from .cpu_reference import add_with_carry, flags, set_flags, step_unit, subtract_with_carry
from .layout import *
from .memory_map import (
    A7,
    A12,
    A13,
    BANK_OFFSET,
    BANK_SIZE,
    E0_FIXED,
    RAM_LINES,
    SLICE_OFFSET,
    STACK,
    TIA_LINES,
)
from .tia import replay_unit
from .tia_registers import READ_LINES, WRITE_LINES

# The fields of a predecoded word (`pack` in `chips/cpu_predecode.py`): where they begin, and their bits.
OPERAND_AT, BYTES_AT, CYCLES_AT, EXTRA_AT = uint32(8), uint32(24), uint32(26), uint32(30)
HANDLER_BITS, OPERAND_BITS, BYTES_BITS, CYCLES_BITS = uint32(0xFF), uint32(0xFFFF), uint32(3), uint32(15)
REGISTER_BITS = uint32(WRITE_LINES)  # of an operand that is a TIA register


@inlined
def rom_byte(s_at, rom_at, cart, address):
    """A byte of the plain window: the one that the cartridge shows at this address now."""
    s = as_state(s_at)
    rom = as_bytes(rom_at)
    if cart == CART_E0:
        segment = (address >> 10) & 3
        base = int64(E0_FIXED) if segment == 3 else s[S_SLICE0 + segment]
        return int64(rom[uintp(base + (address & SLICE_OFFSET))])
    if cart == CART_FE:
        return int64(rom[(0 if address & A13 else BANK_SIZE) + (address & BANK_OFFSET)])
    return int64(rom[uintp(s[S_BANK] + (address & BANK_OFFSET))])


@compiled
def run(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at):
    """Execute instructions until the frame ends, the limit of instructions is reached or the CPU jams.

    `a, x, y, sp, pc, nz, c` and `cycles` are the CPU; `left` counts down instructions. A case does one of three things:
    it finishes its instruction and continues; it names a TIA register (`reg`, `any_reg`, `at`), and the access follows
    below the chain, once for all cases; or it falls through, and the reference executes the instruction.

    RAM is the upper half of the zero page: an address with A7 set is in RAM, at offset `address & 0x7F`.
    """
    # ---- registers and constants of this frame into locals
    s, ram, dec = as_state(s_at), as_ram(ram_at), as_words(dec_at)
    prop, log = as_state(prop_at), as_log(log_at)
    a, x, y, sp, pc = s[S_A], s[S_X], s[S_Y], s[S_SP], s[S_PC]
    nz, c, cycles, left = s[S_NZ], s[S_C], s[S_CYCLES], s[S_LEFT]
    cart, low, high, mask = prop[P_CART], prop[P_LOW], prop[P_HIGH], prop[P_PC_MASK]
    origin, limit = s[S_ORIGIN], s[S_LIMIT]
    sliced = cart == CART_E0
    base = 2 * s[S_BANK]

    while left > 0:
        # ---- fetch: the word of this program counter; in an E0 cartridge it depends on the slice
        left -= 1
        place = uintp(base + (pc & mask))
        if sliced:
            word = uint32(SLOW)
            if pc & A12:
                segment = (pc >> 10) & 3
                slice_at = int64(E0_FIXED) if segment == 3 else s[S_SLICE0 + segment]
                word = dec[uintp(slice_at + (pc & SLICE_OFFSET))]
        else:
            word = dec[place]
        handler = int64(word & HANDLER_BITS)
        operand = int64((word >> OPERAND_AT) & OPERAND_BITS)
        # PC and cycles as they are after the instruction; the reference gets those from before.
        here, before = pc, cycles
        pc += int64((word >> BYTES_AT) & BYTES_BITS)
        cycles += int64((word >> CYCLES_AT) & CYCLES_BITS)
        value = int64(0)
        reg = int64(-1)  # TIA register to store `value` into: one whose stores only go to the log
        any_reg = int64(-1)  # any TIA register to store `value` into
        at = int64(-1)  # address in the TIA to read for the operation of `handler`

        # ---- the 60 hot handlers, most frequent first: 93 % of all instructions, one jump table
        if handler < HOT:
            # STA, STX, STY (below) into a picture register
            if handler == STA_TIA:
                reg, value = operand, a
            # A load and the store into the TIA after it, as one; the store's word gives its register, length and cycles
            elif handler == LDA_IZY_STA:
                if 0x80 <= operand < 0xFF:
                    first = int64(ram[operand & 0x7F])
                    t = first + (int64(ram[(operand + 1) & 0x7F]) << 8) + y
                    if t & A12 and low <= t & BANK_OFFSET < high:
                        a = nz = rom_byte(s_at, rom_at, cart, t)
                        cycles += (first + y) >> 8
                        if left <= 0:
                            continue
                        left -= 1
                        word = dec[place + uintp(2)]
                        reg, value = int64((word >> OPERAND_AT) & REGISTER_BITS), a
                        pc += int64((word >> BYTES_AT) & BYTES_BITS)
                        cycles += int64((word >> CYCLES_AT) & CYCLES_BITS)
            # STA, STX or STY WSYNC: on to the end of the line
            elif handler == STORE_WSYNC:
                t = cycles - origin
                s[S_TOUCH] = t
                cycles = t + LAST_CYCLE - (t + LAST_CYCLE) % LINE_CYCLES + origin
                if t >= limit:
                    s[S_STOP], s[S_PARTIAL] = 1, 0
                    break
                continue
            elif handler == LDA_ZP:  # LDA zp
                a = nz = int64(ram[operand & 0x7F])
                continue
            elif handler == STA_ZP:  # STA zp
                ram[operand & 0x7F] = a
                continue
            elif handler == LDA_IZY:  # LDA (zp),Y
                if 0x80 <= operand < 0xFF:
                    first = int64(ram[operand & 0x7F])
                    t = first + (int64(ram[(operand + 1) & 0x7F]) << 8) + y
                    if t & A12:
                        if low <= t & BANK_OFFSET < high:
                            a = nz = rom_byte(s_at, rom_at, cart, t)
                            cycles += (first + y) >> 8
                            continue
                    elif t & RAM_LINES == A7:
                        a = nz = int64(ram[t & 0x7F])
                        cycles += (first + y) >> 8
                        continue
            # Branches: the offset is a signed 16-bit operand, and the word knows the cycles of a taken one
            elif handler == RUN_BCS:
                if c != 0:
                    pc += (operand ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == RUN_BEQ:
                if nz & 0xFF == 0:
                    pc += (operand ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == LDY_ZP:  # LDY zp
                y = nz = int64(ram[operand & 0x7F])
                continue
            elif handler == AND_IMM:  # AND #
                a = nz = a & operand
                continue
            elif handler == LSR_A:  # LSR A
                c = a & 1
                a = nz = a >> 1
                continue
            elif handler == RUN_BNE:
                if nz & 0xFF != 0:
                    pc += (operand ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == LDX_ZP:  # LDX zp
                x = nz = int64(ram[operand & 0x7F])
                continue
            elif handler == LDA_IMM:  # LDA #
                a = nz = operand
                continue
            elif handler == STX_TIA:
                reg, value = operand, x
            elif handler == RUN_BPL:
                if nz & N_BITS == 0:
                    pc += (operand ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            # A count and the branch after it, as one (DEY_BPL, DEX_BNE and DEY_BNE below)
            elif handler == DEX_BPL:
                x = nz = (x - 1) & 0xFF
                if left <= 0:
                    continue
                left -= 1
                pc += 2
                cycles += 2
                if nz & 0x80 == 0:
                    word = dec[place + uintp(1)]
                    pc += (int64((word >> OPERAND_AT) & OPERAND_BITS) ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == STY_TIA:
                reg, value = operand, y
            elif handler == RUN_TXA:
                a = nz = x
                continue
            elif handler == RUN_DEY:
                y = nz = (y - 1) & 0xFF
                continue
            elif handler == ASL_A:  # ASL A
                c = a >> 7
                a = nz = (a << 1) & 0xFF
                continue
            elif handler == DEC_ZP:
                nz = (int64(ram[operand & 0x7F]) - 1) & 0xFF
                ram[operand & 0x7F] = nz
                continue
            elif handler == DEY_BPL:
                y = nz = (y - 1) & 0xFF
                if left <= 0:
                    continue
                left -= 1
                pc += 2
                cycles += 2
                if nz & 0x80 == 0:
                    word = dec[place + uintp(1)]
                    pc += (int64((word >> OPERAND_AT) & OPERAND_BITS) ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == RUN_NOP:
                continue
            elif handler == RUN_TAY:
                y = nz = a
                continue
            elif handler == CMP_IMM:  # CMP #
                t = a - operand
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            # Zero page, indexed: RAM or, with A7 clear, the TIA
            elif handler == LDA_ZPX:  # LDA zp,X
                t = (operand + x) & 0xFF
                if t & A7:
                    a = nz = int64(ram[t & 0x7F])
                    continue
                at, handler = t, int64(LDA_TIA)
            elif handler == RUN_BCC:
                if c == 0:
                    pc += (operand ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == RUN_BMI:
                if nz & N_BITS != 0:
                    pc += (operand ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == RUN_SEC:
                c = int64(1)
                continue
            elif handler == LDA_ZP_STA:
                a = nz = int64(ram[operand & 0x7F])
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp((word >> BYTES_AT) & BYTES_BITS)]
                reg, value = int64((word >> OPERAND_AT) & REGISTER_BITS), a
                pc += int64((word >> BYTES_AT) & BYTES_BITS)
                cycles += int64((word >> CYCLES_AT) & CYCLES_BITS)
            elif handler == RUN_INY:
                y = nz = (y + 1) & 0xFF
                continue
            elif handler == LDA_ABY_STA:
                a = nz = rom_byte(s_at, rom_at, cart, operand + y)
                cycles += ((operand & 0xFF) + y) >> 8
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp(3)]
                reg, value = int64((word >> OPERAND_AT) & REGISTER_BITS), a
                pc += int64((word >> BYTES_AT) & BYTES_BITS)
                cycles += int64((word >> CYCLES_AT) & CYCLES_BITS)
            elif handler == LDX_IMM:  # LDX #
                x = nz = operand
                continue
            elif handler == LDA_IMM_STA:
                a = nz = operand
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp((word >> BYTES_AT) & BYTES_BITS)]
                reg, value = int64((word >> OPERAND_AT) & REGISTER_BITS), a
                pc += int64((word >> BYTES_AT) & BYTES_BITS)
                cycles += int64((word >> CYCLES_AT) & CYCLES_BITS)
            elif handler == RUN_TAX:
                x = nz = a
                continue
            elif handler == RUN_JMP:
                pc = operand
                continue
            elif handler == STA_ZPX:  # STA zp,X
                t = (operand + x) & 0xFF
                if t & A7:
                    ram[t & 0x7F] = a
                    continue
                any_reg, value = t & WRITE_LINES, a
            elif handler == CPY_IMM:  # CPY #
                t = y - operand
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif handler == SBC_ZP:
                value = int64(ram[operand & 0x7F])
                t = subtract_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                continue
            # The stack is RAM as long as SP is 0x80 or more; games also push into the TIA's registers
            elif handler == RUN_PHP:
                s[S_NZ], s[S_C] = nz, c
                if sp >= 0x80:
                    ram[sp & 0x7F] = flags(s_at)
                else:
                    any_reg, value = sp & WRITE_LINES, flags(s_at)
                sp = (sp - 1) & 0xFF
                if any_reg < 0:
                    continue
            elif handler == LDA_ABX_STA:
                a = nz = rom_byte(s_at, rom_at, cart, operand + x)
                cycles += ((operand & 0xFF) + x) >> 8
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp(3)]
                reg, value = int64((word >> OPERAND_AT) & REGISTER_BITS), a
                pc += int64((word >> BYTES_AT) & BYTES_BITS)
                cycles += int64((word >> CYCLES_AT) & CYCLES_BITS)
            elif handler == SBC_IMM:
                value = operand
                t = subtract_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                continue
            elif handler == STY_ZP:  # STY zp
                ram[operand & 0x7F] = y
                continue
            elif handler == RUN_DEX:
                x = nz = (x - 1) & 0xFF
                continue
            elif handler == LDY_IMM:  # LDY #
                y = nz = operand
                continue
            elif handler == AND_ZP:  # AND zp
                a = nz = a & int64(ram[operand & 0x7F])
                continue
            elif handler == RUN_INX:
                x = nz = (x + 1) & 0xFF
                continue
            elif handler == CPX_IMM:  # CPX #
                t = x - operand
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            # Calls and returns, where the stack is in RAM
            elif handler == RUN_RTS:
                if 0x7F <= sp < 0xFE:
                    t = int64(ram[(sp + 1) & 0x7F]) | (int64(ram[(sp + 2) & 0x7F]) << 8)
                    # The byte at the return address is read: it must not be a hot spot.
                    if t & (t + 1) & A12 and low <= t & BANK_OFFSET < high:
                        sp += 2
                        pc = (t + 1) & 0xFFFF
                        continue
            elif handler == RUN_JSR:
                if sp >= 0x81:
                    ram[sp & 0x7F] = ((pc - 1) >> 8) & 0xFF
                    ram[(sp - 1) & 0x7F] = (pc - 1) & 0xFF
                    sp -= 2
                    pc = operand
                    continue
            elif handler == RUN_PLA:
                if 0x7F <= sp < 0xFF:
                    sp += 1
                    a = nz = int64(ram[sp & 0x7F])
                    continue
                if sp < 0x7F:
                    # The byte under the stack pointer is read first; its value stays in the latch.
                    s[S_CYCLES] = cycles
                    operand = tia_read(s_at, prop_at, log_at, screen_at, sp & READ_LINES) | (PLA_OPCODE & 0x3F)
                    sp += 1
                    at, handler = STACK | sp, int64(LDA_TIA)
            # Indexed loads from the plain window of the ROM; a crossed page costs a cycle
            elif handler == LDA_ABX:  # LDA abs,X
                a = nz = rom_byte(s_at, rom_at, cart, operand + x)
                cycles += ((operand & 0xFF) + x) >> 8
                continue
            elif handler == STX_ZP:  # STX zp
                ram[operand & 0x7F] = x
                continue
            elif handler == CPX_ZP:  # CPX zp
                t = x - int64(ram[operand & 0x7F])
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif handler == CPY_ZP:  # CPY zp
                t = y - int64(ram[operand & 0x7F])
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif handler == INC_ZP:
                nz = (int64(ram[operand & 0x7F]) + 1) & 0xFF
                ram[operand & 0x7F] = nz
                continue
            elif handler == LDA_ABY:  # LDA abs,Y
                a = nz = rom_byte(s_at, rom_at, cart, operand + y)
                cycles += ((operand & 0xFF) + y) >> 8
                continue
            elif handler == RUN_CLC:
                c = int64(0)
                continue
            elif handler == EOR_ZP:  # EOR zp
                a = nz = a ^ int64(ram[operand & 0x7F])
                continue
        # ---- the rare handlers, most frequent first
        else:
            # An indexed load from anywhere: ROM, RAM, or the TIA; from the RIOT or a hot spot only by the reference
            # (handler 0).
            if handler == LDA_ABX_ANY or handler == LDA_ABY_ANY or handler == LDX_ABY_ANY or handler == LDY_ABX_ANY:
                index = x if handler == LDA_ABX_ANY or handler == LDY_ABX_ANY else y
                t = operand + index
                cycles += ((operand & 0xFF) + index) >> 8
                if t & A12 and low <= t & BANK_OFFSET < high:
                    value = rom_byte(s_at, rom_at, cart, t)
                elif t & RAM_LINES == A7:
                    value = int64(ram[t & 0x7F])
                elif t & TIA_LINES == 0:
                    at = t
                    operand >>= 8
                    handler = int64(
                        LDX_TIA if handler == LDX_ABY_ANY else LDY_TIA if handler == LDY_ABX_ANY else LDA_TIA
                    )
                else:
                    handler = int64(0)
                if handler != 0 and at < 0:
                    nz = value
                    if handler == LDX_ABY_ANY:
                        x = value
                    elif handler == LDY_ABX_ANY:
                        y = value
                    else:
                        a = value
                    continue
            elif handler == LDA_ZPX_STA:
                t = (operand + x) & 0xFF
                if t & A7:
                    a = nz = int64(ram[t & 0x7F])
                    if left <= 0:
                        continue
                    left -= 1
                    word = dec[place + uintp(2)]
                    reg, value = int64((word >> OPERAND_AT) & REGISTER_BITS), a
                    pc += int64((word >> BYTES_AT) & BYTES_BITS)
                    cycles += int64((word >> CYCLES_AT) & CYCLES_BITS)
                else:
                    at, handler = t, int64(LDA_TIA)
            elif handler == BIT_ZP:  # BIT zp
                t = int64(ram[operand & 0x7F])
                nz = (a & t) | ((t & 0x80) << 1)
                s[S_V] = (t >> 6) & 1
                continue
            elif handler == RUN_TYA:
                a = nz = y
                continue
            elif handler == ADC_ZP:
                value = int64(ram[operand & 0x7F])
                t = add_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                continue
            elif handler == CMP_ZP:  # CMP zp
                t = a - int64(ram[operand & 0x7F])
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            # JMP through a pointer in RAM, to the ROM
            elif handler == JMP_IND:  # JMP (zp)
                t = int64(ram[operand & 0x7F]) | (int64(ram[(operand + 1) & 0x7F]) << 8)
                if t & A12:
                    pc = t
                    continue
            elif handler == DEX_BNE:
                x = nz = (x - 1) & 0xFF
                if left <= 0:
                    continue
                left -= 1
                pc += 2
                cycles += 2
                if nz != 0:
                    word = dec[place + uintp(1)]
                    pc += (int64((word >> OPERAND_AT) & OPERAND_BITS) ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            # Loads of the timer before it runs out, alone or as a loop that waits for it: all rounds of that at once
            elif (
                handler == LDA_INTIM or handler == LDX_INTIM or handler == LDY_INTIM
                or handler == WAIT_ZERO or handler == WAIT_MINUS or handler == WAIT_ZERO_X or handler == WAIT_ZERO_Y
            ):  # fmt: skip
                t = cycles - 1 - s[S_SET]
                timer, shift = s[S_TIMER], s[S_SHIFT]
                if 0 <= t < timer << shift:
                    if shift >= 3 and operand != 0:
                        # Rounds of `operand` (7 or 8) cycles until the timer shows 0, or until its last value before it
                        # wraps.
                        if handler != WAIT_MINUS:
                            rounds = (((timer - 1) << shift) - t + operand - 1) // operand
                        else:
                            rounds = ((timer << shift) - 1 - t) // operand if timer <= 0x80 else 0
                        rounds = min(max(rounds, 0), left >> 1)
                        left -= 2 * rounds
                        cycles += operand * rounds
                        t += operand * rounds
                    value = timer - (t >> shift) - 1
                    nz = value
                    if handler == LDX_INTIM or handler == WAIT_ZERO_X:
                        x = value
                    elif handler == LDY_INTIM or handler == WAIT_ZERO_Y:
                        y = value
                    else:
                        a = value
                    continue
            elif handler == ORA_ZP:  # ORA zp
                a = nz = a | int64(ram[operand & 0x7F])
                continue
            elif handler == ADC_IMM:
                value = operand
                t = add_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                continue
            elif handler == RUN_TXS:
                sp = x
                continue
            elif handler == LDX_ABY:  # LDX abs,Y
                x = nz = rom_byte(s_at, rom_at, cart, operand + y)
                cycles += ((operand & 0xFF) + y) >> 8
                continue
            # Stores into the other TIA registers: the operand also says which CPU register is stored
            elif handler == SET_TIA:
                any_reg = operand & WRITE_LINES
                value = a if operand < 0x100 else x if operand < 0x200 else y
            # Collisions, and inputs in other forms than the usual: the read follows below the chain
            elif (
                handler == LDA_TIA or handler == LDX_TIA or handler == LDY_TIA or handler == BIT_TIA
                or handler == AND_TIA or handler == ORA_TIA or handler == EOR_TIA or handler == CMP_TIA
            ):  # fmt: skip
                at = operand & 0xFF
                operand >>= 8
            elif handler == EOR_IMM:  # EOR #
                a = nz = a ^ operand
                continue
            elif handler == DEY_BNE:
                y = nz = (y - 1) & 0xFF
                if left <= 0:
                    continue
                left -= 1
                pc += 2
                cycles += 2
                if nz != 0:
                    word = dec[place + uintp(1)]
                    pc += (int64((word >> OPERAND_AT) & OPERAND_BITS) ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == ADC_ZPX:
                t = (operand + x) & 0xFF
                if t & A7:
                    t = add_with_carry(s_at, a, int64(ram[t & 0x7F]), c)
                    a = nz = t & 0xFF
                    c = t >> 8
                    continue
            elif handler == RUN_PHA:
                if sp >= 0x80:
                    ram[sp & 0x7F] = a
                    sp -= 1
                    continue
            elif handler == AND_ABX:  # AND abs,X
                a = nz = a & rom_byte(s_at, rom_at, cart, operand + x)
                cycles += ((operand & 0xFF) + x) >> 8
                continue
            # Indexed stores: RAM or TIA
            elif handler == STA_ABY:  # STA abs,Y
                t = operand + y
                if t & RAM_LINES == A7:
                    ram[t & 0x7F] = a
                    continue
                if t & TIA_LINES == 0:
                    any_reg, value = t & WRITE_LINES, a
            elif handler == RUN_BVC:
                if s[S_V] == 0:
                    pc += (operand ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == LDY_ABX:  # LDY abs,X
                y = nz = rom_byte(s_at, rom_at, cart, operand + x)
                cycles += ((operand & 0xFF) + x) >> 8
                continue
            elif handler == LDY_ZPX:  # LDY zp,X
                t = (operand + x) & 0xFF
                if t & A7:
                    y = nz = int64(ram[t & 0x7F])
                    continue
            elif handler == STY_ZPX:  # STY zp,X
                t = (operand + x) & 0xFF
                if t & A7:
                    ram[t & 0x7F] = y
                    continue
                any_reg, value = t & WRITE_LINES, y
            elif handler == LSR_ZP or handler == LSR_ZPX:  # LSR zp, zp,X
                if handler == LSR_ZPX:
                    operand = (operand + x) & 0xFF
                if handler == LSR_ZP or operand & A7:
                    t = int64(ram[operand & 0x7F])
                    c = t & 1
                    nz = t >> 1
                    ram[operand & 0x7F] = nz
                    continue
            # Joysticks and console switches: SWCHA or SWCHB
            elif handler == LDA_PORT:
                a = nz = s[S_SWCHA + (operand >> 1)]
                continue
            elif handler == CMP_ZPX:  # CMP zp,X
                t = (operand + x) & 0xFF
                if t & A7:
                    t = a - int64(ram[t & 0x7F])
                    c = 1 + (t >> 63)
                    nz = t & 0xFF
                    continue
            elif handler == RUN_BVS:
                if s[S_V] != 0:
                    pc += (operand ^ 0x8000) - 0x8000
                    cycles += int64(word >> EXTRA_AT)
                continue
            elif handler == DEC_ZPX:
                t = (operand + x) & 0xFF
                if t & A7:
                    nz = (int64(ram[t & 0x7F]) - 1) & 0xFF
                    ram[t & 0x7F] = nz
                    continue
            elif handler == ROL_A:  # ROL A
                t = (a << 1) | c
                c = t >> 8
                a = nz = t & 0xFF
                continue
            elif handler == ORA_ABX:  # ORA abs,X
                a = nz = a | rom_byte(s_at, rom_at, cart, operand + x)
                cycles += ((operand & 0xFF) + x) >> 8
                continue
            elif handler == ROL_ZP or handler == ROL_ZPX:  # ROL zp, zp,X
                if handler == ROL_ZPX:
                    operand = (operand + x) & 0xFF
                if handler == ROL_ZP or operand & A7:
                    t = (int64(ram[operand & 0x7F]) << 1) | c
                    c = t >> 8
                    nz = t & 0xFF
                    ram[operand & 0x7F] = nz
                    continue
            # DEX (DEY below) and a branch back to it: all rounds at once
            elif handler == DEX_LOOP:
                # x - 1 (or 255) more rounds of `operand` cycles, but not beyond the limit of instructions
                rounds = min((x - 1) & 0xFF, left >> 1)
                left -= 2 * rounds
                x = nz = (x - 1 - rounds) & 0xFF
                cycles += operand * rounds
                continue
            elif handler == ADC_ABX:
                value = rom_byte(s_at, rom_at, cart, operand + x)
                t = add_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                cycles += ((operand & 0xFF) + x) >> 8
                continue
            elif handler == ORA_ZPX:  # ORA zp,X
                t = (operand + x) & 0xFF
                if t & A7:
                    a = nz = a | int64(ram[t & 0x7F])
                    continue
            elif handler == ROR_A:  # ROR A
                t = a | (c << 8)
                c = a & 1
                a = nz = t >> 1
                continue
            elif handler == EOR_ABX:  # EOR abs,X
                a = nz = a ^ rom_byte(s_at, rom_at, cart, operand + x)
                cycles += ((operand & 0xFF) + x) >> 8
                continue
            elif handler == LDX_ZPY:  # LDX zp,Y
                t = (operand + y) & 0xFF
                if t & A7:
                    x = nz = int64(ram[t & 0x7F])
                    continue
            elif handler == INC_ZPX:
                t = (operand + x) & 0xFF
                if t & A7:
                    nz = (int64(ram[t & 0x7F]) + 1) & 0xFF
                    ram[t & 0x7F] = nz
                    continue
            elif handler == ASL_ZP or handler == ASL_ZPX:  # ASL zp, zp,X
                if handler == ASL_ZPX:
                    operand = (operand + x) & 0xFF
                if handler == ASL_ZP or operand & A7:
                    t = int64(ram[operand & 0x7F]) << 1
                    c = t >> 8
                    nz = t & 0xFF
                    ram[operand & 0x7F] = nz
                    continue
            elif handler == STX_ZPY:  # STX zp,Y
                t = (operand + y) & 0xFF
                if t & A7:
                    ram[t & 0x7F] = x
                    continue
                any_reg, value = t & WRITE_LINES, x
            elif handler == CMP_ABX:  # CMP abs,X
                t = a - rom_byte(s_at, rom_at, cart, operand + x)
                c = 1 + (t >> 63)
                nz = t & 0xFF
                cycles += ((operand & 0xFF) + x) >> 8
                continue
            elif handler == ORA_IMM:  # ORA #
                a = nz = a | operand
                continue
            elif handler == ROR_ZP or handler == ROR_ZPX:  # ROR zp, zp,X
                if handler == ROR_ZPX:
                    operand = (operand + x) & 0xFF
                if handler == ROR_ZP or operand & A7:
                    t = int64(ram[operand & 0x7F]) | (c << 8)
                    c = t & 1
                    nz = t >> 1
                    ram[operand & 0x7F] = nz
                    continue
            elif handler == RUN_PLP and 0x7F <= sp < 0xFF:  # PLP
                sp += 1
                set_flags(s_at, int64(ram[sp & 0x7F]))
                nz, c = s[S_NZ], s[S_C]
                continue
            elif handler == AND_ABY:  # AND abs,Y
                a = nz = a & rom_byte(s_at, rom_at, cart, operand + y)
                cycles += ((operand & 0xFF) + y) >> 8
                continue
            elif handler == CMP_ABY:  # CMP abs,Y
                t = a - rom_byte(s_at, rom_at, cart, operand + y)
                c = 1 + (t >> 63)
                nz = t & 0xFF
                cycles += ((operand & 0xFF) + y) >> 8
                continue
            elif handler == RUN_TSX:
                x = nz = sp
                continue
            elif handler == DEY_LOOP:
                rounds = min((y - 1) & 0xFF, left >> 1)
                left -= 2 * rounds
                y = nz = (y - 1 - rounds) & 0xFF
                cycles += operand * rounds
                continue
            elif handler == SBC_ABY:
                value = rom_byte(s_at, rom_at, cart, operand + y)
                t = subtract_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                cycles += ((operand & 0xFF) + y) >> 8
                continue
            elif handler == SBC_ZPX:
                t = (operand + x) & 0xFF
                if t & A7:
                    t = subtract_with_carry(s_at, a, int64(ram[t & 0x7F]), c)
                    a = nz = t & 0xFF
                    c = t >> 8
                    continue
            elif handler == STA_ABX:  # STA abs,X
                t = operand + x
                if t & RAM_LINES == A7:
                    ram[t & 0x7F] = a
                    continue
                if t & TIA_LINES == 0:
                    any_reg, value = t & WRITE_LINES, a
            elif handler == RUN_CLD or handler == RUN_SED:  # CLD, SED
                s[S_D] = 1 if handler == RUN_SED else 0
                continue
            # Paddles and fire buttons, which the picture does not touch: the TIA need not catch up
            elif handler == LDA_INPUT:
                s[S_TOUCH] = cycles - origin
                a = nz = input_read(s_at, operand & READ_LINES, cycles) | (operand >> 8)
                continue
            elif handler == ORA_ABY:  # ORA abs,Y
                a = nz = a | rom_byte(s_at, rom_at, cart, operand + y)
                cycles += ((operand & 0xFF) + y) >> 8
                continue
            elif handler == BIT_INPUT:
                s[S_TOUCH] = cycles - origin
                t = input_read(s_at, operand & READ_LINES, cycles) | (operand >> 8)
                nz = (a & t) | ((t & 0x80) << 1)
                s[S_V] = (t >> 6) & 1
                continue
            elif handler == SBC_ABX:
                value = rom_byte(s_at, rom_at, cart, operand + x)
                t = subtract_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                cycles += ((operand & 0xFF) + x) >> 8
                continue
            elif handler == AND_ZPX:  # AND zp,X
                t = (operand + x) & 0xFF
                if t & A7:
                    a = nz = a & int64(ram[t & 0x7F])
                    continue
            elif handler == EOR_ZPX:  # EOR zp,X
                t = (operand + x) & 0xFF
                if t & A7:
                    a = nz = a ^ int64(ram[t & 0x7F])
                    continue
            elif handler == STA_IZY:  # STA (zp),Y
                if 0x80 <= operand < 0xFF:
                    t = int64(ram[operand & 0x7F]) + (int64(ram[(operand + 1) & 0x7F]) << 8) + y
                    if t & RAM_LINES == A7:
                        ram[t & 0x7F] = a
                        continue
                    if t & TIA_LINES == 0:
                        any_reg, value = t & WRITE_LINES, a
            elif handler == ADC_ABY:
                value = rom_byte(s_at, rom_at, cart, operand + y)
                t = add_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                cycles += ((operand & 0xFF) + y) >> 8
                continue
            # BIT of a byte in the ROM
            elif handler == BIT_CONSTANT:
                nz = (a & operand) | ((operand & 0x80) << 1)
                s[S_V] = (operand >> 6) & 1
                continue

        # ---- read a TIA register: `operand` is the byte that the bus carried before; the TIA drives only bits 7 and 6
        if at >= 0:
            s[S_CYCLES] = cycles
            t = tia_read(s_at, prop_at, log_at, screen_at, at & READ_LINES) | (operand & 0x3F)
            if handler == LDA_TIA:
                a = nz = t
            elif handler == LDX_TIA:
                x = nz = t
            elif handler == LDY_TIA:
                y = nz = t
            elif handler == BIT_TIA:
                nz = (a & t) | ((t & 0x80) << 1)
                s[S_V] = (t >> 6) & 1
            elif handler == AND_TIA:
                a = nz = a & t
            elif handler == ORA_TIA:
                a = nz = a | t
            elif handler == EOR_TIA:
                a = nz = a ^ t
            else:
                t = a - t
                c = 1 + (t >> 63)
                nz = t & 0xFF
            continue

        # ---- store into a TIA register whose stores only go to the log; past the frame's limit it ends the frame
        if reg >= 0:
            t = cycles - origin
            s[S_TOUCH] = t
            if s[S_LOGGED] == LOG_SIZE:
                replay_unit(s_at, prop_at, log_at, int64(0), screen_at)
            n = s[S_LOGGED]
            log[uintp(n)] = (t << 16) | (reg << 8) | value
            s[S_LOGGED] = n + 1
            if t >= limit:
                s[S_STOP], s[S_PARTIAL] = 1, 0
                break
            continue

        # ---- store into any TIA register: VSYNC, VBLANK and WSYNC do more than change the picture
        if any_reg >= 0:
            s[S_CYCLES] = cycles
            tia_write(s_at, prop_at, log_at, screen_at, any_reg, value)
            cycles = s[S_CYCLES]
            if s[S_STOP]:
                break
            continue

        # ---- everything else: the reference executes the instruction, and may have switched the bank
        s[S_A], s[S_X], s[S_Y], s[S_SP], s[S_PC] = a, x, y, sp, here & 0xFFFF
        s[S_NZ], s[S_C], s[S_CYCLES] = nz, c, before
        step_unit(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
        a, x, y, sp, pc = s[S_A], s[S_X], s[S_Y], s[S_SP], s[S_PC]
        nz, c, cycles = s[S_NZ], s[S_C], s[S_CYCLES]
        base = 2 * s[S_BANK]
        if s[S_STOP] or s[S_DEAD]:
            break

    s[S_A], s[S_X], s[S_Y], s[S_SP], s[S_PC] = a, x, y, sp, pc & 0xFFFF
    s[S_NZ], s[S_C], s[S_CYCLES], s[S_LEFT] = nz, c, cycles, left
