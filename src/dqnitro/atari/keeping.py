"""Machines that keep their screens, and little else.

In a few games a frame may be left unfinished and go on later, over what an older one left, so a machine's two screens must
outlast a batch: 67 KB. To stay under 100 KB, such a machine keeps nothing that can be worked out:

* the grey picture of the last step comes from the two screens it was made of, at the rare moment it is needed. While a step
  is played on the thread's screens, the machine's own still hold what they held before it;
* only a frame that was shown unfinished and then went on in the same buffer is in neither of them. It goes to one of the spare
  screens that all machines share. There is one for each machine, so there is always a free one; the lowest is taken, and
  memory that nobody ever touched costs nothing;
* the generators that are drawn from at the start of a game only are a seed and a number of draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy import int64

from .environment import SYSTEM_SEED
from .layout import WORDS
from .resize_plan import WIDTH
from .rng import mt_drawn, mt_restore
from .target import CHECKED, address, device

# What a machine remembers: the buffers of the last picture (`K_OTHER` 2: a spare screen), that spare's number + 1,
# draws of the machine's generator, seed and draws of the one for no-ops.
K_NOW, K_OTHER, K_SPARE, K_MACHINE_DRAWS, K_NOOP_SEED, K_NOOP_DRAWS, K_SIZE = range(7)
SPARE = 2


def _claimed_typed(typing_context: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        place = builder.inttoptr(arguments[0], word.as_pointer())
        done = builder.cmpxchg(place, ir.Constant(word, 0), ir.Constant(word, 1), "seq_cst", "seq_cst")
        return builder.zext(builder.extract_value(done, 1), word)

    return types.int64(types.int64), build


_claimed: Any = intrinsic(_claimed_typed)


def _claim(owners, k):
    return _claimed(address(owners) + 8 * k) != 0


def _claim_alone(owners, k):
    """One thread, and arrays whose indices are checked."""
    free = owners[k] == 0
    owners[k] = 1
    return free


claim: Any = device(_claim_alone if CHECKED else _claim)


@device
def copy_rows(of, to, rows):
    """Flat, so that it becomes one call of the fastest copy there is."""
    a, b = of.reshape(of.size), to.reshape(to.size)
    for k in range(rows * WORDS):
        b[k] = a[k]


@device
def load(own, screen):
    for b in range(2):
        copy_rows(own[b], screen[b], own.shape[1])


@device
def store(screen, own):
    for b in range(2):
        copy_rows(screen[b], own[b], own.shape[1])


@device
def same_rows(a, b, rows):
    x, y, d = a.reshape(a.size), b.reshape(b.size), np.uint64(0)
    for k in range(rows * WORDS):
        d |= x[k] ^ y[k]
    return d == 0


@device
def remember(kept, spares, owners, screen, spare, now, other):
    """Which screens the picture of this step was made of: `now`, and `other` or (2) the thread's `spare`."""
    if kept[K_SPARE] > 0:
        owners[kept[K_SPARE] - 1] = 0
        kept[K_SPARE] = 0
    if other == SPARE:
        rows = spares.shape[1]
        if same_rows(screen[now], spare, rows):
            other = now
        else:
            k = int64(0)
            while not claim(owners, k):
                k = (k + 1) % len(owners)
            copy_rows(spare, spares[k], rows)
            kept[K_SPARE] = k + 1
    kept[K_NOW], kept[K_OTHER] = now, other


@device
def recall(kept, spares, own, luts, raw, source, channels):
    """The picture of the last step, from the screens that it was made of."""
    other = spares[kept[K_SPARE] - 1] if kept[K_OTHER] == SPARE else own[kept[K_OTHER]]
    a, b = own[kept[K_NOW]].view(np.uint8), other.view(np.uint8)
    for c in range(channels):
        for y in range(a.shape[0]):
            for x in range(WIDTH):
                raw[c, y, x] = max(luts[c, a[y, x]], luts[c, b[y, x]])
    for y in range(a.shape[0]):
        source[y] = y


@device
def take_generators(kept, seed, machine, noops):
    """Before a new game; a seed begins both anew."""
    if seed >= 0:
        kept[K_MACHINE_DRAWS], kept[K_NOOP_SEED], kept[K_NOOP_DRAWS] = 0, seed, 0
    mt_restore(machine, int64(SYSTEM_SEED), kept[K_MACHINE_DRAWS])
    mt_restore(noops, kept[K_NOOP_SEED], kept[K_NOOP_DRAWS])


@device
def keep_generators(kept, machine, noops):
    kept[K_MACHINE_DRAWS], kept[K_NOOP_DRAWS] = mt_drawn(machine), mt_drawn(noops)
