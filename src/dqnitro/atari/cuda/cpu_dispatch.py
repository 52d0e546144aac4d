"""GPU only: choose the interpreter. Consoles that share a warp run `cuda/cpu_warp.py`, others `chips/cpu_fast.py`."""

from __future__ import annotations

from ..chips.cpu_fast import run as run_apart
from ..chips.layout import P_TOGETHER
from ..jit.target import as_state, compiled
from .cpu_warp import run as run_together


@compiled
def run(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at):
    if as_state(prop_at)[P_TOGETHER]:
        run_together(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at)
    else:
        run_apart(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at)
