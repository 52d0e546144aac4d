"""Weights as the kernels of `triton_forward` want them: the masters in float32, with torch's names and order, and
packed copies.

The masters and Adam's moments are the network's own parameters and the optimiser's own state, moved into a few large
tensors, so that two kernels do an optimiser step and checkpoints know nothing of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dqnitro.dqn import ConvNetwork

CONVOLUTIONS = {"first": 0, "second": 2, "third": 4}  # their places in the network
FIRST = {torch.bfloat16: torch.float16}  # the precision of the first layer's packed weights
COPIES = 32  # of the gradients to which many programs add
FEATURES, POSITIONS, CHANNELS = 3136, 49, 64  # what the hidden layer reads


class Packed(NamedTuple):
    """One network, ready for the kernels."""

    flat: Tensor  # convolutions, biases and outputs, one after the other; the first one's place is not used
    first: Tensor  # float16 where the others are bfloat16: bytes become that more quickly
    second: Tensor  # this one and the next ones are views of `flat`
    third: Tensor
    biases: tuple[Tensor, ...]  # of the convolutions
    hidden_bias: Tensor
    hidden: Tensor  # (units, 3136)
    outputs: tuple[
        Tensor, ...
    ]  # the network's own: weight and bias of the advantages, of the value (or the same again)

    @property
    def copies(self) -> tuple[Tensor, ...]:
        """All that is packed: what is not the network's own."""
        return self.flat, self.first, self.hidden


def packed_order(name: str, weight: Tensor) -> Tensor:
    """A convolution's weights (O, I, height, width) in packed order."""
    if name == "first":
        outputs, frames = weight.shape[:2]
        return weight.reshape(outputs, frames, 2, 4, 2, 4).permute(1, 2, 4, 3, 5, 0).reshape(-1)
    return weight.permute(2, 3, 1, 0).reshape(-1)


def by_position(weight: Tensor) -> Tensor:
    """The hidden layer's weights (units, channel * position) as (units, position * channel)."""
    return weight.view(-1, CHANNELS, POSITIONS).transpose(1, 2).reshape(-1, FEATURES)


def _small(network: ConvNetwork) -> dict[str, Tensor]:
    """All parameters but the hidden layer's weights, by the names of their gradients. The streams' biases lie side by
    side, and so do their last layers.
    """
    layers: dict[str, Any] = {name: network.convolutions[i] for name, i in CONVOLUTIONS.items()}
    out = {name: layer.weight for name, layer in layers.items()}
    out |= {f"{name}_bias": layer.bias for name, layer in layers.items()}
    streams = network.head.streams
    out |= {f"hidden_bias{i}": s.hidden.bias for i, s in enumerate(streams)}
    out |= {f"output{i}": s.output.weight for i, s in enumerate(streams)}
    out |= {f"output_bias{i}": s.output.bias for i, s in enumerate(streams)}
    return out


