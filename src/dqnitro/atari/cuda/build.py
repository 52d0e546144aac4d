"""The console on a GPU: compile the same functions for CUDA, link them, cache the result, launch.

The modules of this package are loaded a second time under the name ``dqnitro.atari.on_cuda``, with `cuda/target.py` in
place of `jit/target.py` and `cuda/cpu_dispatch.py` in place of `chips/cpu_fast.py`: apart from the interpreter of
instructions, nothing of the console is written twice. Numba is needed only for the first start on a GPU; what it
compiles is cached, and later starts load it in milliseconds.

A game can be part of what is linked, as a translated program (`cuda/program.py`). Each program is a file of its own.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import re
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..games.roms import Rom
from ..jit import code_cache
from ..jit.compile_early import cache_folder
from ..jit.dependencies import closure
from ..jit.parallel_compile import locked
from .link import INSTALL, NEEDS_NUMBA_CUDA, CudaUnavailable, all_assembled, assembled, bindings, link
from .program import NAME as PROGRAM
from .program import key, nothing, ptx

ATARI = Path(__file__).parents[1]
PACKAGE = "dqnitro.atari.on_cuda"
OLDEST = (7, 5)  # the oldest compute capability that CUDA 13 compiles for
# Registers of a thread. With 64, 32 warps fit a multiprocessor and hide each other's waiting; few consoles gain nothing
# by it.
FEW_REGISTERS, MANY_REGISTERS = 128, 64


def _check(result: tuple[Any, ...]) -> Any:
    if int(result[0]) != 0:
        raise RuntimeError(f"CUDA: {bindings('driver').CUresult(int(result[0])).name}")
    return result[1] if len(result) == 2 else result[1:]


def require(device: int | None = None) -> Any:
    """torch with a usable GPU, or one clear line."""
    try:
        import torch
    except ImportError:
        raise CudaUnavailable("the console on a GPU hands out torch tensors. hint: pip install torch") from None
    if not torch.cuda.is_available():
        raise CudaUnavailable(
            f"this torch ({torch.__version__}) sees no CUDA device. "
            "hint: is there an NVIDIA driver, and is it a CUDA build of torch? device='cpu' works everywhere"
        )
    count = torch.cuda.device_count()
    if device is not None and device >= count:
        raise CudaUnavailable(f"there is no GPU number {device}, the last one is {count - 1}. hint: device='cuda'")
    if (have := torch.cuda.get_device_capability(device)) < OLDEST:
        raise CudaUnavailable(
            f"{torch.cuda.get_device_name(device)} is too old: it has compute capability {have[0]}.{have[1]}, "
            f"{OLDEST[0]}.{OLDEST[1]} or newer is needed. hint: device='cpu'"
        )
    return torch


def check_memory(need: int, free: int, consoles: int) -> None:
    """Raise if the GPU has less free memory than this many consoles need, and say how many would fit."""
    if need > free:
        raise CudaUnavailable(
            f"{consoles} consoles need {need / 2**30:.1f} GiB of GPU memory, {free / 2**30:.1f} GiB are free. "
            f"hint: {int(consoles * free / need)} would fit"
        )


def _import_compiler() -> None:
    try:
        importlib.import_module("numba_cuda")
        importlib.import_module("numba.cuda.extending")
    except ImportError as error:
        raise CudaUnavailable(f"{NEEDS_NUMBA_CUDA} ({error}). {INSTALL}") from None
    except AttributeError as error:
        import numpy as np

        raise CudaUnavailable(
            f"this numba-cuda does not work with NumPy {np.__version__} ({error}). hint: pip install 'numpy<2.5'"
        ) from None


@contextlib.contextmanager
def _row_stack() -> Iterator[None]:
    """numba-cuda 0.30 uses `numpy.row_stack`, which NumPy 2.5 removed: define it while numba-cuda is imported."""
    import numpy as np

    names: dict[str, Any] = np.__dict__
    if hasattr(np, "row_stack"):
        yield
        return
    names["row_stack"] = np.vstack  # the same function
    try:
        yield
    finally:
        del names["row_stack"]


def compile_units(capability: tuple[int, int]) -> dict[str, str]:
    """PTX of every unit and kernel for a GPU of this compute capability."""
    with _row_stack():
        _import_compiler()
        for name in [n for n in sys.modules if n == PACKAGE or n.startswith(PACKAGE + ".")]:
            del sys.modules[name]
        package = types.ModuleType(PACKAGE)
        package.__path__ = [str(ATARI)]
        sys.modules[PACKAGE] = package
        target: Any = importlib.import_module(f"{PACKAGE}.cuda.target")
        target.CAPABILITY = capability
        sys.modules[f"{PACKAGE}.jit.target"] = target
        sys.modules[f"{PACKAGE}.chips.cpu_fast"] = importlib.import_module(
            f"{PACKAGE}.cuda.cpu_dispatch"
        )  # which imports the real one
        importlib.import_module(f"{PACKAGE}.cuda.kernels")
        return dict(target.UNITS)


def _sources() -> list[Path]:
    """The files that the CUDA program is made of: the kernels and all that they import from this package."""
    here = Path(__file__).parent

    def read(path: Path) -> bytes | None:
        return path.read_bytes() if path.exists() and path != ATARI / "jit" / "target.py" else None

    return sorted(closure([here / "kernels.py", here / "target.py", here / "cpu_dispatch.py"], read))


class Store:
    """Files of one console: of these sources, for one kind of GPU. What is damaged or cannot be written is missing."""

    def __init__(self, capability: tuple[int, int]) -> None:
        digest = hashlib.sha256(str(capability).encode())
        for path in _sources():
            digest.update(path.read_bytes())
        self.stamp = digest.hexdigest()
        self.folder = cache_folder()
        self._base = f"console-sm{capability[0]}{capability[1]}-{self.stamp[:16]}"

    def load(self, name: str) -> bytes | None:
        path = self.folder / f"{self._base}-{name}"
        try:
            return code_cache.opened(str(path))
        except FileNotFoundError:
            return None
        except (OSError, code_cache.Damaged) as error:
            code_cache.say_once(f"dqnitro: {path} is of no use ({error!r}); making it again")
            return None

    def save(self, name: str, content: bytes) -> None:
        path = self.folder / f"{self._base}-{name}"
        part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(code_cache.sealed(content))
            part.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            code_cache.say_once(f"dqnitro: cannot keep the console's machine code in {self.folder} ({error.strerror})")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One process at a time, where there is a folder."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            yield


def _units(store: Store, capability: tuple[int, int]) -> dict[str, str]:
    """PTX of all units and kernels: kept, or compiled."""
    kept = store.load("units.json")
    if kept is not None:
        return json.loads(kept)
    print("dqnitro: compiling the console for this GPU, once (about a minute) ...", file=sys.stderr, flush=True)
    units = compile_units(capability)
    store.save("units.json", json.dumps(units).encode())
    return units


def _objects(
    store: Store, units: dict[str, str], capability: tuple[int, int], registers: int
) -> dict[str, bytes] | None:
    """The units as objects, if there is an assembler."""
    kept = store.load(f"{registers}.objects")
    if kept is not None:
        return {name: base64.b64decode(text) for name, text in json.loads(kept).items()}
    made = all_assembled(units, capability, registers)
    if made is not None:
        texts = {name: base64.b64encode(data).decode() for name, data in made.items()}
        store.save(f"{registers}.objects", json.dumps(texts).encode())
    return made


def _linked(store: Store, units: dict[str, str], program: str, capability: tuple[int, int], registers: int) -> bytes:
    """The units and the program (PTX) together."""
    objects = _objects(store, units, capability, registers)
    last = assembled(program, capability, registers) if objects is not None else None
    if objects is not None and last is not None:
        with contextlib.suppress(RuntimeError):  # an object of another version than the linker's, perhaps
            return link(objects | {PROGRAM: last}, capability, registers)
    return link(units | {PROGRAM: program}, capability, registers)


def _packed(code: bytes, names: dict[str, str]) -> bytes:
    head = json.dumps(names).encode()
    return len(head).to_bytes(8, "little") + head + code


def _unpacked(content: bytes) -> tuple[bytes, dict[str, str]]:
    end = 8 + int.from_bytes(content[:8], "little")
    return content[end:], json.loads(content[8:end])


def build(
    capability: tuple[int, int], registers: int = FEW_REGISTERS, rom: Rom | None = None, together: bool = False
) -> tuple[bytes, dict[str, str]]:
    """Machine code and the names of its kernels: from the cache, or compiled (half a minute to a minute).

    There are several, which differ in their registers per thread, and in the game that is translated, if there is one:
    `together` is for consoles that share a warp.
    """
    store = Store(capability)
    name = f"{registers}.cubin" if rom is None else f"{registers}-{key(rom, capability, together)}.cubin"
    kept = store.load(name)
    if kept is None:
        with store.alone():
            kept = store.load(name)  # by another process meanwhile
            if kept is None:
                kept = _made(store, capability, registers, rom, together)
                store.save(name, kept)
    return _unpacked(kept)


def _made(store: Store, capability: tuple[int, int], registers: int, rom: Rom | None, together: bool) -> bytes:
    units = _units(store, capability)
    names = {k: m[1] for k, text in units.items() if (m := re.search(r"\.entry\s+([\w$]+)\s*\(", text))}
    if rom is None:
        return _packed(_linked(store, units, nothing(), capability, registers), names)
    what, began = rom.name or "this ROM", time.perf_counter()
    code_cache.say_once(f"dqnitro: translating {what} to machine code for this GPU, once ...")
    code = _linked(store, units, ptx(rom, capability, together), capability, registers)
    code_cache.say_once(f"dqnitro: translated {what} for this GPU in {time.perf_counter() - began:.1f} s")
    return _packed(code, names)


class Kernels:
    """The console's kernels on one GPU, launched on torch's current stream (so a CUDA graph can record them)."""

    def __init__(
        self, device: int, registers: int = FEW_REGISTERS, rom: Rom | None = None, together: bool = False
    ) -> None:
        torch, driver = require(device), bindings("driver")
        self._driver, self._torch = driver, torch
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # makes the context
            torch.empty(1, device="cuda")
            program, entries = build(torch.cuda.get_device_capability(device), registers, rom, together)
            self._module = _check(driver.cuModuleLoadData(program))
            self._functions = {
                k: _check(driver.cuModuleGetFunction(self._module, name.encode())) for k, name in entries.items()
            }

    def prefer_shared(self, name: str, percent: int) -> None:
        """How much of a processor's L1 memory shall be shared memory where this kernel runs; -1 leaves it to CUDA."""
        what = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        _check(self._driver.cuFuncSetAttribute(self._functions[name], what, percent))

    def launch(self, name: str, blocks: int, threads: int, *arguments: int | float) -> None:
        kinds = tuple(ctypes.c_double if isinstance(a, float) else ctypes.c_int64 for a in arguments)
        stream = self._torch.cuda.current_stream().cuda_stream
        _check((
            self._driver.cuLaunchKernel(
                self._functions[name], blocks, 1, 1, threads, 1, 1, 0, stream, (arguments, kinds), 0
            )[0],
            None,
        ))  # fmt: skip


_LOADED: dict[tuple[Any, ...], Kernels] = {}


def kernels(device: int, registers: int = FEW_REGISTERS, rom: Rom | None = None, together: bool = False) -> Kernels:
    """The kernels of a GPU, loaded once per process for each number of registers and each translated game."""
    what = (device, registers) if rom is None else (device, registers, rom.cartridge, rom.image.tobytes(), together)
    if what not in _LOADED:
        _LOADED[what] = Kernels(device, registers, rom, together)
    return _LOADED[what]
