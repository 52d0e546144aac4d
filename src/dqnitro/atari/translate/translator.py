# ruff: noqa: F403, F405
"""One function of LLVM IR from the blocks of an image: what `chips/cpu_fast.py` does, with everything known folded in.

Each handler of the interpreter has its translation, in `loads_and_stores.py` or `branches_and_stack.py`, under the
interpreter's rules: registers, flags and the log are what they would be there after the same instruction. Where a
handler of the interpreter falls through to the reference, or would need code of its own for something rare, the program
*bails out*: it returns `STEP` with the state as it was before that instruction. It also returns, with `REST`, at the
start of a block that may come to the limit of instructions or of a frame's cycles; then the interpreter plays the rest
of the frame.
"""

from __future__ import annotations

from ..chips.cpu_predecode import *
from ..chips.cpu_run import REST, STEP, T_ENTRIES, T_REPLAY
from ..chips.layout import *
from ..chips.memory_map import A12
from .branches_and_stack import BranchesAndStack
from .discover import Instruction
from .functions import DECIMAL, port_function
from .handlers import CONDITIONS, ENDS, HANDLER_NAMES, STORES, TIMER
from .loads_and_stores import LoadsAndStores
from .writer import LIKELY, LOG_ENTRY, METADATA, UNLIKELY

# Slots that are numbers of the state as they are.
REGISTERS = {"a": S_A, "x": S_X, "y": S_Y, "sp": S_SP, "nz": S_NZ, "c": S_C, "left": S_LEFT, "pc": S_PC}


class Translator(LoadsAndStores, BranchesAndStack):
    """Writes the function of one image."""

    exits = {"step": STEP, "rest": REST}  # noqa: RUF012

    # ---- the whole

    def text(self) -> str:
        w = self.w
        self.begin()
        for place in sorted(self.code.leaders):
            self.block(place)
        for label, pc, unused in self.bails:
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
        w.emit(f"%last = getelementptr i8, ptr %writes, i64 {LOG_ENTRY * LOG_SIZE}")
        for slot, index in REGISTERS.items():
            w.set(slot, w.state32(index))
        for index, slot in self.layout.kept.items():
            w.set(slot, w.value(f"load i32, ptr {w.at('%s', self.layout.state * index)}"))
        cycles = w.value(f"sub i64 {w.state(S_CYCLES)}, %origin")
        w.set("t", w.value(f"trunc i64 {cycles} to i32"))
        offset = w.value(f"mul i64 {w.state(S_LOGGED)}, {LOG_ENTRY}")
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
                self.current, self.unused = it, counted - k
                self.instruction(it)
        if slow:
            self.w.set("pc", its[-1].pc)
            self.w.go("step")
        elif its[-1].handler not in ENDS:
            self.go_to(its[-1].next_pc, its[-1].place)

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
            end = w.value(f"getelementptr i8, ptr {w.get('log')}, i64 {LOG_ENTRY * stores}")
            full, room = w.label("full"), w.label("room")
            w.branch(w.compare("ugt", end, "%last", "ptr"), full, room, UNLIKELY)
            w.place(full)
            self.replay("0")
            w.go(room)
            w.place(room)
        w.set("left", w.binary("sub", w.get("left"), counted))

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
