"""Tuning of this process: environment variables that torch reads when it is loaded, how glibc treats freed memory, and
what torch imports.

`import dqnitro` calls `prepare`, so that it runs before torch is imported.
"""

from __future__ import annotations

import os
import pathlib

SHARED_GPU = "DQNITRO_SHARED_GPU"  # set for processes that share a GPU and the cores with others
BLOCKING_SYNC = 4  # CU_CTX_SCHED_BLOCKING_SYNC of CUDA's driver
# CPUID leaf 0x1D describes the tile palettes of AMX.
TILE_PALETTES = 0x1D
ANSWER = "__dynamo_disable"  # of torch's compiler, beside a method (torch/_compile.py)


def amx_is_broken(cpuinfo: str) -> bool:
    """Whether this CPU reports AMX but not the size of its tiles.

    Some virtual machines show the AMX flags but end CPUID before leaf 0x1D. oneDNN then configures empty tiles, and the
    first product of two bfloat16 matrices kills the process with "Illegal instruction".
    """
    facts = dict(line.split(":", 1) for line in cpuinfo.split("\n\n")[0].splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    level = facts.get("cpuid level", "")
    return "amx_tile" in facts.get("flags", "").split() and level.isdigit() and int(level) < TILE_PALETTES


def prepare() -> None:
    """Set the environment variables; a variable that the user has set stays."""
    # Idle threads of libgomp spin for milliseconds. As soon as another process wants the cores (a browser is enough),
    # an update of 26 ms takes 430 ms. Sleeping immediately (OMP_WAIT_POLICY=PASSIVE) costs a third of the speed on an
    # idle machine. A short spin costs a few per cent and avoids most of both losses.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if "ONEDNN_MAX_CPU_ISA" not in os.environ:
        try:
            with pathlib.Path("/proc/cpuinfo").open() as file:
                cpuinfo = file.read(8192)  # the first core is enough
        except OSError:  # not Linux
            return
        if amx_is_broken(cpuinfo):
            os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next allocation; False where there is no glibc.

    By default, blocks of megabytes go back to the system and return page by page. The textbook update frees and
    allocates the same arrays every time: 3,000 page faults, which are 5% of an update.
    """
    import ctypes

    try:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    except (OSError, TypeError):  # Windows: ctypes cannot open the process itself
        return False
    # trim threshold, top pad, mmap threshold (32 MB is the largest that glibc accepts)
    return mallopt is not None and all([mallopt(-1, 1 << 30), mallopt(-2, 1 << 24), mallopt(-3, 1 << 25)])


def optimizers_without_compiler() -> None:
    """Let torch's optimisers be made without its compiler, for those whose `step` is ours.

    Some of their methods import it (900 modules, more CPU time than all of `import torch`) only to tell it to leave
    them alone. A process in which nothing is compiled has nothing to tell. Torch keeps the answer beside the method:
    here it is given beforehand. Where a version of torch asks in another way, this has no effect. (torch's own `step`
    imports the compiler in any case: better while a run starts than in its first update.)
    """
    import sys

    from torch.optim import Optimizer

    if "torch._dynamo" in sys.modules:
        return
    for method in (Optimizer.add_param_group, Optimizer.zero_grad, Optimizer.state_dict, Optimizer.load_state_dict):
        function = getattr(method, "__wrapped__", None)
        if function is not None and getattr(function, ANSWER, None) is None:
            setattr(function, ANSWER, function)


def sleep_while_gpu_works(library: str = "libcuda.so.1") -> bool:
    """Let threads that wait for the GPU sleep, in a process that shares it with others; False where that was not done.

    By default they spin, which answers some hundredths of a millisecond sooner and takes a core that another run could
    play on. It has to be said before the first use of CUDA.
    """
    if not os.environ.get(SHARED_GPU):
        return False
    import ctypes

    try:
        driver = ctypes.CDLL(library)
        set_flags = driver.cuDevicePrimaryCtxSetFlags_v2
    except (OSError, AttributeError):  # no driver, or one from before CUDA 11
        return False
    device = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return False
    return set_flags(device, BLOCKING_SYNC) == 0
