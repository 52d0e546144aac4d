"""The convolutional network's passes written out by hand, in bfloat16, for a learner on the CPU.

They save two things over autocast. The weights are converted once after an update instead of in every pass, so that
acting can use them, too. And the network is one node of autograd's graph instead of thirty, whose bookkeeping leaves
the second core waiting.

The reference implementation is the network itself: tests compare values and gradients with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dqnitro.dqn import ConvNetwork, joined
from dqnitro.learn.cpu.bf16_shadow import Bf16Shadows

SCALE = 1.0 / 255.0  # of the pixels; the first weights are multiplied with it, because bytes are exact in bfloat16


class Bf16Weights:
    """A network's weights in bfloat16. Output layers stay float32, as under autocast.

    All lists are in the order of `source`: weight, bias, weight, bias, ... of the convolutions, then of the hidden and
    the output layer of each stream.
    """

    def __init__(self, network: ConvNetwork, shadows: Bf16Shadows | None = None) -> None:
        self.convolutions = [m for m in network.convolutions if isinstance(m, nn.Conv2d)]
        self.streams = network.head.streams
        self.memory_format = network.memory_format
        layers = [*self.convolutions, *(layer for s in self.streams for layer in (s.hidden, s.output))]
        outputs = {p for s in self.streams for p in s.output.parameters()}
        self.source = [p for layer in layers for p in layer.parameters()]
        self.shadows = Bf16Shadows() if shadows is None else shadows
        self.hidden_have_shadows = all(self.shadows.get(s.hidden.weight) is not None for s in self.streams)
        self._converted = [i for i, p in enumerate(self.source) if p not in outputs]
        # Where a parameter has a shadow, its copy is the shadow's, which the optimiser writes.
        self._shadow = {i: x for i in self._converted if (x := self.shadows.get(self.source[i])) is not None}
        self._copies = [
            self._shadow[i].weights if i in self._shadow else torch.empty_like(self.source[i], dtype=torch.bfloat16)
            for i in self._converted
        ]
        self.weights: list[Tensor] = []
        self._versions: list[int] = []
        self._addresses: list[int] = []  # of the parameters in memory
        self._detached: list[Tensor] = []  # the parameters without gradients
        self._derived: dict[int, tuple[Tensor, ...]] = {}

    def refresh(self) -> None:
        """Convert again if a parameter was written to since the last time.

        torch counts what its own operations write. Code that writes past them has to say so with `increment_version`:
        the fused optimiser does not count, and a player's weights lie in memory that another process writes.
        """
        versions = [p._version for p in self.source]
        if versions == self._versions:
            return
        self._versions = versions
        addresses = [p.data_ptr() for p in self.source]
        if addresses != self._addresses:
            self._addresses = addresses
            self._detached = [p.detach() for p in self.source]
        self.weights = list(self._detached)
        # Views of the copies stay valid: the copies are written to, never replaced.
        self._derived = {i: x for i, x in self._derived.items() if x[0].data_ptr() == self._copies[2 * i].data_ptr()}
        old: list[Tensor] = []
        new: list[Tensor] = []
        for i, copy in zip(self._converted, self._copies, strict=True):
            shadow = self._shadow.get(i)
            if shadow is None or not shadow.is_current(versions[i]):  # otherwise the optimiser has written it already
                old.append(self.weights[i])
                new.append(copy)
        torch._foreach_copy_(new, old)  # pyright: ignore[reportPrivateImportUsage]
        torch.mul(self.weights[0], SCALE, out=self._copies[0])
        for i, copy in zip(self._converted, self._copies, strict=True):
            self.weights[i] = copy

    def derived(self, i: int, make: Callable[[Tensor], tuple[Tensor, ...]]) -> Any:
        """`make(weights of convolution i)`, kept until the weights change, or for good if it returns views of them."""
        if i not in self._derived:
            self._derived[i] = make(self.weights[2 * i])
        return self._derived[i]

    def gradient(self, i: int, g: Tensor, x: Tensor) -> Tensor | None:
        """`g.t() @ x` as float32; None where it went to a shadow instead."""
        shadow = self._shadow.get(i)
        if shadow is None:
            return (g.t() @ x).float()
        shadow.add_gradient(g.t(), x)
        return None


@dataclass
class Activations:
    """What a forward pass leaves for the backward pass."""

    inputs: list[Tensor]  # of every convolution, and the output of the last
    flat: Tensor  # the hidden layers' input
    hidden: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # of each stream, bfloat16 and float32


class HeadGradients(NamedTuple):
    """The first part of a backward pass: through the head, as far as the hidden layers' input."""

    flat: Tensor  # of that input, bfloat16
    hidden: list[Tensor]  # of each stream's hidden layer before the ReLU
    of_streams: list[Tensor | None]  # of all parameters of the streams; None for the hidden weights, which come later


