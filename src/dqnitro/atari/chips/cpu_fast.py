# ruff: noqa: F403, F405
"""The CPU at full speed: predecoded instructions, registers in locals, one long chain of cases.

The compiler turns the chain into a jump table. A case that does not hold (an operand elsewhere than expected, a rare
instruction) falls through to the plain interpreter of `chips/cpu_reference.py`, which executes that one instruction from memory, so
this loop needs to know only the frequent forms. What it does know is the same as there, flag for flag and cycle for
cycle; V, D and I stay in memory because few instructions touch them.
"""

from __future__ import annotations

from numpy import int64, uint32, uintp

from ..jit.target import as_bytes, as_log, as_ram, as_state, as_words, compiled, inlined
from .bus import input_read, tia_read, tia_write
from .cpu_predecode import *
from .cpu_reference import add_with_carry, flags, set_flags, step_unit, subtract_with_carry
from .layout import *
from .tia import replay_unit

LOW8 = uint32(0xFF)


@inlined
def rom_byte(s_at, rom_at, cart, address):
    """A byte of the plain window."""
    s = as_state(s_at)
    rom = as_bytes(rom_at)
    if cart == CART_E0:
        segment = (address >> 10) & 3
        base = int64(7 << 10) if segment == 3 else s[S_SLICE0 + segment]
        return int64(rom[uintp(base + (address & 0x3FF))])
    if cart == CART_FE:
        return int64(rom[(0 if address & 0x2000 else 0x1000) + (address & 0xFFF)])
    return int64(rom[uintp(s[S_BANK] + (address & 0xFFF))])


