"""Save and resume. A checkpoint is a folder of safetensors files and a JSON manifest; no pickle, so it never runs code.

    RUN/checkpoints/000123456/        steps at which it was made
        learner.safetensors  replay.safetensors  envs.safetensors  agent.safetensors
        manifest.json                 format, config, clock, generators, and size and checksum of every file;
                                      which arrays are compressed (`squeezed`); a checksum of all this

A run on several GPUs has the last three once for each rank (agent.r0, agent.r1, ...); see `shards.py`.

It is written under a temporary name, flushed to disk, and renamed: a folder with a proper name is complete. The one
before is deleted only after that, so a kill or a full disk at any moment leaves a good one. A step that is saved a
second time (a finished run that is resumed) gets a name of its own, 000123456.1, and never takes the place of a folder
that is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dqnitro.common.files import replacing, seal_holds, sealed, writing
from dqnitro.errors import CheckpointError
from dqnitro.store.compress import compress, decompress

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import Tensor

FORMAT = 2  # 1 had no compressed arrays; it can still be read
SHARDED = 3  # the same, with files of several ranks
MAGIC = "dqnitro-checkpoint"
TEMPORARY = ".tmp-"
# Of other ranks: begins to write into a folder; what it returns waits until they have, and tells files and record.
Others = Callable[[pathlib.Path], Callable[[], tuple[dict[str, Any], dict[str, Any]]]]


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
    folder: pathlib.Path,
    steps: int,
    arrays: Mapping[str, Mapping[str, Any]],
    record: Mapping[str, Any],
    others: Others | None = None,
) -> pathlib.Path:
    """Write a checkpoint; on any failure (a full disk, too) the earlier ones are as they were. `others` writes the
    files of other ranks, and is done before there is a manifest.
    """
    tmp = folder / f"{TEMPORARY}{os.getpid()}"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        clean_up(folder)
        try:
            _write(tmp, steps, arrays, record, others)
            final = _free_name(folder, steps)
            tmp.rename(final)
            _sync(folder)
        except BaseException:
            shutil.rmtree(tmp, ignore_errors=True)
            raise
    _delete(folder, [old for old in _numbered(folder) if old != final])
    return final


def _write(
    tmp: pathlib.Path,
    steps: int,
    arrays: Mapping[str, Mapping[str, Any]],
    record: Mapping[str, Any],
    others: Others | None,
) -> None:
    """All files of a checkpoint, flushed to disk."""
    tmp.mkdir()
    finish = None if others is None else others(tmp)
    try:
        files = write_files(tmp, arrays)
    finally:  # other ranks answer whatever happened here
        theirs, more = ({}, {}) if finish is None else finish()
    number = FORMAT if others is None else SHARDED
    manifest = {"magic": MAGIC, "format": number, "steps": steps, "files": {**files, **theirs}, **record, **more}
    path = tmp / "manifest.json"
    path.write_text(json.dumps(sealed(manifest), indent=1))
    _sync(path)
    _sync(tmp)


def write_files(folder: pathlib.Path, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One file for each group of arrays, flushed to disk; what a manifest has to say of them."""
    from safetensors.numpy import save_file

    files = {}
    for name, group in arrays.items():
        path = folder / f"{name}.safetensors"
        stored, squeezed = compress({k: np.asarray(v, order="C") for k, v in group.items()})
        save_file(stored, path)
        _sync(path)
        files[path.name] = {"bytes": path.stat().st_size, "blake2b": _digest(path), "squeezed": squeezed}
    return files


def _free_name(folder: pathlib.Path, steps: int) -> pathlib.Path:
    """A name that no folder has and that comes after all that are there: the step, or the step and how often it was
    saved before.
    """
    before = [times for at, times in map(_order, _numbered(folder)) if at == steps]
    return folder / (f"{steps:012d}.{max(before) + 1}" if before else f"{steps:012d}")


def _order(path: pathlib.Path) -> tuple[int, int]:
    """Step, and how often that step had been saved before."""
    steps, _, times = path.name.partition(".")
    return int(steps), int(times or 0)


def _numbered(folder: pathlib.Path) -> list[pathlib.Path]:
    """The folders with a checkpoint's name, oldest first."""
    return sorted((p for p in folder.glob("[0-9]*") if re.fullmatch(r"\d+(\.\d+)?", p.name)), key=_order)


def _delete(folder: pathlib.Path, old: list[pathlib.Path]) -> None:
    """Renamed first, so that a kill in the middle leaves nothing that looks like a checkpoint. Failing costs only
    space.
    """
    for path in old:
        gone = folder / f"{TEMPORARY}old-{path.name}"
        with contextlib.suppress(OSError):
            path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def clean_up(folder: pathlib.Path) -> None:
    """Remove what a killed process left under a temporary name. Only the process that holds the run's lock may call
    this.
    """
    for stale in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(stale, ignore_errors=True)


