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
from dqnitro.envs.base import EnvSpec, Step
from dqnitro.replay import frames_numba
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


class Mark:
    """A place in the work of a GPU that the host can wait for."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._event = device, torch.cuda.Event()

    def set(self) -> None:
        """Behind all that was started so far."""
        self._event.record(torch.cuda.current_stream(self._device))

    def wait(self) -> None:
        """Returns at once if it was never set."""
        self._event.synchronize()


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
        self._copied = [Mark(device) for _ in range(2)] if on_gpu else []
        self._at = -1

    def open(self) -> tuple[np.ndarray, ...]:
        """The fields of the next piece, to be written to."""
        self._at = (self._at + 1) % PIECES
        half, within = divmod(self._at, PIECES // 2)
        if within == 0 and self._copied:
            self._copied[half].wait()
        return self._pieces[self._at]

    def send(self, to: Tensor, first: bool = False) -> None:
        """Start the copy of this piece, or of its first field, to as many bytes; there is no need to wait for it."""
        to.copy_((self._first if first else self._whole)[self._at], non_blocking=True)
        half, within = divmod(self._at, PIECES // 2)
        if within == PIECES // 2 - 1 and self._copied:
            self._copied[half].set()


class Drawn:
    """The sample that was drawn last, on the learner's device, in memory that stays where it is."""

    def __init__(self, frames: Tensor, spec: EnvSpec, batch: int) -> None:
        self.fields: tuple[Field, ...] = (
            (torch.int64, (2, batch, spec.frame_stack)), (torch.int64, (batch,)), (torch.float32, (3, batch)),
        )  # fmt: skip
        self.memory = torch.zeros(n_bytes(self.fields), dtype=torch.uint8, device=frames.device)
        rows, self._action, self._floats = fields_in(self.memory, self.fields)
        self._rows = rows.flatten()  # the same memory
        self._dtype, self._shape = frames.dtype, (2, batch, *spec.obs_shape)
        flat = frames.view(len(frames), -1)
        # In words of eight bytes a frame is copied faster than byte by byte.
        whole = flat.shape[1] * flat.element_size() % 8 == 0
        self._words = flat.view(torch.int64) if whole else flat

    def fetch(self) -> Batch:
        """The batch: whole frames are copied, at the speed of memory. A CUDA graph can hold it."""
        frames = self._words.index_select(0, self._rows)
        obs_tm1, obs_t = frames.view(self._dtype).view(self._shape)
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
        self._compile(batch_size)

    def _compile(self, batch_size: int) -> None:
        """All of it now, and not in the first steps."""
        n, zeros = self._spec.n_envs, np.zeros(batch_size, np.int64)
        no, before = np.zeros(n, bool), [x.copy() for x in self._columns()]
        step = Step(np.zeros((n, *self._spec.obs_shape), self._spec.obs_dtype), np.zeros(n, np.float32), no, no, no, ())
        self.add(np.zeros(n, np.int64), step)
        self.place(zeros, zeros)
        for column, was in zip(self._columns(), before, strict=True):
            column[:] = was

    def _columns(self) -> tuple[np.ndarray, ...]:
        """What a step changes, frames aside."""
        return self._action, self._reward, self._flags, self._age, self._head, self._truncated

    def add(self, actions: np.ndarray, step: Step) -> None:
        """As `FrameReplay.add`, in compiled code."""
        frames_numba.add(
            self._action, self._reward, self._flags, self._age, self._head, self._truncated, actions, step.reward_t,
            step.terminated, step.truncated, step.reset, self._stack, TERMINATED, TRUNCATED,
        )  # fmt: skip
        self._send_frames(step.obs_t)

    def _write_frames(self, obs: np.ndarray, age: np.ndarray) -> None:
        self._age[self._head % self.slots, self._envs] = age
        self._send_frames(obs)

    def _send_frames(self, obs: np.ndarray) -> None:
        """The newest frames into the rows at the heads. Nobody waits for a GPU to copy them."""
        n = self._spec.n_envs
        frames, rows = self._arriving.open()
        frames[:] = self._spec.newest(obs)
        if n == 1:  # from the host into its row
            self._arriving.send(self._row_bytes[int(self._head[0]) % self.slots], first=True)
            return
        rows[:] = self._head % self.slots * n + self._envs
        self._arriving.send(self._arrived)
        self._frames.index_copy_(0, self._new_rows, self._new_frames)

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 1.0) -> Sample:
        self.place(*self.draw(batch_size, rng))
        return self._sample

    def place(self, env: np.ndarray, position: np.ndarray) -> None:
        """The transitions that start at these positions become what is drawn."""
        rows, action, floats = self._leaving.open()
        reward, discount, weight = floats
        length = np.empty(len(env), np.int64)
        played = (self._reward, self._flags, self._gamma_power)
        frames_numba.returns(*played, env, position, reward, discount, length, TERMINATED, TRUNCATED)
        frames_numba.frame_rows(self._age, self._action, env, position, length, rows, action)
        weight[:] = 1.0
        self._leaving.send(self.drawn.memory)

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().set_state(state)
        self._frames[-1] = 0
