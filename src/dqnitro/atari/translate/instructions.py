# ruff: noqa: F403, F405
"""One function of LLVM IR from the blocks of an image: what `chips/cpu_fast.py` does, with everything known folded in.

Each handler of the interpreter has its translation here, under the interpreter's rules: registers, flags and the log
are what they would be there after the same instruction. Where a handler of the interpreter falls through to the
reference, or would need code of its own for something rare, the program *bails out*: it returns `STEP` with the state
as it was before that instruction. It also returns, with `REST`, at the start of a block that may come to the limit of
instructions or of a frame's cycles; then the interpreter plays the rest of the frame.
"""

from __future__ import annotations

from ..chips import cpu_predecode
from ..chips.cpu_opcodes import ALWAYS_PUSHED, N_BITS
from ..chips.cpu_predecode import *
from ..chips.cpu_run import REST, STEP, T_ENTRIES, T_REPLAY
from ..chips.layout import *
from ..chips.memory_map import A7, A12, A13, BANK_OFFSET, BANK_SIZE, E0_FIXED, RAM_LINES, SLICE_OFFSET, TIA_LINES
from ..chips.tia import LOGGED
from ..chips.tia_registers import CXBLPF, CXPPMM, INPT0, INPT4, INPT5, READ_LINES, VBLANK, VSYNC_ON, WRITE_LINES, WSYNC
from .discover import BRANCHES, RUN_BRK, RUN_RTI, SET_TIMER, SET_VBLANK, SET_VSYNC, Code, Instruction
from .writer import LIKELY, METADATA, ON_CPU, UNLIKELY, Layout, Writer

LOG_MASK = sum(1 << reg for reg in range(64) if LOGGED[reg] and reg > WSYNC)
_FIRST_WORDS = frozenset(
    "RUN LDA LDX LDY STA STX STY ORA AND EOR ADC SBC CMP CPX CPY BIT ASL LSR ROL ROR INC DEC DEX DEY "
    "WAIT JMP STORE SET".split()
)
HANDLER_NAMES = {SLOW: "SLOW"} | {
    number: name
    for name, number in vars(cpu_predecode).items()
    if "_" in name and name.split("_")[0] in _FIRST_WORDS and not name.endswith("_OPCODE")
}
assert sorted(HANDLER_NAMES) == list(range(145))
HANDLER_NAMES |= {
    SET_VSYNC: "SET_VSYNC", SET_VBLANK: "SET_VBLANK", SET_TIMER: "SET_TIMER", RUN_BRK: "RUN_BRK", RUN_RTI: "RUN_RTI"
}  # fmt: skip
TIMER = {LDA_INTIM, LDX_INTIM, LDY_INTIM, WAIT_ZERO, WAIT_MINUS, WAIT_ZERO_X, WAIT_ZERO_Y}
TIA_READS = {number for number, name in HANDLER_NAMES.items() if name.endswith("_TIA") and name[:2] not in ("ST", "SE")}
ENDS = {RUN_JMP, RUN_JSR, RUN_RTS, RUN_BRK, RUN_RTI, JMP_IND, SLOW} | BRANCHES
# Slots that are numbers of the state as they are.
REGISTERS = {"a": S_A, "x": S_X, "y": S_Y, "sp": S_SP, "nz": S_NZ, "c": S_C, "left": S_LEFT, "pc": S_PC}
# Flags that branches look at, and whether they must be set.
CONDITIONS = {
    RUN_BPL: ("n", False), RUN_BMI: ("n", True), RUN_BVC: ("v", False), RUN_BVS: ("v", True),
    RUN_BCC: ("c", False), RUN_BCS: ("c", True), RUN_BNE: ("z", False), RUN_BEQ: ("z", True),
}  # fmt: skip
TRANSFERS = {RUN_TXA: "xa", RUN_TAX: "ax", RUN_TAY: "ay", RUN_TYA: "ya"}
COUNTS = {RUN_DEX: ("x", -1), RUN_DEY: ("y", -1), RUN_INX: ("x", 1), RUN_INY: ("y", 1)}


