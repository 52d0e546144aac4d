"""The 256 opcodes of the 6507: operation, addressing mode, base cycles."""

from __future__ import annotations

import numpy as np

# Addressing modes.
IMP, IMM, ZP, ZPX, ZPY, ABS, ABX, ABY, IZX, IZY, REL, IND = range(12)
# Bytes of an instruction by mode.
LENGTH = np.array([1, 2, 2, 2, 2, 3, 3, 3, 2, 2, 2, 3], np.int64)

_NAMES = (
    # Operations that read their operand (and pay for a crossed page)
    "LDA LDX LDY ORA AND EOR ADC SBC CMP CPX CPY BIT NOP LAX LAS ANC ASR ARR ANE LXA SBX "
    # that only write
    "STA STX STY SAX SHA SHX SHY SHS "
    # that read and write
    "ASL LSR ROL ROR INC DEC SLO RLA SRE RRA DCP ISB "
    # on the accumulator
    "ASLA LSRA ROLA RORA "
    # without an operand in memory
    "TAX TXA TAY TYA TSX TXS INX DEX INY DEY CLC SEC CLI SEI CLV CLD SED "
    "PHA PLA PHP PLP BPL BMI BVC BVS BCC BCS BNE BEQ JMP JSR RTS RTI BRK JAM"
).split()
OPERATION = {name: number for number, name in enumerate(_NAMES)}
FIRST_STORE, FIRST_CHANGE, FIRST_REGISTER = OPERATION["STA"], OPERATION["ASL"], OPERATION["ASLA"]

# How the table below writes a mode: "#" is a value in the program, "z" and "a" a short and a long address, "r" a
# branch.
_MODE_NAMES = {
    "": IMP, "#": IMM, "z": ZP, "zx": ZPX, "zy": ZPY, "a": ABS, "ax": ABX, "ay": ABY, "ix": IZX, "iy": IZY,
    "r": REL, "(a)": IND,
}  # fmt: skip

# One line per high nibble, columns 0..F; the mode follows the operation after a dot.
_TABLE = """
BRK    ORA.ix JAM   SLO.ix NOP.z  ORA.z  ASL.z  SLO.z  PHP ORA.#  ASLA ANC.#  NOP.a   ORA.a  ASL.a  SLO.a
BPL.r  ORA.iy JAM   SLO.iy NOP.zx ORA.zx ASL.zx SLO.zx CLC ORA.ay NOP  SLO.ay NOP.ax  ORA.ax ASL.ax SLO.ax
JSR.a  AND.ix JAM   RLA.ix BIT.z  AND.z  ROL.z  RLA.z  PLP AND.#  ROLA ANC.#  BIT.a   AND.a  ROL.a  RLA.a
BMI.r  AND.iy JAM   RLA.iy NOP.zx AND.zx ROL.zx RLA.zx SEC AND.ay NOP  RLA.ay NOP.ax  AND.ax ROL.ax RLA.ax
RTI    EOR.ix JAM   SRE.ix NOP.z  EOR.z  LSR.z  SRE.z  PHA EOR.#  LSRA ASR.#  JMP.a   EOR.a  LSR.a  SRE.a
BVC.r  EOR.iy JAM   SRE.iy NOP.zx EOR.zx LSR.zx SRE.zx CLI EOR.ay NOP  SRE.ay NOP.ax  EOR.ax LSR.ax SRE.ax
RTS    ADC.ix JAM   RRA.ix NOP.z  ADC.z  ROR.z  RRA.z  PLA ADC.#  RORA ARR.#  JMP.(a) ADC.a  ROR.a  RRA.a
BVS.r  ADC.iy JAM   RRA.iy NOP.zx ADC.zx ROR.zx RRA.zx SEI ADC.ay NOP  RRA.ay NOP.ax  ADC.ax ROR.ax RRA.ax
NOP.#  STA.ix NOP.# SAX.ix STY.z  STA.z  STX.z  SAX.z  DEY NOP.#  TXA  ANE.#  STY.a   STA.a  STX.a  SAX.a
BCC.r  STA.iy JAM   SHA.iy STY.zx STA.zx STX.zy SAX.zy TYA STA.ay TXS  SHS.ay SHY.ax  STA.ax SHX.ay SHA.ay
LDY.#  LDA.ix LDX.# LAX.ix LDY.z  LDA.z  LDX.z  LAX.z  TAY LDA.#  TAX  LXA.#  LDY.a   LDA.a  LDX.a  LAX.a
BCS.r  LDA.iy JAM   LAX.iy LDY.zx LDA.zx LDX.zy LAX.zy CLV LDA.ay TSX  LAS.ay LDY.ax  LDA.ax LDX.ay LAX.ay
CPY.#  CMP.ix NOP.# DCP.ix CPY.z  CMP.z  DEC.z  DCP.z  INY CMP.#  DEX  SBX.#  CPY.a   CMP.a  DEC.a  DCP.a
BNE.r  CMP.iy JAM   DCP.iy NOP.zx CMP.zx DEC.zx DCP.zx CLD CMP.ay NOP  DCP.ay NOP.ax  CMP.ax DEC.ax DCP.ax
CPX.#  SBC.ix NOP.# ISB.ix CPX.z  SBC.z  INC.z  ISB.z  INX SBC.#  NOP  SBC.#  CPX.a   SBC.a  INC.a  ISB.a
BEQ.r  SBC.iy JAM   ISB.iy NOP.zx SBC.zx INC.zx ISB.zx SED SBC.ay NOP  ISB.ay NOP.ax  SBC.ax INC.ax ISB.ax
"""

