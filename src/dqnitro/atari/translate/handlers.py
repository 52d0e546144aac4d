# ruff: noqa: F403, F405
"""The handlers of the interpreter (`chips/cpu_predecode.py`) by name, and in families that are translated alike."""

from __future__ import annotations

from ..chips import cpu_predecode
from ..chips.cpu_predecode import *
from .discover import BRANCHES, RUN_BRK, RUN_RTI, SET_TIMER, SET_VBLANK, SET_VSYNC

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
# What ends a block.
ENDS = {RUN_JMP, RUN_JSR, RUN_RTS, RUN_BRK, RUN_RTI, JMP_IND, SLOW} | BRANCHES
# Stores that may need an entry of the TIA's log.
STORES = {
    number for number, name in HANDLER_NAMES.items()
    if name.split("_")[0] in ("STA", "STX", "STY") or name in ("SET_TIA", "SET_VSYNC", "SET_VBLANK", "RUN_PHP")
} - {STA_ZP, STX_ZP, STY_ZP}  # fmt: skip
# Flags that branches look at, and whether they must be set.
CONDITIONS = {
    RUN_BPL: ("n", False), RUN_BMI: ("n", True), RUN_BVC: ("v", False), RUN_BVS: ("v", True),
    RUN_BCC: ("c", False), RUN_BCS: ("c", True), RUN_BNE: ("z", False), RUN_BEQ: ("z", True),
}  # fmt: skip
TRANSFERS = {RUN_TXA: "xa", RUN_TAX: "ax", RUN_TAY: "ay", RUN_TYA: "ya"}
COUNTS = {RUN_DEX: ("x", -1), RUN_DEY: ("y", -1), RUN_INX: ("x", 1), RUN_INY: ("y", 1)}
