"""The last layers of every network, and the random numbers that some of them want in a pass.

A pass without random numbers is a pure function of the observation: so an agent plays outside of its training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

COSINES = 64  # features of a quantile's place, as in Dabney et al. (2018)
ACTING_TAUS = 32  # quantiles whose mean is a value where none are drawn


class Draws(NamedTuple):
    """Random numbers of one pass."""

    taus: Tensor | None = None  # (B, samples): which quantiles of the return are asked for; None: fixed midpoints
    noise: Tensor | None = None  # (size,): standard normal numbers of all noisy layers; None: no noise


@dataclass(frozen=True)
class HeadSpec:
    """What the network predicts for each action: one value, probabilities of `atoms` returns, or quantiles of it."""

    n_actions: int
    dueling: bool = False
    atoms: int = 1
    value_min: float = -10.0
    value_max: float = 10.0
    quantiles: bool = False  # the atoms are quantiles of the return, not probabilities of fixed returns
    implicit: int = 0  # how many quantiles are drawn for each sample while learning (0: the outputs are the atoms)
    noisy_sigma: float = 0.0  # the first size of the noise of the head's layers (0: they have none)

    @property
    def categorical(self) -> bool:
        return self.atoms > 1 and not self.quantiles


class NoisyLinear(nn.Linear):
    """A layer whose weights have factorised Gaussian noise of a size that is learned (Fortunato et al. 2018).

    The noise of the weight from input i to output o is f(z_o) f(z_i), f(z) = sign(z) sqrt |z|. `place` is where its
    numbers begin among those of the whole pass: first one for each input, then one for each output.
    """

    def __init__(self, inputs: int, outputs: int, sigma: float, place: int) -> None:
        super().__init__(inputs, outputs)
        self.place = place
        size = sigma / math.sqrt(inputs)
        self.sigma_weight = nn.Parameter(torch.full((outputs, inputs), size))
        self.sigma_bias = nn.Parameter(torch.full((outputs,), size))

    @property
    def draws(self) -> int:
        return self.in_features + self.out_features

    def forward(self, input: Tensor, noise: Tensor | None = None) -> Tensor:
        if noise is None:
            return F.linear(input, self.weight, self.bias)
        z = noise[self.place : self.place + self.draws]
        z = z.sign() * z.abs().sqrt()
        inputs, outputs = z[: self.in_features], z[self.in_features :]
        weight = self.weight + self.sigma_weight * torch.outer(outputs, inputs)
        return F.linear(input, weight, self.bias + self.sigma_bias * outputs)


def noise_size(network: nn.Module) -> int:
    """How many normal numbers a pass with noise takes."""
    return sum(m.draws for m in network.modules() if isinstance(m, NoisyLinear))


class Stream(nn.Module):
    """One hidden layer and an output. The output layer stays float32 under mixed precision.

    bfloat16 has 8 bits: near 1 it cannot tell 1.000 from 1.003, and the actions of one state often differ by less.
    """

    def __init__(self, features: int, hidden: int, outputs: int, sigma: float = 0.0, place: int = 0) -> None:
        super().__init__()
        if sigma:
            self.hidden = NoisyLinear(features, hidden, sigma, place)
            self.relu = nn.ReLU()
            self.output = NoisyLinear(hidden, outputs, sigma, place + self.hidden.draws)
        else:
            self.hidden = nn.Linear(features, hidden)
            self.relu = nn.ReLU()
            self.output = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        h = self.relu(_through(self.hidden, x, noise))
        if not torch.is_autocast_enabled(x.device.type):
            return _through(self.output, h, noise)
        with torch.autocast(x.device.type, enabled=False):
            return _through(self.output, h.float(), noise)


def _through(layer: nn.Linear, x: Tensor, noise: Tensor | None) -> Tensor:
    return layer(x, noise) if isinstance(layer, NoisyLinear) else layer(x)


class Head(nn.Module):
    """The last layers, (B, features) -> (B, n_actions, atoms); dueling adds a value stream.

    With implicit quantiles the features are multiplied by those of each quantile asked for (Dabney et al. 2018, IQN),
    and the last dimension of what comes out are these quantiles.
    """

    midpoints: Tensor
    multiples: Tensor

    def __init__(self, features: int, hidden: int, spec: HeadSpec) -> None:
        super().__init__()
        self.spec = spec
        sigma = spec.noisy_sigma
        self.advantage = Stream(features, hidden, spec.n_actions * spec.atoms, sigma)
        place = noise_size(self.advantage)
        self.value = Stream(features, hidden, spec.atoms, sigma, place) if spec.dueling else None
        if spec.implicit:
            self.embedding = nn.Linear(COSINES, features)
            midpoints = (torch.arange(ACTING_TAUS) + 0.5) / ACTING_TAUS
            self.register_buffer("midpoints", midpoints, persistent=False)
            self.register_buffer("multiples", math.pi * torch.arange(1, COSINES + 1), persistent=False)

    @property
    def streams(self) -> list[Stream]:
        """Advantage, and value if there is one."""
        return [self.advantage] if self.value is None else [self.advantage, self.value]

    def forward(self, x: Tensor, draws: Draws | None = None) -> Tensor:
        taus, noise = Draws() if draws is None else draws
        if not self.spec.implicit:
            return self.combine(*(stream(x, noise) for stream in self.streams))
        asked = self.asked(x, taus)
        out = self.combine(*(stream(asked.flatten(0, 1), noise) for stream in self.streams))
        return out.view(x.shape[0], -1, self.spec.n_actions).transpose(1, 2)

    def asked(self, x: Tensor, taus: Tensor | None) -> Tensor:
        """The features (B, samples, features) of each quantile that is asked for."""
        if taus is None:
            taus = self.midpoints.expand(x.shape[0], -1)
        cosines = torch.cos(taus.unsqueeze(-1) * self.multiples)
        return x.unsqueeze(1) * F.relu(self.embedding(cosines))

    def combine(self, advantage: Tensor, value: Tensor | None = None) -> Tensor:
        """The outputs of the streams combined: (B, n_actions, atoms)."""
        out = advantage.view(-1, self.spec.n_actions, self.spec.atoms)
        return out if value is None else value.unsqueeze(1) + out - out.mean(1, keepdim=True)


# Who is asked in an update: rows of its random numbers.
ONLINE, TARGET, TARGET_TM1, SELECT = range(4)
PASSES = 4


class UpdateDraws(NamedTuple):
    """Random numbers of the passes of one update."""

    taus: Tensor | None = None  # (B, PASSES, samples), uniform
    noise: Tensor | None = None  # (PASSES, size), normal

    def of(self, which: int) -> Draws:
        return Draws(
            None if self.taus is None else self.taus[:, which], None if self.noise is None else self.noise[which]
        )

    def of_target(self, both: bool) -> Draws:
        """Of the target network's pass; `both`: over `obs_t` and, after it, `obs_tm1`, with the same noise."""
        return together([self], TARGET, TARGET_TM1) if both else together([self], TARGET)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(x for x in self if x is not None)