class Masters:
    """The online network's parameters, Adam's moments and the gradients."""

    def __init__(self, network: ConvNetwork, optimizer: torch.optim.Optimizer, dtype: torch.dtype) -> None:
        self.network, self.dtype = network, dtype
        small, streams = _small(network), network.head.streams
        device = streams[0].hidden.weight.device
        self.units = sum(s.hidden.out_features for s in streams)
        self.n_small = n = sum(p.numel() for p in small.values())
        self.small = torch.zeros((3, n), device=device)  # parameters and both moments
        self.hidden = torch.zeros((3, self.units, FEATURES), device=device)
        self.g_hidden = torch.zeros((self.units, FEATURES), device=device, dtype=dtype)
        self.master = torch.arange(n, device=device, dtype=torch.int32)  # of each packed weight
        self.step = torch.zeros((), device=device)
        self.at: dict[str, slice] = {}
        start = 0
        for name, p in small.items():
            place = self.at[name] = slice(start, start + p.numel())
            self._move(p, [x[place].view(p.shape) for x in self.small], optimizer)
            if name in CONVOLUTIONS:
                self.master[place] = packed_order(name, torch.arange(place.start, place.stop).view(p.shape)).to(device)
            start = place.stop
        # Of a distributional head the last layers are large: they have a piece of their own, without copies.
        self.outputs = slice(self.at["output0"].start, n)
        wide = network.head.spec.atoms > 1
        self.rest = slice(self.at["third"].stop, self.outputs.start if wide else n)
        self.g_rest = torch.zeros((COPIES, self.rest.stop - self.rest.start), device=device)  # zero between updates
        unit = 0
        for s in streams:
            rows = slice(unit, unit + s.hidden.out_features)
            self._move(s.hidden.weight, [x[rows] for x in self.hidden], optimizer)
            unit = rows.stop

    def _move(self, p: Tensor, to: list[Tensor], optimizer: torch.optim.Optimizer) -> None:
        value, first, second = to
        value.copy_(p.data)
        p.data = value
        old = optimizer.state.get(p, {})
        for key, mine in (("exp_avg", first), ("exp_avg_sq", second), ("step", self.step)):
            if key in old:
                mine.copy_(old[key])
        optimizer.state[p] = {"step": self.step, "exp_avg": first, "exp_avg_sq": second}

    def gather(self, network: ConvNetwork) -> tuple[Tensor, Tensor]:
        """Move the parameters of another network of this shape into two tensors like those of the online one."""
        small, hidden = torch.empty_like(self.small[0]), torch.empty_like(self.hidden[0])
        places = [(p, small[self.at[name]].view(p.shape)) for name, p in _small(network).items()]
        weights = [s.hidden.weight for s in network.head.streams]
        places += zip(weights, hidden.split([len(w) for w in weights]), strict=True)
        for p, place in places:
            place.copy_(p.data)
            p.data = place
        return small, hidden

    def gradient(self, name: str) -> Tensor:
        """Of a bias or an output layer: the first copy of the place where it is summed."""
        place = self.at[name]
        return self.g_rest[0, place.start - self.rest.start : place.stop - self.rest.start]

    def gradients(self, shares: dict[str, Tensor]) -> dict[str, Tensor]:
        """All gradients in their parameters' shapes, given those of which there are shares: for tests."""
        out = {}
        for name, p in _small(self.network).items():
            if name in shares:
                flat = torch.empty(p.numel(), device=p.device)
                flat[self.master[self.at[name]].long() - self.at[name].start] = shares[name].sum(0)
            elif self.at[name].start >= self.rest.stop:
                place = self.at[name]
                flat = shares["outputs"].sum(0)[place.start - self.outputs.start : place.stop - self.outputs.start]
            else:
                place = self.at[name]
                flat = self.g_rest[:, place.start - self.rest.start : place.stop - self.rest.start].sum(0)
            out[name] = flat.view(p.shape).clone()
        by_channel = self.g_hidden.float().view(-1, POSITIONS, CHANNELS).transpose(1, 2).reshape(-1, FEATURES)
        for i, part in enumerate(by_channel.split([s.hidden.out_features for s in self.network.head.streams])):
            out[f"hidden{i}"] = part
        return out

    # -- packed copies

    def packed(self, network: ConvNetwork) -> Packed:
        """A packed copy of a network of this shape."""
        # The first convolution has memory of its own: its place here is never written, so it is zero.
        flat = torch.zeros(self.n_small, device=self.g_rest.device, dtype=self.dtype)
        start = self.at["hidden_bias0"].start
        streams = network.head.streams
        value = streams[-1].output
        copy = Packed(
            flat, torch.empty(self.at["first"].stop, device=flat.device, dtype=FIRST.get(self.dtype, self.dtype)),
            flat[self.at["second"]], flat[self.at["third"]],
            tuple(flat[self.at[f"{name}_bias"]] for name in CONVOLUTIONS), flat[start : start + self.units],
            torch.empty_like(self.g_hidden),
            (streams[0].output.weight, streams[0].output.bias, value.weight, value.bias),
        )  # fmt: skip
        self.pack(network, copy)
        return copy

    @torch.no_grad()
    def pack(self, network: ConvNetwork, copy: Packed) -> None:
        """Pack the copy again, after something other than the kernels has changed the network."""
        for name, p in _small(network).items():
            to = copy.first if name == "first" else copy.flat[self.at[name]]
            to.copy_(packed_order(name, p) if name in CONVOLUTIONS else p.reshape(-1))
        copy.hidden.copy_(by_position(torch.cat([s.hidden.weight for s in network.head.streams])))
