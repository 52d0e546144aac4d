"""What a saved state may hold. Compiled code does not check its indices, so a state, which may be damaged or
made by hand, is checked here before it is used: it is refused with a ValueError and can never end the process.

Numbers that are only added and compared may have any size that cannot overflow; those that choose a place in an array,
or how often something is repeated, have exact bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..chips import layout
from ..chips.layout import *  # noqa: F403 - the names of the state
from ..chips.rng import MT_N
from . import agent_step, screen_store
from .arrays import Memory, Shared
from .joystick import MOST_RADIUS

_ANY = 1 << 62
_FREE = (-_ANY, _ANY)  # only added and compared
_FLAG, _BYTE, _CLOCK = (0, 1), (0, 255), (-(1 << 30), 1 << 30)
_LINES = (-(1 << 20), 1 << 20)  # colour clocks from which lines are counted one by one
MOST_DRAWS = 1 << 28  # of a generator: they are drawn again when a game begins

_FIELDS: dict[tuple[int, int], Sequence[str]] = {
    _BYTE: (
        "S_A S_X S_Y S_SP S_C S_V S_D S_I S_DEAD S_LATCH S_TIMER S_SWACNT S_SWCHA S_SWCHB S_FIRE0 S_FIRE1 S_DPC_RANDOM "
        "S_DPC_MUSIC S_VBLANK S_NUSIZ0 S_NUSIZ1 S_COLUP0 S_COLUP1 S_COLUPF S_COLUBK S_CTRLPF S_REFP0 S_REFP1 S_GRP0 "
        "S_GRP1 S_GRP0_OLD S_GRP1_OLD S_ENAM0 S_ENAM1 S_ENABL S_ENABL_OLD S_VDELP0 S_VDELP1 S_VDELBL S_RESMP0 S_RESMP1 "
        "S_SHAPE0 S_SHAPE1"
    ).split(),
    _FLAG: (
        "S_READ_AFTER S_PARTIAL S_GREYED S_BUFFER S_STOP S_DUMP S_DRAW S_REFLECT S_SUPPRESS0 S_SUPPRESS1 S_BLANK S_ARK "
        "S_LOSS S_SETTLED"
    ).split(),
    _CLOCK: "S_CYCLES S_LEFT S_ORIGIN S_TOUCH S_NZ".split(),
    _FREE: (
        "S_SET S_INTR S_FINISH S_DUMP_STAMP S_HMOVE_CLOCK S_LINES S_LAST_LINES S_POT0 S_POT1 S_POT2 S_POT3"
    ).split(),
    _LINES: "S_DRAWN S_LINE_START".split(),
    (0, 1 << 20): "S_START S_END S_LIMIT S_ROW".split(),
    (0, 0xFFFF): "S_PC".split(),
    (0, 10): "S_SHIFT".split(),
    (0, 7 << 10): "S_SLICE0 S_SLICE1 S_SLICE2".split(),
    (0, 0): "S_LOGGED".split(),  # a frame ends with an empty log
    (0, (1 << 20) - 1): "S_PF".split(),
    (0, PIXELS - 1): "S_POS_P0 S_POS_P1 S_POS_M0 S_POS_M1 S_POS_BL".split(),  # noqa: F405
    (0, PIXELS): "S_FROM".split(),  # noqa: F405
    (0, 15): "S_HM_P0 S_HM_P1 S_HM_M0 S_HM_M1 S_HM_BL".split(),
    (0, 3): "S_ARK_COUNT".split(),
    (0, 2): "S_ARK_LOOK".split(),
    (0, (1 << 15) - 1): "S_COLLISION".split(),
    (0, 63): "S_PRESENT S_DIRTY".split(),
    (0, 1 << 40): "S_PADDLE0 S_PADDLE1 S_PADDLE_STEP S_PADDLE_WANT".split(),
    (0, 17): "S_STICKY_A".split(),
    (0, _ANY): "S_EPISODE_FRAMES S_TOTAL_FRAMES".split(),
}  # fmt: skip


def _bounds() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Lowest and highest value of each number of a console's state, and their names."""
    whole = np.iinfo(np.int64)
    low, high = np.full(layout.S_SIZE, whole.min), np.full(layout.S_SIZE, whole.max)
    names = [""] * layout.S_SIZE
    for (least, most), fields in _FIELDS.items():
        for name in fields:
            k = getattr(layout, name)
            low[k], high[k], names[k] = least, most, name
    eight = {"S_DPC_TOP": 255, "S_DPC_BOTTOM": 255, "S_DPC_COUNTER": 2047, "S_DPC_FLAG": 255}
    for name, most in eight.items():
        k = getattr(layout, name)
        low[k : k + 8], high[k : k + 8], names[k : k + 8] = 0, most, [name] * 8
    names[layout.S_BANK] = "S_BANK"  # depends on the cartridge
    for k in range(layout.S_MASK_P0, layout.S_MASK_PF + 3):
        names[k] = "S_MASK"  # 64 pixels, any of them
    return low, high, names


LOW, HIGH, NAMES = _bounds()
assert all(NAMES), [k for k, name in enumerate(NAMES) if not name]


def refuse(what: str) -> None:
    raise ValueError(f"this state is damaged: {what}. hint: start again with reset()")


