"""The learning rate of an update, where it falls over a run.

It depends on the number of updates alone, and that is Adam's own count, which checkpoints hold: a resumed run goes on
with the rate it had. On a GPU count and rate are tensors, so that a CUDA graph changes the rate from update to update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dqnitro.config import Config
from dqnitro.learn.optimizer_step import Stepper


class Rate(NamedTuple):
    """`first` at the first update, `last` from update `1 / per_update` on, linear between."""

    first: float
    last: float
    per_update: float  # the share of the way that one update makes; 0: the rate stays

    @classmethod
    def of(cls, config: Config) -> Rate:
        steps = config.learning_rate_decay_steps
        if not steps:
            return cls(config.learning_rate, config.learning_rate, 0.0)
        return cls(config.learning_rate, config.learning_rate_end, min(1.0, config.steps_per_update / steps))

    def at(self, updates: float) -> float:
        """The rate after this many updates."""
        return self.first + (self.last - self.first) * min(1.0, updates * self.per_update)

    def at_tensor(self, updates: Tensor) -> Tensor:
        return self.first + (self.last - self.first) * (updates * self.per_update).clamp(max=1.0)


class DecayingStep:
    """A `Stepper` that gives the optimiser its rate before each step."""

    def __init__(self, step: Stepper, rate: Rate) -> None:
        self.step, self.rate = step, rate

    def __call__(self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, largest_norm: float) -> None:
        set_rate(optimizer, self.rate)
        self.step(loss, network, optimizer, largest_norm)

    def get_state(self) -> dict[str, Tensor]:
        return self.step.get_state()

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        self.step.set_state(state)


def decaying(step: Stepper, config: Config) -> Stepper:
    """This step with the config's rate; itself where the rate stays."""
    rate = Rate.of(config)
    return DecayingStep(step, rate) if rate.per_update else step


def set_rate(optimizer: torch.optim.Optimizer, rate: Rate) -> None:
    """The rate of the next step. A graph knows the tensor of a rate by its address, so that is written in place."""
    for group in optimizer.param_groups:
        count = _count(optimizer, group["params"])
        if not group.get("capturable"):
            group["lr"] = rate.at(float(count))
            continue
        if not isinstance(group["lr"], Tensor):
            group["lr"] = torch.tensor(rate.first, device=group["params"][0].device)
        if isinstance(count, Tensor):
            group["lr"].copy_(rate.at_tensor(count))


def _count(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor]) -> Any:
    """How many steps Adam has made with these parameters; a tensor once it has made one."""
    return next((optimizer.state[p]["step"] for p in parameters if optimizer.state.get(p)), 0)
