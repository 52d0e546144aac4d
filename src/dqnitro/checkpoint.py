"""Save and resume. A checkpoint is a folder of safetensors files and a JSON manifest; no pickle, so it never runs code.

    RUN/checkpoints/000123456/        steps at which it was made
        learner.safetensors  replay.safetensors  envs.safetensors  agent.safetensors
        manifest.json                 format, config, clock, generators, and size and checksum of every file;
                                      which arrays are compressed (`squeezed`)

It is written under a temporary name, flushed to disk, and renamed: a folder with a proper name is complete. The
previous checkpoint is deleted only after that, so a kill or a full disk at any moment leaves a good one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pathlib
import shutil
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from dqnitro.compress import compress, decompress
from dqnitro.errors import CheckpointError

FORMAT = 2  # 1 had no compressed arrays; it can still be read
MAGIC = "dqnitro-checkpoint"


def _digest(path: pathlib.Path) -> str:
    """blake2b of a file."""
    h = hashlib.blake2b(digest_size=16)
    with path.open("rb") as f:
        while block := f.read(1 << 22):
            h.update(block)
    return h.hexdigest()


def _sync(path: pathlib.Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def save(
    folder: pathlib.Path, steps: int, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]
) -> pathlib.Path:
    """Write a checkpoint. If that fails (a full disk included), the earlier ones stay as they were."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob(".tmp-*"):
        shutil.rmtree(stale, ignore_errors=True)
    tmp, final = folder / f".tmp-{os.getpid()}", folder / f"{steps:012d}"
    tmp.mkdir()
    try:
        files = {}
        for name, group in arrays.items():
            path = tmp / f"{name}.safetensors"
            stored, squeezed = compress({k: np.asarray(v, order="C") for k, v in group.items()})
            save_file(stored, path)
            _sync(path)
            files[path.name] = {"bytes": path.stat().st_size, "blake2b": _digest(path), "squeezed": squeezed}
        manifest = {"magic": MAGIC, "format": FORMAT, "steps": steps, "files": files, **record}
        path = tmp / "manifest.json"
        path.write_text(json.dumps(manifest, indent=1))
        _sync(path)
        _sync(tmp)
        if final.exists():  # the same step again (a resumed run that was stopped immediately): the new one is as good
            shutil.rmtree(final)
        tmp.rename(final)
        _sync(folder)
    except OSError as e:
        shutil.rmtree(tmp, ignore_errors=True)
        if e.errno == errno.ENOSPC:
            raise CheckpointError(
                f"the disk of {folder} is full; the last good checkpoint is kept",
                "free some space, then --resume the run",
            ) from e
        raise
    for old in complete(folder):
        if old != final:
            shutil.rmtree(old, ignore_errors=True)
    return final


def complete(folder: pathlib.Path) -> list[pathlib.Path]:
    """The finished checkpoints of a run, oldest first."""
    return sorted(p for p in folder.glob("[0-9]*") if (p / "manifest.json").is_file())


def read_manifest(path: pathlib.Path) -> dict[str, Any]:
    """The manifest; CheckpointError if it cannot be used."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except (OSError, ValueError) as e:
        raise CheckpointError(f"{path} is not a readable checkpoint ({type(e).__name__}: {e})") from e
    if not isinstance(manifest, dict) or manifest.get("magic") != MAGIC:
        raise CheckpointError(f"{path}/manifest.json was not written by dqnitro", "give a folder under runs/")
    if manifest.get("format", 0) > FORMAT:
        raise CheckpointError(
            f"{path} has format {manifest['format']}, this dqnitro reads up to {FORMAT}",
            "update dqnitro; nothing was changed",
        )
    return manifest


def load(run: pathlib.Path) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Arrays and record of a run's newest checkpoint. Every file is verified before anything is used."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    found = complete(run / "checkpoints")
    if not found:
        raise CheckpointError(f"{run} holds no checkpoint", "`dqnitro runs` lists the runs that can be resumed")
    path = found[-1]
    manifest = read_manifest(path)
    arrays = {}
    try:
        for name, facts in manifest["files"].items():
            file = path / name
            if file.name != name:
                raise CheckpointError(f"{path}: manifest names a file outside the checkpoint: {name!r}")
            if not file.is_file() or file.stat().st_size != facts["bytes"] or _digest(file) != facts["blake2b"]:
                raise CheckpointError(f"{file} is damaged or missing (size or checksum differ)", "nothing was changed")
            arrays[name.removesuffix(".safetensors")] = decompress(load_file(file), facts.get("squeezed", {}))
    except (SafetensorError, KeyError, TypeError, AttributeError, ValueError, zlib.error) as e:
        raise CheckpointError(f"{path} is damaged ({type(e).__name__}: {e})", "nothing was changed") from e
    return arrays, manifest
