"""The RIOT's registers (6532), by the names that every Atari 2600 programmer knows.

A number is what the chip sees of an address: three lines in a read, four (A4 as well) in a write. Programs say 0x280 +
number.
"""

from __future__ import annotations

RIOT_LINES = 0x07  # address lines that choose a register
RIOT_WRITE_LINES = 0x17  # and those that tell a timer from the ports in a write

SWCHA = 0x00  # joysticks (paddles: their fire buttons)
SWACNT = 0x01  # which lines of SWCHA are outputs
SWCHB = 0x02  # console switches
SWBCNT = 0x03
INTIM = 0x04  # the timer
TIMINT = 0x05  # has it run out?
TIM1T = 0x14  # start the timer: one step every cycle
TIM8T = 0x15  # every 8 cycles
TIM64T = 0x16  # every 64
T1024T = 0x17  # every 1024

TIMER_RAN_OUT = 0x80  # the bit of TIMINT
