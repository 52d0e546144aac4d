# ruff: noqa: F403, F405
"""The CPU at full speed: predecoded instructions, registers in locals, one long chain of cases.

The compiler turns the chain into a jump table. A case that does not hold (an operand elsewhere than expected, a rare
instruction) falls through to the plain interpreter of ``cpu.py``, which executes that one instruction from memory, so
this loop needs to know only the frequent forms. What it does know is the same as there, flag for flag and cycle for
cycle; V, D and I stay in memory because few instructions touch them.
"""

from __future__ import annotations

from numpy import int64, uint32, uintp

from .bus import input_read, tia_read, tia_write
from .cpu import add_decimal, flags, set_flags, step_unit, subtract_decimal
from .decode import (
    AND_TIA,
    BIT_CONSTANT,
    BIT_INPUT,
    BIT_TIA,
    CMP_TIA,
    DEX_BNE,
    DEX_BPL,
    DEX_LOOP,
    DEY_BNE,
    DEY_BPL,
    DEY_LOOP,
    EOR_TIA,
    LDA_ABX_ANY,
    LDA_ABX_STA,
    LDA_ABY_ANY,
    LDA_ABY_STA,
    LDA_IMM_STA,
    LDA_INPUT,
    LDA_INTIM,
    LDA_IZY_STA,
    LDA_PORT,
    LDA_TIA,
    LDA_ZPX_STA,
    LDA_ZP_STA,
    LDX_ABY_ANY,
    LDX_INTIM,
    LDX_TIA,
    LDY_ABX_ANY,
    LDY_INTIM,
    LDY_TIA,
    ORA_TIA,
    SET_TIA,
    STA_TIA,
    STX_TIA,
    STY_TIA,
    WAIT_MINUS,
    WAIT_ZERO,
    WAIT_ZERO_X,
    WAIT_ZERO_Y,
    WSYNC,
)
from .layout import *
from .target import as_bytes, as_state, as_words, device
from .tia import replay_unit

LOW8 = uint32(0xFF)


@device
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


