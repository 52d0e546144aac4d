"""A process that translates one ROM: `program.py` starts it, so that a game that is being played is not disturbed.

Its argument is the kind of cartridge, its input the image, its output what `program.py` keeps in a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys


def main() -> None:
    answer, sys.stdout = sys.stdout, sys.stderr  # nothing but the answer may go through the pipe
    if sys.platform == "linux":  # PR_SET_PDEATHSIG: without the one that asked, nobody takes the answer
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    with contextlib.suppress(AttributeError, OSError):
        os.nice(5)  # those who play come first
    from ..games import roms
    from .program import make, packed

    rom = roms.build("", sys.stdin.buffer.read(), sys.argv[1])
    answer.buffer.write(packed(*make(rom)))


if __name__ == "__main__":
    main()
