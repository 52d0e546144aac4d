"""Environment variables that torch and its libraries read when they are loaded. A variable that the user has set stays."""

from __future__ import annotations

import os
import pathlib

# CPUID leaf 0x1D describes the tile palettes of AMX.
TILE_PALETTES = 0x1D


def amx_is_broken(cpuinfo: str) -> bool:
    """Whether this CPU says that it has AMX and cannot say how large its tiles are.

    Some virtual machines show the flags of AMX but cut CPUID off before leaf 0x1D. oneDNN then configures empty tiles, and the
    first product of two bfloat16 matrices ends the process with "Illegal instruction".
    """
    facts = dict(line.split(":", 1) for line in cpuinfo.split("\n\n")[0].splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    level = facts.get("cpuid level", "")
    return "amx_tile" in facts.get("flags", "").split() and level.isdigit() and int(level) < TILE_PALETTES


def prepare() -> None:
    # libgomp's idle threads spin for milliseconds, and as soon as anything else wants the cores (another process, a browser)
    # an update of 26 ms takes 430. Sleeping at once (OMP_WAIT_POLICY=PASSIVE) costs a third of the speed of an idle machine.
    # A short spin costs a few per cent and keeps most of both.
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
