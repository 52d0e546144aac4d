# ruff: noqa: F403, F405
"""Which way the CPU runs: by a translated program, where the game has one (`translate/`), or interpreted.

A translated program returns before every instruction that it does not know; the reference executes it, and those after
it until the program can be entered again. Both work on the same state, so nothing else notices which way it was.
"""

from __future__ import annotations

from ..jit.target import TRANSLATES, as_int32, as_state, call_program, compiled
from .cpu_fast import run as interpret
from .cpu_reference import step_unit
from .layout import *
from .memory_map import A12, A13, BANK_OFFSET, BANK_SIZE, E0_FIXED, SLICE_OFFSET

STEP, REST = 0, 1  # what a program returns: execute the instruction at PC, or play the rest of the frame
T_PROGRAM, T_ENTRIES, T_REPLAY, T_SIZE = range(4)  # numbers of a program's table
# Instructions that the reference may execute in a frame; a program that needs more is interpreted for the rest of it.
MOST_STEPS = 200


@compiled
def place_of(s, prop):
    """The offset in the image of the instruction at PC, which is inside the cartridge."""
    pc, cart = s[S_PC], prop[P_CART]
    if cart == CART_E0:
        segment = (pc >> 10) & 3
        return (E0_FIXED if segment == 3 else s[S_SLICE0 + segment]) + (pc & SLICE_OFFSET)
    if cart == CART_FE:
        return (0 if pc & A13 else BANK_SIZE) + (pc & BANK_OFFSET)
    return s[S_BANK] + (pc & BANK_OFFSET)


@compiled
def is_entry(s, prop, entries):
    """Whether the translated program can be entered at PC."""
    pc = s[S_PC]
    if pc & A12 == 0:
        return False
    entry = entries[place_of(s, prop)]
    return entry != 0 and entry & 0xFFFF == pc


@compiled
def run_program(s_at, ram_at, rom_at, prop_at, log_at, screen_at):
    """Run the translated program. Returns whether the frame is played: not if the interpreter shall go on."""
    s, prop = as_state(s_at), as_state(prop_at)
    table = as_state(prop[P_PROGRAM])
    program, entries = table[T_PROGRAM], as_int32(table[T_ENTRIES])
    steps = 0
    while steps < MOST_STEPS:
        if call_program(program, prop[P_PROGRAM], s_at, ram_at, rom_at, prop_at, log_at, screen_at) == REST:
            return False
        known = False
        while not known and steps < MOST_STEPS:
            if s[S_LEFT] <= 0:
                return True
            s[S_LEFT] -= 1
            step_unit(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
            if s[S_STOP] or s[S_DEAD]:
                return True
            steps += 1
            known = is_entry(s, prop, entries)
    return False


@compiled
def run_either(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at):
    """Execute instructions until the frame ends, the limit of instructions is reached or the CPU jams."""
    played = False
    if as_state(prop_at)[P_PROGRAM] != 0:
        played = run_program(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
    if not played:
        interpret(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at)


run = run_either if TRANSLATES else interpret
