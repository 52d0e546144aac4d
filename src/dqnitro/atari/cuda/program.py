# ruff: noqa: F403, F405
"""Games as machine code for a GPU: the translation of `translate/`, for the memory of consoles on CUDA.

The function is `dqnitro_program`, a unit like those that Numba compiles (`cuda/target.py`): `cuda/cpu_dispatch.py`
calls it where it would interpret, and it calls `dqnitro_replay_unit` where the TIA must catch up. A group of 32
consoles lies side by side (`ON_CUDA`), V, D and the cycle of the last access to the TIA stay in registers while it
runs, and the table of entries is part of it.

Consoles that share a warp (`together`) shall meet where the TIA catches up, which takes long: then the program does not
call it but returns `LATE`, before the instruction that reads a collision, and what follows that is an entry.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from ..chips.cpu_predecode import *
from ..chips.cpu_run import REST
from ..chips.layout import *
from ..chips.tia_registers import INPT0, READ_LINES
from ..games.roms import Rom
from ..jit.target import stamp
from ..translate.discover import MOST_INSTRUCTIONS, Code, Instruction
from ..translate.handlers import TIA_READS
from ..translate.program import discovered, entry_table, optimise
from ..translate.translator import Translator
from ..translate.writer import ON_CUDA

TRIPLE = "nvptx64-nvidia-cuda"
LATE = 2  # what a program returns, beside STEP and REST: let the TIA catch up, then execute the instruction at PC
NAME, REPLAY = "dqnitro_program", "dqnitro_replay_unit"
ARGUMENTS = "s ram rom prop writes screen".split()
PTX_VERSION = "ptx78"  # of the text; every CUDA 12 and 13 reads it


class CudaTranslator(Translator):
    """Writes the function of one image for a GPU."""

    exits = Translator.exits | {"late": LATE}

    def __init__(self, code: Code, low: int, high: int, together: bool) -> None:
        if together:
            end_at_collisions(code)
        super().__init__(code, low, high, ON_CUDA)
        self.together = together

    def text(self) -> str:
        table = entry_table(self.code, self.ids)
        items = ", ".join(f"i32 {k}" for k in table)
        slots = "|".join([*self.w.slots, "code"])
        # All pointers but those to slots are to global memory.
        body = re.sub(rf"\bptr\b(?! %(?:{slots})\b)", "ptr addrspace(1)", super().text())
        return "\n".join([
            f"@entries = internal addrspace(1) constant [{len(table)} x i32] [{items}]",
            f"declare i64 @{REPLAY}(i64, i64, i64, i64, i64)",
            body,
        ])  # fmt: skip

    def arguments(self) -> None:
        w = self.w
        own = {"s", "ram", "rom", "writes"}
        head = ", ".join(f"ptr{' noalias' if name in own else ''} %{name}" for name in ARGUMENTS)
        w.lines.append(f"define i64 @{NAME}({head}) nounwind {{\nbegin:")
        self.make_slots()
        w.emit("%entries = getelementptr i8, ptr @entries, i64 0")

    def call_replay(self, until: str) -> None:
        w = self.w
        s, prop, writes, screen = (
            w.value(f"ptrtoint ptr %{name} to i64") for name in ("s", "prop", "writes", "screen")
        )
        w.value(f"call i64 @{REPLAY}(i64 {s}, i64 {prop}, i64 {writes}, i64 {until}, i64 {screen})")

    def instruction(self, it: Instruction) -> None:
        if not (self.together and reads_collision(it)):
            super().instruction(it)
            return
        w = self.w
        w.set("pc", it.pc)
        w.set("left", w.binary("add", w.get("left"), self.unused))
        w.go("late")
        w.place(w.label("never"))

    def before_port(self, address: str) -> None:
        if self.together:
            self.guard(self.w.compare("uge", self.w.binary("and", address, READ_LINES), INPT0))


def reads_collision(it: Instruction) -> bool:
    return it.handler in TIA_READS and it.operand & READ_LINES < INPT0


def end_at_collisions(code: Code) -> None:
    """What follows an instruction that reads a collision becomes an entry."""
    for it in code.instructions.values():
        if reads_collision(it):
            following = code.place(it.next_pc, it.place, code.bank(it.place))
            if following is not None and following in code.instructions:
                code.leaders.add(following)
                code.entries.add(following)


def written(rom: Rom, together: bool, most: int = MOST_INSTRUCTIONS) -> tuple[str, np.ndarray]:
    """The program of a ROM as LLVM IR, and its table of entries, which is part of it."""
    translator = CudaTranslator(discovered(rom, most), int(rom.prop[P_LOW]), int(rom.prop[P_HIGH]), together)
    return translator.text(), entry_table(translator.code, translator.ids)


def _machine(capability: tuple[int, int]) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    cpu = f"sm_{capability[0]}{capability[1]}"
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=cpu, features=f"+{PTX_VERSION}", opt=3)


def ptx(rom: Rom, capability: tuple[int, int], together: bool, most: int = MOST_INSTRUCTIONS) -> str:
    """The program of a ROM as PTX."""
    machine = _machine(capability)
    module = llvm.parse_assembly(written(rom, together, most)[0])
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    optimise(module, machine)
    return machine.emit_assembly(module)


def nothing() -> str:
    """PTX of the program of a game that is not translated; nobody calls it."""
    arguments = ", ".join(f".param .b64 a{k}" for k in range(len(ARGUMENTS)))
    return (
        f".version 7.8\n.target sm_75\n.address_size 64\n"
        f".visible .func (.param .b64 func_retval0) {NAME}({arguments})\n"
        f"{{\n.reg .b64 %r<2>;\nmov.b64 %r1, {REST};\nst.param.b64 [func_retval0], %r1;\nret;\n}}\n"
    )


def key(rom: Rom, capability: tuple[int, int], together: bool) -> str:
    """Everything that a program depends on, apart from the units that it is linked with."""
    digest = hashlib.sha256(stamp(Path(__file__)).encode())
    digest.update(repr((llvmlite.__version__, llvm.llvm_version_info, capability, together)).encode())
    digest.update(rom.prop[[P_CART, P_LOW, P_HIGH]].tobytes())
    digest.update(rom.image.tobytes())
    return digest.hexdigest()[:32]
