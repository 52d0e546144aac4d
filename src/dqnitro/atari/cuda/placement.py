"""How consoles lie on a GPU: how many share a warp, how many registers a thread has, how many warps a block."""

from __future__ import annotations

import math
from typing import NamedTuple

from .build import FEW_REGISTERS as FEW
from .build import MANY_REGISTERS as MANY

LANES = 32
TOGETHER_FROM = 4  # consoles in a warp, from which they run together: `cpu_warp`, and one replay of the TIA for all
WARPS_PER_PROCESSOR = 8  # of interpreted consoles that are alone in their warp, or nearly
# Translated games: up to so many consoles for each processor, so many share a warp, with so many registers of a thread.
# A processor runs 16 warps at a time with 128 registers. Where more are wanted, full warps share the work of the TIA.
TRANSLATED = ((16, 1, FEW), (math.inf, LANES, MANY))


class Placement(NamedTuple):
    """How a step of the consoles lies on the GPU, beside other work there.

    A processor takes blocks of another kernel only if their shared memory fits the split of its L1 memory that it has,
    and it cannot change the split while a block runs.
    """

    warps_alone: int = 8  # at most in a block, of consoles that are alone in their warp, or nearly
    warps_together: int = 4  # in a block, where warps are full
    shared_percent: int = -1  # of L1 memory, as shared memory for other kernels; -1 leaves it to CUDA

    def grid(self, consoles: int, per_warp: int) -> tuple[int, int]:
        """Blocks of as many warps as may be, so that other processors stay free for other work; threads of a block."""
        warps = -(-consoles // per_warp)
        together = min(self.warps_together if per_warp == LANES else self.warps_alone, warps)
        return -(-warps // together), LANES * together


PLACEMENT = Placement()


def sharing(consoles: int, processors: int, translated: bool) -> tuple[int, int]:
    """How many consoles share a warp, and the registers of a thread.

    Consoles that are alone in theirs wait for nobody. Interpreted ones are best in as few lanes as it takes.
    """
    if translated:
        return next((share, registers) for most, share, registers in TRANSLATED if consoles <= most * processors)
    wanted = -(-consoles // (processors * WARPS_PER_PROCESSOR))
    per_warp = min(LANES, 1 << (wanted - 1).bit_length())
    return per_warp, registers_of(per_warp)


def registers_of(per_warp: int) -> int:
    """Of a thread, where somebody has chosen how many consoles share a warp."""
    return MANY if per_warp >= TOGETHER_FROM else FEW
