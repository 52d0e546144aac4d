"""Random bytes as ROMs of every size and type, random actions: no crash, no hang, no index outside an array.

A script of its own: bounds checks are chosen when the console is compiled (DQNITRO_BOUNDSCHECK=1). Only the chips are
compiled. What is above them, a few lines per frame, stays Python, which checks its indices as well: compiling it would
take as long as the chips again, because with bounds checks each level holds all those below it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

SIZES = {"2K": 2048, "4K": 4096, "F8": 8192, "F6": 16384, "E0": 8192, "FE": 8192, "F8SC": 8192, "F6SC": 16384,
         "DPC": 10495}  # fmt: skip


def checked_console() -> Any:
    """The class `Console` over chips with bounds checks."""
    from dqnitro.atari.chips import frame
    from dqnitro.atari.jit import target

    assert target.BOUNDSCHECK, "hint: set DQNITRO_BOUNDSCHECK=1"
    chips: Any = frame.frame
    assert chips.targetoptions["boundscheck"], "the chips are compiled with checks"
    target.compiled = target.unit = lambda function: function
    from dqnitro.atari.console import Console

    return Console


def main(roms: int, frames: int) -> None:
    console_of = checked_console()
    random = np.random.default_rng(0)
    for k in range(roms):
        kind = list(SIZES)[k % len(SIZES)]
        image = random.integers(0, 256, SIZES[kind], np.uint8)
        if k % 2:  # fewer jams: a dead CPU tests nothing
            image[np.isin(image, range(0x02, 0x100, 0x10))] = 0x85
        console = console_of(rom=image.tobytes(), cartridge=kind)
        for _ in range(frames):
            console.act(random.integers(0, 18), draw=bool(random.integers(2)))
    print(f"{roms} ROMs, {roms * frames} frames")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
