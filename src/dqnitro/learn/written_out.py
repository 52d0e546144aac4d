"""The convolutional network's passes written out by hand, in bfloat16, for a learner on the CPU.

What it saves over autocast: the weights are converted once after an update instead of in every pass, so that acting can use
them, too; and the network is one node of autograd's graph instead of thirty, whose bookkeeping leaves the second core waiting.

The slow twin is the network itself: tests compare values and gradients with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dqnitro.dqn import ConvNetwork
from dqnitro.learn.half import Half

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
        for i, made in zip(self._half, self._made, strict=True):
            Half.fill_in(self.source[i], made)
        self.weights: list[Tensor] = []  # in the order of `source`
        self._versions: list[int] = []
        self._derived: dict[int, Tensor] = {}

    def refresh(self) -> None:
        """Convert again if a parameter was written to since the last time.

        torch counts what its own operations write. Whoever writes past them has to say so with `increment_version`: the fused
        optimiser does not count, and a player's weights lie in memory that another process writes.
        """
        versions = [p._version for p in self.source]
        if versions == self._versions:
            return
        self._versions = versions
        self._derived.clear()
        self.weights = [p.detach() for p in self.source]
        old: list[Tensor] = []
        new: list[Tensor] = []
        for i, made in zip(self._half, self._made, strict=True):
            half = Half.of(self.source[i])
            if (
                half is None or half.copy is not made or half.version != versions[i]
            ):  # or the optimiser has done it already
                old.append(self.weights[i])
                new.append(made)
        torch._foreach_copy_(new, old)  # pyright: ignore[reportPrivateImportUsage]
        torch.mul(self.weights[0], SCALE, out=self._made[0])
        for i, made in zip(self._half, self._made, strict=True):
            self.weights[i] = made

    def derived(self, i: int, make: Callable[[Tensor], Tensor]) -> Tensor:
        """What `make` makes of the weights of convolution i; kept until they change."""
        if i not in self._derived:
            self._derived[i] = make(self.weights[2 * i])
        return self._derived[i]

    def gradient(self, i: int, g: Tensor, x: Tensor) -> Tensor | None:
        """`g.t() @ x` as float32, or as the optimiser wants it: then in its own place, and None."""
        half = Half.of(self.source[i])
        if half is None or half.gradient is None:
            return (g.t() @ x).float()
        if half.has_gradient:  # of another pass since the last step
            half.gradient += g.t() @ x
        else:
            torch.mm(g.t(), x, out=half.gradient)
        half.has_gradient = True
        return None


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


def run_backward(copies: Copies, kept: list[Tensor], gradients: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The gradients of all parameters, float32, in the order of `copies.source`; None where the optimiser has it already."""
    w, n = copies.weights, len(copies.convolutions)
    x, flat = kept[n], kept[n + 1]
    of_streams: list[Tensor | None] = []
    g_flat: Tensor | None = None
    for s, g in enumerate(gradients):
        hidden_w, _, output_w, _ = w[2 * n + 4 * s : 2 * n + 4 * s + 4]
        h, h32 = kept[n + 2 + 2 * s : n + 4 + 2 * s]
        g_h = torch.ops.aten.threshold_backward((g @ output_w).to(torch.bfloat16), h, 0)
        g_w = copies.gradient(2 * n + 4 * s, g_h, flat)
        of_streams += [g_w, g_h.sum(0, dtype=torch.float32), g.t() @ h32, g.sum(0)]
        back = g_h @ hidden_w
        g_flat = back if g_flat is None else g_flat + back
    assert g_flat is not None
    g = g_flat.view(x.shape).contiguous(memory_format=copies.memory_format)
    of_convolutions: list[Tensor | None] = []
    for i in range(n - 1, -1, -1):
        g = torch.ops.aten.threshold_backward(g, kept[i + 1], 0)
        stride, weight = copies.convolutions[i].stride, w[2 * i]
        g, g_w, g_b = torch.ops.aten.convolution_backward(
            g, kept[i], weight, [weight.shape[0]], stride, [0, 0], [1, 1], False, [0, 0], 1, [i > 0, True, True]
        )
        g_w = g_w.to(torch.float32, memory_format=copies.memory_format)
        of_convolutions = [g_w * SCALE if i == 0 else g_w, g_b.float(), *of_convolutions]
    return of_convolutions + of_streams


class Passes(Protocol):
    """Both ways through the network."""

    def run(self, copies: Copies, obs: Tensor) -> tuple[list[Tensor], Any]:
        """The outputs of the streams, float32, and whatever the way back needs."""
        ...

    def run_backward(self, copies: Copies, kept: Any, gradients: tuple[Tensor, ...]) -> list[Tensor | None]: ...

    def done(self, kept: Any) -> None:
        """What a pass kept is needed no more."""
        ...


class Dense:
    """Every layer computes all of its output, as torch does."""

    def run(self, copies: Copies, obs: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        kept: list[Tensor] = []
        return run(copies, obs, kept), kept

    def run_backward(self, copies: Copies, kept: list[Tensor], gradients: tuple[Tensor, ...]) -> list[Tensor | None]:
        return run_backward(copies, kept, gradients)

    def done(self, kept: list[Tensor]) -> None:
        """Freed when nobody holds it."""


class _Pass(torch.autograd.Function):
    """One node for the whole network. Its parameters are arguments only so that gradients find them."""

    @staticmethod
    def forward(ctx: Any, passes: Passes, copies: Copies, obs: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.passes, ctx.copies = passes, copies
        outputs, ctx.kept = passes.run(copies, obs)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        out = ctx.passes.run_backward(ctx.copies, ctx.kept, gradients)
        ctx.passes.done(ctx.kept)
        return (None, None, None, *out)


class WrittenOut:
    """The passes over any number of networks; remembers the copies of each."""

    def __init__(self, passes: Passes | None = None) -> None:
        self._passes = passes or Dense()
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
        return network.head.combine(*_Pass.apply(self._passes, copies, obs, *copies.source))  # type: ignore[misc]

    @torch.no_grad()
    def quiet(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """Without a graph: the target's values."""
        outputs, kept = self._passes.run(self.copies(network), obs)
        self._passes.done(kept)
        return network.head.combine(*outputs)

    @torch.no_grad()
    def act(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """The actions' values: a few observations, too few for anything clever."""
        return network.head.combine(*run(self.copies(network), obs))


def count_versions(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """A hook of optimisers: says that all parameters were written to."""
    for group in optimizer.param_groups:
        torch.autograd.graph.increment_version(group["params"])