class Translator:
    """Writes the function of one image."""

    exits = {"step": STEP, "rest": REST}  # noqa: RUF012

    def __init__(self, code: Code, low: int, high: int, layout: Layout = ON_CPU) -> None:
        self.code, self.low, self.high, self.layout = code, low, high, layout
        self.w = Writer(layout)
        self.ids = {place: k + 1 for k, place in enumerate(sorted(code.entries))}
        self._bails: list[tuple[str, int, int]] = []
        self._unused = 0  # instructions of the block from the current one on
        self._it = Instruction(0, 0, SLOW, 0, 0, 0, 0)

    # ---- the whole

    def text(self) -> str:
        w = self.w
        self.begin()
        for place in sorted(self.code.leaders):
            self.block(place)
        for label, pc, unused in self._bails:
            w.place(label)
            w.set("pc", pc)
            w.set("left", w.binary("add", w.get("left"), unused))
            w.go("step")
        for name, number in self.exits.items():
            w.place(name)
            w.emit(f"store i64 {number}, ptr %code")
            w.go("leave")
        w.place("leave")
        for slot, index in REGISTERS.items():
            w.put_state(index, w.widen(w.get(slot)))
        for index, slot in self.layout.kept.items():
            w.store_state(index, w.widen(w.get(slot)))
        w.put_state(S_CYCLES, self.cycles())
        w.put_state(S_LOGGED, self.logged())
        w.emit(f"ret i64 {w.value('load i64, ptr %code')}")
        w.lines.append("}\n")
        return "\n".join([*w.lines, port_function(self.layout), DECIMAL, METADATA])

    def begin(self) -> None:
        """The state into slots, then to where the program counter points; `dispatch` is for all indirect jumps."""
        w = self.w
        self.arguments()
        w.emit(f"%origin = add i64 {w.state(S_ORIGIN)}, 0")
        w.emit(f"%limit = add i32 {w.state32(S_LIMIT)}, 0")
        w.emit(f"%last = getelementptr i8, ptr %writes, i64 {self.layout.log * LOG_SIZE}")
        for slot, index in REGISTERS.items():
            w.set(slot, w.state32(index))
        for index, slot in self.layout.kept.items():
            w.set(slot, w.value(f"load i32, ptr {w.at('%s', self.layout.state * index)}"))
        cycles = w.value(f"sub i64 {w.state(S_CYCLES)}, %origin")
        w.set("t", w.value(f"trunc i64 {cycles} to i32"))
        offset = w.value(f"mul i64 {w.state(S_LOGGED)}, {self.layout.log}")
        w.set("log", w.value(f"getelementptr i8, ptr %writes, i64 {offset}"))
        w.branch(w.test(w.get("pc"), A12), "inside", "step", LIKELY)
        w.place("inside")
        self.jump(w.get("pc"), None)
        w.place("dispatch")
        at = w.value(f"getelementptr i32, ptr %entries, i64 {w.widen(w.get('place'))}")
        entry = w.value(f"load i32, ptr {at}")
        w.branch(w.compare("eq", w.binary("and", entry, 0xFFFF), w.get("pc")), "jump", "step", LIKELY)
        w.place("jump", fresh=False)
        cases = " ".join(f"i32 {k}, label %b{place}" for place, k in self.ids.items())
        w.emit(f"switch i32 {w.binary('lshr', entry, 16)}, label %step [{cases}]")

    def arguments(self) -> None:
        """The function's head: `%s`, `%ram`, `%rom`, `%prop`, `%writes` and `%screen`, the entries and the slots."""
        w = self.w
        w.lines.append(
            "define i64 @program(ptr noalias %table, ptr noalias %s, ptr noalias %ram, ptr noalias readonly %rom, "
            "ptr %prop, ptr noalias %writes, ptr %screen) nounwind {\nbegin:"
        )
        self.make_slots()
        w.emit(f"%entries = load ptr, ptr {w.at('%table', 8 * T_ENTRIES)}")
        w.emit(f"%replay = load ptr, ptr {w.at('%table', 8 * T_REPLAY)}")

    def make_slots(self) -> None:
        for slot, kind in self.w.slots.items():
            self.w.emit(f"%{slot} = alloca {kind}")
        self.w.emit("%code = alloca i64")

    def cycles(self) -> str:
        return self.w.value(f"add i64 {self.w.widen(self.w.get('t'))}, %origin")

    def logged(self) -> str:
        w = self.w
        now, first = (w.value(f"ptrtoint ptr {p} to i64") for p in (w.get("log"), "%writes"))
        return w.value(f"lshr i64 {w.value(f'sub i64 {now}, {first}')}, {self.layout.log.bit_length() - 1}")

    # ---- blocks

    def block(self, first: int) -> None:
        """From a leader to the next one, or to an instruction that ends a block."""
        code, its = self.code, [self.code.instructions[first]]
        while its[-1].handler not in ENDS:
            following = self.following(its[-1].next_pc, its[-1].place)
            if following is None or following in code.leaders:
                break
            its.append(code.instructions[following])
        slow = its[-1].handler == SLOW
        self.w.place(f"b{first}")
        if len(its) > slow:
            counted = len(its) - slow
            self.check(its[0].pc, counted, its)
            for k, it in enumerate(its[:counted]):
                self._it, self._unused = it, counted - k
                self.instruction(it)
        if slow:
            self.w.set("pc", its[-1].pc)
            self.w.go("step")
        elif its[-1].handler not in ENDS:
            self.go_to(its[-1].next_pc, its[-1].place)

    def following(self, pc: int, here: int) -> int | None:
        """The place of a program counter, if it was found and is translated for this program counter."""
        place = self.code.place(pc, here, self.code.bank(here))
        it = self.code.instructions.get(-1 if place is None else place)
        return place if it is not None and it.pc == pc else None

    def check(self, pc: int, counted: int, its: list[Instruction]) -> None:
        """Whether the whole block fits: instructions left, cycles of the frame, entries of the log."""
        w = self.w
        stores = sum(it.handler in STORES for it in its)
        left = w.binary("sub", w.get("left"), counted)
        fits, out, on = w.compare("sge", left, 0), w.label("out"), w.label("on")
        if stores or any(it.handler == STORE_WSYNC for it in its):
            longest = sum(it.cycles + 1 + (LAST_CYCLE if it.handler == STORE_WSYNC else 0) for it in its)
            fits = w.both(fits, w.compare("slt", w.binary("add", w.get("t"), longest), "%limit"))
        w.branch(fits, on, out, LIKELY)
        w.place(out)
        w.set("pc", pc)
        w.go("rest")
        w.place(on)
        if stores:
            end = w.value(f"getelementptr i8, ptr {w.get('log')}, i64 {self.layout.log * stores}")
            full, room = w.label("full"), w.label("room")
            w.branch(w.compare("ugt", end, "%last", "ptr"), full, room, UNLIKELY)
            w.place(full)
            self.replay("0")
            w.go(room)
            w.place(room)
        w.set("left", w.binary("sub", w.get("left"), counted))

    def replay(self, until: str) -> None:
        """Let the TIA catch up."""
        w = self.w
        w.put_state(S_LOGGED, self.logged())
        self.call_replay(until)
        w.set("log", "%writes")

    def call_replay(self, until: str) -> None:
        self.w.value(f"call i64 %replay(ptr %s, ptr %prop, ptr %writes, i64 {until}, ptr %screen)")

    # ---- where to go on

    def go_to(self, pc: int, here: int) -> None:
        """A jump to a known program counter."""
        w, place = self.w, self.following(pc, here)
        if place is not None:
            w.go(f"b{place}")
        elif pc & A12:
            w.set("pc", pc)
            self.jump(str(pc), here)
        else:
            w.set("pc", pc)
            w.go("step")

    def jump(self, pc: str, here: int | None) -> None:
        """Through the table of entries, to a program counter (in its slot already) inside the cartridge."""
        w, cart = self.w, self.code.cart
        offset = w.binary("and", pc, BANK_OFFSET)
        if cart == CART_FE:
            w.set("place", w.binary("add", offset, w.choose(w.test(pc, A13), 0, BANK_SIZE)))
        elif cart == CART_E0:
            w.set("place", self.sliced(pc))
        elif here is None:
            w.set("place", w.binary("add", offset, w.state32(S_BANK)))
        else:
            w.set("place", w.binary("add", offset, self.code.bank(here)))
        w.go("dispatch")

    def sliced(self, address: str) -> str:
        """The place in an E0 image that an address of the cartridge shows now."""
        w = self.w
        segment = w.binary("and", w.binary("lshr", address, 10), 3)
        offset = w.binary("add", w.binary("mul", segment, self.layout.state), self.layout.state * S_SLICE0)
        number = w.number_at(w.at("%s", offset))
        base = w.choose(w.compare("eq", segment, 3), E0_FIXED, w.value(f"trunc i64 {number} to i32"))
        return w.binary("add", base, w.binary("and", address, SLICE_OFFSET))

    def guard(self, condition: str) -> None:
        """Bail out unless the condition holds. The current instruction must not have changed anything yet."""
        w = self.w
        on, label = w.label("on"), w.label("bail")
        w.branch(condition, on, label, LIKELY)
        self._bails.append((label, self._it.pc, self._unused))
        w.place(on, fresh=False)

    # ---- memory

    def ram(self, address: str | int) -> str:
        """The address of a byte of RAM."""
        w, step = self.w, self.layout.ram
        if isinstance(address, int):
            return w.at("%ram", step * (address & 0x7F))
        offset = w.binary("and", address, 0x7F)
        return w.at("%ram", offset if step == 1 else w.binary("mul", offset, step))

    def rom(self, address: str) -> str:
        """The address of a byte of the plain window."""
        w, cart = self.w, self.code.cart
        if cart == CART_E0:
            return w.at("%rom", self.sliced(address))
        offset = w.binary("and", address, BANK_OFFSET)
        if cart == CART_FE:
            return w.at("%rom", w.binary("add", offset, w.choose(w.test(address, A13), 0, BANK_SIZE)))
        return w.at("%rom", w.binary("add", offset, self.code.bank(self._it.place)))

    def plain(self, address: str) -> str:
        """Whether an address is in the plain window of the cartridge."""
        w = self.w
        inside, offset = w.test(address, A12), w.binary("and", address, BANK_OFFSET)
        if self.low > 0:
            inside = w.both(inside, w.compare("uge", offset, self.low))
        if self.high < BANK_SIZE:
            inside = w.both(inside, w.compare("ult", offset, self.high))
        return inside

    def in_ram(self, address: str) -> str:
        return self.w.compare("eq", self.w.binary("and", address, RAM_LINES), A7)

    def pointer(self, operand: int, y: str) -> tuple[str, str]:
        """The address of (zp),Y, and its first byte plus Y, which may cross a page."""
        w = self.w
        low, high = w.byte(self.ram(operand)), w.byte(self.ram(operand + 1))
        first = w.binary("add", low, y)
        return w.binary("add", first, w.binary("shl", high, 8)), first

    def zero_page(self, operand: int, index: str) -> str:
        return self.w.binary("and", self.w.binary("add", self.w.get(index), operand), 0xFF)

    def rom_or_ram(self, address: str) -> str:
        """A byte of either; bails out anywhere else."""
        w = self.w
        rom, ram = self.plain(address), self.in_ram(address)
        self.guard(w.either(rom, ram))
        return w.byte(w.choose(rom, self.rom(address), self.ram(address), "ptr"))

    # ---- the TIA and the RIOT

    def spend(self, cycles: str | int) -> None:
        self.w.set("t", self.w.binary("add", self.w.get("t"), cycles))

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
        w, step = self.w, self.layout.log
        offset = step * by if isinstance(by, int) else w.value(f"mul i64 {by}, {step}")
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

    # ---- operations

    def load(self, register: str, value: str) -> None:
        self.w.set(register, value)
        self.w.set("nz", value)

    def operate(self, op: str, value: str) -> None:
        """An operation on a byte that was read."""
        w = self.w
        if op in ("LDA", "LDX", "LDY"):
            self.load(op[2].lower(), value)
        elif op in ("AND", "ORA", "EOR"):
            self.load("a", w.binary({"AND": "and", "ORA": "or", "EOR": "xor"}[op], w.get("a"), value))
        elif op in ("CMP", "CPX", "CPY"):
            register = w.get({"CMP": "a", "CPX": "x", "CPY": "y"}[op])
            w.set("c", w.number(w.compare("uge", register, value)))
            w.set("nz", w.binary("and", w.binary("sub", register, value), 0xFF))
        elif op == "BIT":
            high = w.binary("shl", w.binary("and", value, 0x80), 1)
            w.set("nz", w.binary("or", w.binary("and", w.get("a"), value), high))
            w.put_state(S_V, w.widen(w.binary("and", w.binary("lshr", value, 6), 1)))
        else:
            assert op in ("ADC", "SBC"), op
            self.add(op == "SBC", value)

    def add(self, subtract: bool, value: str) -> None:
        """ADC and SBC; decimal mode is a function of its own."""
        w = self.w
        a, c = w.get("a"), w.get("c")
        binary, decimal, on = w.label("binary"), w.label("decimal"), w.label("on")
        w.branch(w.compare("eq", w.state(S_D), 0, "i64"), binary, decimal, LIKELY)
        w.place(binary, fresh=False)
        other = w.binary("xor", value, 0xFF) if subtract else value
        total = w.binary("add", w.binary("add", a, other), c)
        same = w.binary("xor", w.binary("xor", a, other), 0x80)
        overflow = w.binary("and", same, w.binary("xor", a, total))
        w.put_state(S_V, w.widen(w.binary("and", w.binary("lshr", overflow, 7), 1)))
        w.go(on)
        w.place(decimal, fresh=False)
        packed = w.value(f"call i32 @decimal_{'subtract' if subtract else 'add'}(i32 {a}, i32 {value}, i32 {c})")
        w.put_state(S_V, w.widen(w.binary("lshr", packed, 9)))
        rest = w.binary("and", packed, 0x1FF)
        w.go(on)
        w.place(on, fresh=False)
        w.forget(*self.layout.kept.values())
        total = w.value(f"phi i32 [{total}, %{binary}], [{rest}, %{decimal}]")
        self.load("a", w.binary("and", total, 0xFF))
        w.set("c", w.binary("lshr", total, 8))

    def shift(self, op: str, value: str) -> str:
        """The new value of a shift or a count; sets its flags."""
        w = self.w
        if op in ("INC", "DEC"):
            new = w.binary("and", w.binary("add", value, 1 if op == "INC" else -1), 0xFF)
        elif op in ("ASL", "ROL"):
            whole = w.binary("shl", value, 1)
            if op == "ROL":
                whole = w.binary("or", whole, w.get("c"))
            w.set("c", w.binary("lshr", whole, 8))
            new = w.binary("and", whole, 0xFF)
        else:
            whole = w.binary("or", value, w.binary("shl", w.get("c"), 8)) if op == "ROR" else value
            w.set("c", w.binary("and", value, 1))
            new = w.binary("lshr", whole, 1)
        w.set("nz", new)
        return new

    def flags(self) -> str:
        """The status byte as it is pushed."""
        w = self.w
        nz = w.get("nz")
        byte = w.binary("or", w.get("c"), ALWAYS_PUSHED)
        for bit, shift in ((S_V, 6), (S_D, 3), (S_I, 2)):
            byte = w.binary("or", byte, w.binary("shl", w.state32(bit), shift))
        byte = w.binary("or", byte, w.choose(w.test(nz, N_BITS), 0x80, 0))
        return w.binary("or", byte, w.choose(w.test(nz, 0xFF), 0, 2))

    def set_flags(self, byte: str) -> None:
        w = self.w
        w.set("c", w.binary("and", byte, 1))
        for bit, shift in ((S_V, 6), (S_D, 3), (S_I, 2)):
            w.put_state(bit, w.widen(w.binary("and", w.binary("lshr", byte, shift), 1)))
        zero = w.choose(w.test(byte, 2), 0, 1)
        w.set("nz", w.binary("or", w.binary("shl", w.binary("and", byte, 0x80), 1), zero))

    # ---- instructions

    def instruction(self, it: Instruction) -> None:
        h = it.handler
        name = HANDLER_NAMES[h]
        if h in CONDITIONS:
            self.branch(it)
        elif h in TIMER:
            self.timer(it)
        elif name.startswith("RUN_") or h == JMP_IND:
            self.without_operand(it)
        elif h == STORE_WSYNC:
            self.wait_for_line(it)
        elif name[:4] in ("STA_", "STX_", "STY_", "SET_"):
            self.store(it, name)
        elif h in (DEX_LOOP, DEY_LOOP):
            self.count_down(it)
        else:
            op, mode = name.split("_", 1)
            if op in ("ASL", "LSR", "ROL", "ROR", "INC", "DEC"):
                self.change(it, op, mode)
            else:
                self.read(it, op, mode)

    def read(self, it: Instruction, op: str, mode: str) -> None:
        w, operand = self.w, it.operand
        if mode in ("IMM", "CONSTANT"):
            self.spend(it.cycles)
            value = str(operand)
        elif mode == "ZP":
            self.spend(it.cycles)
            value = w.byte(self.ram(operand))
        elif mode in ("ZPX", "ZPY"):
            address = self.zero_page(operand, mode[2].lower())
            if it.handler == LDA_ZPX:
                self.load_ram_or_tia("a", address, w.test(address, A7), operand, it.cycles)
                return
            self.guard(w.test(address, A7))
            self.spend(it.cycles)
            value = w.byte(self.ram(address))
        elif mode == "IZY":
            address, first = self.pointer(operand, w.get("y"))
            value = self.rom_or_ram(address)
            self.spend(w.binary("add", w.binary("lshr", first, 8), it.cycles))
        elif mode in ("ABX", "ABY", "ABX_ANY", "ABY_ANY"):
            index = w.get(mode[2].lower())
            address = w.binary("add", index, operand)
            crossed = w.binary("lshr", w.binary("add", index, operand & 0xFF), 8)
            cycles = w.binary("add", crossed, it.cycles)
            if mode.endswith("ANY") and operand & TIA_LINES == 0:  # most likely a register of the TIA, or RAM
                in_ram = self.in_ram(address)
                in_tia = w.compare("eq", w.binary("and", address, TIA_LINES), 0)
                self.guard(w.either(in_ram, in_tia))
                self.load_ram_or_tia(op[2].lower(), address, in_ram, operand >> 8, cycles)
                return
            value = w.byte(self.rom(address)) if mode in ("ABX", "ABY") else self.rom_or_ram(address)
            self.spend(cycles)
        elif mode in ("TIA", "INPUT"):
            self.spend(it.cycles)
            value = self.tia_value(operand & READ_LINES, operand >> 8)
        else:
            assert mode == "PORT", mode
            self.spend(it.cycles)
            value = w.state32(S_SWCHA + (operand >> 1))
        self.operate(op, value)

    def change(self, it: Instruction, op: str, mode: str) -> None:
        w = self.w
        if mode == "A":
            w.set("a", self.shift(op, w.get("a")))
        else:
            address: str | int = it.operand
            if mode == "ZPX":
                address = self.zero_page(it.operand, "x")
                self.guard(w.test(address, A7))
            at = self.ram(address)
            w.put_byte(at, self.shift(op, w.byte(at)))
        self.spend(it.cycles)

    def store(self, it: Instruction, name: str) -> None:
        w, operand = self.w, it.operand
        op, mode = name.split("_")
        if it.handler in (SET_VSYNC, SET_VBLANK, SET_TIMER):
            self.synchronise(it, w.get("axy"[operand >> 8]))
            return
        if it.handler == SET_TIA:
            self.spend(it.cycles)
            self.store_tia(operand & WRITE_LINES, w.get("axy"[operand >> 8]))
            return
        value = w.get(op[2].lower())
        if mode == "TIA":
            self.spend(it.cycles)
            self.store_tia(operand & WRITE_LINES, value)
        elif mode == "ZP":
            self.spend(it.cycles)
            w.put_byte(self.ram(operand), value)
        elif mode in ("ZPX", "ZPY"):
            address = self.zero_page(operand, mode[2].lower())
            self.store_ram_or_tia(address, w.test(address, A7), value, it.cycles)
        else:
            if mode == "IZY":
                address, _ = self.pointer(operand, w.get("y"))
            else:
                address = w.binary("add", w.get(mode[2].lower()), operand)
            in_ram = self.in_ram(address)
            in_tia = w.compare("eq", w.binary("and", address, TIA_LINES), 0)
            self.guard(w.either(in_ram, in_tia))
            self.store_ram_or_tia(address, in_ram, value, it.cycles)

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


