"""What the ranks of a run tell each other: sums and means of tensors, and a few numbers of the host.

`ALONE` is a run in one process: nobody to ask. `Ranks` is what learners and runners see; `GroupRanks` is
`torch.distributed` behind it.

Over NCCL, `total_` and `start_mean_` only enqueue work, so a CUDA graph can hold them. Over gloo on a CPU, sums are
made in the order of the ranks: that is how one process would add (`tests/support/replicas_reference.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from dqnitro.errors import RankLost

if TYPE_CHECKING:
    from torch import Tensor

Wait = Callable[[], None]


class Ranks(Protocol):
    """All ranks of a run, seen from one of them. Every rank has to make the same calls in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def total_(self, x: Tensor) -> None:
        """Replace a tensor by its sum over all ranks."""
        ...

    def start_mean_(self, x: Tensor) -> Wait:
        """Begin to replace a tensor by its mean over all ranks; it is there once the function returned was called."""
        ...

    def totals(self, numbers: Sequence[int]) -> list[int]:
        """Sums of numbers on the host."""
        ...


class Alone:
    """One process."""

    rank, size = 0, 1

    def total_(self, x: Tensor) -> None: ...

    def start_mean_(self, x: Tensor) -> Wait:
        return _nothing

    def totals(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)


def _nothing() -> None: ...


ALONE = Alone()


def added(parts: Sequence[Tensor], out: Tensor) -> None:
    """The sum in the order of the ranks: the one order of additions on a CPU."""
    out.copy_(parts[0])
    for part in parts[1:]:
        out.add_(part)


class GroupRanks:
    """The ranks of `torch.distributed`, whose process group was made before."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self._dist = dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._nccl = "nccl" in dist.get_backend_config()  # pyright: ignore[reportOperatorIssue]
        self._rooms: dict[tuple[object, ...], list[Tensor]] = {}  # for what the others send, by kind of tensor

    @property
    def graphs(self) -> bool:
        """Whether a CUDA graph can hold what the ranks tell each other."""
        return self._nccl

    def total_(self, x: Tensor) -> None:
        self._start(x, mean=False)()

    def start_mean_(self, x: Tensor) -> Wait:
        return self._start(x, mean=True)

    def totals(self, numbers: Sequence[int]) -> list[int]:
        import torch

        x = torch.tensor(list(numbers), dtype=torch.int64)
        self.total_(x)
        return x.tolist()

    def _start(self, x: Tensor, mean: bool) -> Wait:
        dist = self._dist
        try:
            if x.is_cuda:
                op = dist.ReduceOp.AVG if mean and self._nccl else dist.ReduceOp.SUM
                work, parts = dist.all_reduce(x, op, async_op=True), None
            else:
                parts = self._room(x)
                work = dist.all_gather(parts, x, async_op=True)
        except RuntimeError as e:
            raise RankLost.because(e) from e
        assert work is not None

        def wait() -> None:
            try:
                work.wait()
            except RuntimeError as e:
                raise RankLost.because(e) from e
            if parts is not None:
                added(parts, x)
                self._rooms[_kind(x)] += parts
            if mean and not (x.is_cuda and self._nccl):
                x.mul_(1.0 / self.size)

        return wait

    def _room(self, x: Tensor) -> list[Tensor]:
        """One tensor for each rank; several may be on their way at the same time."""
        import torch

        free = self._rooms.setdefault(_kind(x), [])
        return [free.pop() if free else torch.empty_like(x) for _ in range(self.size)]


def _kind(x: Tensor) -> tuple[object, ...]:
    return tuple(x.shape), x.dtype
