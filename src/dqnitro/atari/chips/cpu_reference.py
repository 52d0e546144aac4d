# ruff: noqa: F403, F405
"""The 6507, one instruction at a time: complete, plain, and the reference implementation for `chips/cpu_fast.py`.

All cycles of an instruction are counted before its operand is read or written, as ale-py does; the only dummy accesses
are those written out here. N and Z live in one number `nz`: Z is set when its low byte is 0, N when bit 7 or 8 is set.
"""

from __future__ import annotations

from numpy import int64

from ..jit.target import as_state, compiled, inlined, unit
from .bus import read, write
from .cpu_opcodes import *
from .layout import *
from .memory_map import BREAK_VECTOR, STACK


@compiled
def decimal_value(byte):
    return 10 * (byte >> 4) + (byte & 15)


@compiled
def add_decimal(a, v, c):
    """ADC in decimal mode. Packed result: byte, carry in bit 8, overflow in bit 9. Digits over 9 count as they are."""
    total = decimal_value(a) + decimal_value(v) + c
    carry = 1 if total > 99 else 0
    total &= 0xFF
    result = ((total % 100) // 10 << 4) | (total % 10)
    overflow = ((a ^ result) & (result ^ v) & 0x80) >> 7
    return result | (carry << 8) | (overflow << 9)


@compiled
def subtract_decimal(a, v, c):
    total = decimal_value(a) - decimal_value(v) - 1 + c
    if total < 0:
        total += 100
    if total < 0:
        # Happens only with digits over 9: the result is not a decimal number.
        result = decimal_value(total & 0xFF) & 0xFF
    else:
        result = ((total % 100) // 10 << 4) | (total % 10)
    carry = 1 if a >= v + 1 - c else 0
    overflow = ((a ^ result) & (result ^ v) & 0x80) >> 7
    return result | (carry << 8) | (overflow << 9)


@inlined
def add_with_carry(s_at, a, v, c):
    """ADC: the sum with its carry in bit 8; sets V."""
    s = as_state(s_at)
    if s[S_D]:
        packed = add_decimal(a, v, c)
        s[S_V] = packed >> 9
        return packed & 0x1FF
    total = a + v + c
    s[S_V] = (~(a ^ v) & (a ^ total) & 0x80) >> 7
    return total


@inlined
def subtract_with_carry(s_at, a, v, c):
    """SBC: the difference with the carry in bit 8; sets V."""
    s = as_state(s_at)
    if s[S_D]:
        packed = subtract_decimal(a, v, c)
        s[S_V] = packed >> 9
        return packed & 0x1FF
    v ^= 0xFF
    total = a + v + c
    s[S_V] = (~(a ^ v) & (a ^ total) & 0x80) >> 7
    return total


@compiled
def add(s_at, v):
    s = as_state(s_at)
    total = add_with_carry(s_at, s[S_A], v, s[S_C])
    s[S_A] = s[S_NZ] = total & 0xFF
    s[S_C] = total >> 8


@compiled
def subtract(s_at, v):
    s = as_state(s_at)
    total = subtract_with_carry(s_at, s[S_A], v, s[S_C])
    s[S_A] = s[S_NZ] = total & 0xFF
    s[S_C] = total >> 8


@compiled
def compare(s_at, register, v):
    s = as_state(s_at)
    s[S_C] = 1 if register >= v else 0
    s[S_NZ] = (register - v) & 0xFF


@compiled
def flags(s_at):
    """The status byte as it is pushed."""
    s = as_state(s_at)
    nz = s[S_NZ]
    return (
        (0x80 if nz & N_BITS else 0)
        | (s[S_V] << 6)
        | ALWAYS_PUSHED
        | (s[S_D] << 3)
        | (s[S_I] << 2)
        | (2 if nz & 0xFF == 0 else 0)
        | s[S_C]
    )


@compiled
def set_flags(s_at, byte):
    s = as_state(s_at)
    s[S_NZ] = ((byte & 0x80) << 1) | (0 if byte & 2 else 1)
    s[S_V], s[S_D], s[S_I], s[S_C] = (byte >> 6) & 1, (byte >> 3) & 1, (byte >> 2) & 1, byte & 1


@compiled
def arr(s_at, v):
    """ARR, undocumented: AND and ROR in one, with flags of their own and a decimal mode."""
    s = as_state(s_at)
    a, c = s[S_A], s[S_C]
    t = a & v
    result = (t >> 1) | (c << 7)
    s[S_NZ] = result
    if s[S_D]:
        s[S_V] = ((t ^ result) >> 6) & 1
        if (t & 15) + (t & 1) > 5:
            result = (result & 0xF0) | ((result + 6) & 0x0F)
        s[S_C] = 0
        if (t & 0xF0) + (t & 0x10) > 0x50:
            result = (result + 0x60) & 0xFF
            s[S_C] = 1
    else:
        s[S_C] = (result >> 6) & 1
        s[S_V] = ((result >> 6) ^ (result >> 5)) & 1
    s[S_A] = result


@compiled
def operate(s_at, op, v):
    """Operations on a value that was read: the documented ones first, then the undocumented ones."""
    s = as_state(s_at)
    if op == LDA:
        s[S_A] = s[S_NZ] = v
    elif op == LDX:
        s[S_X] = s[S_NZ] = v
    elif op == LDY:
        s[S_Y] = s[S_NZ] = v
    elif op == ORA:
        s[S_A] = s[S_NZ] = s[S_A] | v
    elif op == AND:
        s[S_A] = s[S_NZ] = s[S_A] & v
    elif op == EOR:
        s[S_A] = s[S_NZ] = s[S_A] ^ v
    elif op == ADC:
        add(s_at, v)
    elif op == SBC:
        subtract(s_at, v)
    elif op == CMP:
        compare(s_at, s[S_A], v)
    elif op == CPX:
        compare(s_at, s[S_X], v)
    elif op == CPY:
        compare(s_at, s[S_Y], v)
    elif op == BIT:
        s[S_NZ] = (s[S_A] & v) | ((v & 0x80) << 1)
        s[S_V] = (v >> 6) & 1
    elif op == LAX:
        s[S_A] = s[S_X] = s[S_NZ] = v
    elif op == LAS:
        s[S_A] = s[S_X] = s[S_SP] = s[S_NZ] = s[S_SP] & v
    elif op == ANC:
        s[S_A] = s[S_NZ] = s[S_A] & v
        s[S_C] = s[S_A] >> 7
    elif op == ASR:
        t = s[S_A] & v
        s[S_C] = t & 1
        s[S_A] = s[S_NZ] = t >> 1
    elif op == ARR:
        arr(s_at, v)
    elif op == ANE:
        s[S_A] = s[S_NZ] = (s[S_A] | 0xEE) & s[S_X] & v
    elif op == LXA:
        s[S_A] = s[S_X] = s[S_NZ] = (s[S_A] | 0xEE) & v
    elif op == SBX:
        t = (s[S_A] & s[S_X]) - v
        s[S_C] = 1 if t >= 0 else 0
        s[S_X] = s[S_NZ] = t & 0xFF


@compiled
def stored(s_at, op, address):
    """The byte that a store writes."""
    s = as_state(s_at)
    high = ((address >> 8) + 1) & 0xFF
    if op == STA:
        return s[S_A]
    if op == STX:
        return s[S_X]
    if op == STY:
        return s[S_Y]
    if op == SAX:
        return s[S_A] & s[S_X]
    if op == SHA:
        return s[S_A] & s[S_X] & high
    if op == SHX:
        return s[S_X] & high
    if op == SHY:
        return s[S_Y] & high
    s[S_SP] = s[S_A] & s[S_X]  # SHS
    return s[S_SP] & high


@compiled
def shifted(s_at, op, v):
    """The new value of a shift; sets C, N and Z."""
    s = as_state(s_at)
    if op == ASL or op == SLO or op == ASLA:
        w = (v << 1) & 0xFF
        s[S_C] = v >> 7
    elif op == LSR or op == SRE or op == LSRA:
        w = v >> 1
        s[S_C] = v & 1
    elif op == ROL or op == RLA or op == ROLA:
        w = ((v << 1) | s[S_C]) & 0xFF
        s[S_C] = v >> 7
    else:
        w = (v >> 1) | (s[S_C] << 7)
        s[S_C] = v & 1
    s[S_NZ] = w
    return w


@compiled
def changed(s_at, op, v):
    """The new value of a read-modify-write operation; sets its flags, but not those of `after_change`."""
    s = as_state(s_at)
    if op == INC or op == ISB:
        w = (v + 1) & 0xFF
        s[S_NZ] = w
    elif op == DEC or op == DCP:
        w = (v - 1) & 0xFF
        s[S_NZ] = w
    else:
        w = shifted(s_at, op, v)
    return w


@compiled
def after_change(s_at, op, w):
    """The second part of the undocumented read-modify-write operations."""
    s = as_state(s_at)
    if op == SLO:
        s[S_A] = s[S_NZ] = s[S_A] | w
    elif op == RLA:
        s[S_A] = s[S_NZ] = s[S_A] & w
    elif op == SRE:
        s[S_A] = s[S_NZ] = s[S_A] ^ w
    elif op == RRA:
        add(s_at, w)
    elif op == DCP:
        compare(s_at, s[S_A], w)
    elif op == ISB:
        subtract(s_at, w)


@compiled
def register_operation(s_at, op):
    """Operations without memory."""
    s = as_state(s_at)
    if op <= RORA:
        s[S_A] = shifted(s_at, op, s[S_A])
    elif op == TAX:
        s[S_X] = s[S_NZ] = s[S_A]
    elif op == TXA:
        s[S_A] = s[S_NZ] = s[S_X]
    elif op == TAY:
        s[S_Y] = s[S_NZ] = s[S_A]
    elif op == TYA:
        s[S_A] = s[S_NZ] = s[S_Y]
    elif op == TSX:
        s[S_X] = s[S_NZ] = s[S_SP]
    elif op == TXS:
        s[S_SP] = s[S_X]
    elif op == INX:
        s[S_X] = s[S_NZ] = (s[S_X] + 1) & 0xFF
    elif op == DEX:
        s[S_X] = s[S_NZ] = (s[S_X] - 1) & 0xFF
    elif op == INY:
        s[S_Y] = s[S_NZ] = (s[S_Y] + 1) & 0xFF
    elif op == DEY:
        s[S_Y] = s[S_NZ] = (s[S_Y] - 1) & 0xFF
    elif op == CLC or op == SEC:
        s[S_C] = op - CLC
    elif op == CLI or op == SEI:
        s[S_I] = op - CLI
    elif op == CLV:
        s[S_V] = 0
    elif op == CLD or op == SED:
        s[S_D] = op - CLD


@compiled
def taken(s_at, op):
    s = as_state(s_at)
    if op == BPL:
        return s[S_NZ] & N_BITS == 0
    if op == BMI:
        return s[S_NZ] & N_BITS != 0
    if op == BVC:
        return s[S_V] == 0
    if op == BVS:
        return s[S_V] != 0
    if op == BCC:
        return s[S_C] == 0
    if op == BCS:
        return s[S_C] != 0
    if op == BNE:
        return s[S_NZ] & 0xFF != 0
    return s[S_NZ] & 0xFF == 0


@compiled
def fetch(s_at, ram_at, rom_at, prop_at, log_at, screen_at):
    s = as_state(s_at)
    value = read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, s[S_PC])
    s[S_PC] = (s[S_PC] + 1) & 0xFFFF
    return value


@compiled
def push(s_at, ram_at, prop_at, log_at, screen_at, value):
    s = as_state(s_at)
    write(s_at, ram_at, prop_at, log_at, screen_at, STACK | s[S_SP], value)
    s[S_SP] = (s[S_SP] - 1) & 0xFF


@compiled
def push_again(s_at, ram_at, prop_at, log_at, screen_at, value):
    """A push right after a push: the CPU does not halt then if the stack pointer points to WSYNC."""
    s = as_state(s_at)
    cycles = s[S_CYCLES]
    push(s_at, ram_at, prop_at, log_at, screen_at, value)
    s[S_CYCLES] = cycles


@compiled
def pull(s_at, ram_at, rom_at, prop_at, log_at, screen_at):
    s = as_state(s_at)
    s[S_SP] = (s[S_SP] + 1) & 0xFF
    return read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, STACK | s[S_SP])


