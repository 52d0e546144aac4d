# ruff: noqa: F403, F405
"""Reads and writes of the TIA and the RIOT: the log, collisions, inputs, WSYNC, VSYNC, VBLANK and the timer."""

from __future__ import annotations

from ..chips.cpu_predecode import *
from ..chips.layout import *
from ..chips.tia import LOGGED
from ..chips.tia_registers import CXBLPF, CXPPMM, INPT0, INPT4, INPT5, READ_LINES, VBLANK, VSYNC_ON, WRITE_LINES, WSYNC
from .arithmetic import Arithmetic
from .discover import SET_TIMER, SET_VSYNC, Instruction
from .writer import LOG_ENTRY

# Registers whose writes go to the log, as bits.
LOG_MASK = sum(1 << reg for reg in range(64) if LOGGED[reg] and reg > WSYNC)


class TiaAndRiot(Arithmetic):
    """The chips, at addresses known now or only when the program runs."""

    # ---- writes to the TIA

    def touch(self) -> None:
        self.w.put_state(S_TOUCH, self.w.widen(self.w.get("t")))

    def entry(self, reg: str | int, value: str) -> str:
        """An entry of the log, for the current cycle."""
        w = self.w
        shifted = reg << 8 if isinstance(reg, int) else w.binary("shl", reg, 8)
        rest = w.widen(w.binary("or", value, shifted))
        cycle = w.value(f"shl i64 {w.widen(w.get('t'))}, 16")
        return w.value(f"or i64 {cycle}, {rest}")

    def store_tia(self, reg: int, value: str) -> None:
        """A store into a register that only goes to the log, or to nobody; `check` has made room for it."""
        w = self.w
        if LOG_MASK >> reg & 1:
            w.emit(f"store i64 {self.entry(reg, value)}, ptr {w.get('log')}")
            self.move_log(1)
        self.touch()

    def store_any(self, reg: str, value: str, cycles: int) -> None:
        """The same for a register known only when it runs; bails out at those that synchronise."""
        w = self.w
        self.guard(w.compare("ugt", reg, WSYNC))
        self.spend(cycles)
        w.emit(f"store i64 {self.entry(reg, value)}, ptr {w.get('log')}")
        self.move_log(w.value(f"and i64 {w.value(f'lshr i64 {LOG_MASK}, {w.widen(reg)}')}, 1"))
        self.touch()

    def move_log(self, by: str | int) -> None:
        """Entries were written: none or one."""
        w = self.w
        offset = LOG_ENTRY * by if isinstance(by, int) else w.value(f"mul i64 {by}, {LOG_ENTRY}")
        w.set("log", w.value(f"getelementptr i8, ptr {w.get('log')}, i64 {offset}"))

    def store_ram_or_tia(self, address: str, in_ram: str, value: str, cycles: int) -> None:
        w = self.w
        ram, tia, on = w.label("ram"), w.label("tia"), w.label("on")
        w.branch(in_ram, ram, tia)
        w.place(tia, fresh=False)
        self.store_any(w.binary("and", address, WRITE_LINES), value, cycles)
        w.go(on)
        w.place(ram)
        w.put_byte(self.ram(address), value)
        self.spend(cycles)
        w.go(on)
        w.place(on)

    def synchronise(self, it: Instruction, value: str) -> None:
        """VSYNC on (its end may end the frame: bails out), VBLANK, and the timer."""
        w = self.w
        if it.handler == SET_VSYNC:
            self.guard(w.test(value, VSYNC_ON))
        self.spend(it.cycles)
        if it.handler == SET_TIMER:
            number = it.operand & 3
            w.put_state(S_TIMER, w.widen(value))
            w.put_state(S_SHIFT, 10 if number == 3 else 3 * number)
            w.put_state(S_SET, self.cycles())
            w.put_state(S_READ_AFTER, 0)
            return
        self.touch()
        if it.handler == SET_VSYNC:
            w.put_state(S_FINISH, w.value(f"add i64 {self.cycles()}, {LINE_CYCLES}"))
            return
        w.emit(f"store i64 {self.entry(VBLANK, value)}, ptr {w.get('log')}")
        self.move_log(1)
        dump, before = w.widen(w.binary("lshr", value, 7)), w.state(S_DUMP)
        ends = w.compare("ugt", before, dump, "i64")
        w.put_state(S_DUMP_STAMP, w.choose(ends, self.cycles(), w.state(S_DUMP_STAMP), "i64"))
        w.put_state(S_DUMP, dump)

    def wait_for_line(self, it: Instruction) -> None:
        """WSYNC."""
        w = self.w
        self.spend(it.cycles)
        self.touch()
        end = w.binary("add", w.get("t"), LAST_CYCLE)
        w.set("t", w.binary("sub", end, w.binary("urem", end, LINE_CYCLES)))

    # ---- reads of the TIA

    def tia_value(self, port: int, latch: int) -> str:
        """A read: collisions need the TIA to catch up, inputs do not."""
        w = self.w
        self.touch()
        if port >= INPT0:
            return w.binary("or", self.input_value(port) if port <= INPT5 else "0", latch & 0x3F)
        self.replay(w.value(f"mul i64 {w.widen(w.get('t'))}, 3"))
        pair = w.binary("lshr", w.state32(S_COLLISION), 13 if port == CXPPMM else 2 * port)
        value = w.binary("shl", w.binary("and", pair, 1), 7)
        if port != CXBLPF:
            value = w.binary("or", value, w.binary("shl", w.binary("and", pair, 2), 5))
        return w.binary("or", value, latch & 0x3F)

    def load_ram_or_tia(self, register: str, address: str, in_ram: str, latch: int, cycles: str | int) -> None:
        """A load from an address that is known only when it runs."""
        w = self.w
        ram, tia, on = w.label("ram"), w.label("tia"), w.label("on")
        w.branch(in_ram, ram, tia)
        w.place(tia, fresh=False)
        self.before_port(address)
        self.spend(cycles)
        value = w.binary("or", self.read_port(w.binary("and", address, READ_LINES)), latch & 0x3F)
        self.load(register, value)
        w.go(on)
        w.place(ram)
        self.spend(cycles)
        self.load(register, w.byte(self.ram(address)))
        w.go(on)
        w.place(on)

    def before_port(self, address: str) -> None:
        """A port known only when it runs is about to be read, and nothing has changed yet."""

    def read_port(self, port: str) -> str:
        """`bus.tia_read` of a port that is known only when it runs."""
        w = self.w
        self.touch()
        late, on = w.label("late"), w.label("on")
        w.branch(w.compare("ult", port, INPT0), late, on)
        w.place(late)
        self.replay(w.value(f"mul i64 {w.widen(w.get('t'))}, 3"))
        w.go(on)
        w.place(on)
        return w.value(f"call i32 @port(ptr %s, i32 {port}, i64 {self.cycles()})")

    def input_value(self, port: int) -> str:
        """Fire buttons, and whether a paddle's capacitor has charged (`bus.input_read`)."""
        w = self.w
        if port >= INPT4:
            return w.state32(S_FIRE0 + port - INPT4)
        need = w.state(S_POT0 + port - INPT0)
        when = w.value(f"and i64 {w.value(f'add i64 {w.state(S_DUMP_STAMP)}, {need}')}, {0xFFFFFFFF}")
        charged = w.both(w.compare("sgt", self.cycles(), when, "i64"), w.compare("eq", w.state(S_DUMP), 0, "i64"))
        fixed = w.compare("slt", need, 0, "i64")
        charged = w.choose(fixed, w.compare("eq", need, -1, "i64"), charged, "i1")
        return w.choose(charged, 0x80, 0)

    # ---- the RIOT's timer

    def timer(self, it: Instruction) -> None:
        """A load of the timer before it runs out, or a loop that waits for it: all its rounds at once."""
        w, h = self.w, it.handler
        since = w.value(f"sub i64 {self.cycles()}, {w.state(S_SET)}")
        since = w.value(f"add i64 {since}, {it.cycles - 1}")
        timer, shift = w.state(S_TIMER), w.state(S_SHIFT)
        whole = w.value(f"shl i64 {timer}, {shift}")
        self.guard(w.both(w.compare("sge", since, 0, "i64"), w.compare("slt", since, whole, "i64")))
        self.spend(it.cycles)
        if it.operand:
            if h == WAIT_MINUS:
                far = w.value(f"sub i64 {w.value(f'sub i64 {whole}, 1')}, {since}")
                rounds = w.value(f"udiv i64 {far}, {it.operand}")
                rounds = w.choose(w.compare("sle", timer, 0x80, "i64"), rounds, 0, "i64")
            else:
                last = w.value(f"shl i64 {w.value(f'sub i64 {timer}, 1')}, {shift}")
                far = w.value(f"add i64 {w.value(f'sub i64 {last}, {since}')}, {it.operand - 1}")
                far = w.choose(w.compare("sgt", far, 0, "i64"), far, 0, "i64")
                rounds = w.value(f"udiv i64 {far}, {it.operand}")
            rounds = w.choose(w.compare("sge", shift, 3, "i64"), rounds, 0, "i64")
            rounds = self.bounded(w.value(f"trunc i64 {rounds} to i32"))
            passed = w.binary("mul", rounds, it.operand)
            self.spend(passed)
            since = w.value(f"add i64 {since}, {w.widen(passed)}")
        steps = w.value(f"lshr i64 {since}, {shift}")
        value = w.value(f"sub i64 {w.value(f'sub i64 {timer}, {steps}')}, 1")
        register = "x" if h in (LDX_INTIM, WAIT_ZERO_X) else "y" if h in (LDY_INTIM, WAIT_ZERO_Y) else "a"
        self.load(register, w.value(f"trunc i64 {value} to i32"))

    def bounded(self, rounds: str) -> str:
        """Rounds of two instructions each, not beyond the limit of instructions; counts them."""
        w = self.w
        most = w.binary("lshr", w.get("left"), 1)
        rounds = w.choose(w.compare("ult", rounds, most), rounds, most)
        w.set("left", w.binary("sub", w.get("left"), w.binary("shl", rounds, 1)))
        return rounds
