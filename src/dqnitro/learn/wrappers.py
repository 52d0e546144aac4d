"""Wrappers of the update step. Each is a function `Parts -> Parts`; a config lists them in the order they are put on.

`Parts` is what an update is made of. A wrapper replaces one or two of them and knows nothing of the others, so they compose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from dqnitro.dqn import ConvNetwork
from dqnitro.errors import ConfigError

Forward = Callable[[nn.Module, Tensor], Tensor]


@dataclass(frozen=True)
class Parts:
    """The replaceable pieces of an update."""

    prepare: Callable[[nn.Module], nn.Module]  # once, on both networks
    prepare_target: Callable[[nn.Module], nn.Module]  # once, on the target network, after `prepare`
    forward: Forward  # the pass that learns
    quiet: Forward  # the passes that make the target
    act: Forward  # the pass that picks actions
    make_optimizer: Callable[[Iterable[Tensor], float, float], torch.optim.Optimizer]
    around_loss: Callable[[Callable[..., Any]], Callable[..., Any]]  # around the whole loss function


def plain_parts() -> Parts:
    """The textbook: no wrapper at all, every pass builds a graph."""

    def forward(network: nn.Module, obs: Tensor) -> Tensor:
        return network(obs)

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr, eps=eps)

    return Parts(lambda n: n, lambda n: n, forward, forward, forward, make_optimizer, lambda f: f)


def no_grad(parts: Parts, device: str) -> Parts:
    """Target and acting passes without a graph. What every DQN should do; leaving it out is a rung below the baseline."""
    return replace(parts, quiet=torch.no_grad()(parts.quiet), act=torch.no_grad()(parts.act))


def fused_adam(parts: Parts, device: str) -> Parts:
    """One kernel for the whole optimiser step instead of a few per tensor."""

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr, eps=eps, fused=True)

    return replace(parts, make_optimizer=make_optimizer)


def channels_last(parts: Parts, device: str) -> Parts:
    """Channels innermost, as the convolution kernels of oneDNN and cuDNN want them: no reordering inside every layer."""

    def prepare(network: nn.Module) -> nn.Module:
        network = parts.prepare(network)
        if isinstance(network, ConvNetwork):
            network.memory_format = torch.channels_last
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    return replace(parts, prepare=prepare)


def bfloat16(parts: Parts, device: str) -> Parts:
    """Convolutions and matrix products of the update in bfloat16; parameters, optimiser, output layer and loss stay float32.

    The target network is kept in bfloat16 (it is read far more often than written). Acting stays float32: for a few
    observations, converting the weights costs more than the arithmetic saves.
    """
    kind = torch.device(device).type

    def prepare_target(network: nn.Module) -> nn.Module:
        for name, parameter in parts.prepare_target(network).named_parameters():
            if ".output." not in name:
                parameter.data = parameter.data.bfloat16()
        return network

    def mixed(f: Forward) -> Forward:
        def forward(network: nn.Module, obs: Tensor) -> Tensor:
            with torch.autocast(kind, dtype=torch.bfloat16):
                return f(network, obs).float()

        return forward

    return replace(parts, prepare_target=prepare_target, forward=mixed(parts.forward), quiet=mixed(parts.quiet))


def compiled(parts: Parts, device: str) -> Parts:
    """`torch.compile` around the loss: forward and backward become a few fused kernels. Costs tens of seconds once."""
    return replace(parts, around_loss=lambda f: torch.compile(parts.around_loss(f), dynamic=False))


WRAPPERS: dict[str, Callable[[Parts, str], Parts]] = {
    "no-grad": no_grad,
    "fused-adam": fused_adam,
    "channels-last": channels_last,
    "bfloat16": bfloat16,
    "compile": compiled,
}


def wrap(names: tuple[str, ...], device: str) -> Parts:
    """Put the named wrappers on, first name innermost."""
    parts = plain_parts()
    for name in names:
        if name not in WRAPPERS:
            raise ConfigError(f"unknown wrapper {name!r}", f"the wrappers are {', '.join(WRAPPERS)}")
        parts = WRAPPERS[name](parts, device)
    return parts