@unit
def step_unit(s_at, ram_at, rom_at, prop_at, log_at, screen_at):
    """Execute the instruction at PC.

    Every byte goes through the bus, in the order of the real CPU: the bus latch, hot spots and chips depend on it.
    """
    s = as_state(s_at)
    opcode = fetch(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
    s[S_CYCLES] += CYCLES[opcode]
    op, mode = OP[opcode], MODE[opcode]
    address = 0
    # ---- operand bytes and effective address; JSR fetches its second byte after it has pushed
    if mode != IMP and op != JSR:
        low = fetch(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
        address = low
        if mode == ZPX:
            address = (low + s[S_X]) & 0xFF
        elif mode == ZPY:
            address = (low + s[S_Y]) & 0xFF
        elif mode == IZX or mode == IZY:
            if mode == IZX:
                low = (low + s[S_X]) & 0xFF
            address = read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, low)
            address |= read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, low + 1) << 8
        elif LENGTH[mode] == 3:
            address |= fetch(s_at, ram_at, rom_at, prop_at, log_at, screen_at) << 8
        if mode == ABX or mode == ABY or mode == IZY:
            index = s[S_X] if mode == ABX else s[S_Y]
            if op < FIRST_STORE and (address & 0xFF) + index > 0xFF:
                s[S_CYCLES] += 1
            address = (address + index) & 0xFFFF
    # ---- operations that read: LDA ... SBX, and NOP, which only reads
    if op < FIRST_STORE:
        if mode == IMM:
            operate(s_at, op, address)
        elif mode != IMP:
            operate(s_at, op, read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, address))
    # ---- that write: STA ... SHS
    elif op < FIRST_CHANGE:
        write(s_at, ram_at, prop_at, log_at, screen_at, address, stored(s_at, op, address))
    # ---- that read and write: shifts, INC, DEC and their undocumented kin
    elif op < FIRST_REGISTER:
        w = changed(s_at, op, read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, address))
        write(s_at, ram_at, prop_at, log_at, screen_at, address, w)
        after_change(s_at, op, w)
    # ---- without an operand: shifts of A, transfers, counters, flags
    elif op <= SED:
        register_operation(s_at, op)
    # ---- the stack; a pull first reads the byte below
    elif op == PHA:
        push(s_at, ram_at, prop_at, log_at, screen_at, s[S_A])
    elif op == PHP:
        push(s_at, ram_at, prop_at, log_at, screen_at, flags(s_at))
    elif op == PLA:
        read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, STACK | s[S_SP])
        s[S_A] = s[S_NZ] = pull(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
    elif op == PLP:
        read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, STACK | s[S_SP])
        set_flags(s_at, pull(s_at, ram_at, rom_at, prop_at, log_at, screen_at))
    # ---- branches: one more cycle if taken, two if to another page
    elif op <= BEQ:
        if taken(s_at, op):
            target = s[S_PC] + (address ^ 0x80) - 0x80
            s[S_CYCLES] += 1 if (target ^ s[S_PC]) & 0xFF00 == 0 else 2
            s[S_PC] = target & 0xFFFF
    # ---- jumps; an indirect one does not leave the page of its pointer
    elif op == JMP:
        if mode == IND:
            s[S_PC] = read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, address)
            address = (address & 0xFF00) | ((address + 1) & 0xFF)
            s[S_PC] |= read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, address) << 8
        else:
            s[S_PC] = address
    # ---- calls and returns; the return address points to the last byte of JSR
    elif op == JSR:
        low = fetch(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
        read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, STACK | s[S_SP])
        push(s_at, ram_at, prop_at, log_at, screen_at, s[S_PC] >> 8)
        push_again(s_at, ram_at, prop_at, log_at, screen_at, s[S_PC] & 0xFF)
        s[S_PC] = low | (read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, s[S_PC]) << 8)
    elif op == RTS or op == RTI:
        read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, STACK | s[S_SP])
        if op == RTI:
            set_flags(s_at, pull(s_at, ram_at, rom_at, prop_at, log_at, screen_at))
        low = pull(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
        s[S_PC] = low | (pull(s_at, ram_at, rom_at, prop_at, log_at, screen_at) << 8)
        if op == RTS:
            fetch(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
    # ---- interrupts: only the program's own; the 6507 has no pins for others
    elif op == BRK:
        fetch(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
        push(s_at, ram_at, prop_at, log_at, screen_at, s[S_PC] >> 8)
        push_again(s_at, ram_at, prop_at, log_at, screen_at, s[S_PC] & 0xFF)
        push_again(s_at, ram_at, prop_at, log_at, screen_at, flags(s_at))
        s[S_I] = 1
        vector = int64(BREAK_VECTOR)
        low = read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, vector)
        s[S_PC] = low | (read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, vector + 1) << 8)
    # ---- JAM: the CPU stops until the next reset
    else:
        s[S_DEAD] = 1
    return 0
