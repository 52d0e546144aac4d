"""What turns a loss into changed parameters: backward pass, clipping, optimiser; with float16 a scaled loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn


class Stepper(Protocol):
    """Turns a loss into changed parameters."""

    def __call__(
        self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, largest_norm: float
    ) -> None: ...

    def get_state(self) -> dict[str, Tensor]: ...

    def set_state(self, state: Mapping[str, Tensor]) -> None: ...


class PlainStep:
    """Backward pass, clipping if `largest_norm` is over 0, optimiser."""

    def __call__(self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, largest_norm: float) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if largest_norm:
            nn.utils.clip_grad_norm_(network.parameters(), largest_norm)
        optimizer.step()

    def get_state(self) -> dict[str, Tensor]:
        return {}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing is kept."""


class ScaledStep:
    """The same with the loss scaled up, so that small gradients do not vanish in float16.

    The scale only ever falls: letting it grow, as is usual, would overflow on purpose every now and then, and every
    overflow loses an update.
    """

    def __init__(self, device: str) -> None:
        self.scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=2.0**16, growth_interval=2**31 - 1)

    def __call__(self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, largest_norm: float) -> None:
        optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        if largest_norm:
            self.scaler.unscale_(optimizer)  # a norm of scaled gradients would always be over the limit
            nn.utils.clip_grad_norm_(network.parameters(), largest_norm)
        self.scaler.step(optimizer)
        self.scaler.update()

    def get_state(self) -> dict[str, Tensor]:
        return {"scale": torch.tensor(self.scaler.get_scale(), dtype=torch.float32)}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": float(state["scale"])})
