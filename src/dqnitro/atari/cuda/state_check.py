"""What a saved state of consoles on a GPU may hold, checked on the host before anything is copied there.

The bounds are those of the CPU (`vector/state_check.py`): a kernel does not check its indices either, and what it does
out of bounds ends every program on that GPU's context. Needs no GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..chips import layout
from ..chips.frame import MOST_INSTRUCTIONS
from ..chips.rng import MT_N
from ..vector import agent_step
from ..vector.state_check import HIGH, LOW, NAMES, refuse, within
from . import start_phases as phases

AWAY_NUMBERS = 3  # as in kernels.py, and one that older versions saved
LAST_OPTION = 3  # of Double Dunk's options


def _console_bounds() -> tuple[np.ndarray, np.ndarray]:
    """Of a console's numbers. Masks are any bits; two numbers that are flags on a CPU also tell of a slice."""
    low, high = LOW.copy(), HIGH.copy()
    free = [name == "S_MASK" for name in NAMES]
    low[free], high[free] = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    high[layout.S_DRAW], high[layout.S_GREYED] = (MOST_INSTRUCTIONS << 2) | 3, 3
    return low, high


CONSOLE_LOW, CONSOLE_HIGH = _console_bounds()


def _starts_bounds() -> dict[int, tuple[int, int]]:
    t = phases
    return {
        t.T_PHASE: (t.PLAYING, t.NOOPS), t.T_COUNT: (0, 1 << 20), t.T_SELECT: (-1, 1 << 10), t.T_ACTIONS: (0, 1 << 20),
        t.T_DREW: (0, 1), t.T_NOOPS: (-1, 1 << 20), t.T_LINE: (0, 255), t.T_OPTION: (-1, LAST_OPTION + 1),
        t.T_LEFT: (0, MOST_INSTRUCTIONS), t.T_SLICE: (0, t.LONGEST_SLICE),
    }  # fmt: skip


def consoles(state: np.ndarray, n: int) -> np.ndarray:
    """(groups, numbers, lanes), as a GPU keeps them -> (n, S_SIZE), without the upper halves of masks."""
    return np.asarray(state).transpose(0, 2, 1).reshape(-1, state.shape[1])[:n, : layout.S_SIZE]


def check_shapes(state: Mapping[str, Any], here: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
    """Every array is there, with its type and shape."""
    for key, (shape, dtype) in here.items():
        if key not in state:
            raise ValueError(f"{key} is not in the state. hint: give what get_state() returned")
        there = np.asarray(state[key])
        if there.shape != shape:
            raise ValueError(f"{key} has shape {there.shape} in the state, {shape} here. hint: is num_envs the same?")
        if there.dtype != dtype:
            refuse(f"{key} has numbers of type {there.dtype}, not {dtype}")


def check_values(state: Mapping[str, Any], n: int, rom_bytes: int, stack: int) -> None:
    """Refuse numbers that would lead a kernel out of its arrays, or keep it busy for hours."""
    s = consoles(state["state"], n)
    wrong = (s < CONSOLE_LOW) | (s > CONSOLE_HIGH)
    if wrong.any():
        k = int(np.argwhere(wrong)[0][1])
        refuse(f"{NAMES[k]} has a value outside {CONSOLE_LOW[k]} to {CONSOLE_HIGH[k]}")
    bank = s[:, layout.S_BANK]
    within("S_BANK", bank, 0, rom_bytes - 4096)
    if (bank % 4096).any() or (s[:, layout.S_SLICE0 : layout.S_SLICE2 + 1] % 1024).any():
        refuse("a bank does not begin where banks begin")
    if ((s[:, layout.S_SETTLED] != 0) & (s[:, layout.S_ROW] == 0)).any():
        refuse("S_SETTLED is set in the first row, which has none above it")
    episode = np.asarray(state["episode"])
    within("E_RESET", episode[:, agent_step.E_RESET], 0, 1)
    within("E_SLOT", episode[:, agent_step.E_SLOT], 0, stack - 1)
    within("E_ELAPSED", episode[:, agent_step.E_ELAPSED], 0, 1 << 62)
    for key in ("rng_actions", "rng_machine", "rng_noops"):
        within(key, np.asarray(state[key])[:, MT_N], 0, MT_N)
    within("away", np.asarray(state["away"]), 0, AWAY_NUMBERS)
    starts = np.asarray(state["starts"])
    for k, (low, high) in _starts_bounds().items():
        within("starts", starts[:, k], low, high)
    options = starts[starts[:, phases.T_PHASE] == phases.DUNK_OPTION, phases.T_OPTION]
    within("an option of Double Dunk", options, 0, LAST_OPTION)
