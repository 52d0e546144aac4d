"""What `AtariVec` hands to compiled code: memory of the machines, and one batch of work at a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from . import crew, games, layout, resize, resize_plan, roms, stepper
from .decode import predecode
from .rng import MT_SIZE
from .target import CHECKED
from .workers import Workers

if TYPE_CHECKING:
    from .vec import AtariVec

_HELD_BY_POOL = 3  # references to an array that only the pool knows: the list, the loop variable, getrefcount itself
_WORK: Any = crew.work  # its arguments are counted in `Constant` and `Batch`
_PLACE: Any = crew.place
_RUN: Any = stepper.run


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
        self.results, self.flags = np.empty((stepper.R_SIZE, n), np.int32), np.empty((2, n), np.bool_)
        self.inputs = order, ids, *todo
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


def machine_of(rom: roms.Rom, game: games.Game) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    """Image and predecoded program; properties; properties while the television standard is found out."""
    prop = rom.prop.copy()
    prop[layout.P_PADDLE_MAX] = game.paddle_max
    ntsc = prop.copy()
    ntsc[layout.P_PAL] = 0
    if rom.pal:
        ntsc[layout.P_HEIGHT] = 210
    return (rom.image, predecode(rom)), prop, ntsc


def make_memory(
    n: int, height: int, stack: int, frame_bytes: int, channels: int, own_screens: bool
) -> dict[str, np.ndarray]:
    """All memory of n environments, in the order in which `stepper.run` takes it."""
    return {
        "state": np.zeros((n, layout.S_SIZE), np.int64),
        "ram": np.zeros((n, 256), np.uint8),
        "screen": np.zeros((n if own_screens else 0, 2, layout.ROWS, layout.WORDS), np.uint64),
        "rules": np.zeros((n, games.G_SIZE), np.int32),
        "rng_actions": np.zeros((n, MT_SIZE), np.uint32),
        "rng_machine": np.zeros((n, MT_SIZE), np.uint32),
        "rng_noops": np.zeros((n, MT_SIZE), np.uint32),
        "episode": np.zeros((n, stepper.E_SIZE), np.int64),
        "frames": np.zeros((n, stack, frame_bytes), np.uint8),
        "raw": np.zeros((n, channels, height, resize_plan.WIDTH), np.uint8),
        "source": np.zeros((n, height), np.int32),
    }


def make_scratch(p: resize.Plan, luts: np.ndarray) -> tuple[np.ndarray, resize.Scratch, np.ndarray, np.ndarray]:
    """Working space of one thread."""
    screens = np.zeros((3, layout.ROWS, layout.WORDS), np.uint64)
    return np.zeros(layout.LOG_SIZE, np.int64), resize.make_scratch(p, luts), screens[0], screens[1:]