@compiled
def run(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at):
    """Instructions until the frame ends, the limit is reached or the CPU jams."""
    s, ram, dec = as_state(s_at), as_ram(ram_at), as_words(dec_at)
    prop, log = as_state(prop_at), as_log(log_at)
    a, x, y, sp, pc = s[S_A], s[S_X], s[S_Y], s[S_SP], s[S_PC]
    nz, c, cycles, left = s[S_NZ], s[S_C], s[S_CYCLES], s[S_LEFT]
    cart, low, high, mask = prop[P_CART], prop[P_LOW], prop[P_HIGH], prop[P_PC_MASK]
    origin, limit = s[S_ORIGIN], s[S_LIMIT]
    sliced = cart == CART_E0
    base = 2 * s[S_BANK]

    while left > 0:
        left -= 1
        place = uintp(base + (pc & mask))
        if sliced:
            word = uint32(SLOW)
            if pc & 0x1000:
                segment = (pc >> 10) & 3
                slice_at = int64(7 << 10) if segment == 3 else s[S_SLICE0 + segment]
                word = dec[uintp(slice_at + (pc & 0x3FF))]
        else:
            word = dec[place]
        h = int64(word & LOW8)
        o = int64((word >> uint32(8)) & uint32(0xFFFF))
        # As if the instruction were done; what this loop does not know goes back to here.
        here, before = pc, cycles
        pc += int64((word >> uint32(24)) & uint32(3))
        cycles += int64((word >> uint32(26)) & uint32(15))
        value = int64(0)
        reg = int64(-1)  # TIA register to store into: one that goes to the log
        any_reg = int64(-1)  # any one
        at = int64(-1)  # address to read for the operation `h`, through the bus

        # ---- most frequent first
        if h < HOT:
            if h == STA_TIA:
                reg, value = o, a
            elif h == LDA_IZY_STA:
                if 0x80 <= o < 0xFF:
                    first = int64(ram[o & 0x7F])
                    t = first + (int64(ram[(o + 1) & 0x7F]) << 8) + y
                    if t & 0x1000 and low <= t & 0xFFF < high:
                        a = nz = rom_byte(s_at, rom_at, cart, t)
                        cycles += (first + y) >> 8
                        if left <= 0:
                            continue
                        left -= 1
                        word = dec[place + uintp(2)]
                        reg, value = int64((word >> uint32(8)) & uint32(63)), a
                        pc += int64((word >> uint32(24)) & uint32(3))
                        cycles += int64((word >> uint32(26)) & uint32(15))
            elif h == WSYNC:
                t = cycles - origin
                s[S_TOUCH] = t
                cycles = t + 75 - (t + 75) % 76 + origin
                if t >= limit:
                    s[S_STOP], s[S_PARTIAL] = 1, 0
                    break
                continue
            elif h == LDA_ZP:  # LDA zp
                a = nz = int64(ram[o & 0x7F])
                continue
            elif h == STA_ZP:  # STA zp
                ram[o & 0x7F] = a
                continue
            elif h == LDA_IZY:  # LDA (zp),Y
                if 0x80 <= o < 0xFF:
                    first = int64(ram[o & 0x7F])
                    t = first + (int64(ram[(o + 1) & 0x7F]) << 8) + y
                    if t & 0x1000:
                        if low <= t & 0xFFF < high:
                            a = nz = rom_byte(s_at, rom_at, cart, t)
                            cycles += (first + y) >> 8
                            continue
                    elif t & 0x280 == 0x80:
                        a = nz = int64(ram[t & 0x7F])
                        cycles += (first + y) >> 8
                        continue
            elif h == RUN_BCS:  # BCS
                if c != 0:
                    pc += (o ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == RUN_BEQ:  # BEQ
                if nz & 0xFF == 0:
                    pc += (o ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == LDY_ZP:  # LDY zp
                y = nz = int64(ram[o & 0x7F])
                continue
            elif h == AND_IMM:  # AND #
                a = nz = a & o
                continue
            elif h == LSR_A:  # LSR A
                c = a & 1
                a = nz = a >> 1
                continue
            elif h == RUN_BNE:  # BNE
                if nz & 0xFF != 0:
                    pc += (o ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == LDX_ZP:  # LDX zp
                x = nz = int64(ram[o & 0x7F])
                continue
            elif h == LDA_IMM:  # LDA #
                a = nz = o
                continue
            elif h == STX_TIA:
                reg, value = o, x
            elif h == RUN_BPL:  # BPL
                if nz & 0x180 == 0:
                    pc += (o ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == DEX_BPL:
                x = nz = (x - 1) & 0xFF
                if left <= 0:
                    continue
                left -= 1
                pc += 2
                cycles += 2
                if nz & 0x80 == 0:
                    word = dec[place + uintp(1)]
                    pc += (int64((word >> uint32(8)) & uint32(0xFFFF)) ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == STY_TIA:
                reg, value = o, y
            elif h == RUN_TXA:  # TXA
                a = nz = x
                continue
            elif h == RUN_DEY:  # DEY
                y = nz = (y - 1) & 0xFF
                continue
            elif h == ASL_A:  # ASL A
                c = a >> 7
                a = nz = (a << 1) & 0xFF
                continue
            elif h == DEC_ZP:
                nz = (int64(ram[o & 0x7F]) - 1) & 0xFF
                ram[o & 0x7F] = nz
                continue
            elif h == DEY_BPL:
                y = nz = (y - 1) & 0xFF
                if left <= 0:
                    continue
                left -= 1
                pc += 2
                cycles += 2
                if nz & 0x80 == 0:
                    word = dec[place + uintp(1)]
                    pc += (int64((word >> uint32(8)) & uint32(0xFFFF)) ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == RUN_NOP:  # NOP
                continue
            elif h == RUN_TAY:  # TAY
                y = nz = a
                continue
            elif h == CMP_IMM:  # CMP #
                t = a - o
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif h == LDA_ZPX:  # LDA zp,X
                t = (o + x) & 0xFF
                if t & 0x80:
                    a = nz = int64(ram[t & 0x7F])
                    continue
                at, h = t, int64(LDA_TIA)
            elif h == RUN_BCC:  # BCC
                if c == 0:
                    pc += (o ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == RUN_BMI:  # BMI
                if nz & 0x180 != 0:
                    pc += (o ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == RUN_SEC:  # SEC
                c = int64(1)
                continue
            elif h == LDA_ZP_STA:
                a = nz = int64(ram[o & 0x7F])
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp((word >> uint32(24)) & uint32(3))]
                reg, value = int64((word >> uint32(8)) & uint32(63)), a
                pc += int64((word >> uint32(24)) & uint32(3))
                cycles += int64((word >> uint32(26)) & uint32(15))
            elif h == RUN_INY:  # INY
                y = nz = (y + 1) & 0xFF
                continue
            elif h == LDA_ABY_STA:
                a = nz = rom_byte(s_at, rom_at, cart, o + y)
                cycles += ((o & 0xFF) + y) >> 8
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp(3)]
                reg, value = int64((word >> uint32(8)) & uint32(63)), a
                pc += int64((word >> uint32(24)) & uint32(3))
                cycles += int64((word >> uint32(26)) & uint32(15))
            elif h == LDX_IMM:  # LDX #
                x = nz = o
                continue
            elif h == LDA_IMM_STA:
                a = nz = o
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp((word >> uint32(24)) & uint32(3))]
                reg, value = int64((word >> uint32(8)) & uint32(63)), a
                pc += int64((word >> uint32(24)) & uint32(3))
                cycles += int64((word >> uint32(26)) & uint32(15))
            elif h == RUN_TAX:  # TAX
                x = nz = a
                continue
            elif h == RUN_JMP:  # JMP
                pc = o
                continue
            elif h == STA_ZPX:  # STA zp,X
                t = (o + x) & 0xFF
                if t & 0x80:
                    ram[t & 0x7F] = a
                    continue
                any_reg, value = t & 63, a
            elif h == CPY_IMM:  # CPY #
                t = y - o
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif h == SBC_ZP:
                value = int64(ram[o & 0x7F])
                t = subtract_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                continue
            elif h == RUN_PHP:  # PHP
                s[S_NZ], s[S_C] = nz, c
                if sp >= 0x80:
                    ram[sp & 0x7F] = flags(s_at)
                else:
                    any_reg, value = sp & 63, flags(s_at)
                sp = (sp - 1) & 0xFF
                if any_reg < 0:
                    continue
            elif h == LDA_ABX_STA:
                a = nz = rom_byte(s_at, rom_at, cart, o + x)
                cycles += ((o & 0xFF) + x) >> 8
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp(3)]
                reg, value = int64((word >> uint32(8)) & uint32(63)), a
                pc += int64((word >> uint32(24)) & uint32(3))
                cycles += int64((word >> uint32(26)) & uint32(15))
            elif h == SBC_IMM:
                value = o
                t = subtract_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                continue
            elif h == STY_ZP:  # STY zp
                ram[o & 0x7F] = y
                continue
            elif h == RUN_DEX:  # DEX
                x = nz = (x - 1) & 0xFF
                continue
            elif h == LDY_IMM:  # LDY #
                y = nz = o
                continue
            elif h == AND_ZP:  # AND zp
                a = nz = a & int64(ram[o & 0x7F])
                continue
            elif h == RUN_INX:  # INX
                x = nz = (x + 1) & 0xFF
                continue
            elif h == CPX_IMM:  # CPX #
                t = x - o
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif h == RUN_RTS:  # RTS
                if 0x7F <= sp < 0xFE:
                    t = int64(ram[(sp + 1) & 0x7F]) | (int64(ram[(sp + 2) & 0x7F]) << 8)
                    # The byte at the return address is read: it must not be a hot spot.
                    if t & (t + 1) & 0x1000 and low <= t & 0xFFF < high:
                        sp += 2
                        pc = (t + 1) & 0xFFFF
                        continue
            elif h == RUN_JSR:  # JSR
                if sp >= 0x81:
                    ram[sp & 0x7F] = ((pc - 1) >> 8) & 0xFF
                    ram[(sp - 1) & 0x7F] = (pc - 1) & 0xFF
                    sp -= 2
                    pc = o
                    continue
            elif h == RUN_PLA:  # PLA
                if 0x7F <= sp < 0xFF:
                    sp += 1
                    a = nz = int64(ram[sp & 0x7F])
                    continue
                if sp < 0x7F:
                    # The byte under the stack pointer is read first; its value stays in the latch.
                    s[S_CYCLES] = cycles
                    o = tia_read(s_at, prop_at, log_at, screen_at, sp & 15) | (0x68 & 0x3F)
                    sp += 1
                    at, h = 0x100 | sp, int64(LDA_TIA)
            elif h == LDA_ABX:  # LDA abs,X
                a = nz = rom_byte(s_at, rom_at, cart, o + x)
                cycles += ((o & 0xFF) + x) >> 8
                continue
            elif h == STX_ZP:  # STX zp
                ram[o & 0x7F] = x
                continue
            elif h == CPX_ZP:  # CPX zp
                t = x - int64(ram[o & 0x7F])
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif h == CPY_ZP:  # CPY zp
                t = y - int64(ram[o & 0x7F])
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif h == INC_ZP:
                nz = (int64(ram[o & 0x7F]) + 1) & 0xFF
                ram[o & 0x7F] = nz
                continue
            elif h == LDA_ABY:  # LDA abs,Y
                a = nz = rom_byte(s_at, rom_at, cart, o + y)
                cycles += ((o & 0xFF) + y) >> 8
                continue
            elif h == RUN_CLC:  # CLC
                c = int64(0)
                continue
            elif h == EOR_ZP:  # EOR zp
                a = nz = a ^ int64(ram[o & 0x7F])
                continue
        else:
            if h == LDA_ABX_ANY or h == LDA_ABY_ANY or h == LDX_ABY_ANY or h == LDY_ABX_ANY:
                index = x if h == LDA_ABX_ANY or h == LDY_ABX_ANY else y
                t = o + index
                cycles += ((o & 0xFF) + index) >> 8
                if t & 0x1000 and low <= t & 0xFFF < high:
                    value = rom_byte(s_at, rom_at, cart, t)
                elif t & 0x1280 == 0x80:
                    value = int64(ram[t & 0x7F])
                elif t & 0x1080 == 0:
                    at = t
                    o >>= 8
                    h = int64(LDX_TIA if h == LDX_ABY_ANY else LDY_TIA if h == LDY_ABX_ANY else LDA_TIA)
                else:
                    h = int64(0)
                if h != 0 and at < 0:
                    nz = value
                    if h == LDX_ABY_ANY:
                        x = value
                    elif h == LDY_ABX_ANY:
                        y = value
                    else:
                        a = value
                    continue
            elif h == LDA_ZPX_STA:
                t = (o + x) & 0xFF
                if t & 0x80:
                    a = nz = int64(ram[t & 0x7F])
                    if left <= 0:
                        continue
                    left -= 1
                    word = dec[place + uintp(2)]
                    reg, value = int64((word >> uint32(8)) & uint32(63)), a
                    pc += int64((word >> uint32(24)) & uint32(3))
                    cycles += int64((word >> uint32(26)) & uint32(15))
                else:
                    at, h = t, int64(LDA_TIA)
            elif h == BIT_ZP:  # BIT zp
                t = int64(ram[o & 0x7F])
                nz = (a & t) | ((t & 0x80) << 1)
                s[S_V] = (t >> 6) & 1
                continue
            elif h == RUN_TYA:  # TYA
                a = nz = y
                continue
            elif h == ADC_ZP:
                value = int64(ram[o & 0x7F])
                t = add_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                continue
            elif h == CMP_ZP:  # CMP zp
                t = a - int64(ram[o & 0x7F])
                c = 1 + (t >> 63)
                nz = t & 0xFF
                continue
            elif h == JMP_IND:  # JMP (zp)
                t = int64(ram[o & 0x7F]) | (int64(ram[(o + 1) & 0x7F]) << 8)
                if t & 0x1000:
                    pc = t
                    continue
            elif h == DEX_BNE:
                x = nz = (x - 1) & 0xFF
                if left <= 0:
                    continue
                left -= 1
                pc += 2
                cycles += 2
                if nz != 0:
                    word = dec[place + uintp(1)]
                    pc += (int64((word >> uint32(8)) & uint32(0xFFFF)) ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif (
                h == LDA_INTIM or h == LDX_INTIM or h == LDY_INTIM
                or h == WAIT_ZERO or h == WAIT_MINUS or h == WAIT_ZERO_X or h == WAIT_ZERO_Y
            ):  # fmt: skip
                t = cycles - 1 - s[S_SET]
                timer, shift = s[S_TIMER], s[S_SHIFT]
                if 0 <= t < timer << shift:
                    if shift >= 3 and o != 0:
                        # Rounds of o (7 or 8) cycles until the timer shows 0, or until its last value before it wraps.
                        if h != WAIT_MINUS:
                            rounds = (((timer - 1) << shift) - t + o - 1) // o
                        else:
                            rounds = ((timer << shift) - 1 - t) // o if timer <= 0x80 else 0
                        rounds = min(max(rounds, 0), left >> 1)
                        left -= 2 * rounds
                        cycles += o * rounds
                        t += o * rounds
                    value = timer - (t >> shift) - 1
                    nz = value
                    if h == LDX_INTIM or h == WAIT_ZERO_X:
                        x = value
                    elif h == LDY_INTIM or h == WAIT_ZERO_Y:
                        y = value
                    else:
                        a = value
                    continue
            elif h == ORA_ZP:  # ORA zp
                a = nz = a | int64(ram[o & 0x7F])
                continue
            elif h == ADC_IMM:
                value = o
                t = add_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                continue
            elif h == RUN_TXS:  # TXS
                sp = x
                continue
            elif h == LDX_ABY:  # LDX abs,Y
                x = nz = rom_byte(s_at, rom_at, cart, o + y)
                cycles += ((o & 0xFF) + y) >> 8
                continue
            elif h == SET_TIA:
                any_reg = o & 63
                value = a if o < 0x100 else x if o < 0x200 else y
            elif (
                h == LDA_TIA or h == LDX_TIA or h == LDY_TIA or h == BIT_TIA
                or h == AND_TIA or h == ORA_TIA or h == EOR_TIA or h == CMP_TIA
            ):  # fmt: skip
                at = o & 0xFF
                o >>= 8
            elif h == EOR_IMM:  # EOR #
                a = nz = a ^ o
                continue
            elif h == DEY_BNE:
                y = nz = (y - 1) & 0xFF
                if left <= 0:
                    continue
                left -= 1
                pc += 2
                cycles += 2
                if nz != 0:
                    word = dec[place + uintp(1)]
                    pc += (int64((word >> uint32(8)) & uint32(0xFFFF)) ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == ADC_ZPX:
                t = (o + x) & 0xFF
                if t & 0x80:
                    t = add_with_carry(s_at, a, int64(ram[t & 0x7F]), c)
                    a = nz = t & 0xFF
                    c = t >> 8
                    continue
            elif h == RUN_PHA:  # PHA
                if sp >= 0x80:
                    ram[sp & 0x7F] = a
                    sp -= 1
                    continue
            elif h == AND_ABX:  # AND abs,X
                a = nz = a & rom_byte(s_at, rom_at, cart, o + x)
                cycles += ((o & 0xFF) + x) >> 8
                continue
            elif h == STA_ABY:  # STA abs,Y
                t = o + y
                if t & 0x1280 == 0x80:
                    ram[t & 0x7F] = a
                    continue
                if t & 0x1080 == 0:
                    any_reg, value = t & 63, a
            elif h == RUN_BVC:  # BVC
                if s[S_V] == 0:
                    pc += (o ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == LDY_ABX:  # LDY abs,X
                y = nz = rom_byte(s_at, rom_at, cart, o + x)
                cycles += ((o & 0xFF) + x) >> 8
                continue
            elif h == LDY_ZPX:  # LDY zp,X
                t = (o + x) & 0xFF
                if t & 0x80:
                    y = nz = int64(ram[t & 0x7F])
                    continue
            elif h == STY_ZPX:  # STY zp,X
                t = (o + x) & 0xFF
                if t & 0x80:
                    ram[t & 0x7F] = y
                    continue
                any_reg, value = t & 63, y
            elif h == LSR_ZP or h == LSR_ZPX:  # LSR zp, zp,X
                if h == LSR_ZPX:
                    o = (o + x) & 0xFF
                if h == LSR_ZP or o & 0x80:
                    t = int64(ram[o & 0x7F])
                    c = t & 1
                    nz = t >> 1
                    ram[o & 0x7F] = nz
                    continue
            elif h == LDA_PORT:
                a = nz = s[S_SWCHA + (o >> 1)]
                continue
            elif h == CMP_ZPX:  # CMP zp,X
                t = (o + x) & 0xFF
                if t & 0x80:
                    t = a - int64(ram[t & 0x7F])
                    c = 1 + (t >> 63)
                    nz = t & 0xFF
                    continue
            elif h == RUN_BVS:  # BVS
                if s[S_V] != 0:
                    pc += (o ^ 0x8000) - 0x8000
                    cycles += int64(word >> uint32(30))
                continue
            elif h == DEC_ZPX:
                t = (o + x) & 0xFF
                if t & 0x80:
                    nz = (int64(ram[t & 0x7F]) - 1) & 0xFF
                    ram[t & 0x7F] = nz
                    continue
            elif h == ROL_A:  # ROL A
                t = (a << 1) | c
                c = t >> 8
                a = nz = t & 0xFF
                continue
            elif h == ORA_ABX:  # ORA abs,X
                a = nz = a | rom_byte(s_at, rom_at, cart, o + x)
                cycles += ((o & 0xFF) + x) >> 8
                continue
            elif h == ROL_ZP or h == ROL_ZPX:  # ROL zp, zp,X
                if h == ROL_ZPX:
                    o = (o + x) & 0xFF
                if h == ROL_ZP or o & 0x80:
                    t = (int64(ram[o & 0x7F]) << 1) | c
                    c = t >> 8
                    nz = t & 0xFF
                    ram[o & 0x7F] = nz
                    continue
            elif h == DEX_LOOP:
                # x-1 (or 255) more rounds of o cycles, but not beyond the limit of instructions
                rounds = min((x - 1) & 0xFF, left >> 1)
                left -= 2 * rounds
                x = nz = (x - 1 - rounds) & 0xFF
                cycles += o * rounds
                continue
            elif h == ADC_ABX:
                value = rom_byte(s_at, rom_at, cart, o + x)
                t = add_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                cycles += ((o & 0xFF) + x) >> 8
                continue
            elif h == ORA_ZPX:  # ORA zp,X
                t = (o + x) & 0xFF
                if t & 0x80:
                    a = nz = a | int64(ram[t & 0x7F])
                    continue
            elif h == ROR_A:  # ROR A
                t = a | (c << 8)
                c = a & 1
                a = nz = t >> 1
                continue
            elif h == EOR_ABX:  # EOR abs,X
                a = nz = a ^ rom_byte(s_at, rom_at, cart, o + x)
                cycles += ((o & 0xFF) + x) >> 8
                continue
            elif h == LDX_ZPY:  # LDX zp,Y
                t = (o + y) & 0xFF
                if t & 0x80:
                    x = nz = int64(ram[t & 0x7F])
                    continue
            elif h == INC_ZPX:
                t = (o + x) & 0xFF
                if t & 0x80:
                    nz = (int64(ram[t & 0x7F]) + 1) & 0xFF
                    ram[t & 0x7F] = nz
                    continue
            elif h == ASL_ZP or h == ASL_ZPX:  # ASL zp, zp,X
                if h == ASL_ZPX:
                    o = (o + x) & 0xFF
                if h == ASL_ZP or o & 0x80:
                    t = int64(ram[o & 0x7F]) << 1
                    c = t >> 8
                    nz = t & 0xFF
                    ram[o & 0x7F] = nz
                    continue
            elif h == STX_ZPY:  # STX zp,Y
                t = (o + y) & 0xFF
                if t & 0x80:
                    ram[t & 0x7F] = x
                    continue
                any_reg, value = t & 63, x
            elif h == CMP_ABX:  # CMP abs,X
                t = a - rom_byte(s_at, rom_at, cart, o + x)
                c = 1 + (t >> 63)
                nz = t & 0xFF
                cycles += ((o & 0xFF) + x) >> 8
                continue
            elif h == ORA_IMM:  # ORA #
                a = nz = a | o
                continue
            elif h == ROR_ZP or h == ROR_ZPX:  # ROR zp, zp,X
                if h == ROR_ZPX:
                    o = (o + x) & 0xFF
                if h == ROR_ZP or o & 0x80:
                    t = int64(ram[o & 0x7F]) | (c << 8)
                    c = t & 1
                    nz = t >> 1
                    ram[o & 0x7F] = nz
                    continue
            elif h == RUN_PLP and 0x7F <= sp < 0xFF:  # PLP
                sp += 1
                set_flags(s_at, int64(ram[sp & 0x7F]))
                nz, c = s[S_NZ], s[S_C]
                continue
            elif h == AND_ABY:  # AND abs,Y
                a = nz = a & rom_byte(s_at, rom_at, cart, o + y)
                cycles += ((o & 0xFF) + y) >> 8
                continue
            elif h == CMP_ABY:  # CMP abs,Y
                t = a - rom_byte(s_at, rom_at, cart, o + y)
                c = 1 + (t >> 63)
                nz = t & 0xFF
                cycles += ((o & 0xFF) + y) >> 8
                continue
            elif h == RUN_TSX:  # TSX
                x = nz = sp
                continue
            elif h == DEY_LOOP:
                rounds = min((y - 1) & 0xFF, left >> 1)
                left -= 2 * rounds
                y = nz = (y - 1 - rounds) & 0xFF
                cycles += o * rounds
                continue
            elif h == SBC_ABY:
                value = rom_byte(s_at, rom_at, cart, o + y)
                t = subtract_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                cycles += ((o & 0xFF) + y) >> 8
                continue
            elif h == SBC_ZPX:
                t = (o + x) & 0xFF
                if t & 0x80:
                    t = subtract_with_carry(s_at, a, int64(ram[t & 0x7F]), c)
                    a = nz = t & 0xFF
                    c = t >> 8
                    continue
            elif h == STA_ABX:  # STA abs,X
                t = o + x
                if t & 0x1280 == 0x80:
                    ram[t & 0x7F] = a
                    continue
                if t & 0x1080 == 0:
                    any_reg, value = t & 63, a
            elif h == RUN_CLD or h == RUN_SED:  # CLD, SED
                s[S_D] = 1 if h == RUN_SED else 0
                continue
            elif h == LDA_INPUT:
                s[S_TOUCH] = cycles - origin
                a = nz = input_read(s_at, o & 15, cycles) | (o >> 8)
                continue
            elif h == ORA_ABY:  # ORA abs,Y
                a = nz = a | rom_byte(s_at, rom_at, cart, o + y)
                cycles += ((o & 0xFF) + y) >> 8
                continue
            elif h == BIT_INPUT:
                s[S_TOUCH] = cycles - origin
                t = input_read(s_at, o & 15, cycles) | (o >> 8)
                nz = (a & t) | ((t & 0x80) << 1)
                s[S_V] = (t >> 6) & 1
                continue
            elif h == SBC_ABX:
                value = rom_byte(s_at, rom_at, cart, o + x)
                t = subtract_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                cycles += ((o & 0xFF) + x) >> 8
                continue
            elif h == AND_ZPX:  # AND zp,X
                t = (o + x) & 0xFF
                if t & 0x80:
                    a = nz = a & int64(ram[t & 0x7F])
                    continue
            elif h == EOR_ZPX:  # EOR zp,X
                t = (o + x) & 0xFF
                if t & 0x80:
                    a = nz = a ^ int64(ram[t & 0x7F])
                    continue
            elif h == STA_IZY:  # STA (zp),Y
                if 0x80 <= o < 0xFF:
                    t = int64(ram[o & 0x7F]) + (int64(ram[(o + 1) & 0x7F]) << 8) + y
                    if t & 0x1280 == 0x80:
                        ram[t & 0x7F] = a
                        continue
                    if t & 0x1080 == 0:
                        any_reg, value = t & 63, a
            elif h == ADC_ABY:
                value = rom_byte(s_at, rom_at, cart, o + y)
                t = add_with_carry(s_at, a, value, c)
                a = nz = t & 0xFF
                c = t >> 8
                cycles += ((o & 0xFF) + y) >> 8
                continue
            elif h == BIT_CONSTANT:
                nz = (a & o) | ((o & 0x80) << 1)
                s[S_V] = (o >> 6) & 1
                continue

        # ---- a TIA register as operand: `o` is what the bus carried before
        if at >= 0:
            s[S_CYCLES] = cycles
            t = tia_read(s_at, prop_at, log_at, screen_at, at & 15) | (o & 0x3F)
            if h == LDA_TIA:
                a = nz = t
            elif h == LDX_TIA:
                x = nz = t
            elif h == LDY_TIA:
                y = nz = t
            elif h == BIT_TIA:
                nz = (a & t) | ((t & 0x80) << 1)
                s[S_V] = (t >> 6) & 1
            elif h == AND_TIA:
                a = nz = a & t
            elif h == ORA_TIA:
                a = nz = a | t
            elif h == EOR_TIA:
                a = nz = a ^ t
            else:
                t = a - t
                c = 1 + (t >> 63)
                nz = t & 0xFF
            continue

        # ---- a store into a logged TIA register
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

        # ---- a store into any TIA register
        if any_reg >= 0:
            s[S_CYCLES] = cycles
            tia_write(s_at, prop_at, log_at, screen_at, any_reg, value)
            cycles = s[S_CYCLES]
            if s[S_STOP]:
                break
            continue

        # ---- everything else
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