def within(name: str, values: np.ndarray, low: Any, high: Any) -> None:
    if values.size and bool(((values < low) | (values > high)).any()):
        refuse(f"{name} has a value outside {low} to {high}")


def check_arrays(memory: Memory, state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a state, with the types and shapes that are needed here."""
    found = {}
    for key, here in memory._asdict().items():
        if key not in state:
            raise ValueError(f"{key} is not in the state. hint: another version saved it; start again with reset()")
        there = np.asarray(state[key])
        if there.dtype != here.dtype:
            refuse(f"{key} has numbers of type {there.dtype}, not {here.dtype}")
        shape, wanted = there.shape, here.shape
        if key == "rows" and there.ndim == here.ndim:  # no more of them than were in use
            if shape[1] > wanted[1]:
                refuse(f"{key} has {shape[1]} rows, there is room for {wanted[1]}")
            shape, wanted = (shape[0], *shape[2:]), (wanted[0], *wanted[2:])
        if shape != wanted:
            raise ValueError(f"{key} has shape {shape} in the state, {wanted} here. hint: is num_envs the same?")
        found[key] = there
    return found


def check_values(memory: Memory, shared: Shared, state: Mapping[str, np.ndarray]) -> None:
    """Refuse numbers that would lead compiled code out of its arrays, or keep it busy for hours."""
    s = state["state"]
    wrong = (s < LOW) | (s > HIGH)
    if wrong.any():
        k = int(np.argwhere(wrong)[0][1])
        refuse(f"{NAMES[k]} has a value outside {LOW[k]} to {HIGH[k]}")
    bank = s[:, layout.S_BANK]
    within("S_BANK", bank, 0, len(shared.rom) - 4096)
    if (bank % 4096).any() or (s[:, layout.S_SLICE0 : layout.S_SLICE2 + 1] % 1024).any():
        refuse("a bank does not begin where banks begin")
    if ((s[:, layout.S_SETTLED] != 0) & (s[:, layout.S_ROW] == 0)).any():
        refuse("S_SETTLED is set in the first row, which has none above it")
    episode = state["episode"]
    within("E_RESET", episode[:, agent_step.E_RESET], 0, 1)
    within("E_SLOT", episode[:, agent_step.E_SLOT], 0, memory.frames.shape[1] - 1)
    within("E_ELAPSED", episode[:, agent_step.E_ELAPSED], 0, _ANY)
    for key in ("rng_actions", "rng_machine", "rng_noops"):
        within(key, state[key][:, MT_N], 0, MT_N)
    within("source", state["source"], 0, memory.source.shape[1] - 1)
    kept = state["kept"]
    within("K_NOW", kept[:, screen_store.K_NOW], 0, 1)
    within("K_OTHER", kept[:, screen_store.K_OTHER], 0, screen_store.SPARE)
    within("K_ROWS", kept[:, screen_store.K_ROWS], 0, memory.rows.shape[1] - 1)
    for k in (screen_store.K_MACHINE_DRAWS, screen_store.K_NOOP_DRAWS):
        within("K_DRAWS", kept[:, k], 0, MOST_DRAWS)
    within("K_NOOP_SEED", kept[:, screen_store.K_NOOP_SEED], 0, 2**32 - 1)
    within("where", state["where"], 0, memory.rows.shape[1] - 1)


def waiting_of(state: Mapping[str, Any], num_envs: int, batch_size: int, actions: int) -> list[tuple[Any, ...]]:
    """What was sent and not yet started, checked."""
    table = np.asarray(state["waiting"])
    if table.dtype.kind not in "fiu" or table.ndim != 2 or table.shape[1] != 5 or len(table) >= max(batch_size, 1):
        if not (table.dtype.kind in "fiu" and table.size == 0):
            refuse("`waiting` is not a list of tasks for less than one batch")
        return []
    if not np.isfinite(table).all() or (table[:, :4] != np.floor(table[:, :4])).any():
        refuse("`waiting` has a number that is not whole")
    ids, commands, seeds, chosen, strengths = table.T
    within("a waiting environment", ids, 0, num_envs - 1)
    within("a waiting command", commands, 0, agent_step.LOOK)
    within("a waiting seed", seeds, -(2.0**31), 2.0**31 - 1)
    within("a waiting action", chosen, 0, actions - 1)
    within("a waiting strength", strengths, -MOST_RADIUS, MOST_RADIUS)
    if len(set(ids.tolist())) < len(ids):
        refuse("an environment waits twice")
    return [(int(i), int(c), int(s), int(a), float(f)) for i, c, s, a, f in table.tolist()]


def last_ids_of(state: Mapping[str, Any], num_envs: int, batch_size: int) -> np.ndarray | None:
    """The environments of the last batch, checked; None: no reset yet."""
    ids = np.asarray(state["last_ids"])
    if ids.size == 0:
        return None
    if ids.dtype.kind not in "iu" or ids.shape != (batch_size,):
        refuse(f"`last_ids` is not a list of {batch_size} numbers")
    within("last_ids", ids, 0, num_envs - 1)
    if len(np.unique(ids)) < len(ids):
        refuse("an environment is twice in `last_ids`")
    return ids.astype(np.int32)
