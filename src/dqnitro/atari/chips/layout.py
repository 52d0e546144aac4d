"""The state of one console: which number is stored where.

A console is one row of each of these arrays (n consoles, all with the same game):

=========  =========================  =====================================================================
array      type and shape             content
=========  =========================  =====================================================================
``state``  int64[n, S_SIZE]           every register and clock of CPU, RIOT, TIA and cartridge (``S_...``)
``ram``    uint8[n, 256]              0..127 RIOT RAM, 128..255 cartridge RAM
``screen`` uint64[n, 2, ROWS, WORDS]  two frame buffers of palette codes, 8 pixels in a word (little endian)
=========  =========================  =====================================================================

All consoles of a game share ``rom`` uint8[], ``dec`` uint32[] (the predecoded program, see `chips/cpu_predecode.py`)
and
``prop`` int64[P_SIZE], the game's properties (``P_...``). Scratch memory of one thread: ``log`` int64[LOG_SIZE].
"""

from __future__ import annotations

# fmt: off
(
    # CPU
    S_A, S_X, S_Y, S_SP, S_PC, S_NZ, S_C, S_V, S_D, S_I, S_DEAD,
    # Cycles since the last frame start, bus latch, instructions left in this frame
    S_CYCLES, S_LATCH, S_LEFT,
    # RIOT: timer value, shift, cycle of the write, cycle of the first read after underflow, its flag, SWACNT
    S_TIMER, S_SHIFT, S_SET, S_INTR, S_READ_AFTER, S_SWACNT,
    # Controllers: SWCHA, SWCHB, INPT4, INPT5, cycles that each paddle input needs to charge
    S_SWCHA, S_SWCHB, S_FIRE0, S_FIRE1, S_POT0, S_POT1, S_POT2, S_POT3,
    # Cartridge: bank, three E0 slices, DPC random register, then 8 fetchers: top, bottom, counter, flag
    S_BANK, S_SLICE0, S_SLICE1, S_SLICE2, S_DPC_RANDOM, S_DPC_MUSIC,
    S_DPC_TOP, _1, _2, _3, _4, _5, _6, _7,
    S_DPC_BOTTOM, _9, _10, _11, _12, _13, _14, _15,
    S_DPC_COUNTER, _17, _18, _19, _20, _21, _22, _23,
    S_DPC_FLAG, _25, _26, _27, _28, _29, _30, _31,
    # Frame: cycle (<= 0) of the start of line 0, partial flag, cycle at which VSYNC may end, cycle of the last
    # TIA access, greyed-out flag, current buffer, lines of the last completed frame, lines of the last update,
    # stop the CPU, cycle since line 0 after which any TIA store ends the frame
    S_ORIGIN, S_PARTIAL, S_FINISH, S_TOUCH, S_GREYED, S_BUFFER, S_LAST_LINES, S_LINES, S_STOP, S_LIMIT,
    # Paddle dump: on, cycle of its end; entries waiting in the TIA log; draw pixels in this frame
    S_DUMP, S_DUMP_STAMP, S_LOGGED, S_DRAW,
    # TIA drawing: clock drawn up to, clock of the current line's start, row, window
    S_DRAWN, S_LINE_START, S_ROW, S_START, S_END,
    # TIA registers
    S_VBLANK, S_NUSIZ0, S_NUSIZ1, S_COLUP0, S_COLUP1, S_COLUPF, S_COLUBK, S_CTRLPF, S_REFLECT, S_PF,
    S_REFP0, S_REFP1, S_GRP0, S_GRP1, S_GRP0_OLD, S_GRP1_OLD, S_ENAM0, S_ENAM1, S_ENABL, S_ENABL_OLD,
    S_VDELP0, S_VDELP1, S_VDELBL, S_RESMP0, S_RESMP1,
    S_POS_P0, S_POS_P1, S_POS_M0, S_POS_M1, S_POS_BL,
    S_HM_P0, S_HM_P1, S_HM_M0, S_HM_M1, S_HM_BL,
    # Hidden TIA state: first copy of a player suppressed, HMOVE blank due, cosmic-ark bug (active, counter, how
    # missile 0 looks: 0 normal, 1 stretched, 2 hidden), clock of the last HMOVE, colour loss, collision latches
    S_SUPPRESS0, S_SUPPRESS1, S_BLANK, S_ARK, S_ARK_COUNT, S_ARK_LOOK, S_HMOVE_CLOCK, S_LOSS, S_COLLISION,
    # Derived by the TIA, kept so that nothing is computed twice: graphics in use (leftmost pixel in bit 0), objects
    # enabled, objects whose mask is out of date, pixels of the line already evaluated, whole line evaluated and
    # unchanged since, then the masks: three words for each of P0, M0, P1, M1, BL, PF
    S_SHAPE0, S_SHAPE1, S_PRESENT, S_DIRTY, S_FROM, S_SETTLED,
    S_MASK_P0, _41, _42, S_MASK_M0, _44, _45, S_MASK_P1, _47, _48,
    S_MASK_M1, _50, _51, S_MASK_BL, _53, _54, S_MASK_PF, _56, _57,
    # Controls: paddle positions, how far a paddle moves by the stored action and by the wanted one, the action stored
    # for sticky actions, frame numbers
    S_PADDLE0, S_PADDLE1, S_PADDLE_STEP, S_PADDLE_WANT, S_STICKY_A, S_EPISODE_FRAMES, S_TOTAL_FRAMES,
    S_SIZE,
) = range(161)

(
    P_CART, P_Y_START, P_HEIGHT, P_PAL, P_HMOVE_BLANKS, P_SWAP_PORTS, P_PADDLES, P_SWAP_PADDLES, P_RIGHT_PADDLES,
    P_DIFFICULTY_A, P_PADDLE_MAX, P_ALWAYS_DRAW,
    # Plain ROM window: cartridge offsets LOW <= a < HIGH are read without any side effect
    P_LOW, P_HIGH, P_PC_MASK,
    # The RAM byte that the game's rules read last
    P_LAST_READ,
    # On a GPU: the consoles of a warp run `cuda/cpu_warp.py` together, and `dec` is its table
    P_TOGETHER,
    # On a CPU: the address of the translated program's table (`translate/`), or 0
    P_PROGRAM,
    P_SIZE,
) = range(19)
# fmt: on

LOG_SIZE = 1024
LOG_PITCH = LOG_SIZE + 4  # on a GPU: from one console's log to the next, which shall not begin in the same cache lines
WORDS = 20  # 64-bit words in one row of 160 pixels
ROWS = 250  # rows of a frame buffer, whatever the height of the picture
NEVER = 1 << 30  # a cycle count that no frame reaches (`frame.rebase` sees to that)

# A line of the picture: CPU cycles, colour clocks (three a cycle), those of the blank at its start, those that show.
LINE_CYCLES, LINE_CLOCKS, BLANK_CLOCKS, PIXELS = 76, 228, 68, 160
LAST_CYCLE = LINE_CYCLES - 1

CART_2K, CART_4K, CART_F8, CART_F6, CART_E0, CART_FE, CART_F8SC, CART_F6SC, CART_DPC = range(9)
