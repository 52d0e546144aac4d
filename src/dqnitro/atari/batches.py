"""What `AtariVec` hands to compiled code: memory of the machines, and one batch of work at a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from . import games, layout, resize, resize_plan, roms, stepper
from .decode import predecode
from .rng import MT_SIZE
from .workers import Job

if TYPE_CHECKING:
    from .vec import AtariVec

_HELD_BY_POOL = 3  # references to an array that only the pool knows: the list, the loop variable, getrefcount itself
_RUN: Any = stepper.run  # its 40 arguments are counted in `Batch`


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
    """One call for some machines: what they shall do and where the results go."""

    __slots__ = ("actions", "commands", "final_obs", "ids", "job", "obs", "results", "seeds", "strengths",
                 "terminated", "truncated")  # fmt: skip

    def __init__(
        self,
        env: AtariVec,
        ids: np.ndarray,
        commands: np.ndarray | None = None,
        seeds: np.ndarray | None = None,
        actions: np.ndarray | None = None,
        strengths: np.ndarray | None = None,
    ) -> None:
        n = len(ids)
        self.ids = ids
        self.commands = np.zeros(n, np.int64) if commands is None else commands
        self.seeds = np.zeros(n, np.int64) if seeds is None else seeds
        self.actions = np.zeros(n, np.int64) if actions is None else actions
        self.strengths = np.ones(n, np.float32) if strengths is None else strengths
        self.obs = env._buffers.take()
        self.final_obs: np.ndarray | None = None
        if env._same_step:
            # zeros until an episode ends; then it is the caller's and the next batch gets another one
            self.final_obs, env._unused_final = env._unused_final, None
            if self.final_obs is None:
                self.final_obs = np.zeros_like(self.obs)
        self.results = np.empty((stepper.R_SIZE, n), np.int32)
        self.terminated, self.truncated = np.empty(n, np.bool_), np.empty(n, np.bool_)
        flat = self.obs.reshape(n, -1)
        final = flat if self.final_obs is None else self.final_obs.reshape(n, -1)
        call: tuple[Any, ...] = (
            ids, self.commands, self.seeds, self.actions, self.strengths, *env._memory.values(), *env._rom,
            env._prop, env._ntsc, env._options, env._sticky, env._actions, env._plan, env._luts,
        )  # fmt: skip
        out = flat, final, self.results, self.terminated, self.truncated

        def work(worker: int, lo: int, hi: int) -> None:
            _RUN(lo, hi, *call, *env._scratch[worker], *out)

        self.job = Job(work, n, env._workers.threads)


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
