"""The 13-bit bus: which chip answers an address, and the latch that keeps the last byte seen.

These functions do everything that an access can do, at the pace of a function call. The fast loop of
``machine.py`` handles the frequent cases itself and comes here for the others.
"""

from __future__ import annotations

from numpy import int64

from .cartridge import cart_read, cart_write
from .layout import *
from .riot import riot_read, riot_write
from .target import device
from .tia import LOGGED, replay


@device
def paddle_read(s, number):
    need = s[S_POT0 + number]
    if need < 0:
        return 0x80 if need == -1 else 0
    if s[S_DUMP]:
        return 0
    # Compared as unsigned 32-bit: a dump that ended long ago (a negative sum) has not charged.
    return 0x80 if s[S_CYCLES] > ((s[S_DUMP_STAMP] + need) & 0xFFFFFFFF) else 0


@device
def tia_read(s, prop, log, screen, address):
    s[S_TOUCH] = s[S_CYCLES] - s[S_ORIGIN]
    port = address & 15
    if port < 8:
        replay(s, prop, log, 3 * s[S_TOUCH], screen)
        pair = s[S_COLLISION] >> (2 * port)
        if port == 6:  # CXBLPF has one latch
            return (pair & 1) << 7
        if port == 7:
            pair = s[S_COLLISION] >> 13
        return ((pair & 1) << 7) | ((pair & 2) << 5)
    if port < 12:
        return paddle_read(s, port - 8)
    if port == 12:
        return s[S_FIRE0]
    if port == 13:
        return s[S_FIRE1]
    return 0


@device
def tia_write(s, prop, log, screen, address, value):
    reg = address & 63
    now = s[S_CYCLES] - s[S_ORIGIN]
    s[S_TOUCH] = now
    if LOGGED[reg]:
        if s[S_LOGGED] == LOG_SIZE:
            replay(s, prop, log, int64(0), screen)
        log[s[S_LOGGED]] = (now << 16) | (reg << 8) | value
        s[S_LOGGED] += 1
    if now >= s[S_LIMIT]:
        s[S_STOP] = 1
        s[S_PARTIAL] = 0
    if reg == 0:
        if value & 2:
            s[S_FINISH] = s[S_CYCLES] + 76
        elif s[S_CYCLES] >= s[S_FINISH]:
            s[S_FINISH] = NEVER
            s[S_STOP] = 1
            s[S_PARTIAL] = 0
    elif reg == 1:
        if value & 0x80:
            s[S_DUMP] = 1
        elif s[S_DUMP]:
            s[S_DUMP] = 0
            s[S_DUMP_STAMP] = s[S_CYCLES]
    elif reg == 2:
        s[S_CYCLES] += 75 - (now + 75) % 76


@device
def read(s, ram, rom, prop, log, screen, address):
    if address & 0x1000:
        value = cart_read(s, ram, rom, prop, address)
    elif address & 0x80 == 0:
        value = tia_read(s, prop, log, screen, address) | (s[S_LATCH] & 0x3F)
    elif address & 0x200:
        value = riot_read(s, address)
    else:
        value = int64(ram[address & 0x7F])
    s[S_LATCH] = value
    return value


@device
def write(s, ram, prop, log, screen, address, value):
    if address & 0x1000:
        cart_write(s, ram, prop, address, value)
    elif address & 0x80 == 0:
        tia_write(s, prop, log, screen, address, value)
    elif address & 0x200:
        riot_write(s, address, value)
    else:
        ram[address & 0x7F] = value
    s[S_LATCH] = value