def complete(folder: pathlib.Path) -> list[pathlib.Path]:
    """The finished checkpoints of a run, oldest first."""
    return [p for p in _numbered(folder) if (p / "manifest.json").is_file()]


def read_manifest(path: pathlib.Path) -> dict[str, Any]:
    """The manifest; CheckpointError if it cannot be used."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
    except (OSError, ValueError, RecursionError) as e:
        raise CheckpointError(f"{path} is not a readable checkpoint ({type(e).__name__}: {e})") from e
    if not isinstance(manifest, dict) or manifest.get("magic") != MAGIC:
        raise CheckpointError(f"{path}/manifest.json was not written by dqnitro", "give a folder under runs/")
    if not seal_holds(manifest):
        raise CheckpointError(f"{path}/manifest.json is damaged (its checksum differs)", "nothing was changed")
    number = manifest.get("format")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise CheckpointError(f"{path}/manifest.json is damaged (format {number!r})", "nothing was changed")
    if number > SHARDED:
        raise CheckpointError(
            f"{path} has format {number}, this dqnitro reads up to {SHARDED}",
            "update dqnitro; nothing was changed",
        )
    return manifest


def everything(name: str) -> bool:
    return True


def load(
    run: pathlib.Path, wanted: Callable[[str], bool] = everything
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Arrays and record of a run's newest checkpoint. Every file is verified before anything is used. `wanted`: the
    names of the groups of arrays to read.
    """
    found = complete(run / "checkpoints")
    if not found:
        raise CheckpointError(f"{run} holds no checkpoint", "`dqnitro runs` lists the runs that can be resumed")
    try:
        return read(found[-1], wanted)
    except CheckpointError as e:
        # A kill between the new name and the removal of the old one leaves two.
        if older := next((path for path in reversed(found[:-1]) if _is_whole(path)), None):
            raise CheckpointError(
                str(e).partition("; hint: ")[0], f"delete {found[-1]} to resume from {older.name}, which is complete"
            ) from e
        raise


def _is_whole(path: pathlib.Path) -> bool:
    try:
        read(path)
    except CheckpointError:
        return False
    return True


def read(
    path: pathlib.Path, wanted: Callable[[str], bool] = everything
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Any]]:
    """Arrays and record of one checkpoint, verified; CheckpointError if anything of it is damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    manifest = read_manifest(path)
    arrays = {}
    try:
        for name, facts in manifest["files"].items():
            file = path / name
            if file.name != name:
                raise CheckpointError(f"{path}: manifest names a file outside the checkpoint: {name!r}")
            if not wanted(name.removesuffix(".safetensors")):
                continue
            if not file.is_file() or file.stat().st_size != facts["bytes"] or _digest(file) != facts["blake2b"]:
                raise CheckpointError(f"{file} is damaged or missing (size or checksum differ)", "nothing was changed")
            arrays[name.removesuffix(".safetensors")] = decompress(load_file(file), facts.get("squeezed", {}))
    except CheckpointError:
        raise
    except OSError as e:
        raise CheckpointError(f"{path} cannot be read ({e.strerror or e})", "nothing was changed") from e
    except (
        SafetensorError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        ValueError,
        MemoryError,
        zlib.error,
    ) as e:
        raise CheckpointError(f"{path} is damaged ({type(e).__name__}: {e})", "nothing was changed") from e
    return arrays, manifest


def save_weights(path: pathlib.Path, weights: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
    """model.safetensors: a network by itself, for `play` and for other programs, with a checksum among its metadata."""
    from safetensors.torch import save

    # Not `save_file`: it writes to a temporary file of its own, which a kill leaves behind under a name nobody knows.
    data = save(dict(weights), metadata={**facts, "blake2b": _weights_digest(weights, facts)})
    with replacing(path) as tmp:
        tmp.write_bytes(data)


def weights_facts(path: pathlib.Path) -> dict[str, str]:
    """What is written beside the weights of a file; empty if it is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError, RuntimeError, MemoryError):
        return {}


def load_weights(path: pathlib.Path) -> dict[str, Tensor]:
    """The network of a model.safetensors; CheckpointError if it is damaged. Older files have no checksum."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            facts = dict(file.metadata() or {})
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, RuntimeError, MemoryError) as e:
        raise CheckpointError(f"{path} is damaged ({' '.join(str(e).split())[:200]})") from e
    checksum = facts.pop("blake2b", None)
    if checksum is not None and checksum != _weights_digest(weights, facts):
        raise CheckpointError(f"{path} is damaged (its checksum differs)", "`--resume` the run: it is written again")
    return weights


def _weights_digest(weights: Mapping[str, Tensor], facts: Mapping[str, str]) -> str:
    """blake2b of metadata, and of name, type, shape and bytes of every tensor."""
    import torch

    h = hashlib.blake2b(json.dumps(dict(facts), sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(weights.items()):
        h.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        h.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return h.hexdigest()
