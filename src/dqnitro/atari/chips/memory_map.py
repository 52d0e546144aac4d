"""Which chip answers an address, and which offsets of a cartridge do more than hold a byte.

The 6507 has 13 address lines, and three of them choose the chip:

====  ====  ====  ==========================================
A12   A9    A7    answers
====  ====  ====  ==========================================
1     any   any   the cartridge (4K at a time)
0     any   0     the TIA (`chips/tia_registers.py`)
0     0     1     128 bytes of RAM in the RIOT; the stack, too
0     1     1     the RIOT's ports and timer (`chips/riot_registers.py`)
====  ====  ====  ==========================================
"""

from __future__ import annotations

A0, A2, A7, A9, A12 = 0x01, 0x04, 0x80, 0x200, 0x1000
A13 = 0x2000  # has no pin, but ale-py's FE cartridges look at it: programs say D000 and F000

TIA_LINES = A12 | A7  # address & TIA_LINES == 0: the TIA
RAM_LINES = A12 | A9 | A7  # address & RAM_LINES == A7: RAM
BANK_OFFSET = 0xFFF  # of an address: its offset in the bank of a cartridge
SLICE_OFFSET = 0x3FF  # in a slice of an E0 cartridge

STACK = 0x100  # the page of the stack, where RAM shows once more
RESET_VECTOR, BREAK_VECTOR = 0xFFFC, 0xFFFE

# ---- cartridges: hot spots switch banks when they are read or written
BANK_SIZE, SLICE_SIZE = 0x1000, 0x400
F8_BANK0, F8_BANK1 = 0xFF8, 0xFF9
F6_BANK0, F6_BANK3 = 0xFF6, 0xFF9
E0_FIRST, E0_LAST = 0xFE0, 0xFF7  # eight for each of the three slices that can be switched
E0_FIXED = 7 << 10  # the fourth slice always shows the last kilobyte of the image
SC_READ, SC_END = 0x80, 0x100  # 128 bytes of RAM: written at 0x00..0x7F, read at 0x80..0xFF
DPC_WRITTEN, DPC_END, DPC_LATE = 0x40, 0x80, 0xFC0  # data fetchers: read at 0x00..0x3F, written at 0x40..0x7F
