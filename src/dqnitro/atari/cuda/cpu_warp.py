# ruff: noqa: F403, F405
"""The CPU for a warp: every instruction goes through the same few phases, which the consoles of a warp share.

`chips/cpu_fast.py` has a case of its own for each frequent instruction, which suits a CPU core. The 32 consoles of a
warp are at 32 different instructions, and would execute their cases one after the other. Here an instruction is a row
of a table (`cuda/microcode.py`): where its operand lies, which registers go into the adder, where the result goes. All
consoles fetch, address, read, compute and write together, whatever their instructions are; only jumps, rare uses of the
stack and accesses to the chips branch.

A, X, Y and SP are the four bytes of one number, so that a table can name a register by a shift.

A console whose instruction is too rare for these phases waits until the others of its warp have the same need or have
done `TOGETHER` instructions, so that as many consoles as possible handle rare things at once. `run` does the same as
`run` in `chips/cpu_fast.py`.
"""

from __future__ import annotations

from numpy import int64, uint32, uintp

from ..chips.bus import collision_read, input_read, sync_write
from ..chips.cartridge import cart_read, cart_write
from ..chips.cpu_opcodes import ALWAYS_PUSHED, N_BITS
from ..chips.cpu_reference import add_decimal, step_unit, subtract_decimal
from ..chips.layout import *
from ..chips.memory_map import (
    A7,
    A12,
    A13,
    BANK_OFFSET,
    BANK_SIZE,
    BREAK_VECTOR,
    E0_FIXED,
    RAM_LINES,
    SLICE_OFFSET,
    TIA_LINES,
)
from ..chips.riot import riot_read, riot_write
from ..chips.tia import log_entry, replay_unit
from ..chips.tia_registers import INPT0, INPT5, READ_LINES, VBLANK, WRITE_LINES, WSYNC
from ..jit.target import as_log, as_ram, as_state, as_words, compiled, inlined, meet, together
from .microcode import *

# Why a console leaves the phases: the frame (or the limit of instructions) ends; a rare instruction; the TIA must catch
# up before this instruction, which reads a collision; the log is full.
END, RARE, LATE, FULL = 1, 2, 3, 4
TOGETHER = 16  # instructions between two points at which all consoles of a warp meet
COLLISION_LINES = TIA_LINES | INPT0  # address & COLLISION_LINES == 0: a collision register of the TIA


@inlined
def image_offset(s_at, cart, bank, address):
    """Where in the image the byte at this address of the cartridge lies."""
    s = as_state(s_at)
    if cart == CART_E0:
        segment = (address >> 10) & 3
        base = int64(E0_FIXED) if segment == 3 else int64(s[S_SLICE0 + segment])
        return base + (address & SLICE_OFFSET)
    if cart == CART_FE:
        return (0 if address & A13 else BANK_SIZE) + (address & BANK_OFFSET)
    return bank + (address & BANK_OFFSET)


@inlined
def skipped_rounds(s_at, kind, each, r, cycles, left):
    """How many rounds of a loop that only waits can be skipped: all but the last.

    A round has `each` cycles, two instructions.
    """
    s = as_state(s_at)
    if kind == COUNT_X or kind == COUNT_Y:
        return min((((r >> 8) if kind == COUNT_X else (r >> 16)) - 1) & 0xFF, left >> 1)
    t = cycles - 1 - s[S_SET]
    timer, shift = s[S_TIMER], s[S_SHIFT]
    if t < 0 or t >= timer << shift or shift < 3:
        return 0
    if kind == UNTIL_ZERO:
        rounds = (((timer - 1) << shift) - t + each - 1) // each
    else:
        rounds = ((timer << shift) - 1 - t) // each if timer <= 0x80 else 0
    return min(max(rounds, 0), left >> 1)


@inlined
def chip_read(s_at, ram_at, rom_at, prop_at, address, latch, cycles, now):
    """Read a byte that is neither RAM nor a plain byte of the ROM. Collisions must be up to date."""
    s = as_state(s_at)
    s[S_CYCLES] = cycles
    if address & A12:
        return cart_read(s_at, ram_at, rom_at, prop_at, address)
    if address & A7:
        return riot_read(s_at, address)
    port = address & READ_LINES
    s[S_TOUCH] = now
    value = 0
    if port < INPT0:
        value = collision_read(s_at, port)
    elif port <= INPT5:
        value = input_read(s_at, port, cycles)
    return value | (latch & 0x3F)


