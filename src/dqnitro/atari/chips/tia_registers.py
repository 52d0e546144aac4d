"""The TIA's registers, by the names that every Atari 2600 programmer knows, and the bits that mean something in them.

Plain numbers: Numba freezes them into the compiled code, so a name costs nothing. The TIA looks at few address lines,
which is why its registers repeat all over the lower half of the address space.
"""

from __future__ import annotations

WRITE_LINES = 0x3F  # address lines that choose a register in a write
READ_LINES = 0x0F  # and in a read

# ---- written
VSYNC = 0x00  # vertical sync, on or off: the end of it ends a frame
VBLANK = 0x01  # vertical blank, and the paddles' capacitors
WSYNC = 0x02  # halt the CPU until the line ends
RSYNC = 0x03  # restart the line; nothing here depends on it
NUSIZ0 = 0x04  # number and size of player 0 and missile 0
NUSIZ1 = 0x05
COLUP0 = 0x06  # colour of player 0 and missile 0
COLUP1 = 0x07
COLUPF = 0x08  # of playfield and ball
COLUBK = 0x09  # of the background
CTRLPF = 0x0A  # playfield: mirrored, score colours, priority; size of the ball
REFP0 = 0x0B  # mirror player 0
REFP1 = 0x0C
PF0 = 0x0D  # the playfield's 20 bits: 4, 8, 8
PF1 = 0x0E
PF2 = 0x0F
RESP0 = 0x10  # put player 0 where the beam is
RESP1 = 0x11
RESM0 = 0x12  # put missile 0 there
RESM1 = 0x13
RESBL = 0x14  # put the ball there
AUDC0 = 0x15  # sound, which nothing here listens to
AUDC1 = 0x16
AUDF0 = 0x17
AUDF1 = 0x18
AUDV0 = 0x19
AUDV1 = 0x1A
GRP0 = 0x1B  # graphics of player 0; also passes GRP1 on to its delayed copy
GRP1 = 0x1C  # graphics of player 1; also passes GRP0 and ENABL on
ENAM0 = 0x1D  # show missile 0
ENAM1 = 0x1E
ENABL = 0x1F  # show the ball
HMP0 = 0x20  # horizontal motion, in the upper four bits
HMP1 = 0x21
HMM0 = 0x22
HMM1 = 0x23
HMBL = 0x24
VDELP0 = 0x25  # show the delayed copy of GRP0
VDELP1 = 0x26
VDELBL = 0x27  # show the delayed copy of ENABL
RESMP0 = 0x28  # lock missile 0 to the middle of player 0
RESMP1 = 0x29
HMOVE = 0x2A  # move the objects by their HMxx
HMCLR = 0x2B  # clear all HMxx
CXCLR = 0x2C  # clear the collision latches

# ---- read
CXM0P = 0x00  # collisions: missile 0 with player 1 (bit 7), with player 0 (bit 6)
CXM1P = 0x01  # missile 1 with player 0, player 1
CXP0FB = 0x02  # player 0 with playfield, ball
CXP1FB = 0x03
CXM0FB = 0x04  # missile 0 with playfield, ball
CXM1FB = 0x05
CXBLPF = 0x06  # ball with playfield; bit 6 has no latch
CXPPMM = 0x07  # player with player, missile with missile
INPT0 = 0x08  # paddles: has the capacitor charged?
INPT1 = 0x09
INPT2 = 0x0A
INPT3 = 0x0B
INPT4 = 0x0C  # fire buttons of the joysticks
INPT5 = 0x0D

# ---- bits
VSYNC_ON = 0x02
VBLANK_ON = 0x02
VBLANK_DUMP = 0x80  # discharge the paddles' capacitors
COPIES = 0x07  # of NUSIZx: copies of a player and its missile, or one of the two sizes below
DOUBLE_SIZE, QUADRUPLE_SIZE = 5, 7
COLOUR = 0xFE  # bit 0 of a colour is not wired
MIRRORED_FIELD, SCORE_COLOURS, FIELD_FIRST = 0x01, 0x02, 0x04  # of CTRLPF
MIRRORED = 0x08  # of REFPx
ENABLED = 0x02  # of ENAMx and ENABL
DELAYED = 0x01  # of VDELxx
LOCKED = 0x02  # of RESMPx
