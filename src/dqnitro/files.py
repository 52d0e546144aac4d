"""Small tools for files and names: atomic JSON, time stamps, file names, whether a process is alive."""

from __future__ import annotations

import datetime
import json
import math
import os
import pathlib
from typing import Any


def write_json(path: pathlib.Path, data: Any) -> None:
    """Atomic: a reader sees either the old file or the new one."""
    tmp = path.with_name(f".{path.name}.{os.getpid()}")
    tmp.write_text(json.dumps(data, indent=1, default=str) + "\n")
    tmp.replace(path)


def plain(value: Any) -> Any:
    """JSON-ready: named tuples become objects, tuples lists, and numbers that are not finite null (JSON has no NaN)."""
    if (fields := getattr(value, "_asdict", None)) is not None:  # an Interval
        return {k: plain(v) for k, v in fields().items()}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, pathlib.Path):
        return str(value)
    return value


def pid_alive(pid: Any) -> bool:
    import psutil

    return isinstance(pid, int) and psutil.pid_exists(pid)


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def file_stem(env_id: str) -> str:
    """The name of a game or environment, safe for a file name."""
    return "".join(ch if ch.isalnum() or ch in "_-" else "-" for ch in env_id)
