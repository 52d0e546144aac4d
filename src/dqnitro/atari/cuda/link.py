"""From PTX to machine code: the assembler (`ptxas`), where there is one, and the linker (nvJitLink).

The linker alone can do all of it, but then every program is assembled from its first line, units included. With the
assembler the units become objects once, and a game's program is assembled alone.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

NEEDS_NUMBA_CUDA = "compiling the console for CUDA needs numba-cuda"
INSTALL = "hint: pip install 'dqnitro[cuda]'"
# Where packages keep the assembler: NVIDIA's own, and triton, which every torch for CUDA brings.
PLACES = ("nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "triton/backends/nvidia/bin")


class CudaUnavailable(RuntimeError):
    """The console cannot run on a GPU here; the message says why and what to do."""


def bindings(name: str) -> Any:
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise CudaUnavailable(f"{NEEDS_NUMBA_CUDA} ({error}). {INSTALL}") from None


@functools.cache
def assemblers() -> list[str]:
    """All assemblers that can be found, the likeliest first."""
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    found = [shutil.which("ptxas"), *(shutil.which("ptxas", path=f"{home}/bin") for home in homes if home)]
    for place in PLACES:
        package = importlib.util.find_spec(place.partition("/")[0])
        for root in (package and package.submodule_search_locations) or ():
            found.append(shutil.which("ptxas", path=str(Path(root).parent / place)))
    return list(dict.fromkeys(path for path in found if path))


def _arch(capability: tuple[int, int]) -> str:
    return f"-arch=sm_{capability[0]}{capability[1]}"


def assembled(text: str, capability: tuple[int, int], registers: int) -> bytes | None:
    """PTX as an object that can be linked, with at most `registers` registers per thread; None if it cannot be done."""
    options = [_arch(capability), "-O3", f"-maxrregcount={registers}", "-c"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            source, result = Path(folder) / "unit.ptx", Path(folder) / "unit.cubin"
            source.write_text(text)
            for path in assemblers():
                command = [path, *options, str(source), "-o", str(result)]
                if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                    return result.read_bytes()
    except OSError:  # no folder for temporary files, or an assembler that cannot be started
        pass
    return None


def all_assembled(units: dict[str, str], capability: tuple[int, int], registers: int) -> dict[str, bytes] | None:
    """Objects of all units, made at the same time on all cores; None if one of them cannot be made."""
    if not assemblers():
        return None
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda text: assembled(text, capability, registers), units.values()))
    return {name: data for name, data in zip(units, made, strict=True) if data} if all(made) else None


def link(parts: dict[str, str] | dict[str, bytes], capability: tuple[int, int], registers: int) -> bytes:
    """Machine code from PTX (text) or objects (bytes), with at most `registers` registers per thread."""
    nvjitlink = bindings("nvjitlink")
    options = [_arch(capability), "-O3", f"-maxrregcount={registers}"]
    handle = nvjitlink.create(len(options), options)
    try:
        for name, part in parts.items():
            data = part.encode() if isinstance(part, str) else part
            kind = nvjitlink.InputType.PTX if isinstance(part, str) else nvjitlink.InputType.CUBIN
            nvjitlink.add_data(handle, kind, data, len(data), name)
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