@device
def run(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at):
    """Instructions until the frame ends, the limit is reached or the CPU jams."""
    s, ram, rom, dec = as_state(s_at), as_bytes(ram_at), as_bytes(rom_at), as_words(dec_at)
    prop, log = as_state(prop_at), as_state(log_at)
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
            word = uint32(2)
            if pc & 0x1000:
                segment = (pc >> 10) & 3
                slice_at = int64(7 << 10) if segment == 3 else s[S_SLICE0 + segment]
                word = dec[uintp(slice_at + (pc & 0x3FF))]
        else:
            word = dec[place]
        h = int64(word & LOW8)
        o = int64((word >> uint32(8)) & uint32(0xFFFF))
        then = pc + int64((word >> uint32(24)) & uint32(3))
        now = cycles + int64((word >> uint32(26)) & uint32(15))
        value = int64(0)
        reg = int64(-1)  # TIA register to store into: one that goes to the log
        any_reg = int64(-1)  # any one
        at = int64(-1)  # address to read for the operation `h`, through the bus

        # ---- the most frequent first: the compiler makes more than one jump table of such a long chain
        if h == STA_TIA:
            reg, value = o, a
        elif h == 0xB1:  # LDA (zp),Y
            if 0x80 <= o < 0xFF:
                first = int64(ram[o & 0x7F])
                t = first + (int64(ram[(o + 1) & 0x7F]) << 8) + y
                if t & 0x1000:
                    if low <= t & 0xFFF < high:
                        a = nz = rom_byte(s_at, rom_at, cart, t)
                        pc, cycles = then, now + ((first + y) >> 8)
                        continue
                elif t & 0x280 == 0x80:
                    a = nz = int64(ram[t & 0x7F])
                    pc, cycles = then, now + ((first + y) >> 8)
                    continue
        elif h == 0x10:  # BPL
            if nz & 0x180 == 0:
                then += (o ^ 0x8000) - 0x8000
                now += int64(word >> uint32(30))
            pc, cycles = then, now
            continue
        elif h == 0xA5:  # LDA zp
            a = nz = int64(ram[o & 0x7F])
            pc, cycles = then, now
            continue
        elif h == WSYNC:
            now -= origin
            s[S_TOUCH] = now
            cycles = now + 75 - (now + 75) % 76 + origin
            pc = then
            if now >= limit:
                s[S_STOP], s[S_PARTIAL] = 1, 0
                break
            continue
        elif h == 0xD0:  # BNE
            if nz & 0xFF != 0:
                then += (o ^ 0x8000) - 0x8000
                now += int64(word >> uint32(30))
            pc, cycles = then, now
            continue
        elif h == LDA_IZY_STA:
            if 0x80 <= o < 0xFF:
                first = int64(ram[o & 0x7F])
                t = first + (int64(ram[(o + 1) & 0x7F]) << 8) + y
                if t & 0x1000 and low <= t & 0xFFF < high:
                    a = nz = rom_byte(s_at, rom_at, cart, t)
                    now += (first + y) >> 8
                    pc, cycles = then, now
                    if left <= 0:
                        continue
                    left -= 1
                    word = dec[place + uintp(2)]
                    reg, value = int64((word >> uint32(8)) & uint32(63)), a
                    then += int64((word >> uint32(24)) & uint32(3))
                    now += int64((word >> uint32(26)) & uint32(15))
        elif h == 0x88:  # DEY
            y = nz = (y - 1) & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0xCA:  # DEX
            x = nz = (x - 1) & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0x85:  # STA zp
            ram[o & 0x7F] = a
            pc, cycles = then, now
            continue
        elif h == 0xB0:  # BCS
            if c != 0:
                then += (o ^ 0x8000) - 0x8000
                now += int64(word >> uint32(30))
            pc, cycles = then, now
            continue
        elif h == 0xA9:  # LDA #
            a = nz = o
            pc, cycles = then, now
            continue
        elif h == LDA_ZP_STA:
            a = nz = int64(ram[o & 0x7F])
            pc, cycles = then, now
            if left <= 0:
                continue
            left -= 1
            word = dec[place + uintp((word >> uint32(24)) & uint32(3))]
            reg, value = int64((word >> uint32(8)) & uint32(63)), a
            then += int64((word >> uint32(24)) & uint32(3))
            now += int64((word >> uint32(26)) & uint32(15))
        elif h == SET_TIA:
            any_reg = o & 63
            value = a if o < 0x100 else x if o < 0x200 else y
        elif h == 0x4A:  # LSR A
            c = a & 1
            a = nz = a >> 1
            pc, cycles = then, now
            continue
        elif h == 0xF0:  # BEQ
            if nz & 0xFF == 0:
                then += (o ^ 0x8000) - 0x8000
                now += int64(word >> uint32(30))
            pc, cycles = then, now
            continue
        elif h == 0x29:  # AND #
            a = nz = a & o
            pc, cycles = then, now
            continue
        elif h == 0xA4:  # LDY zp
            y = nz = int64(ram[o & 0x7F])
            pc, cycles = then, now
            continue
        elif (
            h == LDA_INTIM or h == LDX_INTIM or h == LDY_INTIM
            or h == WAIT_ZERO or h == WAIT_MINUS or h == WAIT_ZERO_X or h == WAIT_ZERO_Y
        ):  # fmt: skip
            t = now - 1 - s[S_SET]
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
                    now += o * rounds
                    t += o * rounds
                value = timer - (t >> shift) - 1
                nz = value
                if h == LDX_INTIM or h == WAIT_ZERO_X:
                    x = value
                elif h == LDY_INTIM or h == WAIT_ZERO_Y:
                    y = value
                else:
                    a = value
                pc, cycles = then, now
                continue
        elif h == 0xB5:  # LDA zp,X
            t = (o + x) & 0xFF
            if t & 0x80:
                a = nz = int64(ram[t & 0x7F])
                pc, cycles = then, now
                continue
            at, h = t, int64(LDA_TIA)
        elif h == 0xE9 or h == 0xE5 or h == 0xF5 or h == 0xFD or h == 0xF9:  # SBC # zp zp,X abs,X abs,Y
            value = o
            if h == 0xE5:
                value = int64(ram[o & 0x7F])
            elif h == 0xF5:
                o = (o + x) & 0xFF
                if o & 0x80:
                    value = int64(ram[o & 0x7F])
                else:
                    h = int64(0)
            elif h == 0xFD:
                value = rom_byte(s_at, rom_at, cart, o + x)
                now += ((o & 0xFF) + x) >> 8
            elif h == 0xF9:
                value = rom_byte(s_at, rom_at, cart, o + y)
                now += ((o & 0xFF) + y) >> 8
            if h != 0:
                if s[S_D]:
                    t = subtract_decimal(a, value, c)
                    s[S_V] = (t >> 9) & 1
                    c = (t >> 8) & 1
                else:
                    value ^= 0xFF
                    t = a + value + c
                    s[S_V] = (~(a ^ value) & (a ^ t) & 0x80) >> 7
                    c = t >> 8
                a = nz = t & 0xFF
                pc, cycles = then, now
                continue
        elif h == DEY_BPL:
            y = nz = (y - 1) & 0xFF
            pc, cycles = then, now
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
        elif h == DEY_BNE:
            y = nz = (y - 1) & 0xFF
            pc, cycles = then, now
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
        elif h == 0xA6:  # LDX zp
            x = nz = int64(ram[o & 0x7F])
            pc, cycles = then, now
            continue
        elif h == DEX_BPL:
            x = nz = (x - 1) & 0xFF
            pc, cycles = then, now
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
        elif h == DEX_BNE:
            x = nz = (x - 1) & 0xFF
            pc, cycles = then, now
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
        elif h == 0x8A:  # TXA
            a = nz = x
            pc, cycles = then, now
            continue
        elif h == LDA_IMM_STA:
            a = nz = o
            pc, cycles = then, now
            if left <= 0:
                continue
            left -= 1
            word = dec[place + uintp((word >> uint32(24)) & uint32(3))]
            reg, value = int64((word >> uint32(8)) & uint32(63)), a
            then += int64((word >> uint32(24)) & uint32(3))
            now += int64((word >> uint32(26)) & uint32(15))
        elif h == STY_TIA:
            reg, value = o, y
        elif h == 0x0A:  # ASL A
            c = a >> 7
            a = nz = (a << 1) & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0xB9:  # LDA abs,Y
            a = nz = rom_byte(s_at, rom_at, cart, o + y)
            pc, cycles = then, now + (((o & 0xFF) + y) >> 8)
            continue
        elif h == 0xEA:  # NOP
            pc, cycles = then, now
            continue
        elif h == 0x38:  # SEC
            c = int64(1)
            pc, cycles = then, now
            continue
        elif h == STX_TIA:
            reg, value = o, x
        elif h == 0x90:  # BCC
            if c == 0:
                then += (o ^ 0x8000) - 0x8000
                now += int64(word >> uint32(30))
            pc, cycles = then, now
            continue
        elif h == 0xC6 or h == 0xD6:  # DEC zp, zp,X
            if h == 0xD6:
                o = (o + x) & 0xFF
            if h == 0xC6 or o & 0x80:
                nz = (int64(ram[o & 0x7F]) - 1) & 0xFF
                ram[o & 0x7F] = nz
                pc, cycles = then, now
                continue
        elif h == 0xA8:  # TAY
            y = nz = a
            pc, cycles = then, now
            continue
        elif h == 0xBD:  # LDA abs,X
            a = nz = rom_byte(s_at, rom_at, cart, o + x)
            pc, cycles = then, now + (((o & 0xFF) + x) >> 8)
            continue
        elif h == 0xC9:  # CMP #
            t = a - o
            c = 1 + (t >> 63)
            nz = t & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0x30:  # BMI
            if nz & 0x180 != 0:
                then += (o ^ 0x8000) - 0x8000
                now += int64(word >> uint32(30))
            pc, cycles = then, now
            continue
        elif h == LDA_ZPX_STA:
            t = (o + x) & 0xFF
            if t & 0x80:
                a = nz = int64(ram[t & 0x7F])
                pc, cycles = then, now
                if left <= 0:
                    continue
                left -= 1
                word = dec[place + uintp(2)]
                reg, value = int64((word >> uint32(8)) & uint32(63)), a
                then += int64((word >> uint32(24)) & uint32(3))
                now += int64((word >> uint32(26)) & uint32(15))
            else:
                at, h = t, int64(LDA_TIA)
        elif h == LDA_ABX_ANY or h == LDA_ABY_ANY or h == LDX_ABY_ANY or h == LDY_ABX_ANY:
            index = x if h == LDA_ABX_ANY or h == LDY_ABX_ANY else y
            t = o + index
            now += ((o & 0xFF) + index) >> 8
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
                pc, cycles = then, now
                continue
        elif h == 0x08:  # PHP
            s[S_NZ], s[S_C] = nz, c
            if sp >= 0x80:
                ram[sp & 0x7F] = flags(s_at)
            else:
                any_reg, value = sp & 63, flags(s_at)
            sp = (sp - 1) & 0xFF
            if any_reg < 0:
                pc, cycles = then, now
                continue
        elif h == 0xA2:  # LDX #
            x = nz = o
            pc, cycles = then, now
            continue
        elif h == 0xAA:  # TAX
            x = nz = a
            pc, cycles = then, now
            continue
        elif h == 0xC0:  # CPY #
            t = y - o
            c = 1 + (t >> 63)
            nz = t & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0xC8:  # INY
            y = nz = (y + 1) & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0x4C:  # JMP
            pc, cycles = o, now
            continue
        elif h == 0x69 or h == 0x65 or h == 0x75 or h == 0x7D or h == 0x79:  # ADC # zp zp,X abs,X abs,Y
            value = o
            if h == 0x65:
                value = int64(ram[o & 0x7F])
            elif h == 0x75:
                o = (o + x) & 0xFF
                if o & 0x80:
                    value = int64(ram[o & 0x7F])
                else:
                    h = int64(0)
            elif h == 0x7D:
                value = rom_byte(s_at, rom_at, cart, o + x)
                now += ((o & 0xFF) + x) >> 8
            elif h == 0x79:
                value = rom_byte(s_at, rom_at, cart, o + y)
                now += ((o & 0xFF) + y) >> 8
            if h != 0:
                if s[S_D]:
                    t = add_decimal(a, value, c)
                    s[S_V] = (t >> 9) & 1
                    c = (t >> 8) & 1
                else:
                    t = a + value + c
                    s[S_V] = (~(a ^ value) & (a ^ t) & 0x80) >> 7
                    c = t >> 8
                a = nz = t & 0xFF
                pc, cycles = then, now
                continue
        elif h == 0x95:  # STA zp,X
            t = (o + x) & 0xFF
            if t & 0x80:
                ram[t & 0x7F] = a
                pc, cycles = then, now
                continue
            any_reg, value = t & 63, a
        elif h == LDA_ABY_STA:
            a = nz = rom_byte(s_at, rom_at, cart, o + y)
            now += ((o & 0xFF) + y) >> 8
            pc, cycles = then, now
            if left <= 0:
                continue
            left -= 1
            word = dec[place + uintp(3)]
            reg, value = int64((word >> uint32(8)) & uint32(63)), a
            then += int64((word >> uint32(24)) & uint32(3))
            now += int64((word >> uint32(26)) & uint32(15))
        elif h == 0x25:  # AND zp
            a = nz = a & int64(ram[o & 0x7F])
            pc, cycles = then, now
            continue
        elif h == 0xE0:  # CPX #
            t = x - o
            c = 1 + (t >> 63)
            nz = t & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0xA0:  # LDY #
            y = nz = o
            pc, cycles = then, now
            continue
        elif h == LDA_ABX_STA:
            a = nz = rom_byte(s_at, rom_at, cart, o + x)
            now += ((o & 0xFF) + x) >> 8
            pc, cycles = then, now
            if left <= 0:
                continue
            left -= 1
            word = dec[place + uintp(3)]
            reg, value = int64((word >> uint32(8)) & uint32(63)), a
            then += int64((word >> uint32(24)) & uint32(3))
            now += int64((word >> uint32(26)) & uint32(15))
        elif h == 0xE8:  # INX
            x = nz = (x + 1) & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0x68:  # PLA
            if 0x7F <= sp < 0xFF:
                sp += 1
                a = nz = int64(ram[sp & 0x7F])
                pc, cycles = then, now
                continue
            if sp < 0x7F:
                # The byte under the stack pointer is read first; its value stays in the latch.
                s[S_CYCLES] = now
                o = tia_read(s_at, prop_at, log_at, screen_at, sp & 15) | (0x68 & 0x3F)
                sp += 1
                at, h = 0x100 | sp, int64(LDA_TIA)
        elif h == 0x84:  # STY zp
            ram[o & 0x7F] = y
            pc, cycles = then, now
            continue
        elif h == 0x60:  # RTS
            if 0x7F <= sp < 0xFE:
                t = int64(ram[(sp + 1) & 0x7F]) | (int64(ram[(sp + 2) & 0x7F]) << 8)
                # The byte at the return address is read: it must not be a hot spot.
                if t & (t + 1) & 0x1000 and low <= t & 0xFFF < high:
                    sp += 2
                    pc, cycles = (t + 1) & 0xFFFF, now
                    continue
        elif h == 0x20:  # JSR
            if sp >= 0x81:
                ram[sp & 0x7F] = ((then - 1) >> 8) & 0xFF
                ram[(sp - 1) & 0x7F] = (then - 1) & 0xFF
                sp -= 2
                pc, cycles = o, now
                continue
        elif h == 0xE4:  # CPX zp
            t = x - int64(ram[o & 0x7F])
            c = 1 + (t >> 63)
            nz = t & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0x86:  # STX zp
            ram[o & 0x7F] = x
            pc, cycles = then, now
            continue
        elif h == 0xE6 or h == 0xF6:  # INC zp, zp,X
            if h == 0xF6:
                o = (o + x) & 0xFF
            if h == 0xE6 or o & 0x80:
                nz = (int64(ram[o & 0x7F]) + 1) & 0xFF
                ram[o & 0x7F] = nz
                pc, cycles = then, now
                continue
        elif h == 0xC4:  # CPY zp
            t = y - int64(ram[o & 0x7F])
            c = 1 + (t >> 63)
            nz = t & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0x45:  # EOR zp
            a = nz = a ^ int64(ram[o & 0x7F])
            pc, cycles = then, now
            continue
        elif h == 0x24:  # BIT zp
            t = int64(ram[o & 0x7F])
            nz = (a & t) | ((t & 0x80) << 1)
            s[S_V] = (t >> 6) & 1
            pc, cycles = then, now
            continue
        elif h == 0x18:  # CLC
            c = int64(0)
            pc, cycles = then, now
            continue
        elif h == 0x98:  # TYA
            a = nz = y
            pc, cycles = then, now
            continue
        elif (
            h == LDA_TIA or h == LDX_TIA or h == LDY_TIA or h == BIT_TIA
            or h == AND_TIA or h == ORA_TIA or h == EOR_TIA or h == CMP_TIA
        ):  # fmt: skip
            at = o & 0xFF
            o >>= 8
        elif h == 0xC5:  # CMP zp
            t = a - int64(ram[o & 0x7F])
            c = 1 + (t >> 63)
            nz = t & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0x6C:  # JMP (zp)
            t = int64(ram[o & 0x7F]) | (int64(ram[(o + 1) & 0x7F]) << 8)
            if t & 0x1000:
                pc, cycles = t, now
                continue
        elif h == 0x05:  # ORA zp
            a = nz = a | int64(ram[o & 0x7F])
            pc, cycles = then, now
            continue
        elif h == 0x9A:  # TXS
            sp = x
            pc, cycles = then, now
            continue
        elif h == 0x48:  # PHA
            if sp >= 0x80:
                ram[sp & 0x7F] = a
                sp -= 1
                pc, cycles = then, now
                continue
        elif h == 0x49:  # EOR #
            a = nz = a ^ o
            pc, cycles = then, now
            continue
        elif h == 0x3D:  # AND abs,X
            a = nz = a & rom_byte(s_at, rom_at, cart, o + x)
            pc, cycles = then, now + (((o & 0xFF) + x) >> 8)
            continue
        elif h == 0xBE:  # LDX abs,Y
            x = nz = rom_byte(s_at, rom_at, cart, o + y)
            pc, cycles = then, now + (((o & 0xFF) + y) >> 8)
            continue
        elif h == 0x99:  # STA abs,Y
            t = o + y
            if t & 0x1280 == 0x80:
                ram[t & 0x7F] = a
                pc, cycles = then, now
                continue
            if t & 0x1080 == 0:
                any_reg, value = t & 63, a
        elif h == 0x50:  # BVC
            if s[S_V] == 0:
                then += (o ^ 0x8000) - 0x8000
                now += int64(word >> uint32(30))
            pc, cycles = then, now
            continue
        elif h == 0xBC:  # LDY abs,X
            y = nz = rom_byte(s_at, rom_at, cart, o + x)
            pc, cycles = then, now + (((o & 0xFF) + x) >> 8)
            continue
        elif h == 0x46 or h == 0x56:  # LSR zp, zp,X
            if h == 0x56:
                o = (o + x) & 0xFF
            if h == 0x46 or o & 0x80:
                t = int64(ram[o & 0x7F])
                c = t & 1
                nz = t >> 1
                ram[o & 0x7F] = nz
                pc, cycles = then, now
                continue
        elif h == 0x94:  # STY zp,X
            t = (o + x) & 0xFF
            if t & 0x80:
                ram[t & 0x7F] = y
                pc, cycles = then, now
                continue
            any_reg, value = t & 63, y
        elif h == 0xB4:  # LDY zp,X
            t = (o + x) & 0xFF
            if t & 0x80:
                y = nz = int64(ram[t & 0x7F])
                pc, cycles = then, now
                continue
        elif h == LDA_PORT:
            a = nz = s[S_SWCHA + (o >> 1)]
            pc, cycles = then, now
            continue
        elif h == 0xD5:  # CMP zp,X
            t = (o + x) & 0xFF
            if t & 0x80:
                t = a - int64(ram[t & 0x7F])
                c = 1 + (t >> 63)
                nz = t & 0xFF
                pc, cycles = then, now
                continue
        elif h == 0x70:  # BVS
            if s[S_V] != 0:
                then += (o ^ 0x8000) - 0x8000
                now += int64(word >> uint32(30))
            pc, cycles = then, now
            continue
        elif h == 0x2A:  # ROL A
            t = (a << 1) | c
            c = t >> 8
            a = nz = t & 0xFF
            pc, cycles = then, now
            continue
        elif h == 0x1D:  # ORA abs,X
            a = nz = a | rom_byte(s_at, rom_at, cart, o + x)
            pc, cycles = then, now + (((o & 0xFF) + x) >> 8)
            continue
        elif h == 0x26 or h == 0x36:  # ROL zp, zp,X
            if h == 0x36:
                o = (o + x) & 0xFF
            if h == 0x26 or o & 0x80:
                t = (int64(ram[o & 0x7F]) << 1) | c
                c = t >> 8
                nz = t & 0xFF
                ram[o & 0x7F] = nz
                pc, cycles = then, now
                continue
        elif h == 0x06 or h == 0x16:  # ASL zp, zp,X
            if h == 0x16:
                o = (o + x) & 0xFF
            if h == 0x06 or o & 0x80:
                t = int64(ram[o & 0x7F]) << 1
                c = t >> 8
                nz = t & 0xFF
                ram[o & 0x7F] = nz
                pc, cycles = then, now
                continue
        elif h == DEX_LOOP:
            # x-1 (or 255) more rounds of o cycles, but not beyond the limit of instructions
            rounds = min((x - 1) & 0xFF, left >> 1)
            left -= 2 * rounds
            x = nz = (x - 1 - rounds) & 0xFF
            pc, cycles = then, now + o * rounds
            continue
        elif h == 0x15:  # ORA zp,X
            t = (o + x) & 0xFF
            if t & 0x80:
                a = nz = a | int64(ram[t & 0x7F])
                pc, cycles = then, now
                continue
        elif h == 0x5D:  # EOR abs,X
            a = nz = a ^ rom_byte(s_at, rom_at, cart, o + x)
            pc, cycles = then, now + (((o & 0xFF) + x) >> 8)
            continue
        elif h == 0x6A:  # ROR A
            t = a | (c << 8)
            c = a & 1
            a = nz = t >> 1
            pc, cycles = then, now
            continue
        elif h == 0xB6:  # LDX zp,Y
            t = (o + y) & 0xFF
            if t & 0x80:
                x = nz = int64(ram[t & 0x7F])
                pc, cycles = then, now
                continue
        elif h == 0x66 or h == 0x76:  # ROR zp, zp,X
            if h == 0x76:
                o = (o + x) & 0xFF
            if h == 0x66 or o & 0x80:
                t = int64(ram[o & 0x7F]) | (c << 8)
                c = t & 1
                nz = t >> 1
                ram[o & 0x7F] = nz
                pc, cycles = then, now
                continue
        elif h == 0x09:  # ORA #
            a = nz = a | o
            pc, cycles = then, now
            continue
        elif h == 0xDD:  # CMP abs,X
            t = a - rom_byte(s_at, rom_at, cart, o + x)
            c = 1 + (t >> 63)
            nz = t & 0xFF
            pc, cycles = then, now + (((o & 0xFF) + x) >> 8)
            continue
        elif h == 0x28 and 0x7F <= sp < 0xFF:  # PLP
            sp += 1
            set_flags(s_at, int64(ram[sp & 0x7F]))
            nz, c = s[S_NZ], s[S_C]
            pc, cycles = then, now
            continue
        elif h == 0xBA:  # TSX
            x = nz = sp
            pc, cycles = then, now
            continue
        elif h == 0xD9:  # CMP abs,Y
            t = a - rom_byte(s_at, rom_at, cart, o + y)
            c = 1 + (t >> 63)
            nz = t & 0xFF
            pc, cycles = then, now + (((o & 0xFF) + y) >> 8)
            continue
        elif h == 0xD8 or h == 0xF8:  # CLD, SED
            s[S_D] = (h >> 5) & 1
            pc, cycles = then, now
            continue
        elif h == DEY_LOOP:
            rounds = min((y - 1) & 0xFF, left >> 1)
            left -= 2 * rounds
            y = nz = (y - 1 - rounds) & 0xFF
            pc, cycles = then, now + o * rounds
            continue
        elif h == 0x39:  # AND abs,Y
            a = nz = a & rom_byte(s_at, rom_at, cart, o + y)
            pc, cycles = then, now + (((o & 0xFF) + y) >> 8)
            continue
        elif h == 0x96:  # STX zp,Y
            t = (o + y) & 0xFF
            if t & 0x80:
                ram[t & 0x7F] = x
                pc, cycles = then, now
                continue
            any_reg, value = t & 63, x
        elif h == LDA_INPUT:
            s[S_TOUCH] = now - origin
            a = nz = input_read(s_at, o & 15, now) | (o >> 8)
            pc, cycles = then, now
            continue
        elif h == BIT_INPUT:
            s[S_TOUCH] = now - origin
            t = input_read(s_at, o & 15, now) | (o >> 8)
            nz = (a & t) | ((t & 0x80) << 1)
            s[S_V] = (t >> 6) & 1
            pc, cycles = then, now
            continue
        elif h == 0x19:  # ORA abs,Y
            a = nz = a | rom_byte(s_at, rom_at, cart, o + y)
            pc, cycles = then, now + (((o & 0xFF) + y) >> 8)
            continue
        elif h == 0x55:  # EOR zp,X
            t = (o + x) & 0xFF
            if t & 0x80:
                a = nz = a ^ int64(ram[t & 0x7F])
                pc, cycles = then, now
                continue
        elif h == 0x91:  # STA (zp),Y
            if 0x80 <= o < 0xFF:
                t = int64(ram[o & 0x7F]) + (int64(ram[(o + 1) & 0x7F]) << 8) + y
                if t & 0x1280 == 0x80:
                    ram[t & 0x7F] = a
                    pc, cycles = then, now
                    continue
                if t & 0x1080 == 0:
                    any_reg, value = t & 63, a
        elif h == 0x35:  # AND zp,X
            t = (o + x) & 0xFF
            if t & 0x80:
                a = nz = a & int64(ram[t & 0x7F])
                pc, cycles = then, now
                continue
        elif h == 0x9D:  # STA abs,X
            t = o + x
            if t & 0x1280 == 0x80:
                ram[t & 0x7F] = a
                pc, cycles = then, now
                continue
            if t & 0x1080 == 0:
                any_reg, value = t & 63, a
        elif h == BIT_CONSTANT:
            nz = (a & o) | ((o & 0x80) << 1)
            s[S_V] = (o >> 6) & 1
            pc, cycles = then, now
            continue

        # ---- a TIA register as operand: `o` is what the bus carried before
        if at >= 0:
            s[S_CYCLES] = now
            t = tia_read(s_at, prop_at, log_at, screen_at, at & 15) | (o & 0x3F)
            pc, cycles = then, now
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
            pc, cycles = then, now
            now -= origin
            s[S_TOUCH] = now
            if s[S_LOGGED] == LOG_SIZE:
                replay_unit(s_at, prop_at, log_at, int64(0), screen_at)
            n = s[S_LOGGED]
            log[uintp(n)] = (now << 16) | (reg << 8) | value
            s[S_LOGGED] = n + 1
            if now >= limit:
                s[S_STOP], s[S_PARTIAL] = 1, 0
                break
            continue

        # ---- a store into any TIA register
        if any_reg >= 0:
            pc = then
            s[S_CYCLES] = now
            tia_write(s_at, prop_at, log_at, screen_at, any_reg, value)
            cycles = s[S_CYCLES]
            if s[S_STOP]:
                break
            continue

        # ---- everything else
        s[S_A], s[S_X], s[S_Y], s[S_SP], s[S_PC] = a, x, y, sp, pc & 0xFFFF
        s[S_NZ], s[S_C], s[S_CYCLES] = nz, c, cycles
        step_unit(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
        a, x, y, sp, pc = s[S_A], s[S_X], s[S_Y], s[S_SP], s[S_PC]
        nz, c, cycles = s[S_NZ], s[S_C], s[S_CYCLES]
        base = 2 * s[S_BANK]
        if s[S_STOP] or s[S_DEAD]:
            break

    s[S_A], s[S_X], s[S_Y], s[S_SP], s[S_PC] = a, x, y, sp, pc & 0xFFFF
    s[S_NZ], s[S_C], s[S_CYCLES], s[S_LEFT] = nz, c, cycles, left
