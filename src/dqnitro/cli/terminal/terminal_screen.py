"""A game in the terminal: two pixels per character, in colour, at its own speed. Works over ssh."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

import numpy as np


def to_text(rgb: np.ndarray, columns: int, rows: int) -> str:
    """The picture as half blocks: the upper pixel is the foreground, the lower one the background."""
    height, width = rgb.shape[:2]
    aspect = 4 / 3 if width == 160 else width / height  # the console's pixels are wide
    columns = max(8, min(columns, int(rows * 2 * aspect)))
    lines = max(4, int(columns / aspect / 2))
    small = rgb[np.arange(lines * 2) * height // (lines * 2)][:, np.arange(columns) * width // columns]
    out = []
    for top, bottom in zip(small[::2], small[1::2], strict=True):
        row, last = [], None
        for a, b in zip(top.tolist(), bottom.tolist(), strict=True):
            if (a, b) != last:  # write colours only where they change: a tenth of the bytes
                row.append(f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m")
                last = (a, b)
            row.append("▀")
        out.append("".join(row) + "\x1b[0m")
    return "\n".join(out)


class TerminalScreen:
    """Shows every frame that fits 30 pictures a second and waits so that the game runs at its own speed."""

    def __init__(self, fps: float, write: Callable[[str], object] = sys.stdout.write) -> None:
        self._period, self._every = 1 / fps, max(1, round(fps / 30))
        self._write = write
        self._n = 0
        self._next = time.perf_counter()
        write("\x1b[?25l\x1b[2J")  # no cursor, empty screen

    def __call__(self, rgb: np.ndarray) -> None:
        self._n += 1
        self._next += self._period
        if self._n % self._every:
            return
        size = shutil.get_terminal_size()
        self._write("\x1b[H" + to_text(rgb, size.columns, size.lines - 2) + "\n")
        sys.stdout.flush()
        time.sleep(max(0.0, self._next - time.perf_counter()))

    def close(self) -> None:
        self._write("\x1b[0m\x1b[?25h")
        sys.stdout.flush()
