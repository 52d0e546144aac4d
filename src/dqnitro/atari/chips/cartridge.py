# ruff: noqa: F403, F405
"""Cartridges: what an access to the upper half of the address space does, for each way of switching banks.

`S_BANK` is the offset of the current 4K bank in the image. Reads and writes of a hot spot (`chips/memory_map.py`) both
switch banks, and a read returns the byte of the new bank. 2K images are stored twice, so they look like 4K ones.
"""

from __future__ import annotations

from numpy import int64

from ..jit.target import as_bytes, as_ram, as_state, compiled
from .layout import *
from .memory_map import (
    A13,
    BANK_OFFSET,
    BANK_SIZE,
    DPC_END,
    DPC_LATE,
    DPC_WRITTEN,
    E0_FIRST,
    E0_FIXED,
    E0_LAST,
    F6_BANK0,
    F6_BANK3,
    F8_BANK0,
    F8_BANK1,
    SC_END,
    SC_READ,
    SLICE_OFFSET,
)

DPC_DISPLAY = 8192  # offset of the display data in a DPC image
# The DPC's functions, in bits 3..5 of an offset; bits 0..2 choose one of eight data fetchers.
READ_RANDOM, READ_DISPLAY, READ_MASKED, READ_FLAG = 0, 1, 2, 7
SET_TOP, SET_BOTTOM, SET_LOW, SET_HIGH, RESET_RANDOM = 0, 1, 2, 3, 6


@compiled
def switch(s_at, prop_at, a):
    """React to an access of offset `a` of the current bank: switch banks, or a slice, if it is a hot spot."""
    s = as_state(s_at)
    prop = as_state(prop_at)
    cart = prop[P_CART]
    if cart == CART_F8 or cart == CART_F8SC or cart == CART_DPC:
        if a == F8_BANK0 or a == F8_BANK1:
            s[S_BANK] = (a - F8_BANK0) << 12
    elif cart == CART_F6 or cart == CART_F6SC:
        if F6_BANK0 <= a <= F6_BANK3:
            s[S_BANK] = (a - F6_BANK0) << 12
    elif cart == CART_E0 and E0_FIRST <= a <= E0_LAST:
        s[S_SLICE0 + ((a - E0_FIRST) >> 3)] = (a & 7) << 10


@compiled
def dpc_clock(s_at):
    """One step of the random generator, a shift register."""
    s = as_state(s_at)
    r = s[S_DPC_RANDOM]
    bit = (r >> 7) ^ (r >> 5) ^ (r >> 4) ^ (r >> 3) ^ 1
    s[S_DPC_RANDOM] = ((r << 1) | (bit & 1)) & 0xFF


@compiled
def dpc_read(s_at, rom_at, a):
    """Read a data fetcher's register. The music voices only reach the sound chip, so they read as silence."""
    s = as_state(s_at)
    rom = as_bytes(rom_at)
    i = a & 7
    function = (a >> 3) & 7
    counter = s[S_DPC_COUNTER + i]
    if counter & 0xFF == s[S_DPC_TOP + i]:
        s[S_DPC_FLAG + i] = 0xFF
    elif counter & 0xFF == s[S_DPC_BOTTOM + i]:
        s[S_DPC_FLAG + i] = 0
    flag = s[S_DPC_FLAG + i]
    value = 0
    if function == READ_RANDOM:
        if i < 4:
            value = s[S_DPC_RANDOM]
    elif function == READ_DISPLAY:
        value = int64(rom[DPC_DISPLAY + 2047 - counter])
    elif function == READ_MASKED:
        value = int64(rom[DPC_DISPLAY + 2047 - counter]) & flag
    elif function == READ_FLAG:
        value = flag
    if not (s[S_DPC_MUSIC] >> i) & 1:
        s[S_DPC_COUNTER + i] = (counter - 1) & 0x7FF
    return value


@compiled
def dpc_write(s_at, a, value):
    s = as_state(s_at)
    i = a & 7
    function = (a >> 3) & 7
    music = (s[S_DPC_MUSIC] >> i) & 1
    counter = s[S_DPC_COUNTER + i]
    if function == SET_TOP:
        s[S_DPC_TOP + i] = value
        s[S_DPC_FLAG + i] = 0
    elif function == SET_BOTTOM:
        s[S_DPC_BOTTOM + i] = value
    elif function == SET_LOW:
        s[S_DPC_COUNTER + i] = (counter & 0x700) | (s[S_DPC_TOP + i] if music else value)
    elif function == SET_HIGH:
        s[S_DPC_COUNTER + i] = (counter & 0xFF) | ((value & 7) << 8)
        if i >= 5:
            s[S_DPC_MUSIC] = (s[S_DPC_MUSIC] & ~(1 << i)) | (((value >> 4) & 1) << i)
    elif function == RESET_RANDOM:
        s[S_DPC_RANDOM] = 1


@compiled
def cart_read(s_at, ram_at, rom_at, prop_at, address):
    s = as_state(s_at)
    ram = as_ram(ram_at)
    rom = as_bytes(rom_at)
    prop = as_state(prop_at)
    a = address & BANK_OFFSET
    cart = prop[P_CART]
    if cart == CART_E0:
        switch(s_at, prop_at, a)
        segment = a >> 10
        base = E0_FIXED if segment == 3 else s[S_SLICE0 + segment]
        return int64(rom[base + (a & SLICE_OFFSET)])
    if cart == CART_FE:
        return int64(rom[(0 if address & A13 else BANK_SIZE) + a])
    if cart == CART_F8SC or cart == CART_F6SC:
        if SC_READ <= a < SC_END:
            return int64(ram[a])  # the array has it at the same offsets
    elif cart == CART_DPC and (a < DPC_END or a >= DPC_LATE):
        dpc_clock(s_at)
        if a < DPC_WRITTEN:
            return dpc_read(s_at, rom_at, a)
    switch(s_at, prop_at, a)
    return int64(rom[s[S_BANK] + a])


@compiled
def cart_write(s_at, ram_at, prop_at, address, value):
    ram = as_ram(ram_at)
    prop = as_state(prop_at)
    a = address & BANK_OFFSET
    cart = prop[P_CART]
    if cart == CART_F8SC or cart == CART_F6SC:
        if a < SC_READ:
            ram[SC_READ + a] = value
    elif cart == CART_DPC:
        dpc_clock(s_at)
        if DPC_WRITTEN <= a < DPC_END:
            dpc_write(s_at, a, value)
    switch(s_at, prop_at, a)
