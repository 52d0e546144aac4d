"""How the arrays of `arrays.py` are made, and how the memory of consoles is saved and restored."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..chips import layout
from ..chips.rng import MT_SIZE
from ..games import roms, table_language
from ..observation import palette, resize, resize_plan
from . import agent_step, screen_store
from .arrays import Memory, Scratch, Shared
from .options import VecOptions
from .reset_cache import make_start
from .state_check import check_arrays, check_values

# A frame that is still being drawn when a game begins goes on in the next step, on the console's own screen.
_UNFINISHED_AT_START = frozenset({"qbert", "entombed"})


def make_shared(options: VecOptions, game: table_language.Game, rom: roms.Rom, program: np.ndarray) -> Shared:
    """`program`: the predecoded ROM."""
    prop = rom.prop.copy()
    prop[layout.P_PADDLE_MAX] = game.paddle_max
    ntsc = prop.copy()
    ntsc[layout.P_PAL] = 0
    if rom.pal:
        ntsc[layout.P_HEIGHT] = 210
    table = palette.PAL if rom.pal else palette.NTSC
    return Shared(
        rom=rom.image,
        program=program,
        prop=prop,
        ntsc=ntsc,
        options=options.numbers(game),
        sticky=float(np.float32(options.repeat_action_probability)),
        action_set=options.action_set(game),
        plan=resize_plan.plan(rom.height, options.img_height, options.img_width),
        luts=palette.GRAY[table][None] if options.grayscale else np.ascontiguousarray(palette.RGB[table].T),
        start=make_start(),
    )


def keeps_screens(shared: Shared, game: table_language.Game) -> bool:
    """Whether the game needs its consoles to keep their screens, see `screen_store`."""
    return bool(shared.prop[layout.P_ALWAYS_DRAW]) or game.name in _UNFINISHED_AT_START


def make_memory(n: int, height: int, options: VecOptions, keeps: bool) -> Memory:
    """All memory of n consoles, whose pictures have `height` rows; with `keeps` they keep their screens."""
    own, rest = (n, 0) if keeps else (0, n)
    return Memory(
        state=np.zeros((n, layout.S_SIZE), np.int64),
        ram=np.zeros((n, 256), np.uint8),
        rules=np.zeros((n, table_language.G_SIZE), np.int32),
        rng_actions=np.zeros((n, MT_SIZE), np.uint32),
        rng_machine=np.zeros((rest, MT_SIZE), np.uint32),
        rng_noops=np.zeros((rest, MT_SIZE), np.uint32),
        episode=np.zeros((n, agent_step.E_SIZE), np.int64),
        frames=np.zeros((n, options.stack_num, options.frame_bytes), np.uint8),
        raw=np.zeros((rest, options.channels, height, resize_plan.WIDTH), np.uint8),
        source=np.zeros((rest, height), np.int32),
        kept=np.zeros((own, screen_store.K_SIZE), np.int64),
        where=np.zeros((own, screen_store.SCREENS, height), np.int16),
        rows=reserved((own, screen_store.room(height), layout.WORDS)),
    )


def reserved(shape: tuple[int, ...]) -> np.ndarray:
    """Words that are 0 and take memory only when they are touched.

    `np.zeros` may hand out memory that was used before.
    """
    size = 8 * math.prod(shape)
    if size == 0 or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(shape, np.uint64)
    private = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # a huge page is there as a whole when one word of it is touched
        with contextlib.suppress(OSError):  # a kernel without huge pages
            private.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(private, np.uint64).reshape(shape)


def make_scratch(p: resize_plan.Plan, luts: np.ndarray) -> Scratch:
    """Working space of one thread."""
    return Scratch(
        log=np.zeros(layout.LOG_SIZE, np.int64),
        resize=resize.make_scratch(p, luts),
        screens=np.zeros((screen_store.SCREENS, layout.ROWS, layout.WORDS), np.uint64),
        raw=np.zeros((len(luts), p.height, resize_plan.WIDTH), np.uint8),
        source=np.zeros(p.height, np.int32),
        generators=np.zeros((2, MT_SIZE), np.uint32),
    )


def some(memory: Memory, first: int, n: int) -> Memory:
    """The memory of n consoles from number `first` on: views, no copies."""
    return Memory(*(array[first : first + n] for array in memory))


def saved(memory: Memory) -> dict[str, np.ndarray]:
    """Copies; of the rows of screens, most of which were never touched, only those in use."""
    used = memory.kept[:, screen_store.K_ROWS, None]
    rows = memory.rows[:, : used.max(initial=0)].copy()
    rows[np.arange(rows.shape[1]) >= used] = 0
    return {key: rows if key == "rows" else array.copy() for key, array in memory._asdict().items()}


def checked(memory: Memory, shared: Shared, state: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What `saved` gave, fit for `restore`; ValueError if it is of other environments, or damaged."""
    arrays = check_arrays(memory, state)
    check_values(memory, shared, arrays)
    return arrays


def restore(memory: Memory, state: Mapping[str, np.ndarray]) -> None:
    """Put back what `checked` found right."""
    for key, array in memory._asdict().items():
        part = array[:, : state[key].shape[1]] if key == "rows" else array
        part[:] = state[key]


def restore_one(memory: Memory, shared: Shared, i: int, state: Mapping[str, Any]) -> None:
    """Console i from what `saved` gave of a single one."""
    one = some(memory, range(len(memory.state))[i], 1)
    restore(one, checked(one, shared, state))
