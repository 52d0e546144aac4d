"""What `AtariVec` hands to compiled code: memory of the machines, and one batch of work at a time."""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from ..chips import layout
from ..chips.cpu_predecode import predecode
from ..chips.rng import MT_SIZE
from ..games import game_table, roms, table_language
from ..jit.target import CHECKED
from ..observation import resize, resize_plan
from . import agent_step, cpu_step, screen_store
from . import worker as crew
from .thread_pool import Workers

if TYPE_CHECKING:
    from ..vec import AtariVec

_HELD_BY_POOL = 3  # references to an array that only the pool knows: the list, the loop variable, getrefcount itself
_WORK: Any = crew.work  # its arguments are counted in `Constant` and `Batch`
_PLACE: Any = crew.place
_RUN: Any = cpu_step.run


class Buffers:
    """Arrays of one shape, used again when free."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._made: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        for array in self._made:
            if sys.getrefcount(array) == _HELD_BY_POOL:
                return array
        array = np.zeros(self.shape, np.uint8)
        if len(self._made) < 8:  # a caller that keeps everything must not make the search long
            self._made.append(array)
        return array


class Batch:
    """One call for some machines: what they shall do and where the results go.

    They are handed out in an `order`; the first `long` of it take longer than others.
    """

    __slots__ = ("final_obs", "flags", "ids", "inputs", "job", "long", "obs", "outputs", "results")

    def __init__(self, env: AtariVec, order: np.ndarray, long: int, ids: np.ndarray, *todo: np.ndarray) -> None:
        """`todo`: commands, seeds, actions, strengths."""
        n = len(ids)
        self.ids, self.long = ids, long
        self.obs = env._buffers.take()
        self.final_obs: np.ndarray | None = None
        if env._same_step:
            # zeros until an episode ends; then it is the caller's and the next batch gets another one
            self.final_obs, env._unused_final = env._unused_final, None
            if self.final_obs is None:
                self.final_obs = np.zeros_like(self.obs)
        self.results, self.flags = np.empty((agent_step.R_SIZE, n), np.int32), np.empty((2, n), np.bool_)
        self.inputs = order, ids + np.int32(env._first_machine), *todo
        self.outputs = self.obs, self.obs if self.final_obs is None else self.final_obs, self.results, self.flags
        self.job: Any = None  # what `Workers.start` gave

    @property
    def size(self) -> int:
        return len(self.ids)

    def place(self, control: np.ndarray, job: int) -> None:
        _PLACE(control, job, *self.inputs, *self.outputs)


class Serial:
    """In place of `Workers`: the caller does all the work at once, with arrays, not addresses, so that indices can be checked."""

    done = True

    def __init__(self, arguments: tuple[Any, ...], scratch: tuple[Any, ...]) -> None:
        self._arguments, self._scratch = arguments, scratch

    def start(self, batch: Batch) -> Serial:
        self.run(batch)
        return self

    def run(self, batch: Batch) -> None:
        obs, final_obs, results, flags = batch.outputs
        rows = obs.reshape(batch.size, -1), final_obs.reshape(batch.size, -1)
        _RUN(*batch.inputs, *self._arguments, *self._scratch, *rows, results, flags[0], flags[1])

    def wait(self) -> None: ...

    def close(self) -> None: ...


def make_workers(arguments: tuple[Any, ...], scratch: list[Any], threads: int, slots: int, first_core: int) -> Any:
    """Who serves the batches of an environment with these arrays; `scratch`: one for each thread and for the caller."""
    if CHECKED:
        return Serial(arguments, scratch[0])

    def work(control: np.ndarray, worker: int, stay: bool) -> None:
        _WORK(control, worker, stay, *arguments, *scratch[worker])

    return Workers(work, threads, slots, first_core)


def check(num_envs: int, batch_size: int, frameskip: int, stack_num: int, mode: AutoresetMode | str) -> None:
    """Arguments that no machine could play with are refused."""
    if type(frameskip) is not int or frameskip <= 0:
        raise gymnasium.error.Error(f"frameskip must be a positive int, got {frameskip!r}. hint: 4 is usual")
    if num_envs < 1 or stack_num < 1 or not 0 <= batch_size <= num_envs:
        raise ValueError(
            f"num_envs={num_envs}, stack_num={stack_num}, batch_size={batch_size}. "
            "hint: at least one environment and frame, and a batch of at most num_envs (0: all)"
        )
    if AutoresetMode(mode) == AutoresetMode.DISABLED:
        raise ValueError(f"Invalid autoreset_mode: {mode}. hint: AutoresetMode.NEXT_STEP or SAME_STEP")


def seeds_of(seed: int | np.ndarray | None, n: int, first: bool) -> np.ndarray:
    """One seed for each of n environments; negative: go on unseeded, which at the `first` reset is not possible."""
    if seed is None:
        # never seeded: each machine still needs some start, so draw one
        return np.random.default_rng().integers(0, 2**31, n) if first else np.full(n, -1)
    if isinstance(seed, int):
        seeds = np.arange(seed, seed + n)
    elif isinstance(seed, np.ndarray):
        if seed.shape != (n,):
            shapes = f"expected shape {(n,)}, got {seed.shape}"
            raise ValueError(f"`seed` must have one entry per sub-environment being reset, {shapes}")
        seeds = seed
    else:
        raise TypeError("Unsupported seed type")
    if seeds.dtype.kind not in "iu" or (seeds > 2**31 - 1).any():
        raise TypeError(f"seeds must be integers below 2**31, got {seed!r}")
    if first:
        fresh = np.random.default_rng().integers(0, 2**31, n)
        seeds = np.where(seeds < 0, fresh, seeds)
    return seeds


def machine_of(rom: roms.Rom, game: game_table.Game) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    """Image and predecoded program; properties; properties while the television standard is found out."""
    prop = rom.prop.copy()
    prop[layout.P_PADDLE_MAX] = game.paddle_max
    ntsc = prop.copy()
    ntsc[layout.P_PAL] = 0
    if rom.pal:
        ntsc[layout.P_HEIGHT] = 210
    return (rom.image, predecode(rom)), prop, ntsc


def pixels(shape: tuple[int, ...]) -> Box:
    """A space of bytes. Gymnasium keeps four arrays of its size, 113 KB for an environment: here each is one number, seen often."""
    space = Box(0, 255, shape, np.uint8)
    for name in ("low", "high", "bounded_below", "bounded_above"):
        setattr(space, name, np.broadcast_to(getattr(space, name).flat[0], shape))
    return space


def reserved(shape: tuple[int, ...]) -> np.ndarray:
    """Words that are 0 and take memory only when they are touched; `np.zeros` may hand out memory that was used before."""
    size = 8 * math.prod(shape)
    if size == 0 or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(shape, np.uint64)
    private = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # a huge page is there as a whole when one word of it is touched
        with contextlib.suppress(OSError):  # a kernel without huge pages
            private.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(private, np.uint64).reshape(shape)


def make_memory(n: int, height: int, stack: int, frame_bytes: int, channels: int, keeps: bool) -> dict[str, np.ndarray]:
    """All memory of n environments, in the order in which `crew.work` takes it. Machines that keep their screens: `keeping`."""
    own, rest = (n, 0) if keeps else (0, n)
    return {
        "state": np.zeros((n, layout.S_SIZE), np.int64),
        "ram": np.zeros((n, 256), np.uint8),
        "rules": np.zeros((n, table_language.G_SIZE), np.int32),
        "rng_actions": np.zeros((n, MT_SIZE), np.uint32),
        "rng_machine": np.zeros((rest, MT_SIZE), np.uint32),
        "rng_noops": np.zeros((rest, MT_SIZE), np.uint32),
        "episode": np.zeros((n, agent_step.E_SIZE), np.int64),
        "frames": np.zeros((n, stack, frame_bytes), np.uint8),
        "raw": np.zeros((rest, channels, height, resize_plan.WIDTH), np.uint8),
        "source": np.zeros((rest, height), np.int32),
        "kept": np.zeros((own, screen_store.K_SIZE), np.int64),
        "where": np.zeros((own, screen_store.SCREENS, height), np.int16),
        "rows": reserved((own, screen_store.room(height), layout.WORDS)),
    }


def make_scratch(p: resize.Plan, luts: np.ndarray) -> tuple[Any, ...]:
    """Working space of one thread."""
    screens = np.zeros((screen_store.SCREENS, layout.ROWS, layout.WORDS), np.uint64)
    raw = np.zeros((len(luts), p.height, resize_plan.WIDTH), np.uint8)
    generators = np.zeros((2, MT_SIZE), np.uint32)
    return (
        np.zeros(layout.LOG_SIZE, np.int64), resize.make_scratch(p, luts), screens, raw,
        np.zeros(p.height, np.int32), generators,
    )  # fmt: skip


def saved(memory: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Copies; of the rows of screens, most of which were never touched, only those in use."""
    used = memory["kept"][:, screen_store.K_ROWS, None]
    rows = memory["rows"][:, : used.max(initial=0)].copy()
    rows[np.arange(rows.shape[1]) >= used] = 0
    return {key: rows if key == "rows" else array.copy() for key, array in memory.items()}


def check_state(memory: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> None:
    """What `saved` gave of another number of environments, or in another version, is refused."""
    for key, array in memory.items():
        if key not in state:
            raise ValueError(f"{key} is not in the state. hint: another version saved it, so begin anew")
        there, here = state[key].shape, array.shape
        if key == "rows":  # no more of them than were in use
            there, here = (there[0], *there[2:]), (here[0], *here[2:])
        if there != here:
            raise ValueError(f"{key} has shape {there} in the state, {here} here. hint: is num_envs the same?")


def restore(memory: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> None:
    """Put back what `saved` gave."""
    for key, array in memory.items():
        part = array[:, : state[key].shape[1]] if key == "rows" else array
        part[:] = state[key]


def restore_one(memory: dict[str, np.ndarray], i: int, state: dict[str, np.ndarray]) -> None:
    """Machine i from what `saved` gave of a single one."""
    i = range(len(memory["state"]))[i]
    one = {key: array[i : i + 1] for key, array in memory.items()}
    check_state(one, state)
    restore(one, state)
