"""Checkpoints of a run on several GPUs: which files are whose, and how they are dealt out to another number of ranks.

Rank r owns `agent.rR.safetensors` and `envs.rR.safetensors` (R: its number); the learner, equal on all ranks, is there
once. Environments are numbered over all ranks, in their order, so dealing out again is joining and dividing along the
axis of the environments; a run in one process is the case of one rank.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dqnitro.errors import CheckpointError
from dqnitro.store import checkpoint

Arrays = dict[str, dict[str, np.ndarray]]
LEARNER = "learner"
ENDS = 2  # the place of the number of finished games in `report` (`run/gpu/agent.py`)
LANES = 32  # consoles on a GPU that lie side by side in memory
PACKED = ("state", "ram")  # of consoles on a GPU: (groups of LANES, numbers, LANES)
ALL_EQUAL = ("options",)
STREAMS = ("torch_rng", "cuda_rng")


class Loaded(NamedTuple):
    """What a rank goes on from."""

    arrays: Arrays  # learner, agent, envs
    record: dict[str, Any]
    ranks: int  # that had saved it


def named(arrays: Mapping[str, Mapping[str, Any]], rank: int) -> dict[str, Mapping[str, Any]]:
    """A rank's groups of arrays under their names in a checkpoint; the learner only of rank 0."""
    return {
        name if name == LEARNER else f"{name}.r{rank}": a for name, a in arrays.items() if name != LEARNER or not rank
    }


def count(manifest: Mapping[str, Any]) -> int:
    """How many ranks saved a checkpoint."""
    n = manifest.get("ranks", 1)
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= 4096:
        raise CheckpointError(f"the checkpoint is damaged (ranks {n!r})", "nothing was changed")
    return n


def load(run: pathlib.Path, rank: int, size: int) -> Loaded:
    """The share of a rank in the newest checkpoint of a run; if another number of ranks saved it, dealt out again."""
    manifest = checkpoint.load(run, lambda name: False)[1]
    saved = count(manifest)
    if saved == 1 and size == 1:
        arrays, manifest = checkpoint.load(run)
        return Loaded(arrays, manifest, 1)
    if saved == size:
        mine = (LEARNER, f"agent.r{rank}", f"envs.r{rank}")
        arrays, manifest = checkpoint.load(run, lambda name: name in mine)
        return Loaded(_of(arrays, rank), _record(manifest, rank), saved)
    arrays, manifest = checkpoint.load(run)
    if "parts" in _record(manifest, 0):
        raise CheckpointError(
            f"{run} was saved by {saved} ranks of the runner hybrid, which goes on with that number only",
            f"--gpus {saved}",
        )
    shards = [arrays] if saved == 1 else [_of(arrays, r) for r in range(saved)]
    return Loaded(dealt(shards, rank, size), _record(manifest, 0), saved)


def _of(arrays: Arrays, rank: int) -> Arrays:
    try:
        return {name: arrays[name if name == LEARNER else f"{name}.r{rank}"] for name in (LEARNER, "agent", "envs")}
    except KeyError as e:
        raise CheckpointError(f"the checkpoint is damaged ({e} is missing)", "nothing was changed") from e


def _record(manifest: dict[str, Any], rank: int) -> dict[str, Any]:
    shards = manifest.get("shards", [])
    return {**manifest, **shards[rank]} if rank < len(shards) else manifest


def dealt(shards: Sequence[Arrays], rank: int, size: int) -> Arrays:
    """The share of a rank among `size`, of what other ranks saved. Random streams of ranks are not dealt."""
    agents, envs = [s["agent"] for s in shards], [s.get("envs", {}) for s in shards]
    n = sum(len(a["age"]) for a in agents)
    if n % size:
        raise CheckpointError(f"{n} environments cannot be divided among {size} ranks", "choose another --gpus")
    mine = slice(rank * (n // size), (rank + 1) * (n // size))
    return {
        LEARNER: shards[0][LEARNER],
        "agent": _agent(agents, mine, first=rank == 0),
        "envs": _envs(envs, mine, [len(a["age"]) for a in agents]),
    }


def _agent(agents: Sequence[Mapping[str, np.ndarray]], mine: slice, first: bool) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for name, array in agents[0].items():
        if name.startswith("chance.") or name in ("report", "ends"):
            continue
        if name in STREAMS or name in ("ring.head", "ring.filled"):
            out[name] = array
        elif name == "ring.max_priority":
            out[name] = np.max([a[name] for a in agents], 0)
        else:
            axis = int(name.startswith("ring."))
            whole = np.concatenate([a[name] for a in agents], axis)
            out[name] = whole[:, mine] if axis else whole[mine]
    return out | _ends(agents, first, mine.stop - mine.start)


def _ends(agents: Sequence[Mapping[str, np.ndarray]], first: bool, n: int) -> dict[str, np.ndarray]:
    """The table of finished games, which the first rank tells; a run in flight has not told them yet."""
    rows, before = [], 0
    for a in agents:
        told = a["ends"][: int(a["report"][ENDS])].copy()
        told[:, 0] += before
        rows.append(told)
        before += len(a["age"])
    told = np.concatenate(rows) if first else np.zeros((0, 3), np.float32)
    table = np.zeros((max(4096, n) + 1, 3), np.float32)
    told = told[: len(table) - 1]
    table[: len(told)] = told
    report = agents[0]["report"].copy()
    report[ENDS] = len(told)
    return {"report": report, "ends": table}


def _envs(envs: Sequence[Mapping[str, np.ndarray]], mine: slice, counts: Sequence[int]) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for name, array in envs[0].items():
        if name in ALL_EQUAL:
            out[name] = array
        elif name == "actions":
            out[name] = _ragged([e[name] for e in envs], np.concatenate([e["steps"] for e in envs]), mine)
        elif name in PACKED and array.ndim == 3 and array.shape[-1] == LANES:
            whole = [unpacked(e[name], n) for e, n in zip(envs, counts, strict=True)]
            out[name] = packed(np.concatenate(whole)[mine])
        else:
            out[name] = np.concatenate([e[name] for e in envs])[mine]
    return out


def _ragged(actions: Sequence[np.ndarray], steps: np.ndarray, mine: slice) -> np.ndarray:
    """The actions of some environments, of which environment i has `steps[i]`."""
    ends = np.concatenate([[0], np.cumsum(steps)])
    return np.concatenate(actions)[ends[mine.start] : ends[mine.stop]]


def unpacked(array: np.ndarray, n: int) -> np.ndarray:
    """(groups, numbers, LANES) -> (n, numbers)."""
    return array.transpose(0, 2, 1).reshape(-1, array.shape[1])[:n]


def packed(array: np.ndarray) -> np.ndarray:
    """The inverse: lanes without a console are 0."""
    groups = -(-len(array) // LANES)
    whole = np.zeros((groups * LANES, array.shape[1]), array.dtype)
    whole[: len(array)] = array
    return np.ascontiguousarray(whole.reshape(groups, LANES, -1).transpose(0, 2, 1))
