"""LLVM IR as text: values by number, labels, and the 6507's registers as local variables.

Text is quicker to make than llvmlite's objects. A register of the 6507 is a slot on the stack (`alloca`), which LLVM
turns into values and phis; inside a block the writer remembers which value a slot holds, so that it loads and
stores each at most once between two labels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..chips.layout import S_D, S_TOUCH, S_V

# Slots, all i32 but the last: registers, cycles since line 0, instructions left, program counter and its place in the
# image, the next free entry of the log.
SLOTS = dict.fromkeys("a x y sp nz c t left pc place".split(), "i32") | {"log": "ptr"}
# Branch weights: the metadata nodes of a module.
LIKELY, UNLIKELY = ", !prof !0", ", !prof !1"
LOG_ENTRY = 8  # bytes of an entry of the log
METADATA = '!0 = !{!"branch_weights", i32 4000, i32 1}\n!1 = !{!"branch_weights", i32 1, i32 4000}\n'


@dataclass(frozen=True)
class Layout:
    """How a console's arrays lie in memory: types, and bytes from one item to the next."""

    number: str = "i64"  # of the state
    state: int = 8
    ram: int = 1
    kept: dict[int, str] = field(default_factory=dict)  # numbers of the state that have a slot of their own


# A CPU's: each console has arrays of its own. A GPU's: the state and RAM of 32 consoles lie side by side
# (`cuda/target.py`), and numbers that are used often stay in registers, because its memory is far away.
ON_CPU = Layout()
ON_CUDA = Layout("i32", 4 * 32, 32, {S_V: "v", S_D: "d", S_TOUCH: "touch"})


class Writer:
    """The text of one function."""

    def __init__(self, layout: Layout = ON_CPU) -> None:
        self.layout = layout
        self.slots = SLOTS | dict.fromkeys(layout.kept.values(), "i32")
        self.lines: list[str] = []
        self._count = 0
        self._known: dict[str, str] = {}
        self._changed: set[str] = set()

    # ---- values

    def emit(self, text: str) -> None:
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def binary(self, op: str, a: str | int, b: str | int) -> str:
        return self.value(f"{op} i32 {a}, {b}")

    def compare(self, how: str, a: str | int, b: str | int, kind: str = "i32") -> str:
        return self.value(f"icmp {how} {kind} {a}, {b}")

    def test(self, a: str, mask: int) -> str:
        """Whether one of the bits of the mask is set."""
        return self.compare("ne", self.binary("and", a, mask), 0)

    def both(self, a: str, b: str) -> str:
        return self.value(f"and i1 {a}, {b}")

    def either(self, a: str, b: str) -> str:
        return self.value(f"or i1 {a}, {b}")

    def choose(self, condition: str, a: str | int, b: str | int, kind: str = "i32") -> str:
        return self.value(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    def widen(self, a: str | int, kind: str = "i32") -> str:
        return str(a) if isinstance(a, int) else self.value(f"zext {kind} {a} to i64")

    def number(self, condition: str) -> str:
        return self.value(f"zext i1 {condition} to i32")

    # ---- memory

    def at(self, base: str, offset: str | int) -> str:
        """The address of a byte; an offset that is a value has 32 bits."""
        return self.value(f"getelementptr i8, ptr {base}, i64 {self.widen(offset)}")

    def byte(self, pointer: str) -> str:
        return self.value(f"zext i8 {self.value(f'load i8, ptr {pointer}')} to i32")

    def put_byte(self, pointer: str, value: str | int) -> None:
        self.emit(
            f"store i8 {value if isinstance(value, int) else self.value(f'trunc i32 {value} to i8')}, ptr {pointer}"
        )

    def number_at(self, pointer: str) -> str:
        """A number of the state, with 64 bits."""
        value = self.value(f"load {self.layout.number}, ptr {pointer}")
        return value if self.layout.number == "i64" else self.value(f"sext {self.layout.number} {value} to i64")

    def state(self, index: int) -> str:
        """A number of the state, all of its 64 bits."""
        if index in self.layout.kept:
            return self.value(f"sext i32 {self.get(self.layout.kept[index])} to i64")
        return self.number_at(self.at("%s", self.layout.state * index))

    def state32(self, index: int) -> str:
        if index in self.layout.kept:
            return self.get(self.layout.kept[index])
        if self.layout.number == "i32":
            return self.value(f"load i32, ptr {self.at('%s', self.layout.state * index)}")
        return self.value(f"trunc i64 {self.state(index)} to i32")

    def put_state(self, index: int, value: str | int) -> None:
        """Store a number of 64 bits."""
        if index in self.layout.kept:
            self.set(self.layout.kept[index], self.narrow(value))
        else:
            self.store_state(index, value)

    def store_state(self, index: int, value: str | int) -> None:
        """The same, always to memory."""
        at = self.at("%s", self.layout.state * index)
        self.emit(
            f"store {self.layout.number} {self.narrow(value) if self.layout.number == 'i32' else value}, ptr {at}"
        )

    def narrow(self, value: str | int) -> str:
        """The lower 32 bits of a number of 64."""
        return str(value) if isinstance(value, int) else self.value(f"trunc i64 {value} to i32")

    # ---- slots

    def get(self, slot: str) -> str:
        if slot not in self._known:
            self._known[slot] = self.value(f"load {self.slots[slot]}, ptr %{slot}")
        return self._known[slot]

    def set(self, slot: str, value: str | int) -> None:
        self._known[slot] = str(value)
        self._changed.add(slot)

    def forget(self, *slots: str) -> None:
        """After a join: what these slots hold depends on the way here."""
        for slot in slots:
            self._known.pop(slot, None)

    def sync(self) -> None:
        """Write changed slots back: before every branch."""
        for slot in sorted(self._changed):
            self.emit(f"store {self.slots[slot]} {self._known[slot]}, ptr %{slot}")
        self._changed.clear()

    # ---- control

    def label(self, prefix: str = "l") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def place(self, label: str, fresh: bool = True) -> None:
        """Begin a block. `fresh`: other branches lead here as well, so what slots hold is no longer known."""
        assert not self._changed
        self.lines.append(f"{label}:")
        if fresh:
            self._known.clear()

    def go(self, label: str) -> None:
        self.sync()
        self.emit(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, weights: str = "") -> None:
        self.sync()
        self.emit(f"br i1 {condition}, label %{yes}, label %{no}{weights}")
