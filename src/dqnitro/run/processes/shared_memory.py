"""What the two processes share: a ring of vector steps and a ring of weights, in memory that has no name.

Nobody but the two processes can see the memory and the kernel frees it when they end, however they end: there is no
file in /dev/shm to leak, and /dev/shm's size (64 MB in a container) does not matter. Neither ring has a lock. A slot is
written by one side and read by the other, and the messages that pass between them (`remote.py`) order the two: the
trainer permits a step only when its slots are free, the player reports a step only when its slot is full.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dqnitro.envs.base import EnvSpec, GameEnd, Step

# Before use every byte is this: rewards and weights read as NaN, actions and tick numbers as -1. A slot that is read
# too early is found at once instead of teaching zeros.
MAGIC_BYTE = 0xFF
EMPTY = -1  # what MAGIC_BYTE makes of an int64
ALIGN = 64


class SharedMemory:
    """Anonymous memory that travels to a spawned process as a file descriptor.
    Its size is set later, once it is known.
    """

    def __init__(self, fd: int | None = None) -> None:
        self._fd = _nameless_file() if fd is None else fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (reduction.DupFd(self._fd),)

    def allocate(self, size: int) -> np.ndarray:
        """Set the size, fill everything with MAGIC_BYTE and map it."""
        os.ftruncate(self._fd, size)
        data = self.map()
        data[:] = MAGIC_BYTE
        return data

    def map(self) -> np.ndarray:
        """The bytes, shared with everybody who maps them."""
        return np.frombuffer(mmap.mmap(self._fd, os.fstat(self._fd).st_size), np.uint8)

    def close(self) -> None:
        """Give the descriptor back; what is mapped stays until the last array over it is gone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dqnitro")
    with tempfile.TemporaryFile() as f:  # macOS: a file that was unlinked before anybody saw it
        return os.dup(f.fileno())


def _attach(fd: Any) -> SharedMemory:
    return SharedMemory(fd.detach())


class Report(NamedTuple):
    """What the player knows after a vector step, apart from the step itself."""

    rng: np.ndarray  # uint64 (6,): the generator of the actions, after this step's draws
    seconds: np.ndarray  # float64 (2,): what acting and playing took


def slot_type(spec: EnvSpec) -> np.dtype[Any]:
    """One vector step by value."""
    n = (spec.n_envs,)
    return np.dtype(
        [
            ("tick", np.int64), ("action", np.int64, n), ("reward", np.float32, n), ("score", np.float64, n),
            ("game_steps", np.int64, n), ("terminated", np.bool_, n), ("truncated", np.bool_, n),
            ("reset", np.bool_, n), ("ended", np.bool_, n), ("rng", np.uint64, 6), ("seconds", np.float64, 2),
            ("obs", spec.obs_dtype, (*n, *spec.obs_shape)),
        ],
        align=True,
    )  # fmt: skip


_READ = ("obs", "reward", "terminated", "truncated", "reset", "action", "rng", "seconds")


class Ring:
    """`n_slots` vector steps; tick t lives in slot t % n_slots."""

    def __init__(self, data: np.ndarray, spec: EnvSpec, n_slots: int) -> None:
        kind = slot_type(spec)
        self.slots = data[: n_slots * kind.itemsize].view(kind)

    @staticmethod
    def size(spec: EnvSpec, n_slots: int) -> int:
        return slot_type(spec).itemsize * n_slots

    def write(self, tick: int, actions: np.ndarray, step: Step, report: Report) -> None:
        """Fill a slot; its number is written last."""
        slot = self.slots[tick % len(self.slots)]
        slot["action"], slot["reward"], slot["obs"] = actions, step.reward_t, step.obs_t
        slot["terminated"], slot["truncated"], slot["reset"] = step.terminated, step.truncated, step.reset
        slot["ended"] = False
        for end in step.ends:
            slot["ended"][end.env], slot["score"][end.env], slot["game_steps"][end.env] = True, end.score, end.steps
        slot["rng"], slot["seconds"] = report
        slot["tick"] = tick

    def peek(self, tick: int) -> Any:
        """The slot of a finished tick; anything else in it is a fault of ours and said loudly."""
        slot = self.slots[tick % len(self.slots)]
        if (found := int(slot["tick"])) != tick:
            what = "was never written" if found == EMPTY else f"holds step {found}"
            raise RuntimeError(f"shared memory: step {tick} was expected, its slot {what}")
        return slot

    def read(self, tick: int) -> tuple[np.ndarray, Step, Report]:
        """Actions, step and report of a finished tick, copied; the slot is empty afterwards."""
        slot = self.peek(tick)
        ends = tuple(
            GameEnd(int(i), float(slot["score"][i]), int(slot["game_steps"][i])) for i in np.flatnonzero(slot["ended"])
        )
        obs, reward, terminated, truncated, reset, actions, rng, seconds = (slot[name].copy() for name in _READ)
        out = actions, Step(obs, reward, terminated, truncated, reset, ends), Report(rng, seconds)
        slot["tick"] = EMPTY
        return out


class WeightRing:
    """`n_slots` versions of a network's parameters, each in the memory order of the parameters themselves."""

    def __init__(self, data: np.ndarray, parameters: Iterable[Tensor], n_slots: int) -> None:
        parameters = list(parameters)
        self._versions = data[: n_slots * 8].view(np.int64)
        self.n_parameters = len(parameters)
        places = list(_places(parameters, n_slots))
        self._views: list[list[Tensor]] = [
            [_view(data, at, p) for at, p in zip(places[s], parameters, strict=True)] for s in range(n_slots)
        ]

    @staticmethod
    def size(parameters: Iterable[Tensor], n_slots: int) -> int:
        parameters = list(parameters)
        return list(_places(parameters, n_slots))[-1][-1] + _bytes(parameters[-1])

    @torch.no_grad()
    def write(self, slot: int, version: int, parameters: Iterable[Tensor]) -> None:
        """Copy parameters in, from whatever device; a synchronisation point on a GPU."""
        self._versions[slot] = EMPTY
        for view, p in zip(self._views[slot], parameters, strict=True):
            view.copy_(p)
        self._versions[slot] = version

    def check(self, slot: int, version: int) -> None:
        """RuntimeError unless the slot holds this version whole."""
        if (found := int(self._versions[slot])) != version:
            raise RuntimeError(f"shared memory: weights of version {version} were expected, slot {slot} holds {found}")

    def views(self, slot: int) -> list[Tensor]:
        """The parameters of a slot, without a copy."""
        return self._views[slot]


def _bytes(p: Tensor) -> int:
    return p.numel() * p.element_size()


def _places(parameters: list[Tensor], n_slots: int) -> Iterator[list[int]]:
    """Where every parameter of every slot begins, aligned for the vector units."""
    at = n_slots * 8
    for _ in range(n_slots):
        places = []
        for p in parameters:
            at = -(-at // ALIGN) * ALIGN
            places.append(at)
            at += _bytes(p)
        yield places


def _view(data: np.ndarray, at: int, p: Tensor) -> Tensor:
    # A part of one tensor, not a tensor of a part: what reads all parameters at once may go on from one to the next.
    flat = torch.from_numpy(data)[at : at + _bytes(p)].view(p.dtype)
    # The parameter's own strides: channels-last stays channels-last, and sums are made in the same order.
    return flat.as_strided(p.shape, p.stride())
