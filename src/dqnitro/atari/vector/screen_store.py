"""Compressed screens, for games whose frames may stay unfinished across steps.

In a few games a frame may be left unfinished and go on later, over what an older one left, so a console's two screens
must outlast a batch: 67 KB. Such a console keeps nothing that can be worked out:

* equal rows are kept once. Most rows of a screen are equal to the one above or to the same row of the other screen, so
  a console has a few hundred bytes that tell *where* each row is, and the distinct rows. Before a step they are copied
  to the thread's screens, and after it those are packed again;
* the grey picture of the last step comes from the screens it was made of, at the rare moment it is needed. While a step
  is played on the thread's screens, the console's own rows are still those of before;
* only a frame that was shown unfinished and then went on in the same buffer is in neither of the two. It is kept as a
  third screen, which has nearly all rows in common with the frame that it became;
* the generators that are drawn from at the start of a game only are a seed and a number of draws.

There is room for three screens without two equal rows, but it is only reserved: memory that was never touched costs
nothing. Each console has its own, so threads share nothing here.
"""

from __future__ import annotations

import numpy as np
from numpy import int16, int64, uint64

from ..chips.rng import mt_drawn, mt_restore
from ..games.environment import SYSTEM_SEED
from ..jit.target import compiled
from ..observation.resize_plan import WIDTH

# What a console remembers: the screens of the last picture (`K_OTHER` may be `SPARE`, the third one), how many rows are
# in use, draws of the console's generator, seed and draws of the one for no-ops.
K_NOW, K_OTHER, K_ROWS, K_MACHINE_DRAWS, K_NOOP_SEED, K_NOOP_DRAWS, K_SIZE = range(7)
SPARE = 2
SCREENS = 3
ROWS_IN_PAGES = 128  # rows of 160 bytes that fill whole pages of 4 KB: consoles then share none


def room(height: int) -> int:
    """Rows to reserve for a console: of three screens, and one more, because `pack` writes before it decides."""
    return -(-(SCREENS * height + 1) // ROWS_IN_PAGES) * ROWS_IN_PAGES


@compiled
def pack(screens, kept, where, rows):
    """Keep the thread's screens, the third one only if the picture was made of it.

    No branch depends on what a row holds, because it could not be predicted: a row is always written where the next new
    one belongs, and stays if it is new. That takes little more than a plain copy.
    """
    n = int64(0)
    for c in range(SCREENS if kept[K_OTHER] == SPARE else 2):
        of = kept[K_NOW] if c == SPARE else int64(0)
        screen, base, last = screens[c], screens[of], int64(0)
        for y in range(where.shape[1]):
            here, above, there, to = screen[y], screen[max(y - 1, 0)], base[y], rows[n]
            new, other = uint64(y == 0), uint64(c == 0)
            for k in range(screen.shape[1]):  # no constant length, so it becomes vector code
                new |= here[k] ^ above[k]
                other |= here[k] ^ there[k]
            for k in range(screen.shape[1]):
                to[k] = here[k]
            first = (new != 0) & (other != 0)
            last = n if first else int64(where[of, y]) if other == 0 else last
            where[c, y] = int16(last)
            n += int64(first)
    kept[K_ROWS] = n


@compiled
def unpack(where, rows, screen):
    """The two screens of a console, as they were packed."""
    for c in range(2):
        to = screen[c]
        for y in range(where.shape[1]):
            here, there = to[y], rows[where[c, y]]
            for k in range(to.shape[1]):
                here[k] = there[k]


@compiled
def recall(kept, where, rows, luts, raw, source, channels):
    """The picture of the last step, from the screens that it was made of."""
    codes = rows.view(np.uint8)
    for y in range(where.shape[1]):
        a, b = codes[where[kept[K_NOW], y]], codes[where[kept[K_OTHER], y]]
        for c in range(channels):
            for x in range(WIDTH):
                raw[c, y, x] = max(luts[c, a[x]], luts[c, b[x]])
        source[y] = y


@compiled
def take_generators(kept, seed, machine, noops):
    """Before a new game; a seed starts both again."""
    if seed >= 0:
        kept[K_MACHINE_DRAWS], kept[K_NOOP_SEED], kept[K_NOOP_DRAWS] = 0, seed, 0
    mt_restore(machine, int64(SYSTEM_SEED), kept[K_MACHINE_DRAWS])
    mt_restore(noops, kept[K_NOOP_SEED], kept[K_NOOP_DRAWS])


@compiled
def keep_generators(kept, machine, noops):
    kept[K_MACHINE_DRAWS], kept[K_NOOP_DRAWS] = mt_drawn(machine), mt_drawn(noops)
