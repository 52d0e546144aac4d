"""The convolutional network's passes written out by hand, in bfloat16, for a learner on the CPU.

What it saves over autocast: the weights are converted once after an update instead of in every pass, so that acting can use
them, too; and the network is one node of autograd's graph instead of thirty, whose bookkeeping leaves the second core waiting.

The slow twin is the network itself: tests compare values and gradients with it.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dqnitro.dqn import ConvNetwork

SCALE = 1.0 / 255.0  # of the pixels; it goes to the first weights, because bytes are exact in bfloat16


class Copies:
    """bfloat16 copies of a network's weights. Output layers stay float32, as under autocast."""

    def __init__(self, network: ConvNetwork) -> None:
        self.convolutions = [m for m in network.convolutions if isinstance(m, nn.Conv2d)]
        head = network.head
        self.streams = [head.advantage] if head.value is None else [head.advantage, head.value]
        self.memory_format = network.memory_format
        layers = [*self.convolutions, *(layer for s in self.streams for layer in (s.hidden, s.output))]
        outputs = [s.output for s in self.streams]
        self.source = [p for layer in layers for p in layer.parameters()]  # weight, bias, weight, bias, ...
        self._half = [i for i, p in enumerate(self.source) if not any(p is q for o in outputs for q in o.parameters())]
        self._made = [torch.empty_like(self.source[i], dtype=torch.bfloat16) for i in self._half]
        self.weights: list[Tensor] = []  # in the order of `source`
        self._versions: list[int] = []

    def refresh(self) -> None:
        """Convert again if a parameter was written to since the last time.

        torch counts what its own operations write. Whoever writes past them has to say so with `increment_version`: the fused
        optimiser does not count, and a player's weights lie in memory that another process writes.
        """
        versions = [p._version for p in self.source]
        if versions == self._versions:
            return
        self._versions = versions
        self.weights = [p.detach() for p in self.source]
        source = [self.weights[i] for i in self._half]
        torch._foreach_copy_(self._made, source)  # pyright: ignore[reportPrivateImportUsage]
        torch.mul(source[0], SCALE, out=self._made[0])
        for i, made in zip(self._half, self._made, strict=True):
            self.weights[i] = made


def run(copies: Copies, obs: Tensor, keep: list[Tensor] | None = None) -> list[Tensor]:
    """The outputs of the streams, float32. `keep` takes every layer's input, and the last activation of each stream."""
    w, n = copies.weights, len(copies.convolutions)
    x = obs.to(torch.bfloat16, memory_format=copies.memory_format)
    for i, layer in enumerate(copies.convolutions):
        if keep is not None:
            keep.append(x)
        x = torch.conv2d(x, w[2 * i], w[2 * i + 1], layer.stride).relu_()  # type: ignore[arg-type]
    flat = x.flatten(1)
    if keep is not None:
        keep += [x, flat]
    outputs = []
    for s in range(len(copies.streams)):
        hidden_w, hidden_b, output_w, output_b = w[2 * n + 4 * s : 2 * n + 4 * s + 4]
        h = F.linear(flat, hidden_w, hidden_b).relu_()
        h32 = h.float()
        if keep is not None:
            keep += [h, h32]
        outputs.append(F.linear(h32, output_w, output_b))
    return outputs


def run_backward(copies: Copies, kept: list[Tensor], gradients: tuple[Tensor, ...]) -> list[Tensor]:
    """The gradients of all parameters, float32, in the order of `copies.source`."""
    w, n = copies.weights, len(copies.convolutions)
    x, flat = kept[n], kept[n + 1]
    of_streams: list[Tensor] = []
    g_flat: Tensor | None = None
    for s, g in enumerate(gradients):
        hidden_w, _, output_w, _ = w[2 * n + 4 * s : 2 * n + 4 * s + 4]
        h, h32 = kept[n + 2 + 2 * s : n + 4 + 2 * s]
        g_h = torch.ops.aten.threshold_backward((g @ output_w).to(torch.bfloat16), h, 0)
        of_streams += [(g_h.t() @ flat).float(), g_h.sum(0, dtype=torch.float32), g.t() @ h32, g.sum(0)]
        back = g_h @ hidden_w
        g_flat = back if g_flat is None else g_flat + back
    assert g_flat is not None
    g = g_flat.view(x.shape).contiguous(memory_format=copies.memory_format)
    of_convolutions: list[Tensor] = []
    for i in range(n - 1, -1, -1):
        g = torch.ops.aten.threshold_backward(g, kept[i + 1], 0)
        stride, weight = copies.convolutions[i].stride, w[2 * i]
        g, g_w, g_b = torch.ops.aten.convolution_backward(
            g, kept[i], weight, [weight.shape[0]], stride, [0, 0], [1, 1], False, [0, 0], 1, [i > 0, True, True]
        )
        g_w = g_w.to(torch.float32, memory_format=copies.memory_format)
        of_convolutions = [g_w * SCALE if i == 0 else g_w, g_b.float(), *of_convolutions]
    return of_convolutions + of_streams


class _Pass(torch.autograd.Function):
    """One node for the whole network. Its parameters are arguments only so that gradients find them."""

    @staticmethod
    def forward(ctx: Any, copies: Copies, obs: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.copies, ctx.kept = copies, []
        return tuple(run(copies, obs, ctx.kept))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *run_backward(ctx.copies, ctx.kept, gradients))


class WrittenOut:
    """The passes over any number of networks; remembers the copies of each."""

    def __init__(self) -> None:
        self._copies: weakref.WeakKeyDictionary[nn.Module, Copies] = weakref.WeakKeyDictionary()

    def copies(self, network: ConvNetwork) -> Copies:
        if network not in self._copies:
            self._copies[network] = Copies(network)
        found = self._copies[network]
        found.refresh()
        return found

    def forward(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """The pass that learns."""
        copies = self.copies(network)
        return network.head.combine(*_Pass.apply(copies, obs, *copies.source))  # type: ignore[misc]

    @torch.no_grad()
    def quiet(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """Without a graph: the target's values, and the actions'."""
        return network.head.combine(*run(self.copies(network), obs))


def count_versions(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """A hook of optimisers: says that all parameters were written to."""
    for group in optimizer.param_groups:
        torch.autograd.graph.increment_version(group["params"])