class ConvPasses(Protocol):
    """Forward and backward passes through the convolutions. The layers above are the same for all (`head_forward`,
    `head_backward`).
    """

    def forward(self, weights: Bf16Weights, obs: tuple[Tensor, ...]) -> Any:
        """Convolve all of these as one batch. Returns what the backward pass needs, as `Activations` or the like."""
        ...

    def backward(self, weights: Bf16Weights, kept: Any, g_flat: Tensor) -> list[Tensor | None]:
        """The gradients of the convolutions, float32, in the order of `weights.source`."""
        ...

    def release(self, kept: Any) -> None:
        """Say that what a pass kept is not needed any more."""
        ...


class DenseConvs:
    """Every layer computes all of its output, as torch does."""

    def forward(self, weights: Bf16Weights, obs: tuple[Tensor, ...]) -> Activations:
        w, inputs = weights.weights, []
        x = joined(*obs).to(torch.bfloat16, memory_format=weights.memory_format)
        for i, layer in enumerate(weights.convolutions):
            inputs.append(x)
            x = torch.conv2d(x, w[2 * i], w[2 * i + 1], layer.stride).relu_()
        return Activations([*inputs, x], x.flatten(1))

    def backward(self, weights: Bf16Weights, kept: Activations, g_flat: Tensor) -> list[Tensor | None]:
        rows = len(g_flat)
        g = g_flat.view(rows, *kept.inputs[-1].shape[1:]).contiguous(memory_format=weights.memory_format)
        out: list[Tensor | None] = []
        for i in range(len(weights.convolutions) - 1, -1, -1):
            g = torch.ops.aten.threshold_backward(g, kept.inputs[i + 1][:rows], 0)
            stride = weights.convolutions[i].stride
            weight = weights.weights[2 * i]
            wanted = [i > 0, True, True]  # gradients of input, weight and bias; pixels need none
            g, g_w, g_b = torch.ops.aten.convolution_backward(
                g, kept.inputs[i][:rows], weight, [weight.shape[0]], stride, [0, 0], [1, 1], False, [0, 0], 1, wanted
            )
            g_w = g_w.to(torch.float32, memory_format=weights.memory_format)
            out = [g_w * SCALE if i == 0 else g_w, g_b.float(), *out]
        return out

    def release(self, kept: Activations) -> None:
        """Python frees it with the last reference."""


_DENSE = DenseConvs()


def head_forward(weights: Bf16Weights, kept: Any) -> list[Tensor]:
    """From the hidden layers' input to the outputs of the streams, float32."""
    n = 2 * len(weights.convolutions)
    outputs = []
    kept.hidden = []
    for s in range(len(weights.streams)):
        hidden_w, hidden_b, output_w, output_b = weights.weights[n + 4 * s : n + 4 * s + 4]
        h = F.linear(kept.flat, hidden_w, hidden_b).relu_()
        h32 = h.float()
        kept.hidden.append((h, h32))
        outputs.append(F.linear(h32, output_w, output_b))
    return outputs


def head_backward(weights: Bf16Weights, kept: Any, gradients: tuple[Tensor, ...]) -> HeadGradients:
    """There may be fewer gradients than samples: the last samples of a pass may be there for their values only."""
    n = 2 * len(weights.convolutions)
    of_streams: list[Tensor | None] = []
    hidden: list[Tensor] = []
    flat: Tensor | None = None
    for s, g in enumerate(gradients):
        hidden_w, _, output_w, _ = weights.weights[n + 4 * s : n + 4 * s + 4]
        h, h32 = (x[: len(g)] for x in kept.hidden[s])
        g_h = torch.ops.aten.threshold_backward((g @ output_w).to(torch.bfloat16), h, 0)
        hidden.append(g_h)
        of_streams += [None, g_h.sum(0, dtype=torch.float32), g.t() @ h32, g.sum(0)]
        g_flat = g_h @ hidden_w
        flat = g_flat if flat is None else flat + g_flat
    assert flat is not None
    return HeadGradients(flat, hidden, of_streams)