STORES = {
    number for number, name in HANDLER_NAMES.items()
    if name.split("_")[0] in ("STA", "STX", "STY") or name in ("SET_TIA", "SET_VSYNC", "SET_VBLANK", "RUN_PHP")
} - {STA_ZP, STX_ZP, STY_ZP}  # fmt: skip


def port_function(layout: Layout) -> str:
    """`@port`: what a read port of the TIA shows, apart from the bus latch."""
    kind, step = layout.number, layout.state

    def number(name: str, at: str) -> str:
        """A number of the state into %name; `at` is its address."""
        widened = f"add i64 %{name}_, 0" if kind == "i64" else f"sext i32 %{name}_ to i64"
        return f"  %{name}_ = load {kind}, ptr {at}\n  %{name} = {widened}"

    return f"""
define internal i32 @port(ptr %s, i32 %port, i64 %cycles) noinline {{
  %collision = icmp ult i32 %port, {INPT0}
  br i1 %collision, label %latches, label %inputs
latches:
  %at0 = getelementptr i8, ptr %s, i64 {step * S_COLLISION}
{number("all", "%at0")}
  %wide = zext i32 %port to i64
  %twice = shl i64 %wide, 1
  %last = icmp eq i32 %port, {CXPPMM}
  %by = select i1 %last, i64 13, i64 %twice
  %pair = lshr i64 %all, %by
  %p32 = trunc i64 %pair to i32
  %one = and i32 %p32, 1
  %bit7 = shl i32 %one, 7
  %two = and i32 %p32, 2
  %bit6 = shl i32 %two, 5
  %single = icmp eq i32 %port, {CXBLPF}
  %bit6or0 = select i1 %single, i32 0, i32 %bit6
  %value = or i32 %bit7, %bit6or0
  ret i32 %value
inputs:
  %none = icmp ugt i32 %port, {INPT5}
  br i1 %none, label %nothing, label %some
nothing:
  ret i32 0
some:
  %button = icmp uge i32 %port, {INPT4}
  %number = zext i32 %port to i64
  %offset = mul i64 %number, {step}
  br i1 %button, label %fire, label %paddle
fire:
  %k = add i64 %offset, {step * (S_FIRE0 - INPT4)}
  %at1 = getelementptr i8, ptr %s, i64 %k
{number("f", "%at1")}
  %f32 = trunc i64 %f to i32
  ret i32 %f32
paddle:
  %j = add i64 %offset, {step * (S_POT0 - INPT0)}
  %at2 = getelementptr i8, ptr %s, i64 %j
{number("need", "%at2")}
  %at3 = getelementptr i8, ptr %s, i64 {step * S_DUMP_STAMP}
{number("stamp", "%at3")}
  %sum = add i64 %stamp, %need
  %when = and i64 %sum, 4294967295
  %past = icmp sgt i64 %cycles, %when
  %at4 = getelementptr i8, ptr %s, i64 {step * S_DUMP}
{number("dump", "%at4")}
  %free = icmp eq i64 %dump, 0
  %charged = and i1 %past, %free
  %fixed = icmp slt i64 %need, 0
  %always = icmp eq i64 %need, -1
  %on = select i1 %fixed, i1 %always, i1 %charged
  %bit = select i1 %on, i32 128, i32 0
  ret i32 %bit
}}
"""


