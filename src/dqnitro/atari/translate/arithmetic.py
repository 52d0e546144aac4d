"""What instructions compute: loads, logic, ADC and SBC, comparisons, shifts, and the flags."""

from __future__ import annotations

from ..chips.cpu_opcodes import ALWAYS_PUSHED, N_BITS
from ..chips.layout import S_D, S_I, S_V
from .addressing import Addressing
from .writer import LIKELY


class Arithmetic(Addressing):
    """Operations on values; they spend no cycles."""

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
