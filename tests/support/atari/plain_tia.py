# ruff: noqa: F403, F405
"""The TIA's log replayed as plainly as can be: the slow reference of the two ways in `chips/tia` and `chips/tia_apart`.

Every store moves the beam and closes what it passed; nothing is passed over, no line is jumped, no row copied.
"""

from __future__ import annotations

from typing import Any

from dqnitro.atari.chips.layout import *


def replay(tia: Any, tia_store: Any, s: Any, prop: Any, log: Any, until: int, screen: Any) -> None:
    """`tia` and `tia_store` are the modules to take the registers, the lines' ends and the painting from."""
    entries = [(int(tia.entry_cycle(e)), int(tia.entry_rest(e))) for e in log[: s[S_LOGGED]]]
    s[S_LOGGED] = 0
    for cycle, rest in [*entries, (0, None)]:
        t = until if rest is None else int(tia_store.takes_effect(s, rest >> 8, cycle))
        if s[S_START] <= t and s[S_DRAWN] < s[S_END]:
            s[S_DRAWN] = max(s[S_DRAWN], min(t, s[S_END]))
            while s[S_DRAWN] > s[S_LINE_START] + LINE_CLOCKS:
                close(tia, s, prop, screen, PIXELS)
                tia_store.end_of_line(s)
            close(tia, s, prop, screen, min(max(s[S_DRAWN] - s[S_LINE_START] - BLANK_CLOCKS, 0), PIXELS))
        if rest is not None:
            tia_store.store(s, prop, rest >> 8, rest & 0xFF, cycle)


def close(tia: Any, s: Any, prop: Any, screen: Any, h: int) -> None:
    s[S_SETTLED] = 0  # nothing is known of the row above
    tia.close(s, screen, h, s[S_DRAW] != 0 and s[S_ROW] < prop[P_HEIGHT])