DECIMAL = """
define internal i32 @digits(i32 %b) {
  %h = lshr i32 %b, 4
  %t = mul i32 %h, 10
  %l = and i32 %b, 15
  %r = add i32 %t, %l
  ret i32 %r
}

define internal i32 @packed(i32 %a, i32 %v, i32 %result, i32 %carry) {
  %x = xor i32 %a, %result
  %y = xor i32 %result, %v
  %z = and i32 %x, %y
  %o = shl i32 %z, 2
  %o9 = and i32 %o, 512
  %c8 = shl i32 %carry, 8
  %r = or i32 %result, %c8
  %p = or i32 %r, %o9
  ret i32 %p
}

define internal i32 @bytes(i32 %total) {
  %m = urem i32 %total, 100
  %h = udiv i32 %m, 10
  %h4 = shl i32 %h, 4
  %l = urem i32 %total, 10
  %r = or i32 %h4, %l
  ret i32 %r
}

define internal i32 @decimal_add(i32 %a, i32 %v, i32 %c) noinline {
  %da = call i32 @digits(i32 %a)
  %dv = call i32 @digits(i32 %v)
  %s = add i32 %da, %dv
  %total = add i32 %s, %c
  %over = icmp sgt i32 %total, 99
  %carry = zext i1 %over to i32
  %low = and i32 %total, 255
  %result = call i32 @bytes(i32 %low)
  %r = call i32 @packed(i32 %a, i32 %v, i32 %result, i32 %carry)
  ret i32 %r
}

define internal i32 @decimal_subtract(i32 %a, i32 %v, i32 %c) noinline {
  %da = call i32 @digits(i32 %a)
  %dv = call i32 @digits(i32 %v)
  %d = sub i32 %da, %dv
  %d1 = sub i32 %d, 1
  %first = add i32 %d1, %c
  %below = icmp slt i32 %first, 0
  %more = add i32 %first, 100
  %total = select i1 %below, i32 %more, i32 %first
  %still = icmp slt i32 %total, 0
  %low = and i32 %total, 255
  %odd = call i32 @digits(i32 %low)
  %odd8 = and i32 %odd, 255
  %even = call i32 @bytes(i32 %total)
  %result = select i1 %still, i32 %odd8, i32 %even
  %v1 = add i32 %v, 1
  %least = sub i32 %v1, %c
  %enough = icmp sge i32 %a, %least
  %carry = zext i1 %enough to i32
  %r = call i32 @packed(i32 %a, i32 %v, i32 %result, i32 %carry)
  ret i32 %r
}
"""
