"""The 6502's addressing modes in RAM and in the cartridge's ROM."""

from __future__ import annotations

from ..chips.layout import CART_E0, CART_FE
from ..chips.memory_map import A7, A12, A13, BANK_OFFSET, BANK_SIZE, RAM_LINES
from .control_flow import ControlFlow


class Addressing(ControlFlow):
    """Addresses, and the bytes there."""

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
        return w.at("%rom", w.binary("add", offset, self.code.bank(self.current.place)))

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
