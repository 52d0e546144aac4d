"""`cuda/kernels.step_kernel` in plain Python, one thread after the other, on memory that lies as it does on a GPU.

What a frame does is left to the test (`frame`); everything around it is the kernel's own code. `gpu_model` is the
counterpart for frames.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from dqnitro.atari.chips import layout
from dqnitro.atari.chips.cpu_predecode import predecode
from dqnitro.atari.chips.rng import MT_SIZE, mt_seed
from dqnitro.atari.cuda.start_phases import T_SIZE
from dqnitro.atari.cuda.vec import ARRAYS, LANES, WORDS_OF_MASKS
from dqnitro.atari.games import game_table, roms, table_language
from dqnitro.atari.vector import agent_step
from dqnitro.atari.vector.memory import make_shared
from dqnitro.atari.vector.options import VecOptions
from support.atari import gpu_model

PACKAGE = "dqnitro.atari.kernels_on_paper"


def _view(dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Callable[[int], np.ndarray]:
    """As `cuda/target._array`: an array of fixed strides at an address, whatever its real size is."""
    item = np.dtype(dtype).itemsize
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + item

    def at(address: Any) -> np.ndarray:
        if isinstance(address, np.ndarray):  # units get arrays here
            return address
        memory = (ctypes.c_uint8 * reach).from_address(int(address))
        return np.ndarray(shape, dtype, memory, 0, strides)

    return at


def _target() -> Any:
    """The accessors of `cuda/target.py`, on the host's memory."""
    target: Any = gpu_model._target()
    rows, words = layout.ROWS, layout.WORDS
    shapes: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
        "as_state": (np.int32, (layout.S_SIZE + WORDS_OF_MASKS,), (4 * LANES,)),
        "as_log": (np.int64, (layout.LOG_SIZE,), (8,)),
        "as_ram": (np.uint8, (256,), (LANES,)),
        "as_bytes": (np.uint8, (65536,), (1,)),
        "as_words": (np.uint32, (65536,), (4,)),
        "as_int32": (np.int32, (1024,), (4,)),
        "as_float32": (np.float32, (65536,), (4,)),
        "plain_int64": (np.int64, (65536,), (8,)),
        "as_screen": (np.uint64, (3, rows, words), (8 * rows * words, 8 * words, 8)),
    }  # fmt: skip
    for name, (dtype, shape, strides) in shapes.items():
        setattr(target, name, _view(dtype, shape, strides))
    target.LANES, target.STATE_ROWS, target.as_table = LANES, layout.S_SIZE + WORDS_OF_MASKS, None
    target.kernel = lambda **types: lambda function: function
    return target


class _Cuda(types.ModuleType):
    """What the kernels ask numba for."""

    def __init__(self) -> None:
        super().__init__("numba.cuda")
        self.thread = 0

    def jit(self, **options: Any) -> Any:
        return lambda function: function

    def grid(self, dimensions: int) -> int:
        return self.thread


def load(monkeypatch: Any) -> Any:
    """The module `kernels`; its frames are those of `Consoles`."""
    import numba

    cuda, kinds = _Cuda(), types.ModuleType("numba.cuda.types")
    kinds.float64 = None  # type: ignore[attr-defined]
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(gpu_model.FOLDER)]
    monkeypatch.setattr(numba, "cuda", cuda, raising=False)
    mine = {"numba.cuda": cuda, "numba.cuda.types": kinds, PACKAGE: package, f"{PACKAGE}.jit.target": _target()}
    for name, module in mine.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(
        sys.modules, f"{PACKAGE}.chips.cpu_fast", importlib.import_module(f"{PACKAGE}.cuda.cpu_dispatch")
    )
    kernels = importlib.import_module(f"{PACKAGE}.cuda.kernels")
    kernels.cuda = cuda
    return kernels


class Consoles:
    """Consoles of one game. `frame(m, g)` plays a frame of console m: it may end the game in `g`, its rules' memory."""

    def __init__(
        self,
        kernels: Any,
        game: str,
        n: int,
        frame: Callable[[int, np.ndarray], None],
        per_warp: int = 8,
        **options: Any,
    ) -> None:
        self.kernels, self.n, self.per_warp, self.frame = kernels, n, 8, frame
        rom = roms.load(game)
        self.shared = make_shared(VecOptions(**options), game_table.game(game), rom, predecode(rom))
        groups = -(-n // LANES)
        a = self.arrays = {
            "state": np.zeros((groups, layout.S_SIZE + WORDS_OF_MASKS, LANES), np.int32),
            "ram": np.zeros((groups, 256, LANES), np.uint8),
            "log": np.zeros((n, layout.LOG_PITCH), np.int64),
            "screen": np.zeros((n, 3, layout.ROWS, layout.WORDS), np.uint64),
            "rules": np.zeros((n, table_language.G_SIZE), np.int32),
            **{k: np.zeros((n, MT_SIZE), np.uint32) for k in ("rng_actions", "rng_machine", "rng_noops")},
            "episode": np.zeros((n, agent_step.E_SIZE), np.int64), "rom": self.shared.rom,
            "dec": self.shared.program, "options": self.shared.options, "action_set": self.shared.action_set,
            **{k: np.zeros(n, t) for k, t in (
                ("commands", np.int32), ("seeds", np.int64), ("actions", np.int64), ("strengths", np.float32),
                ("view", np.int32), ("terminated", np.uint8), ("truncated", np.uint8), ("away", np.int32))},
            "results": np.zeros((agent_step.R_SIZE, n), np.int32),
            "starts": np.zeros((n, T_SIZE), np.int64),
            "prop": np.repeat(self.shared.prop.astype(np.int32)[:, None], LANES, 1),
            "ntsc": np.repeat(self.shared.ntsc.astype(np.int32)[:, None], LANES, 1),
        }  # fmt: skip
        for k in ("rng_actions", "rng_machine", "rng_noops"):
            for m in range(n):
                mt_seed(a[k][m], m + 1)
        self._at = np.array([a[k].ctypes.data if k in a else 0 for k in ARRAYS], np.int64)
        self.played: Counter[int] = Counter()  # frames of each console in the last launch
        module = sys.modules[f"{PACKAGE}.cuda.start_in_steps"]
        module.any_frame = self._any_frame  # type: ignore[attr-defined]
        self._places = {a["rules"][m].ctypes.data: m for m in range(n)}

    def _any_frame(self, *arguments: Any) -> int:
        s, g = arguments[0], arguments[8]
        m = self._places[g.ctypes.data]
        self.played[m] += 1
        s[layout.S_BUFFER] ^= 1
        self.frame(m, g)
        return 0

    def step(self) -> None:
        """One launch of the step kernel, with games that begin in the background."""
        self.played.clear()
        warps = -(-self.n // self.per_warp)
        for thread in range(LANES * warps):
            self.kernels.cuda.thread = thread
            self.kernels.step_kernel(self._at.ctypes.data, self.n, self.per_warp, float(self.shared.sticky), 1)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]
