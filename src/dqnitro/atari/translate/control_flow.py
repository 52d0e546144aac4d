# ruff: noqa: F403, F405
"""Where a translated program goes on: jumps, the table of entries, bailing out, the cycles, and the TIA's log."""

from __future__ import annotations

from ..chips.cpu_predecode import SLOW
from ..chips.layout import *
from ..chips.memory_map import A12, A13, BANK_OFFSET, BANK_SIZE, E0_FIXED, SLICE_OFFSET
from .discover import Code, Instruction
from .writer import LIKELY, LOG_ENTRY, ON_CPU, Layout, Writer


class ControlFlow:
    """What every part of the translator needs: the writer, the current instruction, and ways on from it."""

    def __init__(self, code: Code, low: int, high: int, layout: Layout = ON_CPU) -> None:
        self.code, self.low, self.high, self.layout = code, low, high, layout
        self.w = Writer(layout)
        self.ids = {place: k + 1 for k, place in enumerate(sorted(code.entries))}
        self.bails: list[tuple[str, int, int]] = []
        self.unused = 0  # instructions of the block from the current one on
        self.current = Instruction(0, 0, SLOW, 0, 0, 0, 0)

    # ---- time, and the TIA

    def cycles(self) -> str:
        return self.w.value(f"add i64 {self.w.widen(self.w.get('t'))}, %origin")

    def logged(self) -> str:
        w = self.w
        now, first = (w.value(f"ptrtoint ptr {p} to i64") for p in (w.get("log"), "%writes"))
        return w.value(f"lshr i64 {w.value(f'sub i64 {now}, {first}')}, {LOG_ENTRY.bit_length() - 1}")

    def spend(self, cycles: str | int) -> None:
        self.w.set("t", self.w.binary("add", self.w.get("t"), cycles))

    def replay(self, until: str) -> None:
        """Let the TIA catch up."""
        w = self.w
        w.put_state(S_LOGGED, self.logged())
        self.call_replay(until)
        w.set("log", "%writes")

    def call_replay(self, until: str) -> None:
        self.w.value(f"call i64 %replay(ptr %s, ptr %prop, ptr %writes, i64 {until}, ptr %screen)")

    # ---- where to go on

    def following(self, pc: int, here: int) -> int | None:
        """The place of a program counter, if it was found and is translated for this program counter."""
        place = self.code.place(pc, here, self.code.bank(here))
        it = self.code.instructions.get(-1 if place is None else place)
        return place if it is not None and it.pc == pc else None

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
        self.bails.append((label, self.current.pc, self.unused))
        w.place(on, fresh=False)
