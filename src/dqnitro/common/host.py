"""Where a result was measured: machine, versions, commit, command. Stored with every result."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from typing import Any

PACKAGES = (
    "dqnitro",
    "torch",
    "numpy",
    "numba",
    "numba-cuda",
    "triton",
    "ale-py",
    "gymnasium",
    "opencv-python-headless",
)


def versions() -> dict[str, str]:
    """Installed versions of the packages that affect speed and results."""
    out = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out


def cpu_name() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cpu_flags() -> set[str]:
    """The CPU's instruction sets, as Linux names them; empty if unknown."""
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()


def usable_cores() -> int:
    """Cores that this process may use (a container often has fewer than the machine)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """CPU, cores, memory, operating system and GPU."""
    import psutil

    out: dict[str, Any] = {
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "os": f"{platform.system()} {platform.release()}",
        "gpu": None,
    }
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_available():
            p = torch.cuda.get_device_properties(0)
            out["gpu"] = f"{p.name}, {p.total_memory / 2**30:.0f} GiB, compute capability {p.major}.{p.minor}"
    return out


def commit() -> str:
    """The commit of the source, with `+dirty` if tracked files were changed; `unknown` outside a checkout."""
    here = pathlib.Path(__file__).resolve().parent

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", *args], cwd=here, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+dirty" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def command() -> str:
    """The command line to repeat this. `python -m dqnitro` runs a file called __main__.py, shown as `dqnitro`."""
    path = pathlib.Path(sys.argv[0])
    program = [path.name]
    if path.name == "__main__.py":
        package = path.parent.name
        program = ["dqnitro"] if package == "dqnitro" else ["python", "-m", package]
    return shlex.join([*program, *sys.argv[1:]])


def provenance() -> dict[str, Any]:
    """All of it, for the JSON of a result."""
    return {
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "command": command(),
    }
