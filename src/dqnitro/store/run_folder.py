"""The folder of a run on disk: its name, config.json, summary.json, and its lock."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
from collections.abc import Sequence
from typing import IO, Any

from dqnitro.common.files import (
    LOCK,
    file_stem,
    hold_lock,
    is_locked,
    now_text,
    remove_temporaries,
    seal_holds,
    sealed,
    short,
    storage_error,
    write_json,
)
from dqnitro.common.host import provenance
from dqnitro.common.parsing import read_object
from dqnitro.config import Config
from dqnitro.errors import CheckpointError, ConfigError

LAST, BEST = "model.safetensors", "best.safetensors"  # weights: the newest, and those of the best evaluation


class RunFolder:
    """The files of a run on disk."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @staticmethod
    def create(path: pathlib.Path, config: Config, recipe: str, rungs: Sequence[str]) -> RunFolder:
        try:
            if path.exists() and not path.is_dir():
                raise ConfigError(f"{path} is a file, not a folder", "give another one with --run-dir")
            if path.exists() and any(path.iterdir()):
                raise ConfigError(
                    f"{path} is not empty", f"--resume {path} continues that run; --run-dir takes a new name"
                )
            path.mkdir(parents=True, exist_ok=True)
            folder = RunFolder(path)
            folder.lock()
            write_json(
                path / "config.json",
                sealed(
                    {
                        "recipe": recipe,
                        "rungs": list(rungs),
                        "config": config.to_dict(),
                        "started": now_text(),
                        **provenance(),
                    }
                ),
            )
        except OSError as e:
            raise ConfigError(
                f"cannot write the run folder {short(path)} ({e.strerror})", "choose another folder with --run-dir"
            ) from e
        return folder

    def discard(self) -> None:
        """Undo `create`, so that a run that could not start leaves nothing behind."""
        self.unlock()
        for name in ("config.json", LOCK):
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.path, self.path.parent):
            with contextlib.suppress(OSError):  # not empty: it existed before, or others use it
                folder.rmdir()

    def lock(self) -> None:
        """One process per run, until `unlock` or the end of the process."""
        try:
            file = hold_lock(self.path / LOCK)
        except OSError as e:
            raise storage_error(e, self.path) or CheckpointError(
                f"cannot write to {self.path} ({e.strerror})", "is it yours, and may you write to it?"
            ) from e
        if file is None:
            pid = self.read_summary().get("pid")
            raise CheckpointError(
                f"{self.path} is being trained by another process (number {pid})", "stop that one first"
            )
        self._lock = file
        remove_temporaries(self.path)

    def check_places(self) -> None:
        """Refuse a folder where a file belongs, and a file where a folder belongs, before anything is written."""
        for name in ("metrics.jsonl", "summary.json", LAST, BEST):
            if (self.path / name).is_dir():
                raise CheckpointError(f"{self.path / name} is a folder, expected a file", "move it away")
        for name in ("checkpoints", "tensorboard", "evaluations"):
            if (self.path / name).exists() and not (self.path / name).is_dir():
                raise CheckpointError(f"{self.path / name} is a file, expected a folder", "move it away")

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def is_locked(self) -> bool:
        """Whether a process is training this run now."""
        return self._lock is not None or is_locked(self.path)

    def state(self) -> str:
        """How the run stands: a run that says it is running and that no process holds has crashed."""
        state = str(self.read_summary().get("state", "crashed"))
        return "crashed" if state == "running" and not self.is_locked() else state

    def read_summary(self) -> dict[str, Any]:
        """Empty if it is missing or damaged."""
        found = read_object(self.path / "summary.json")
        return found if seal_holds(found) else {}

    def write_summary(self, state: str, **facts: Any) -> None:
        self._write({"state": state, "pid": os.getpid(), "updated": now_text(), **facts})

    def add_to_summary(self, facts: dict[str, Any]) -> None:
        """What became known after the run had ended."""
        self._write(self.read_summary() | facts)

    def _write(self, summary: dict[str, Any]) -> None:
        write_json(self.path / "summary.json", sealed(summary))


def new_run_dir(config: Config, recipe: str, root: pathlib.Path, seeds: str = "") -> pathlib.Path:
    """runs/pong-auto-s1-20260131-120000 (several seeds: -s1-8-), with a number appended if that exists already."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = f"{file_stem(config.env_id)}-{recipe}-{seeds or f's{config.seed}'}-{stamp}"
    path, k = root / name, 2
    while path.exists():
        path, k = root / f"{name}-{k}", k + 1
    return path