_CYCLES = """
7628335532224466 2528446624274477 6628335542224466 2528446624274477
6628335532223466 2528446624274477 6628335542225466 2528446624274477
2626333322224444 2626444425255555 2626333422224444 2525444424244444
2628335522224466 2528446624274477 2628335522224466 2528446624274477
"""

_cells = [cell.partition(".") for cell in _TABLE.split()]
OP = np.array([OPERATION[name] for name, _, _ in _cells], np.int64)
MODE = np.array([_MODE_NAMES[mode] for _, _, mode in _cells], np.int64)
CYCLES = np.array([int(digit) for digit in "".join(_CYCLES.split())], np.int64)
NAMES = tuple(name for name, _, _ in _cells)  # by opcode, for tests and messages


(
    LDA, LDX, LDY, ORA, AND, EOR, ADC, SBC, CMP, CPX, CPY, BIT, NOP, LAX, LAS, ANC, ASR, ARR, ANE, LXA, SBX,
    STA, STX, STY, SAX, SHA, SHX, SHY, SHS,
    ASL, LSR, ROL, ROR, INC, DEC, SLO, RLA, SRE, RRA, DCP, ISB,
    ASLA, LSRA, ROLA, RORA,
    TAX, TXA, TAY, TYA, TSX, TXS, INX, DEX, INY, DEY, CLC, SEC, CLI, SEI, CLV, CLD, SED,
    PHA, PLA, PHP, PLP, BPL, BMI, BVC, BVS, BCC, BCS, BNE, BEQ, JMP, JSR, RTS, RTI, BRK, JAM,
) = range(80)  # fmt: skip
# Opcodes that the predecoders look for.
BPL_OPCODE, JSR_OPCODE, JMP_OPCODE, PLA_OPCODE, JMP_INDIRECT_OPCODE, BNE_OPCODE, NOP_OPCODE = (
    0x10, 0x20, 0x4C, 0x68, 0x6C, 0xD0, 0xEA,
)  # fmt: skip
# N and Z live in one number `nz`: N is set when one of these bits is, Z when the low byte is 0. An instruction's result
# is such a number as it is; BIT and PLP, which can set both flags, use bit 8.
N_BITS = 0x180
ALWAYS_PUSHED = 0x30  # bits 4 and 5 of the status byte (B and the unused one) are set when it is pushed

assert len(_NAMES) == 80 and OPERATION["JAM"] == JAM and OPERATION["RORA"] == RORA
assert len(_cells) == len(CYCLES) == 256
