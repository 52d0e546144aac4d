"""CUDA graphs for the inline runner: a function's kernels are recorded once and started with one call from then on.

An update of DQN is some hundred small kernels; starting them one by one takes the host longer than they take the GPU. A
graph always reads and writes the same memory, so inputs are copied to where it reads, and what it gives is copied
before anybody keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

Function = Callable[..., tuple[Tensor, ...]]
WARM_CALLS = 3  # made as they are: libraries choose kernels, the optimiser makes its state; recording allows neither


class Recording(Protocol):
    """A function without arguments, recorded: `replay` does it again on the same memory."""

    out: tuple[Tensor, ...]

    def replay(self) -> None: ...


class CudaRecording:
    """A CUDA graph."""

    def __init__(self, f: Callable[[], tuple[Tensor, ...]]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        # Other threads may go on with the GPU (a compiler, a pinned copy): only this one is being recorded.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self.out = f()

    def replay(self) -> None:
        self._graph.replay()


class Recorded:
    """`f` without arguments, on memory that stays where it is: recorded at its fourth call, nothing copied.

    What it gives is overwritten by the next call.
    """

    def __init__(
        self,
        f: Callable[[], tuple[Tensor, ...]],
        record: Callable[[Callable[[], tuple[Tensor, ...]]], Recording] = CudaRecording,
    ) -> None:
        self._f, self._record = f, record
        self._recording: Recording | None = None
        self.n_calls = self.n_replays = 0

    def __call__(self) -> tuple[Tensor, ...]:
        if self._recording is None:
            self.n_calls += 1
            if self.n_calls <= WARM_CALLS:
                return beside_default_stream(self._f)
            self._recording = self._record(self._f)
        self._recording.replay()
        self.n_replays += 1
        return self._recording.out


def beside_default_stream(f: Callable[[], tuple[Tensor, ...]], inputs: tuple[Tensor, ...] = ()) -> tuple[Tensor, ...]:
    """As it is, but not on the default stream of a GPU, whose work nothing that is recorded may wait for."""
    if not torch.cuda.is_available():
        return f()  # where a test repeats calls in place of graphs
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(here)
    with torch.cuda.stream(side):
        out = f()
    here.wait_stream(side)
    for t in inputs:
        t.record_stream(side)  # not to be given to anybody else before that stream has read it
    for t in out:
        if t.is_cuda:
            t.record_stream(here)
    return out


class Graphed:
    """`f` of tensors, recorded at its fourth call with inputs of these shapes."""

    def __init__(
        self, f: Function, record: Callable[[Callable[[], tuple[Tensor, ...]]], Recording] = CudaRecording
    ) -> None:
        self._f, self._record = f, record
        self._calls: dict[Any, int] = {}
        self._recorded: dict[Any, tuple[tuple[Tensor, ...], Recording]] = {}
        self.n_replays = 0

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        on_gpu = inputs[0].is_cuda
        if on_gpu and torch.cuda.is_current_stream_capturing():
            return self._f(*inputs)  # a piece of another graph
        key = tuple((t.shape, t.stride(), t.dtype, t.device) for t in inputs)
        if key not in self._recorded:
            self._calls[key] = self._calls.get(key, 0) + 1
            if self._calls[key] <= WARM_CALLS:
                return beside_default_stream(lambda: self._f(*inputs), inputs) if on_gpu else self._f(*inputs)
            kept = tuple(torch.empty_like(t).copy_(t) for t in inputs)
            self._recorded[key] = kept, self._record(lambda: self._f(*kept))
        kept, recording = self._recorded[key]
        for to, of in zip(kept, inputs, strict=True):
            to.copy_(of)
        recording.replay()
        self.n_replays += 1
        return tuple(t.clone() for t in recording.out)
