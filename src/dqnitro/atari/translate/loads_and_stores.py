# ruff: noqa: F403, F405
"""Instructions with an operand in memory: they read a byte, change it, or store a register."""

from __future__ import annotations

from ..chips.cpu_predecode import *
from ..chips.layout import S_SWCHA
from ..chips.memory_map import A7, TIA_LINES
from ..chips.tia_registers import READ_LINES, WRITE_LINES
from .discover import SET_TIMER, SET_VBLANK, SET_VSYNC, Instruction
from .tia_and_riot import TiaAndRiot


class LoadsAndStores(TiaAndRiot):
    """One method for each kind of access; the addressing mode is the second word of a handler's name."""

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
