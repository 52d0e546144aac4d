"""`frames` for a learner that reads frames where they lie: a sample is places in the ring, not pixels.

Which transitions are drawn, and what they are worth, the host decides as `FrameReplay` does, with the same random
numbers. Frames never leave the learner's device: storing a step is one copy of its newest frame, a sample one copy of
some kilobytes that say where its frames lie. On a GPU both are started and not waited for. `Drawn.fetch` puts the batch
together there, and asks the host nothing, so that a CUDA graph can begin with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec
from dqnitro.replay.base import Sample
from dqnitro.replay.frames import TERMINATED, TRUNCATED, FrameReplay

Field = tuple[torch.dtype, tuple[int, ...]]
PIECES = 16  # of an outbox: how far the host may be ahead of the copies


def n_bytes(fields: Sequence[Field]) -> int:
    """What `fields_in` needs; every field begins at a multiple of eight bytes."""
    return sum(-(-math.prod(shape) * dtype.itemsize // 8) * 8 for dtype, shape in fields)


def fields_in(memory: Tensor, fields: Sequence[Field]) -> tuple[Tensor, ...]:
    """One piece of memory as several arrays, one behind the other."""
    out, at = [], 0
    for dtype, shape in fields:
        size = math.prod(shape) * dtype.itemsize
        out.append(memory[at : at + size].view(dtype).view(shape))
        at += -(-size // 8) * 8
    return tuple(out)


class Outbox:
    """Pieces of memory on the host that are used in turn: the device copies out of one, the host writes to the next.

    For a GPU they are page-locked. The host comes back to a piece only when the copies out of its half are done; they
    were started at least `PIECES / 2` turns ago, so that it hardly ever has to wait.
    """

    def __init__(self, fields: Sequence[Field], device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._memory = torch.zeros((PIECES, n_bytes(fields)), dtype=torch.uint8, pin_memory=on_gpu)
        self._pieces = [tuple(x.numpy() for x in fields_in(memory, fields)) for memory in self._memory]
        self._whole = list(self._memory)
        first = math.prod(fields[0][1]) * fields[0][0].itemsize
        self._first = [memory[:first] for memory in self._memory]
        self._copied = [torch.cuda.Event() for _ in range(2)] if on_gpu else []
        self._at = -1

    def open(self) -> tuple[np.ndarray, ...]:
        """The fields of the next piece, to be written to."""
        self._at = (self._at + 1) % PIECES
        half, within = divmod(self._at, PIECES // 2)
        if within == 0 and self._copied:
            self._copied[half].synchronize()  # returns at once if nothing was recorded
        return self._pieces[self._at]

    def send(self, to: Tensor, first: bool = False) -> None:
        """Start the copy of this piece, or of its first field, to as many bytes; there is no need to wait for it."""
        to.copy_((self._first if first else self._whole)[self._at], non_blocking=True)
        half, within = divmod(self._at, PIECES // 2)
        if within == PIECES // 2 - 1 and self._copied:
            self._copied[half].record()


class Drawn:
    """The sample that was drawn last, on the learner's device, in memory that stays where it is."""

    def __init__(self, frames: Tensor, spec: EnvSpec, batch: int) -> None:
        self.fields: tuple[Field, ...] = (
            (torch.int64, (2, batch, spec.frame_stack)), (torch.int64, (batch,)), (torch.float32, (3, batch)),
        )  # fmt: skip
        self.memory = torch.zeros(n_bytes(self.fields), dtype=torch.uint8, device=frames.device)
        self._rows, self._action, self._floats = fields_in(self.memory, self.fields)
        self._frames, self._shape = frames, (2, batch, *spec.obs_shape)

    def fetch(self) -> Batch:
        """The batch: whole frames are copied, at the speed of memory. A CUDA graph can hold it."""
        obs_tm1, obs_t = self._frames.index_select(0, self._rows.flatten()).view(self._shape)
        reward, discount, weight = self._floats
        return Batch(obs_tm1, self._action, reward, discount, obs_t, weight)


class PlacedReplay(FrameReplay):
    """`sample` gives a `Drawn`, which the next `sample` overwrites: on a GPU, after what was started before it."""

    black_frames = 1

    def __init__(
        self, capacity: int, spec: EnvSpec, n_step: int, gamma: float, device: str | torch.device, batch_size: int
    ) -> None:
        super().__init__(capacity, spec, n_step, gamma, device)
        n = spec.n_envs
        step: tuple[Field, ...] = ((self._frames.dtype, (n, *spec.frame_shape)), (torch.int64, (n,)))
        self._arriving = Outbox(step, self.device)
        self._arrived = torch.zeros(n_bytes(step), dtype=torch.uint8, device=self.device)
        self._new_frames, self._new_rows = fields_in(self._arrived, step)
        self._row_bytes = self._frames.view(len(self._frames), -1).view(torch.uint8)
        self.drawn = Drawn(self._frames, spec, batch_size)
        self._leaving = Outbox(self.drawn.fields, self.device)
        self._sample = Sample(self.drawn, np.zeros(0, np.int64))
        self.place(np.zeros(batch_size, np.int64), np.zeros(batch_size, np.int64))  # compiles now

    def _write_frames(self, obs: np.ndarray, age: np.ndarray) -> None:
        n, slot = self._spec.n_envs, self._head % self.slots
        self._age[slot, self._envs] = age
        frames, rows = self._arriving.open()
        frames[:] = self._spec.newest(obs)
        if n == 1:  # from the host into its row
            self._arriving.send(self._row_bytes[int(slot[0])], first=True)
            return
        rows[:] = slot * n + self._envs
        self._arriving.send(self._arrived)
        self._frames.index_copy_(0, self._new_rows, self._new_frames)

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 1.0) -> Sample:
        self.place(*self.draw(batch_size, rng))
        return self._sample

    def place(self, env: np.ndarray, position: np.ndarray) -> None:
        """The transitions that start at these positions become what is drawn."""
        from dqnitro.replay import frames_numba

        rows, action, floats = self._leaving.open()
        reward, discount, weight = floats
        length = np.empty(len(env), np.int64)
        played = (self._reward, self._flags, self._gamma_power)
        frames_numba.returns(*played, env, position, reward, discount, length, TERMINATED, TRUNCATED)
        frames_numba.frame_rows(self._age, env, position, length, rows)
        action[:] = self._action[position % self.slots, env]
        weight[:] = 1.0
        self._leaving.send(self.drawn.memory)

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().set_state(state)
        self._frames[-1] = 0