def hidden_gradients(weights: Bf16Weights, kept: Any, hidden: list[Tensor]) -> list[Tensor | None]:
    """The gradients of the hidden layers' weights; None where a shadow has it."""
    n = 2 * len(weights.convolutions)
    return [weights.gradient(n + 4 * s, g, kept.flat[: len(g)]) for s, g in enumerate(hidden)]


def join_head_gradients(head: HeadGradients, hidden: list[Tensor | None]) -> list[Tensor | None]:
    """All gradients of the head in the order of its parameters."""
    return [hidden[i // 4] if i % 4 == 0 else g for i, g in enumerate(head.of_streams)]


def run_forward(convs: ConvPasses, weights: Bf16Weights, *obs: Tensor) -> tuple[list[Tensor], Any]:
    """The outputs of the streams, float32, and what the backward pass needs."""
    kept = convs.forward(weights, obs)
    return head_forward(weights, kept), kept


def run_backward(
    convs: ConvPasses, weights: Bf16Weights, kept: Any, gradients: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """The gradients of all parameters, float32, in the order of `weights.source`; None where a shadow has it."""
    head = head_backward(weights, kept, gradients)
    hidden = hidden_gradients(weights, kept, head.hidden)
    of_convs = convs.backward(weights, kept, head.flat)
    convs.release(kept)
    return of_convs + join_head_gradients(head, hidden)


Backward = Callable[[tuple[Tensor, ...]], list[Tensor | None]]


class _NetworkNode(torch.autograd.Function):
    """One node of autograd's graph for the whole network, whose outputs are computed already. The parameters are
    arguments only so that gradients find them.
    """

    @staticmethod
    def forward(ctx: Any, backward: Backward, outputs: tuple[Tensor, ...], *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.run_backward = backward
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *ctx.run_backward(gradients))


class HandwrittenPasses:
    """The passes over any number of networks; keeps the bfloat16 weights of each."""

    def __init__(self, convs: ConvPasses | None = None) -> None:
        self.convs = convs or _DENSE
        self._shadows = Bf16Shadows()
        self._weights: weakref.WeakKeyDictionary[nn.Module, Bf16Weights] = weakref.WeakKeyDictionary()

    def use_shadows(self, shadows: Bf16Shadows) -> None:
        """Share weights and gradients with the optimiser that owns these."""
        self._shadows = shadows
        self._weights.clear()

    def weights(self, network: ConvNetwork) -> Bf16Weights:
        """A network's weights in bfloat16, up to date."""
        if network not in self._weights:
            self._weights[network] = Bf16Weights(network, self._shadows)
        found = self._weights[network]
        found.refresh()
        return found

    def forward(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """Training forward pass."""
        return self.forward_also(network, obs)[0]

    def forward_also(self, network: ConvNetwork, obs: Tensor, *also: Tensor) -> list[Tensor]:
        """Training forward pass. `also` observations share the pass but get no gradients."""
        weights = self.weights(network)
        with torch.no_grad():
            outputs, kept = run_forward(self.convs, weights, obs, *also)
        rows = [len(obs), *map(len, also)]
        return self.results(network, outputs, rows, lambda g: run_backward(self.convs, weights, kept, g))

    def results(self, network: ConvNetwork, outputs: list[Tensor], rows: list[int], backward: Backward) -> list[Tensor]:
        """The network's outputs from those of its streams, a tensor for each count of rows. The first has gradients."""
        trained, *others = zip(*(x.split(rows) for x in outputs), strict=True)
        parameters = self.weights(network).source
        out = network.head.combine(*_NetworkNode.apply(backward, trained, *parameters))
        with torch.no_grad():
            return [out, *(network.head.combine(*x) for x in others)]

    @torch.no_grad()
    def forward_no_grad(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """Forward pass without a graph, for the target's values."""
        outputs, kept = run_forward(self.convs, self.weights(network), obs)
        self.convs.release(kept)
        return network.head.combine(*outputs)

    @torch.no_grad()
    def act(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """Acting pass, for a few observations: always dense, because numbering so few patches does not pay."""
        return network.head.combine(*run_forward(_DENSE, self.weights(network), obs)[0])


def count_versions(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Post-hook of an optimiser's step that says that all parameters were written to."""
    for group in optimizer.param_groups:
        torch.autograd.graph.increment_version(group["params"])
