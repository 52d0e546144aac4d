"""Groups of environments that take turns: what is known of each, and with which weights it acts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnitro.learn.ring_update import RingUpdate
from dqnitro.replay.gpu_ring import Ring


class Group:
    """Environments that choose and play together. `ring` is their part of the ring; the rest are views of the agent's
    tensors.
    """

    def __init__(self, ring: Ring, age: Tensor, was_resetting: Tensor) -> None:
        mine = slice(ring.first, ring.first + ring.n)
        self.ring, self.age, self.was_resetting = ring, age[mine], was_resetting[mine]
        # What the updates that follow its choice may read: up to here all groups have looked.
        self.head, self.filled = ring.head.clone(), ring.filled.clone()


class Acting:
    """`weights[k]` are what group k acts with: a network, or what its update makes of one.

    One group acts with the learner's own. Several have a copy each, taken after the updates that follow their turn:
    while one group chooses, the updates that were started after another's turn may go on.
    """

    def __init__(self, update: RingUpdate, groups: int) -> None:
        self._update = update
        self.weights = [update.weights] if groups == 1 else [update.copy_weights() for _ in range(groups)]

    @torch.no_grad()
    def refresh(self, k: int) -> None:
        """Group k acts with the newest weights."""
        if self.weights[k] is not self._update.weights:
            pairs = (self._update.tensors(weights) for weights in (self.weights[k], self._update.weights))
            for mine, newest in zip(*pairs, strict=True):
                mine.copy_(newest)

    def get_state(self) -> dict[str, Any]:
        """The copies, in float32, which holds every number of them."""
        if len(self.weights) == 1:
            return {}
        return {
            f"acting.{k}.{i}": x.to(torch.float32).cpu().numpy()
            for k, weights in enumerate(self.weights)
            for i, x in enumerate(self._update.tensors(weights))
        }

    @torch.no_grad()
    def set_state(self, state: dict[str, Any]) -> None:
        """Copies that were not saved become the newest weights."""
        for k, weights in enumerate(self.weights):
            self.refresh(k)
            for i, x in enumerate(self._update.tensors(weights)):
                if (saved := state.get(f"acting.{k}.{i}")) is not None and len(self.weights) > 1:
                    if saved.dtype != np.float32:
                        raise ValueError(f"acting.{k}.{i} is {saved.dtype}, expected float32")
                    x.copy_(torch.from_numpy(saved).view(x.shape))
