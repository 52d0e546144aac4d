"""The folder of a run on disk: its name, config.json, summary.json, and its lock."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from dqnitro.config import Config
from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.files import file_stem, now_text, pid_alive, write_json
from dqnitro.host import provenance


class RunFolder:
    """The files of a run on disk."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    @staticmethod
    def create(path: pathlib.Path, config: Config, recipe: str, rungs: Sequence[str]) -> RunFolder:
        if path.exists() and any(path.iterdir()):
            raise ConfigError(f"{path} is not empty", f"--resume {path} continues that run; --run-dir takes a new name")
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_json(
                path / "config.json",
                {
                    "recipe": recipe,
                    "rungs": list(rungs),
                    "config": config.to_dict(),
                    "started": now_text(),
                    **provenance(),
                },
            )
        except OSError as e:
            raise ConfigError(
                f"cannot write the run folder {path} ({e.strerror})", "choose another folder with --run-dir"
            ) from e
        return RunFolder(path)

    def discard(self) -> None:
        """Undo `create`, so that a run that could not start leaves nothing behind."""
        (self.path / "config.json").unlink(missing_ok=True)
        for folder in (self.path, self.path.parent):
            with contextlib.suppress(OSError):  # not empty: it existed before, or others use it
                folder.rmdir()

    def lock(self) -> None:
        """Allow one process per run; a dead owner does not count."""
        state = self.read_summary()
        pid = state.get("pid")
        if state.get("state") == "running" and pid != os.getpid() and pid_alive(pid):
            raise CheckpointError(f"{self.path} is being trained by process {pid}", "stop that process first")

    def read_summary(self) -> dict[str, Any]:
        try:
            return json.loads((self.path / "summary.json").read_text())
        except (OSError, ValueError):
            return {}

    def write_summary(self, state: str, **facts: Any) -> None:
        write_json(self.path / "summary.json", {"state": state, "pid": os.getpid(), "updated": now_text(), **facts})


def new_run_dir(config: Config, recipe: str, root: pathlib.Path, seeds: str = "") -> pathlib.Path:
    """runs/pong-auto-s1-20260131-120000 (several seeds: -s1-8-), with a number appended if that exists already."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = f"{file_stem(config.env_id)}-{recipe}-{seeds or f's{config.seed}'}-{stamp}"
    path, k = root / name, 2
    while path.exists():
        path, k = root / f"{name}-{k}", k + 1
    return path
