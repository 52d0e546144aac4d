# ruff: noqa: F403, F405
"""The 13-bit bus: which chip answers an address, and the latch that keeps the last byte seen.

These functions do everything that an access can do, at the cost of a function call. The interpreter of
`chips/cpu_fast.py` handles the frequent cases itself and calls them for the others.
"""

from __future__ import annotations

from numpy import int64

from ..jit.target import as_log, as_ram, as_state, compiled, wide
from .cartridge import cart_read, cart_write
from .layout import *
from .memory_map import A7, A9, A12
from .riot import riot_read, riot_write
from .tia import LOGGED, log_entry, replay_unit
from .tia_registers import (
    CXBLPF,
    CXPPMM,
    INPT0,
    INPT4,
    INPT5,
    READ_LINES,
    VBLANK,
    VBLANK_DUMP,
    VSYNC,
    VSYNC_ON,
    WRITE_LINES,
    WSYNC,
)


@wide
def input_read(s_at, port, cycles):
    """INPT0..INPT3: has a paddle's capacitor charged? INPT4, INPT5: the fire buttons."""
    s = as_state(s_at)
    if port >= INPT4:
        return s[S_FIRE0 + port - INPT4]
    need = s[S_POT0 + port - INPT0]
    if need < 0:
        return int64(0x80 if need == -1 else 0)
    if s[S_DUMP]:
        return int64(0)
    # Compared as unsigned 32-bit: a dump that ended long ago (a negative sum) has not charged.
    return int64(0x80 if cycles > ((s[S_DUMP_STAMP] + need) & 0xFFFFFFFF) else 0)


# Addresses instead of arrays from here on (see `address` in `jit/target.py`): an array is seven arguments, an address
# one.


@compiled
def collision_read(s_at, port):
    """CXM0P..CXPPMM: two latches each, in bits 7 and 6. The TIA must be up to date."""
    s = as_state(s_at)
    pair = s[S_COLLISION] >> (2 * port)
    if port == CXBLPF:  # has one latch
        return (pair & 1) << 7
    if port == CXPPMM:
        pair = s[S_COLLISION] >> 13
    return ((pair & 1) << 7) | ((pair & 2) << 5)


@compiled
def tia_read(s_at, prop_at, log_at, screen_at, port):
    s = as_state(s_at)
    s[S_TOUCH] = s[S_CYCLES] - s[S_ORIGIN]
    if port < INPT0:
        replay_unit(s_at, prop_at, log_at, int64(3 * s[S_TOUCH]), screen_at)
        return collision_read(s_at, port)
    if port > INPT5:
        return int64(0)
    return input_read(s_at, port, s[S_CYCLES])


@compiled
def sync_write(s_at, reg, value):
    """VSYNC and VBLANK, apart from what they do to the picture: the end of a frame, the paddles' capacitors."""
    s = as_state(s_at)
    if reg == VSYNC:
        if value & VSYNC_ON:
            s[S_FINISH] = s[S_CYCLES] + LINE_CYCLES
        elif s[S_CYCLES] >= s[S_FINISH]:
            s[S_FINISH] = NEVER
            s[S_STOP] = 1
            s[S_PARTIAL] = 0
    elif value & VBLANK_DUMP:
        s[S_DUMP] = 1
    elif s[S_DUMP]:
        s[S_DUMP] = 0
        s[S_DUMP_STAMP] = s[S_CYCLES]


@compiled
def tia_write(s_at, prop_at, log_at, screen_at, address, value):
    s, log = as_state(s_at), as_log(log_at)
    reg = address & WRITE_LINES
    now = s[S_CYCLES] - s[S_ORIGIN]
    s[S_TOUCH] = now
    if LOGGED[reg]:
        if s[S_LOGGED] == LOG_SIZE:
            replay_unit(s_at, prop_at, log_at, int64(0), screen_at)
        log[s[S_LOGGED]] = log_entry(now, reg, value)
        s[S_LOGGED] += 1
    if now >= s[S_LIMIT]:
        s[S_STOP] = 1
        s[S_PARTIAL] = 0
    if reg <= VBLANK:
        sync_write(s_at, reg, value)
    elif reg == WSYNC:
        s[S_CYCLES] += LAST_CYCLE - (now + LAST_CYCLE) % LINE_CYCLES


@compiled
def read(s_at, ram_at, rom_at, prop_at, log_at, screen_at, address):
    s = as_state(s_at)
    if address & A12:
        value = cart_read(s_at, ram_at, rom_at, prop_at, address)
    elif address & A7 == 0:
        value = tia_read(s_at, prop_at, log_at, screen_at, address & READ_LINES) | (s[S_LATCH] & 0x3F)
    elif address & A9:
        value = riot_read(s_at, address)
    else:
        value = int64(as_ram(ram_at)[address & 0x7F])
    s[S_LATCH] = value
    return value


@compiled
def write(s_at, ram_at, prop_at, log_at, screen_at, address, value):
    s = as_state(s_at)
    if address & A12:
        cart_write(s_at, ram_at, prop_at, address, value)
    elif address & A7 == 0:
        tia_write(s_at, prop_at, log_at, screen_at, address, value)
    elif address & A9:
        riot_write(s_at, address, value)
    else:
        as_ram(ram_at)[address & 0x7F] = value
    s[S_LATCH] = value
