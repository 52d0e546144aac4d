"""Small tools for files and names: atomic JSON, time stamps, file names, whether a process is alive."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
from typing import Any


def write_json(path: pathlib.Path, data: Any) -> None:
    """Atomic: a reader sees either the old file or the new one."""
    tmp = path.with_name(f".{path.name}.{os.getpid()}")
    tmp.write_text(json.dumps(data, indent=1, default=str) + "\n")
    tmp.replace(path)


def pid_alive(pid: Any) -> bool:
    import psutil

    return isinstance(pid, int) and psutil.pid_exists(pid)


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def file_stem(env_id: str) -> str:
    """The name of a game or environment, safe for a file name."""
    return "".join(ch if ch.isalnum() or ch in "_-" else "-" for ch in env_id)
