"""GPU only: choose the interpreter. Consoles that share a warp run `cuda/cpu_warp.py`, others `chips/cpu_fast.py`.

A frame can also be played in slices here (`start_in_steps`), which `frame_unit` knows nothing of: `S_DRAW` then holds
not only whether pixels are drawn, but also how many instructions to run now (from bit 2 on), and whether more follow
(bit 1). Where they do, `S_GREYED` gets another bit, so that the frame is not taken for an unfinished one.
"""

from __future__ import annotations

from ..chips.cpu_fast import run as run_apart
from ..chips.layout import P_TOGETHER, S_DEAD, S_DRAW, S_GREYED, S_LEFT, S_PARTIAL
from ..jit.target import as_state, compiled
from .cpu_warp import run as run_together

MORE, SLICE_AT, GOES_ON = 2, 2, 2  # in S_DRAW: more follows, from which bit on the slice is; in S_GREYED


@compiled
def run(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at):
    s = as_state(s_at)
    code = s[S_DRAW]
    if code >> SLICE_AT:
        s[S_LEFT], s[S_DRAW] = code >> SLICE_AT, code & 1
    if as_state(prop_at)[P_TOGETHER]:
        run_together(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at)
    else:
        run_apart(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at)
    if code & MORE and s[S_PARTIAL] and s[S_LEFT] <= 0 and s[S_DEAD] == 0:
        s[S_GREYED] |= GOES_ON
