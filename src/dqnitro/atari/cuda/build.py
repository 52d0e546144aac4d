"""The console on a GPU: compile the same functions for CUDA, link them, cache the result, launch.

The modules of this package are loaded a second time under the name ``dqnitro.atari.on_cuda``, with `cuda/target.py` in
place of `jit/target.py` and `cuda/cpu_dispatch.py` in place of `chips/cpu_fast.py`: apart from the interpreter of
instructions, nothing of the console is written twice. Numba is needed only for the first start on a GPU; the linked
program is cached, and later starts load it in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import json
import os
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..jit.dependencies import closure

ATARI = Path(__file__).parents[1]
PACKAGE = "dqnitro.atari.on_cuda"
OLDEST = (7, 5)  # the oldest compute capability that CUDA 13 compiles for
# Registers of a thread. With 64, 32 warps fit a multiprocessor and hide each other's waiting; few consoles gain nothing
# by it.
FEW_REGISTERS, MANY_REGISTERS = 128, 64
NEEDS_NUMBA_CUDA = "compiling the console for CUDA needs numba-cuda"
INSTALL = "hint: pip install 'dqnitro[cuda]'"


class CudaUnavailable(RuntimeError):
    """The console cannot run on a GPU here; the message says why and what to do."""


def _bindings(name: str) -> Any:
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise CudaUnavailable(f"{NEEDS_NUMBA_CUDA} ({error}). {INSTALL}") from None


def _check(result: tuple[Any, ...]) -> Any:
    if int(result[0]) != 0:
        raise RuntimeError(f"CUDA: {_bindings('driver').CUresult(int(result[0])).name}")
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


def link(units: dict[str, str], capability: tuple[int, int], registers: int) -> bytes:
    """Machine code for a GPU of this compute capability, with at most `registers` registers per thread."""
    nvjitlink = _bindings("nvjitlink")
    options = [f"-arch=sm_{capability[0]}{capability[1]}", "-O3", f"-maxrregcount={registers}"]
    handle = nvjitlink.create(len(options), options)
    try:
        for name, text in units.items():
            data = text.encode()
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), name)
        nvjitlink.complete(handle)
        out = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, out)
        return bytes(out)
    except nvjitlink.nvJitLinkError:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise RuntimeError(f"linking the console for sm_{capability[0]}{capability[1]}: {log.decode()}") from None
    finally:
        nvjitlink.destroy(handle)


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("DQNITRO_CACHE") or Path(root) / "dqnitro")


def _sources() -> list[Path]:
    """The files that the CUDA program is made of: the kernels and all that they import from this package."""
    here = Path(__file__).parent

    def read(path: Path) -> bytes | None:
        return path.read_bytes() if path.exists() and path != ATARI / "jit" / "target.py" else None

    return sorted(closure([here / "kernels.py", here / "target.py", here / "cpu_dispatch.py"], read))


def build(capability: tuple[int, int], many: bool = False) -> tuple[bytes, dict[str, str]]:
    """The program and the names of its kernels: from the cache, or compiled (half a minute to a minute).

    There are two programs, which differ in their registers per thread: one for `many` consoles and one for few.
    """
    digest = hashlib.sha256(str(capability).encode())
    for path in _sources():
        digest.update(path.read_bytes())
    base = _cache_folder() / f"console-sm{capability[0]}{capability[1]}-{digest.hexdigest()[:16]}"
    names = base.with_suffix(".json")
    codes = {kind: base.with_name(f"{base.name}{'-many' if kind else ''}.cubin") for kind in (False, True)}
    try:
        return codes[many].read_bytes(), json.loads(names.read_text())
    except (OSError, ValueError):
        pass
    print("dqnitro: compiling the console for this GPU, once (about a minute) ...", file=sys.stderr, flush=True)
    units = compile_units(capability)
    entries = {k: m[1] for k, text in units.items() if (m := re.search(r"\.entry\s+([\w$]+)\s*\(", text))}
    programs = {kind: link(units, capability, MANY_REGISTERS if kind else FEW_REGISTERS) for kind in codes}
    try:
        base.parent.mkdir(parents=True, exist_ok=True)
        files = [(codes[kind], program) for kind, program in programs.items()]
        for path, data in (*files, (names, json.dumps(entries).encode())):
            tmp = path.with_name(f"{path.name}.{os.getpid()}")
            tmp.write_bytes(data)
            tmp.replace(path)
    except OSError:
        pass  # the cache cannot be written: the next start compiles again
    return programs[many], entries


class Kernels:
    """The console's kernels on one GPU, launched on torch's current stream (so a CUDA graph can record them)."""

    def __init__(self, device: int, many: bool = False) -> None:
        torch, driver = require(device), _bindings("driver")
        self._driver, self._torch = driver, torch
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # makes the context
            torch.empty(1, device="cuda")
            program, entries = build(torch.cuda.get_device_capability(device), many)
            self._module = _check(driver.cuModuleLoadData(program))
            self._functions = {
                k: _check(driver.cuModuleGetFunction(self._module, name.encode())) for k, name in entries.items()
            }

    def launch(self, name: str, blocks: int, threads: int, *arguments: int | float) -> None:
        kinds = tuple(ctypes.c_double if isinstance(a, float) else ctypes.c_int64 for a in arguments)
        stream = self._torch.cuda.current_stream().cuda_stream
        _check((
            self._driver.cuLaunchKernel(
                self._functions[name], blocks, 1, 1, threads, 1, 1, 0, stream, (arguments, kinds), 0
            )[0],
            None,
        ))  # fmt: skip


@functools.cache
def kernels(device: int, many: bool = False) -> Kernels:
    """The kernels of a GPU, loaded once per process for many and once for few consoles."""
    return Kernels(device, many)