@inlined
def status(s_at, nz, c, v, d):
    """The status byte as it is pushed."""
    s = as_state(s_at)
    negative, zero = 0x80 if nz & N_BITS else 0, 0 if nz & 0xFF else 2
    return negative | (v << 6) | ALWAYS_PUSHED | (d << 3) | (s[S_I] << 2) | zero | c


@inlined
def branches(flag, want, nz, c, v):
    """Is the branch taken: has this flag the wanted value?"""
    value = c
    if flag == FLAG_N:
        value = 1 if nz & N_BITS else 0
    elif flag == FLAG_Z:
        value = 0 if nz & 0xFF else 1
    elif flag == FLAG_V:
        value = v
    return value == want


@compiled
def play(s_at, ram_at, rom_at, table_at, prop_at, log_at, screen_at):
    """Execute instructions until the frame ends or the TIA must catch up; returns which of END, LATE, FULL.

    `need` is 0 as long as an instruction can be done here; a console with another value only waits for its warp. An
    instruction that turns out to be rare has not changed the console yet, so the reference can execute it from the
    start.
    """
    # ---- registers and constants of this frame into locals
    s, ram, table = as_state(s_at), as_ram(ram_at), as_words(table_at)
    prop, log = as_state(prop_at), as_log(log_at)
    r = s[S_A] | (s[S_X] << 8) | (s[S_Y] << 16) | (s[S_SP] << 24)
    pc, nz, c, v, d = s[S_PC], s[S_NZ], s[S_C], s[S_V], s[S_D]
    cycles, left, bank, logged, touch = s[S_CYCLES], s[S_LEFT], s[S_BANK], s[S_LOGGED], s[S_TOUCH]
    cart, low, high = prop[P_CART], prop[P_LOW], prop[P_HIGH]
    origin, limit = s[S_ORIGIN], s[S_LIMIT]
    need = 0
    while need == 0:
        lanes = together()
        for _ in range(TOGETHER):
            if need == 0 and left <= 0:
                need = END
            if need == 0 and logged >= LOG_SIZE:
                need = FULL
            how, do, operand, m, address, now, after, cy, new, in_ram = 0, 0, 0, 0, 0, 0, 0, 0, 0, False
            if need == 0:
                left -= 1
                # ---- fetch: the word of this program counter, and the rows of its opcode; skip rounds of a loop that
                # only waits
                word = table[uintp(image_offset(s_at, cart, bank, pc))]
                code = int64(word & uint32(0xFF))
                operand = int64((word >> uint32(8)) & uint32(0xFFFF))
                note = int64(word >> uint32(24)) if pc & A12 else int64(FOR_REFERENCE)
                how, do = HOW[code], DO[code]
                after = pc + (how & LENGTH_BITS)
                cy = cycles + ((how >> CYCLES_AT) & 15)
                new = r  # A, X, Y, SP after it
                if note == FOR_REFERENCE:
                    need = RARE
                elif note != 0:
                    rounds = skipped_rounds(s_at, note >> 4, note & 15, r, cy, left)
                    left -= 2 * rounds
                    cy += (note & 15) * rounds
                    if note >> 4 == COUNT_X:
                        new = (r & ~0xFF00) | (((((r >> 8) & 0xFF) - rounds) & 0xFF) << 8)
                    elif note >> 4 == COUNT_Y:
                        new = (r & ~0xFF0000) | (((((r >> 16) & 0xFF) - rounds) & 0xFF) << 16)
                # ---- address: operand, index, pointer in RAM; a crossed page may cost a cycle
                index = (new >> ((how >> INDEX_AT) & 24)) & 0xFF if how & INDEXED else 0
                latch = operand if how & LENGTH_BITS == 2 else operand >> 8
                base = operand
                if how & INDIRECT:
                    zp = (operand + index) & 0xFF if how & BEFORE else operand
                    if zp < 0x80 or zp == 0xFF:
                        need = RARE
                    latch = int64(ram[(zp + 1) & 0x7F])
                    base = int64(ram[zp & 0x7F]) | (latch << 8)
                    if how & BEFORE:
                        index = 0
                address = base + index
                if how & PAYS:
                    cy += ((base & 0xFF) + index) >> 8
                if how & ZERO_PAGE:
                    address &= 0xFF
                if how & PULLS and address == 0:
                    need = RARE
                now = cy - origin
                in_ram = address & RAM_LINES == A7
                # ---- read: RAM, a plain byte of the ROM, or a chip; the TIA must be up to date before a collision is
                # read
                m = address & 0xFF
                if how & READS:
                    if in_ram:
                        m = int64(ram[address & 0x7F])
                    elif address & A12 != 0 and low <= address & BANK_OFFSET < high:
                        m = int64(table[uintp(image_offset(s_at, cart, bank, address))] & uint32(0xFF))
                    elif address & COLLISION_LINES == 0 and (
                        logged != 0 or (3 * now >= s[S_START] and s[S_DRAWN] < s[S_END])
                    ):
                        need = LATE if need == 0 else need
                    elif need == 0:
                        if address & TIA_LINES == 0:
                            touch = now
                        m = chip_read(s_at, ram_at, rom_at, prop_at, address, latch, cy, now)
                        bank = s[S_BANK]
                elif do & FROM_FLAGS:
                    m = status(s_at, nz, c, v, d)
            meet(lanes)
            special = 0
            if need == 0:
                special = (how >> SPECIAL_AT) & 15
                # ---- compute: P and Q from a register, from memory or 0, through one adder or another function; flags
                p = (new >> ((do >> P_AT) & 24)) & 0xFF if do & P_REGISTER else m if do & P_MEMORY else 0
                q = (new >> ((do >> Q_AT) & 24)) & 0xFF if do & Q_REGISTER else m if do & Q_MEMORY else 0
                carry = c if do & WITH_C else 1 if do & WITH_ONE else 0
                qi = q ^ 0xFF if do & INVERTED else q
                result = p + qi + carry
                out = result >> 8
                if do & SETS_V:
                    if d:
                        packed = subtract_decimal(p, q, carry) if do & INVERTED else add_decimal(p, q, carry)
                        result = packed & 0xFF
                        out = (packed >> 8) & 1
                        v = packed >> 9
                    else:
                        v = (~(p ^ qi) & (p ^ result) & 0x80) >> 7
                function = do & FUNCTION_BITS
                result = p | q if function == OR else result
                result = p & q if function == AND else result
                result = p ^ q if function == XOR else result
                result = (p | (carry << 8)) >> 1 if function == RIGHT else result
                out = p & 1 if function == RIGHT else out
                result &= 0xFF
                nz = result if do & SETS_NZ else nz
                if do & TESTS:
                    nz |= (m & 0x80) << 1
                    v = (m >> 6) & 1
                c = out if do & SETS_C else c
                to = (do >> TO_AT) & 24
                new = (new & ~(0xFF << to)) | (result << to) if do & TO_REGISTER else new
                # ---- write: RAM, the TIA's log (WSYNC, VSYNC and VBLANK do more), cartridge, RIOT; then the stack
                # pointer
                if how & WRITES:
                    if in_ram:
                        ram[address & 0x7F] = result
                    elif address & TIA_LINES == 0:
                        reg = address & WRITE_LINES
                        touch = now
                        logs = LOGGED_LOW if reg < 32 else LOGGED_HIGH
                        if (logs >> (reg & 31)) & 1:
                            log[uintp(logged)] = log_entry(now, reg, result)
                            logged += 1
                        if now >= limit:
                            s[S_STOP], s[S_PARTIAL] = 1, 0
                            need = END
                        if reg == WSYNC:
                            cy += LAST_CYCLE - (now + LAST_CYCLE) % LINE_CYCLES
                        elif reg <= VBLANK:
                            s[S_CYCLES] = cy
                            sync_write(s_at, reg, result)
                            need = END if s[S_STOP] else 0
                    else:
                        s[S_CYCLES] = cy
                        if address & A12:
                            cart_write(s_at, ram_at, prop_at, address, result)
                            bank = s[S_BANK]
                        else:
                            riot_write(s_at, address, result)
                if how & PUSHES:
                    new = (new & 0xFFFFFF) | ((((new >> 24) - 1) & 0xFF) << 24)
                if how & PULLS:
                    new = (new & 0xFFFFFF) | (address << 24)
                # ---- branch
                if special == BRANCH and branches(do & 3, (do >> 2) & 1, nz, c, v):
                    target = after + (operand ^ 0x80) - 0x80
                    cy += 1 if (target ^ after) & 0xFF00 == 0 else 2
                    after = target
            meet(lanes)
            if special > BRANCH:
                # ---- jumps, calls, returns and flags: few instructions, so the consoles of a warp may part here
                sp = (new >> 24) & 0xFF
                if special == JUMP:
                    after = operand
                elif special == JUMP_INDIRECT:
                    after = int64(ram[operand & 0x7F]) | (int64(ram[(operand + 1) & 0x7F]) << 8)
                    if after & A12 == 0:
                        need = RARE
                elif special == CALL:
                    if sp < 0x81:
                        need = RARE
                    else:
                        ram[sp & 0x7F] = ((after - 1) >> 8) & 0xFF
                        ram[(sp - 1) & 0x7F] = (after - 1) & 0xFF
                        new = (new & 0xFFFFFF) | ((sp - 2) << 24)
                        after = operand
                elif special == RETURN:
                    target = int64(ram[(sp + 1) & 0x7F]) | (int64(ram[(sp + 2) & 0x7F]) << 8)
                    # The byte at the return address is read: it must not be a hot spot.
                    in_rom = target & (target + 1) & A12 != 0 and low <= target & BANK_OFFSET < high
                    if sp < 0x7F or sp >= 0xFE or not in_rom:
                        need = RARE
                    else:
                        new = (new & 0xFFFFFF) | ((sp + 2) << 24)
                        after = (target + 1) & 0xFFFF
                elif special == RETURN_FLAGS:
                    target = int64(ram[(sp + 2) & 0x7F]) | (int64(ram[(sp + 3) & 0x7F]) << 8)
                    if sp < 0x7F or sp >= 0xFD or target & A12 == 0:
                        need = RARE
                    else:
                        m = int64(ram[(sp + 1) & 0x7F])
                        new = (new & 0xFFFFFF) | ((sp + 3) << 24)
                        after = target
                elif special == BREAK:
                    if sp < 0x83:
                        need = RARE
                    else:
                        ram[sp & 0x7F], ram[(sp - 1) & 0x7F] = (after >> 8) & 0xFF, after & 0xFF
                        ram[(sp - 2) & 0x7F] = status(s_at, nz, c, v, d)
                        s[S_I] = 1
                        new = (new & 0xFFFFFF) | ((sp - 3) << 24)
                        after = cart_read(s_at, ram_at, rom_at, prop_at, int64(BREAK_VECTOR))
                        after |= cart_read(s_at, ram_at, rom_at, prop_at, int64(BREAK_VECTOR + 1)) << 8
                        bank = s[S_BANK]
                elif special == SET_D:
                    d = do & 1
                elif special == SET_I:
                    s[S_I] = do & 1
                elif special == CLEAR_V:
                    v = do
                if need == 0 and (special == FLAGS_IN or special == RETURN_FLAGS):
                    nz, c = ((m & 0x80) << 1) | (0 if m & 2 else 1), m & 1
                    v, d = (m >> 6) & 1, (m >> 3) & 1
                    s[S_I] = (m >> 2) & 1
            # ---- keep the result, unless the instruction is left to the reference
            if how != 0 and (need == 0 or need == END):
                r, pc, cycles = new, after & 0xFFFF, cy
        # ---- here the consoles of a warp meet: those with a need store their registers, and the rare instructions are
        # done
        if need != 0:
            s[S_A], s[S_X], s[S_Y], s[S_SP] = r & 0xFF, (r >> 8) & 0xFF, (r >> 16) & 0xFF, (r >> 24) & 0xFF
            s[S_PC], s[S_NZ], s[S_C], s[S_V], s[S_D] = pc, nz, c, v, d
            s[S_CYCLES], s[S_LEFT], s[S_LOGGED], s[S_TOUCH] = cycles, left, logged, touch
        if need == RARE:
            step_unit(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
            r = s[S_A] | (s[S_X] << 8) | (s[S_Y] << 16) | (s[S_SP] << 24)
            pc, nz, c, v, d = s[S_PC], s[S_NZ], s[S_C], s[S_V], s[S_D]
            cycles, bank, logged, touch = s[S_CYCLES], s[S_BANK], s[S_LOGGED], s[S_TOUCH]
            need = END if s[S_STOP] or s[S_DEAD] else 0
        meet(lanes)
    return need


@compiled
def run(s_at, ram_at, rom_at, table_at, prop_at, log_at, screen_at):
    """Execute instructions until the frame ends, the limit of instructions is reached or the CPU jams."""
    s = as_state(s_at)
    need = LATE
    while need != END:
        lanes = together()
        need = play(s_at, ram_at, rom_at, table_at, prop_at, log_at, screen_at)
        if need != END:
            replay_unit(s_at, prop_at, log_at, int64(3 * s[S_TOUCH]), screen_at)
        if need == LATE:
            step_unit(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
            if s[S_STOP] or s[S_DEAD]:
                need = END
        meet(lanes)
