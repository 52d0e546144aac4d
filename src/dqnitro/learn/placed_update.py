"""An update whose batch is places in the replay: put together, learned from and checked where the learner is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dqnitro.replay.placed import Drawn

Step = Callable[..., tuple[Tensor, Tensor]]


class PlacedUpdate:
    """Takes the batch that was drawn last; its loss and each sample's error. Nothing in it asks the GPU anything, so
    that `record` may make one start of it.
    """

    def __init__(
        self, loss_and_step: Step, drawn: Drawn, record: Callable[[Callable[[], Any]], Callable[[], Any]], updates: int
    ) -> None:
        """`updates`: how many were made before."""
        self.drawn, self._loss_and_step = drawn, loss_and_step
        device = drawn.memory.device
        self._sum = torch.zeros((), device=device)  # 0, or NaN after the first loss that was not finite
        self.good = torch.full((), updates, dtype=torch.int64, device=device)  # updates up to that loss
        self._run = record(self.learn)

    def __call__(self) -> tuple[Tensor, Tensor]:
        return self._run()

    def learn(self) -> tuple[Tensor, Tensor]:
        loss, td = self._loss_and_step(*self.drawn.fetch())
        self._sum.add_(loss * 0.0)
        self.good.add_(self._sum == 0.0)
        return loss, td

    def restart(self, updates: int) -> None:
        """Count from here on; a graph knows these numbers by their address."""
        self._sum.zero_()
        self.good.fill_(updates)
