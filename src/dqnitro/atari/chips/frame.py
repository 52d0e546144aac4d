# ruff: noqa: F403, F405
"""One frame of one console: power-on, reset, and all chips until the program ends the frame."""

from __future__ import annotations

import numpy as np

from ..jit.target import address, as_ram, as_screen, as_state, compiled, unit
from .cartridge import cart_read
from .cpu_run import run
from .layout import *
from .memory_map import BANK_SIZE, RESET_VECTOR
from .rng import mt_next
from .tia import replay_unit
from .tia_registers import COLOUR
from .tia_scanline import forget

U1 = np.uint64(1)
SEVENS = np.uint64(0x0707070707070707)
LATE = 1 << 24  # cycles since line 0: beyond the picture and beyond every limit of a frame
LONG_AGO = -(1 << 28)  # clocks: further back than anything that a store is compared with
MOST_INSTRUCTIONS = 25_000  # in one frame; a program that needs more leaves the frame unfinished
MOST_LINES, MOST_LINES_PAL = 291, 343  # from here on any TIA store ends the frame


@compiled
def power(s, ram, mt):
    """Power-on values; RAM comes from the system's random generator."""
    for k in range(S_SIZE):
        s[k] = 0
    for k in range(128):
        ram[k] = mt_next(mt) & 0xFF
        ram[128 + k] = 0
    mt_next(mt)  # a first value of the timer, replaced by every reset
    s[S_DPC_RANDOM] = 1


@compiled
def reset(s, ram, rom, prop, log, screen, mt):
    """The reset line of the chips: RAM, the paddles' positions and an unfinished frame survive it."""
    partial, greyed, buffer = s[S_PARTIAL], s[S_GREYED], s[S_BUFFER]
    for k in range(S_A, S_SWCHA):
        s[k] = 0
    for k in range(S_ORIGIN, S_PADDLE0):
        s[k] = 0
    s[S_PARTIAL], s[S_GREYED], s[S_BUFFER] = partial, greyed, buffer
    s[S_TIMER], s[S_SHIFT] = 25 + mt_next(mt) % 75, 6
    s[S_FINISH] = NEVER
    s[S_DIRTY] = 63
    s[S_START] = LINE_CLOCKS * prop[P_Y_START]
    s[S_END] = s[S_START] + LINE_CLOCKS * prop[P_HEIGHT]
    s[S_LIMIT] = LINE_CYCLES * (MOST_LINES_PAL if prop[P_PAL] else MOST_LINES)
    for b in range(2):
        for y in range(ROWS):
            for k in range(WORDS):
                screen[b, y, k] = 0
    cart = prop[P_CART]
    if cart == CART_F8SC or cart == CART_F6SC:
        for k in range(128):
            ram[128 + k] = mt_next(mt) & 0xFF
    s[S_BANK] = BANK_SIZE if cart == CART_F8 or cart == CART_F8SC or cart == CART_DPC else 0
    s[S_SLICE0], s[S_SLICE1], s[S_SLICE2] = 4 << 10, 5 << 10, 6 << 10
    s[S_SP], s[S_NZ] = 0xFF, 1
    # Always an address of the cartridge: calling it directly keeps the rest of the bus out of this function's code.
    handles = address(s), address(ram), address(rom), address(prop)
    vector = np.int64(RESET_VECTOR)
    s[S_PC] = cart_read(*handles, vector)
    s[S_LATCH] = cart_read(*handles, vector + 1)
    s[S_PC] |= s[S_LATCH] << 8


@compiled
def begin_frame(s, ram, prop):
    """Swap the buffers and count cycles from 0 again; line 0 is the one in which the last frame ended."""
    s[S_BUFFER] ^= 1
    cycles = s[S_CYCLES]
    now = cycles - s[S_ORIGIN]
    in_line = now % LINE_CYCLES
    s[S_SET] -= cycles
    s[S_INTR] -= cycles
    s[S_DUMP_STAMP] -= cycles
    if s[S_FINISH] != NEVER:
        s[S_FINISH] -= cycles
    s[S_HMOVE_CLOCK] = max(s[S_HMOVE_CLOCK] - 3 * (now - in_line), LONG_AGO)
    s[S_CYCLES] = 0
    s[S_ORIGIN] = -in_line
    s[S_START] = LINE_CLOCKS * prop[P_Y_START]
    s[S_END] = s[S_START] + LINE_CLOCKS * prop[P_HEIGHT]
    s[S_DRAWN] = s[S_LINE_START] = s[S_START]
    s[S_ROW] = s[S_TOUCH] = s[S_GREYED] = s[S_FROM] = s[S_SETTLED] = 0
    if prop[P_PAL]:
        s[S_LOSS] = s[S_LAST_LINES] & 1
        for k in range(S_COLUP0, S_COLUBK + 1):
            s[k] = (s[k] & COLOUR) | s[S_LOSS]


@compiled
def rebase(s):
    """Lower the cycle counter of a frame that never ends, so that it cannot overflow; all differences stay the same."""
    by = (s[S_CYCLES] - s[S_ORIGIN] - LATE) // (2 * LINE_CYCLES) * (2 * LINE_CYCLES)  # whole pairs of lines
    s[S_CYCLES] -= by
    s[S_SET] -= by
    s[S_INTR] -= by
    s[S_DUMP_STAMP] -= by
    s[S_HMOVE_CLOCK] = max(s[S_HMOVE_CLOCK] - 3 * by, LONG_AGO)
    if s[S_FINISH] != NEVER:
        s[S_FINISH] -= by


@compiled
def grey_out(s, prop, screen):
    """Darken the rows below the beam of a frame that did not finish."""
    first = max(s[S_LINES] - prop[P_Y_START], 0)
    buffer = s[S_BUFFER]
    for y in range(first, prop[P_HEIGHT]):
        for k in range(WORDS):
            w = screen[buffer, y, k]
            screen[buffer, y, k] = (w >> U1) & SEVENS


@compiled
def begin(s, ram, prop, draw):
    """A new frame, or more of an unfinished one."""
    if s[S_PARTIAL] == 0:
        begin_frame(s, ram, prop)
    elif s[S_CYCLES] - s[S_ORIGIN] > 2 * LATE:
        rebase(s)
    s[S_PARTIAL] = 1
    s[S_DRAW] = draw
    s[S_STOP] = 0
    s[S_LEFT] = MOST_INSTRUCTIONS


@unit
def frame_unit(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at, draw):
    """Run until VSYNC ends the frame. With `draw` = 0 no pixels are drawn; everything else is the same."""
    s, ram, prop, screen = as_state(s_at), as_ram(ram_at), as_state(prop_at), as_screen(screen_at)
    begin(s, ram, prop, draw)
    if s[S_DEAD] == 0:
        run(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at)
    replay_unit(s_at, prop_at, log_at, np.int64(3 * s[S_TOUCH]), screen_at)
    forget(s_at)
    s[S_LINES] = (s[S_CYCLES] - s[S_ORIGIN]) // LINE_CYCLES
    if s[S_PARTIAL]:
        if s[S_GREYED] == 0:
            s[S_GREYED] = 1
            grey_out(s, prop, screen)
    else:
        s[S_LAST_LINES] = s[S_LINES]
    return 0


@compiled
def frame(s, ram, rom, dec, prop, log, screen, draw):
    frame_unit(address(s), address(ram), address(rom), address(dec), address(prop), address(log), address(screen), draw)
