# ruff: noqa: F403, F405
"""Cartridges: what an access to the upper half of the address space does, for each way of switching banks.

`S_BANK` is the offset of the current 4K bank in the image. A hot spot switches on reads and writes alike, and a
read returns the byte of the new bank. 2K images are stored twice, so they look like 4K ones.
"""

from __future__ import annotations

from numpy import int64

from ..jit.target import as_bytes, as_ram, as_state, compiled
from .layout import *

DPC_DISPLAY = 8192  # offset of the display data in a DPC image


@compiled
def switch(s_at, prop_at, a):
    """React to an access of cartridge offset a = address & 0xFFF."""
    s = as_state(s_at)
    prop = as_state(prop_at)
    cart = prop[P_CART]
    if cart == CART_F8 or cart == CART_F8SC or cart == CART_DPC:
        if a == 0xFF8 or a == 0xFF9:
            s[S_BANK] = (a - 0xFF8) << 12
    elif cart == CART_F6 or cart == CART_F6SC:
        if 0xFF6 <= a <= 0xFF9:
            s[S_BANK] = (a - 0xFF6) << 12
    elif cart == CART_E0 and 0xFE0 <= a <= 0xFF7:
        s[S_SLICE0 + ((a - 0xFE0) >> 3)] = (a & 7) << 10


@compiled
def dpc_clock(s_at):
    s = as_state(s_at)
    r = s[S_DPC_RANDOM]
    bit = (r >> 7) ^ (r >> 5) ^ (r >> 4) ^ (r >> 3) ^ 1
    s[S_DPC_RANDOM] = ((r << 1) | (bit & 1)) & 0xFF


@compiled
def dpc_read(s_at, rom_at, a):
    """A data fetcher's register. The music voices only reach the sound chip: they read as silence."""
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
    if function == 0:
        if i < 4:
            value = s[S_DPC_RANDOM]
    elif function == 1:
        value = int64(rom[DPC_DISPLAY + 2047 - counter])
    elif function == 2:
        value = int64(rom[DPC_DISPLAY + 2047 - counter]) & flag
    elif function == 7:
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
    if function == 0:
        s[S_DPC_TOP + i] = value
        s[S_DPC_FLAG + i] = 0
    elif function == 1:
        s[S_DPC_BOTTOM + i] = value
    elif function == 2:
        s[S_DPC_COUNTER + i] = (counter & 0x700) | (s[S_DPC_TOP + i] if music else value)
    elif function == 3:
        s[S_DPC_COUNTER + i] = (counter & 0xFF) | ((value & 7) << 8)
        if i >= 5:
            s[S_DPC_MUSIC] = (s[S_DPC_MUSIC] & ~(1 << i)) | (((value >> 4) & 1) << i)
    elif function == 6:
        s[S_DPC_RANDOM] = 1


@compiled
def cart_read(s_at, ram_at, rom_at, prop_at, address):
    s = as_state(s_at)
    ram = as_ram(ram_at)
    rom = as_bytes(rom_at)
    prop = as_state(prop_at)
    a = address & 0xFFF
    cart = prop[P_CART]
    if cart == CART_E0:
        switch(s_at, prop_at, a)
        segment = a >> 10
        base = 7 << 10 if segment == 3 else s[S_SLICE0 + segment]
        return int64(rom[base + (a & 0x3FF)])
    if cart == CART_FE:
        return int64(rom[(0 if address & 0x2000 else 0x1000) + a])
    if cart == CART_F8SC or cart == CART_F6SC:
        if 0x80 <= a < 0x100:
            return int64(ram[a])  # the read port's offsets are the array's
    elif cart == CART_DPC and (a < 0x80 or a >= 0xFC0):
        dpc_clock(s_at)
        if a < 0x40:
            return dpc_read(s_at, rom_at, a)
    switch(s_at, prop_at, a)
    return int64(rom[s[S_BANK] + a])


@compiled
def cart_write(s_at, ram_at, prop_at, address, value):
    ram = as_ram(ram_at)
    prop = as_state(prop_at)
    a = address & 0xFFF
    cart = prop[P_CART]
    if cart == CART_F8SC or cart == CART_F6SC:
        if a < 0x80:
            ram[0x80 + a] = value
    elif cart == CART_DPC:
        dpc_clock(s_at)
        if 0x40 <= a < 0x80:
            dpc_write(s_at, a, value)
    switch(s_at, prop_at, a)
