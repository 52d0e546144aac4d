"""Gradients averaged over the ranks of a run, between the backward pass and the optimiser.

Parameters are packed into buckets, the last layers first. A bucket's mean is begun as soon as the backward pass has
left its last gradient behind, so it travels while the pass goes on through the layers below. The loss travels in the
last bucket: all ranks report the same one, and notice a bad one at the same update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from dqnitro.distributed.ranks import Ranks, Wait

MOST_BYTES = 4 << 20  # of a bucket: the Nature network makes two, its hidden layer and the rest


class Bucket:
    """Gradients of some parameters in one piece of memory."""

    def __init__(self, parameters: Sequence[nn.Parameter], more: int = 0) -> None:
        first = parameters[0]
        self.parameters = list(parameters)
        self.flat = torch.zeros(sum(p.numel() for p in parameters) + more, dtype=first.dtype, device=first.device)
        pieces = self.flat[: self.flat.numel() - more].split([p.numel() for p in parameters])
        # In the memory format of the parameter: a kernel that walks over both in one order wants the same strides.
        self.views = [piece.as_strided(p.shape, p.stride()) for piece, p in zip(pieces, parameters, strict=True)]
        self.more = self.flat[self.flat.numel() - more :]
        self.missing = len(self.parameters)
        self.wait: Wait | None = None

    def fill(self) -> None:
        for view, p in zip(self.views, self.parameters, strict=True):
            view.zero_() if p.grad is None else view.copy_(p.grad)


def divided(parameters: Sequence[nn.Parameter], most_bytes: int) -> list[list[nn.Parameter]]:
    """Parameters in the order in which their gradients come, in groups of at most this many bytes (or one)."""
    groups: list[list[nn.Parameter]] = [[]]
    size = 0
    for p in reversed(parameters):
        bytes_ = p.numel() * p.element_size()
        if groups[-1] and size + bytes_ > most_bytes:
            groups.append([])
            size = 0
        groups[-1].append(p)
        size += bytes_
    return groups


class AveragedStep:
    """A `Stepper`: backward pass, mean over the ranks, clipping, optimiser."""

    def __init__(self, network: nn.Module, ranks: Ranks) -> None:
        self._ranks = ranks
        groups = divided([p for p in network.parameters() if p.requires_grad], MOST_BYTES)
        self.buckets = [Bucket(group, more=int(group is groups[-1])) for group in groups]
        self._of = {p: bucket for bucket in self.buckets for p in bucket.parameters}
        self._started = len(self.buckets)
        for p in self._of:
            p.register_post_accumulate_grad_hook(self._ready)

    def __call__(self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, largest_norm: float) -> None:
        optimizer.zero_grad(set_to_none=True)
        self._begin(loss)
        loss.backward()
        self._finish(loss)
        if largest_norm:
            nn.utils.clip_grad_norm_(network.parameters(), largest_norm)
        optimizer.step()

    def _begin(self, loss: Tensor) -> None:
        self._started = 0
        for bucket in self.buckets:
            bucket.missing = len(bucket.parameters)
        self.buckets[-1].more.copy_(loss.detach())

    def _ready(self, p: Tensor) -> None:
        """The backward pass has left the whole gradient of a parameter behind."""
        if self._started == len(self.buckets):  # a pass without an update: `Learner.warm_up`
            return
        self._of[p].missing -= 1  # pyright: ignore[reportArgumentType]
        # In the same order on all ranks, whatever the order of the gradients.
        while self._started < len(self.buckets) and not self.buckets[self._started].missing:
            self._start()

    @torch.no_grad()
    def _start(self) -> None:
        bucket = self.buckets[self._started]
        bucket.fill()
        bucket.wait = self._ranks.start_mean_(bucket.flat)
        self._started += 1

    @torch.no_grad()
    def _finish(self, loss: Tensor) -> None:
        while self._started < len(self.buckets):  # parameters that had no gradient in this pass
            self._start()
        for bucket in self.buckets:
            assert bucket.wait is not None
            bucket.wait()
            for p, view in zip(bucket.parameters, bucket.views, strict=True):
                p.grad = view
        loss.detach().copy_(self.buckets[-1].more[0])

    def get_state(self) -> dict[str, Tensor]:
        return {}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing is kept."""
