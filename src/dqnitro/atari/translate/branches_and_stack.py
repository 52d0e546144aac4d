# ruff: noqa: F403, F405
"""Instructions without an operand in memory: branches, jumps, calls, the stack, transfers, counters, flags."""

from __future__ import annotations

from ..chips.cpu_opcodes import N_BITS
from ..chips.cpu_predecode import *
from ..chips.layout import *
from ..chips.memory_map import A7, A12
from ..chips.tia_registers import READ_LINES
from .discover import RUN_BRK, RUN_RTI, Instruction
from .handlers import CONDITIONS, COUNTS, HANDLER_NAMES, TRANSFERS
from .tia_and_riot import TiaAndRiot


class BranchesAndStack(TiaAndRiot):
    """Control flow of the 6502, and everything that happens inside it."""

    def count_down(self, it: Instruction) -> None:
        """DEX or DEY before a branch back to it: all rounds at once."""
        w, register = self.w, "x" if it.handler == DEX_LOOP else "y"
        one_less = w.binary("sub", w.get(register), 1)
        rounds = self.bounded(w.binary("and", one_less, 0xFF))
        self.load(register, w.binary("and", w.binary("sub", one_less, rounds), 0xFF))
        self.spend(w.binary("add", w.binary("mul", rounds, it.operand), it.cycles))

    def branch(self, it: Instruction) -> None:
        w = self.w
        flag, wanted = CONDITIONS[it.handler]
        if flag == "n":
            is_set = w.test(w.get("nz"), N_BITS)
        elif flag == "z":
            is_set = w.compare("eq", w.binary("and", w.get("nz"), 0xFF), 0)
        elif flag == "c":
            is_set = w.compare("ne", w.get("c"), 0)
        else:
            is_set = w.compare("ne", w.state(S_V), 0, "i64")
        self.spend(it.cycles)
        taken, on = w.label("taken"), w.label("on")
        w.branch(is_set, *((taken, on) if wanted else (on, taken)))
        w.place(taken)
        self.spend(it.extra)
        self.go_to(it.target, it.place)
        w.place(on)
        self.go_to(it.next_pc, it.place)

    def without_operand(self, it: Instruction) -> None:
        w, h = self.w, it.handler
        if h in (RUN_JSR, RUN_RTS, RUN_BRK, RUN_RTI, JMP_IND):
            self.call_or_return(it)
            return
        if h in (RUN_PHA, RUN_PHP, RUN_PLA, RUN_PLP):
            self.stack(it)
            return
        self.spend(it.cycles)
        if h in TRANSFERS:
            source, to = TRANSFERS[h]
            self.load(to, w.get(source))
        elif h in COUNTS:
            register, by = COUNTS[h]
            self.load(register, w.binary("and", w.binary("add", w.get(register), by), 0xFF))
        elif h == RUN_TXS:
            w.set("sp", w.get("x"))
        elif h == RUN_TSX:
            self.load("x", w.get("sp"))
        elif h in (RUN_CLC, RUN_SEC):
            w.set("c", 1 if h == RUN_SEC else 0)
        elif h in (RUN_CLD, RUN_SED):
            w.put_state(S_D, 1 if h == RUN_SED else 0)
        elif h == RUN_JMP:
            self.go_to(it.operand, it.place)
        else:
            assert h == RUN_NOP, HANDLER_NAMES[h]

    def between(self, register: str, first: int, end: int) -> str:
        shifted = self.w.binary("sub", self.w.get(register), first)
        return self.w.compare("ult", shifted, end - first)

    def stack(self, it: Instruction) -> None:
        w, sp = self.w, self.w.get("sp")
        below, above = w.binary("sub", sp, 1), w.binary("add", sp, 1)
        if it.handler == RUN_PHP:
            byte = self.flags()
            self.store_ram_or_tia(sp, w.compare("uge", sp, 0x80), byte, it.cycles)
            w.set("sp", w.binary("and", below, 0xFF))
            return
        if it.handler == RUN_PHA:
            self.guard(w.compare("uge", sp, 0x80))
            w.put_byte(self.ram(sp), w.get("a"))
            w.set("sp", below)
        elif it.handler == RUN_PLA:
            # The byte under the stack pointer is read first: in the TIA that may set collisions.
            self.guard(w.both(w.compare("ne", sp, 0x7F), w.compare("ne", sp, 0xFF)))
            tia, on = w.label("tia"), w.label("on")
            w.branch(w.compare("uge", sp, 0x80), on, tia)
            w.place(tia)
            self.before_port(sp)
            t = w.get("t")
            self.spend(it.cycles)
            self.read_port(w.binary("and", sp, READ_LINES))
            w.set("t", t)
            w.go(on)
            w.place(on)
            self.load_ram_or_tia("a", above, w.test(above, A7), PLA_OPCODE, it.cycles)
            w.set("sp", above)
            return
        else:
            self.guard(self.between("sp", 0x7F, 0xFF))
            w.set("sp", above)
            self.set_flags(w.byte(self.ram(above)))
        self.spend(it.cycles)

    def call_or_return(self, it: Instruction) -> None:
        w, sp = self.w, self.w.get("sp")
        if it.handler == RUN_JSR:
            self.guard(w.compare("uge", sp, 0x81))
            back = it.next_pc - 1
            w.put_byte(self.ram(sp), (back >> 8) & 0xFF)
            w.put_byte(self.ram(w.binary("sub", sp, 1)), back & 0xFF)
            w.set("sp", w.binary("sub", sp, 2))
            self.spend(it.cycles)
            self.go_to(it.operand, it.place)
            return
        if it.handler == RUN_BRK:
            self.guard(w.compare("uge", sp, 0x82))
            for k, byte in enumerate((it.next_pc >> 8, it.next_pc & 0xFF, self.flags())):
                w.put_byte(self.ram(w.binary("sub", sp, k)), byte)
            w.set("sp", w.binary("sub", sp, 3))
            w.put_state(S_I, 1)
            self.spend(it.cycles)
            self.go_to(it.operand, it.place)
            return
        if it.handler == RUN_RTI:
            self.guard(self.between("sp", 0x7F, 0xFD))
            first, second = self.ram(w.binary("add", sp, 2)), self.ram(w.binary("add", sp, 3))
        elif it.handler == RUN_RTS:
            self.guard(self.between("sp", 0x7F, 0xFE))
            first, second = self.ram(w.binary("add", sp, 1)), self.ram(w.binary("add", sp, 2))
        else:
            first, second = self.ram(it.operand), self.ram(it.operand + 1)
        target = w.binary("or", w.byte(first), w.binary("shl", w.byte(second), 8))
        if it.handler == RUN_RTS:
            # The byte at the return address is read: it must not be a hot spot.
            after = w.binary("add", target, 1)
            self.guard(w.both(w.test(after, A12), self.plain(target)))
            w.set("sp", w.binary("add", sp, 2))
            target = w.binary("and", after, 0xFFFF)
        else:
            self.guard(w.test(target, A12))
            if it.handler == RUN_RTI:
                self.set_flags(w.byte(self.ram(w.binary("add", sp, 1))))
                w.set("sp", w.binary("add", sp, 3))
        self.spend(it.cycles)
        w.set("pc", target)
        self.jump(target, it.place)
