"""Games as machine code: a ROM is a fixed program, so it is translated once instead of being interpreted for ever.

What is translated. `trace.py` plays a few seconds and notes where indirect jumps lead; `discover.py` follows the code
from there, over all banks and kinds of cartridges; `translator.py` writes one LLVM function of all blocks, and
`program.py` compiles it, keeps it in a file and hands its address to consoles (`P_PROGRAM`). Its source are the words
of `chips/cpu_predecode.py`, so the translation decides nothing that the interpreter decides otherwise: operands, chip
selects, cycles and the bank are folded in, branches and calls are direct jumps, and RTS, RTI and JMP () go through a
table of entries.

The translator is built in layers, each a class that adds to those below it:

    translator.py                                   blocks and the whole function
    loads_and_stores.py   branches_and_stack.py     one method for each family of instructions (`handlers.py`)
    tia_and_riot.py                                 registers of the chips, the log, the timer
    arithmetic.py                                   operations and flags
    addressing.py                                   RAM, ROM, addressing modes
    control_flow.py                                 jumps, entries, bailing out, cycles
    writer.py, functions.py                         LLVM IR as text; functions that programs call

How it fits in. A program works on the interpreter's state, RAM and TIA log. Its registers live in the machine's own
while it runs, and they are the interpreter's before every instruction that it leaves to others. `chips/cpu_run.py`
calls it, once for a frame as a rule, and goes on whenever it returns:

* `STEP`: the instruction at PC is one that the program does not know: the end of VSYNC, a hot spot, an undocumented
  opcode, code in RAM, a pointer to nowhere in particular, a jump to what was never found. The reference executes it and
  those that follow, until PC is an entry of the program again;
* `REST`: the block at PC might pass the limit of instructions or of a frame's cycles, which stop the interpreter in the
  middle of a block. The interpreter plays the rest of the frame.

So a program may lack anything and is still exact: what it lacks costs time. A block checks three things when it begins,
not with every instruction: instructions left, cycles left, room in the log. Entries are few (returns, targets of
pointers, what follows an unknown instruction, loops over lines), because the compiler must keep all registers alive at
each.

On a GPU the same translator writes for another memory (`writer.ON_CUDA`); `cuda/program.py` has what is different.

When. Translating takes seconds of one core, so a game is translated when an environment has played it for a while, in a
process of its own; consoles notice at the border of two frames. A translated game is loaded from its file at once.

The interpreter is the reference implementation: `tests/atari/translate/test_translate.py` compares every number of the
state after every frame.
"""