def together(updates: Sequence[UpdateDraws], *which: int) -> Draws:
    """Of one pass over the samples of several updates, and over several observations of each: the noise is the first
    one's.
    """
    first = updates[0]
    taus = (
        None if first.taus is None else torch.cat([u.taus[:, i] for i in which for u in updates if u.taus is not None])
    )
    return Draws(taus, None if first.noise is None else first.noise[which[0]])


class Wants(NamedTuple):
    """How many random numbers the passes of a network want while it learns."""

    taus: int = 0  # for each sample
    noise: int = 0  # for each pass

    def draw(self, batch: int, device: torch.device, generator: torch.Generator | None = None) -> UpdateDraws | None:
        """For an update of `batch` samples; None if it wants none."""
        if not any(self):
            return None
        chance: dict[str, Any] = {"device": device, "generator": generator}
        taus = torch.rand((batch, PASSES, self.taus), **chance) if self.taus else None
        return UpdateDraws(taus, torch.randn((PASSES, self.noise), **chance) if self.noise else None)

    def named(self, tensors: tuple[Tensor, ...]) -> UpdateDraws | None:
        """The inverse of `UpdateDraws.tensors`."""
        if not tensors:
            return None
        rest = list(tensors)
        return UpdateDraws(rest.pop(0) if self.taus else None, rest.pop(0) if self.noise else None)
