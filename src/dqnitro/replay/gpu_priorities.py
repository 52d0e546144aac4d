"""Priorities of a ring on a GPU: sampling by temporal-difference error, as pieces that a CUDA graph can hold.

`replay.prioritized` keeps a sum tree on the host, where one draw costs a walk down the tree. A GPU adds up a million
priorities quickly, so every draw adds all of them up and looks its random numbers up in the sums. The distribution, the
weights and the priorities of new transitions are those of the host's replay.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SMALLEST = 1e-6  # added to an error, so that every transition can be drawn


class Window(NamedTuple):
    """Which slots may be drawn: `size` of them, back from `newest`."""

    newest: Tensor
    size: Tensor


class Priorities:
    """One priority for each slot and environment of a ring, already to the power of alpha."""

    def __init__(self, slots: int, n: int, alpha: float, device: torch.device | str) -> None:
        self.slots, self.n, self.alpha = slots, n, alpha
        self.values = torch.zeros((slots, n), dtype=torch.float32, device=device)
        self.largest = torch.ones(1, dtype=torch.float32, device=device)  # of all errors so far
        self._slots = torch.arange(slots, device=device)

    def add(self, slot: Tensor, first: int, valid: Tensor) -> None:
        """New transitions at a slot, of environments from number `first` on: they get the largest priority so far."""
        row = torch.where(valid, self.largest**self.alpha, 0.0)
        self.values[:, first : first + len(valid)].index_copy_(0, slot, row[None])

    def draw(
        self, batches: int, size: int, window: Window, beta: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Slots, environments and importance weights of `batches` times `size` transitions.

        A batch takes one draw from each of `size` equal slices of the whole, which has the same expectation as free
        draws and less variance. Its weights are relative to its largest.
        """
        allowed = (window.newest - self._slots) % self.slots < window.size
        masses = (self.values * allowed[:, None]).flatten().double()
        sums = masses.cumsum(0)
        total = sums[-1]
        spread = torch.rand((batches, size), device=self.values.device, generator=generator, dtype=torch.float64)
        mass = (torch.arange(size, device=spread.device) + spread) * (total / size)
        # Rounding must not lead past the last slot that has any mass.
        at = torch.searchsorted(sums, mass.flatten().clamp(max=total * (1 - 1e-15)), right=True)
        at = at.clamp(max=len(sums) - 1)
        count = (masses > 0).sum()
        weight = (count * masses[at] / total).clamp(min=1e-30) ** -beta
        weight = weight.view(batches, size)
        weight = (weight / weight.amax(1, keepdim=True)).flatten().float()
        return at // self.n, at % self.n, weight

    def update(self, slot: Tensor, env: Tensor, error: Tensor) -> None:
        """After an update: the errors of the transitions that it was made of."""
        priority = error.abs().float() + SMALLEST
        self.largest.copy_(torch.maximum(self.largest, priority.amax()))
        self.values.index_put_((slot, env), priority**self.alpha)
