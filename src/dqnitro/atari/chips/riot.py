# ruff: noqa: F403, F405
"""The RIOT (6532): 128 bytes of RAM, the timer, the two input ports."""

from __future__ import annotations

from ..jit.target import as_state, compiled
from .layout import *
from .memory_map import A0, A2
from .riot_registers import RIOT_LINES, RIOT_WRITE_LINES, SWACNT, SWCHA, SWCHB, T1024T, TIM1T, TIMER_RAN_OUT


@compiled
def signed32(value):
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


@compiled
def elapsed(s_at):
    """Cycles since the timer was written, as the 32-bit counter sees them."""
    s = as_state(s_at)
    return (s[S_CYCLES] - 1 - s[S_SET]) & 0xFFFFFFFF


@compiled
def timer_read(s_at):
    """INTIM. After the underflow the timer counts single cycles until it is read."""
    s = as_state(s_at)
    d = elapsed(s_at)
    timer, shift = s[S_TIMER], s[S_SHIFT]
    t = signed32(timer - (d >> shift) - 1)
    if t >= 0:
        return t & 0xFF
    u = signed32((timer << shift) - d - 1)
    if u <= -2 and s[S_READ_AFTER] == 0:
        s[S_READ_AFTER] = 1
        s[S_INTR] = s[S_CYCLES]
    if s[S_READ_AFTER]:
        return (timer - (d >> shift) - (s[S_INTR] - (s[S_SET] + (timer << shift)))) & 0xFF
    return u & 0xFF


@compiled
def riot_read(s_at, address):
    s = as_state(s_at)
    reg = address & RIOT_LINES
    if reg & A2:  # INTIM, or with A0 set TIMINT; A1 does not matter
        if reg & A0 == 0:
            return timer_read(s_at)
        if signed32(s[S_TIMER] - (elapsed(s_at) >> s[S_SHIFT]) - 1) >= 0 or s[S_READ_AFTER]:
            return 0
        return TIMER_RAN_OUT
    if reg == SWCHA:
        return s[S_SWCHA]
    if reg == SWACNT:
        return s[S_SWACNT]
    if reg == SWCHB:
        return s[S_SWCHB]
    return 0


@compiled
def riot_write(s_at, address, value):
    s = as_state(s_at)
    reg = address & RIOT_WRITE_LINES
    if reg >= TIM1T:  # steps of 1, 8, 64 or 1024 cycles
        s[S_TIMER] = value
        s[S_SHIFT] = 10 if reg == T1024T else 3 * (reg - TIM1T)
        s[S_SET] = s[S_CYCLES]
        s[S_READ_AFTER] = 0
    elif address & RIOT_LINES == SWACNT:
        s[S_SWACNT] = value
