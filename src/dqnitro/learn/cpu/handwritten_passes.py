"""The convolutional network's passes written out by hand, in bfloat16, for a learner on the CPU.

What it saves over autocast: the weights are converted once after an update instead of in every pass, so that acting can use
them, too; and the network is one node of autograd's graph instead of thirty, whose bookkeeping leaves the second core waiting.

The slow twin is the network itself: tests compare values and gradients with it.
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
from dqnitro.learn.cpu.bf16_shadow import Half

SCALE = 1.0 / 255.0  # of the pixels; it goes to the first weights, because bytes are exact in bfloat16


class Copies:
    """bfloat16 copies of a network's weights. Output layers stay float32, as under autocast."""

    def __init__(self, network: ConvNetwork) -> None:
        self.convolutions = [m for m in network.convolutions if isinstance(m, nn.Conv2d)]
        head = network.head
        self.streams = head.streams
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
        self._places: list[int] = []  # of the parameters in memory
        self._plain: list[Tensor] = []  # the parameters without gradients
        self._derived: dict[int, tuple[Tensor, ...]] = {}

    def refresh(self) -> None:
        """Convert again if a parameter was written to since the last time.

        torch counts what its own operations write. Whoever writes past them has to say so with `increment_version`: the fused
        optimiser does not count, and a player's weights lie in memory that another process writes.
        """
        versions = [p._version for p in self.source]
        if versions == self._versions:
            return
        self._versions = versions
        places = [p.data_ptr() for p in self.source]
        if places != self._places:
            self._places, self._plain = places, [p.detach() for p in self.source]
        self.weights = list(self._plain)
        # Views of the copies stay what they are: the copies are written to, never replaced.
        self._derived = {i: x for i, x in self._derived.items() if x[0].data_ptr() == self._made[2 * i].data_ptr()}
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

    def derived(self, i: int, make: Callable[[Tensor], tuple[Tensor, ...]]) -> Any:
        """What `make` makes of the weights of convolution i; kept until they change, or for good if they are only views."""
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


@dataclass
class Kept:
    """What a pass leaves for the way back."""

    inputs: list[Tensor]  # of every convolution, and the output of the last
    flat: Tensor  # what the hidden layers read
    hidden: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # of each stream, bfloat16 and float32


class BackToFlat(NamedTuple):
    """The first part of the way back: through the head, as far as the hidden layers' input."""

    flat: Tensor  # the gradient there, bfloat16
    hidden: list[Tensor]  # of each stream, before the ReLU
    of_streams: list[Tensor | None]  # of all their parameters but the hidden weights, whose places are None


def convolve(copies: Copies, obs: tuple[Tensor, ...]) -> Kept:
    w, inputs = copies.weights, []
    x = joined(*obs).to(torch.bfloat16, memory_format=copies.memory_format)
    for i, layer in enumerate(copies.convolutions):
        inputs.append(x)
        x = torch.conv2d(x, w[2 * i], w[2 * i + 1], layer.stride).relu_()  # type: ignore[arg-type]
    return Kept([*inputs, x], x.flatten(1))


def run_head(copies: Copies, kept: Any) -> list[Tensor]:
    """From the hidden layers' input to the outputs of the streams, float32."""
    w, n = copies.weights, len(copies.convolutions)
    kept.hidden, outputs = [], []
    for s in range(len(copies.streams)):
        hidden_w, hidden_b, output_w, output_b = w[2 * n + 4 * s : 2 * n + 4 * s + 4]
        h = F.linear(kept.flat, hidden_w, hidden_b).relu_()
        h32 = h.float()
        kept.hidden.append((h, h32))
        outputs.append(F.linear(h32, output_w, output_b))
    return outputs


def head_backward(copies: Copies, kept: Any, gradients: tuple[Tensor, ...]) -> BackToFlat:
    """There may be fewer gradients than samples: the last samples of a pass may only have been looked at."""
    w, n = copies.weights, len(copies.convolutions)
    of_streams: list[Tensor | None] = []
    hidden: list[Tensor] = []
    flat: Tensor | None = None
    for s, g in enumerate(gradients):
        hidden_w, _, output_w, _ = w[2 * n + 4 * s : 2 * n + 4 * s + 4]
        h, h32 = (x[: len(g)] for x in kept.hidden[s])
        g_h = torch.ops.aten.threshold_backward((g @ output_w).to(torch.bfloat16), h, 0)
        hidden.append(g_h)
        of_streams += [None, g_h.sum(0, dtype=torch.float32), g.t() @ h32, g.sum(0)]
        back = g_h @ hidden_w
        flat = back if flat is None else flat + back
    assert flat is not None
    return BackToFlat(flat, hidden, of_streams)


def hidden_gradients(copies: Copies, kept: Any, hidden: list[Tensor]) -> list[Tensor | None]:
    """Of the hidden layers' weights; None where the optimiser has it already."""
    n = 2 * len(copies.convolutions)
    return [copies.gradient(n + 4 * s, g, kept.flat[: len(g)]) for s, g in enumerate(hidden)]


def convolve_backward(copies: Copies, kept: Kept, g_flat: Tensor) -> list[Tensor | None]:
    w, rows, last = copies.weights, len(g_flat), kept.inputs[-1]
    g = g_flat.view(rows, *last.shape[1:]).contiguous(memory_format=copies.memory_format)
    out: list[Tensor | None] = []
    for i in range(len(copies.convolutions) - 1, -1, -1):
        g = torch.ops.aten.threshold_backward(g, kept.inputs[i + 1][:rows], 0)
        stride, weight = copies.convolutions[i].stride, w[2 * i]
        g, g_w, g_b = torch.ops.aten.convolution_backward(
            g, kept.inputs[i][:rows], weight, [weight.shape[0]], stride, [0, 0], [1, 1], False, [0, 0], 1, [i > 0, True, True]
        )  # fmt: skip
        g_w = g_w.to(torch.float32, memory_format=copies.memory_format)
        out = [g_w * SCALE if i == 0 else g_w, g_b.float(), *out]
    return out


class Passes(Protocol):
    """Both ways through the convolutions. What is above them is the same for all (`run_head`, `head_backward`)."""

    def convolve(self, copies: Copies, obs: tuple[Tensor, ...]) -> Any:
        """Over all of these, as one batch. What the way back needs, with a `flat` to go on from, and room for `hidden`."""
        ...

    def convolve_backward(self, copies: Copies, kept: Any, g_flat: Tensor) -> list[Tensor | None]:
        """The gradients of the convolutions, float32, in the order of `copies.source`."""
        ...

    def done(self, kept: Any) -> None:
        """What a pass kept is needed no more."""
        ...


class Dense:
    """Every layer computes all of its output, as torch does."""

    def convolve(self, copies: Copies, obs: tuple[Tensor, ...]) -> Kept:
        return convolve(copies, obs)

    def convolve_backward(self, copies: Copies, kept: Kept, g_flat: Tensor) -> list[Tensor | None]:
        return convolve_backward(copies, kept, g_flat)

    def done(self, kept: Kept) -> None:
        """Freed when nobody holds it."""


_DENSE = Dense()


def run(passes: Passes, copies: Copies, *obs: Tensor) -> tuple[list[Tensor], Any]:
    """The outputs of the streams, float32, and what the way back needs."""
    kept = passes.convolve(copies, obs)
    return run_head(copies, kept), kept


def put_in(of_streams: list[Tensor | None], hidden: list[Tensor | None]) -> list[Tensor | None]:
    """All gradients of the head in the order of its parameters."""
    return [hidden[i // 4] if i % 4 == 0 else g for i, g in enumerate(of_streams)]


def run_backward(passes: Passes, copies: Copies, kept: Any, gradients: tuple[Tensor, ...]) -> list[Tensor | None]:
    """The gradients of all parameters, float32, in the order of `copies.source`; None where the optimiser has it already."""
    back = head_backward(copies, kept, gradients)
    hidden = hidden_gradients(copies, kept, back.hidden)
    of_convolutions = passes.convolve_backward(copies, kept, back.flat)
    passes.done(kept)
    return of_convolutions + put_in(back.of_streams, hidden)


WayBack = Callable[[tuple[Tensor, ...]], list[Tensor | None]]


class _Pass(torch.autograd.Function):
    """One node for the whole network, whose outputs are there already. Its parameters are arguments only so that gradients
    find them.
    """

    @staticmethod
    def forward(ctx: Any, way_back: WayBack, outputs: tuple[Tensor, ...], *parameters: Tensor) -> tuple[Tensor, ...]:
        ctx.way_back = way_back
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *ctx.way_back(gradients))


class WrittenOut:
    """The passes over any number of networks; remembers the copies of each."""

    def __init__(self, passes: Passes | None = None) -> None:
        self.passes = passes or _DENSE
        self._copies: weakref.WeakKeyDictionary[nn.Module, Copies] = weakref.WeakKeyDictionary()

    def copies(self, network: ConvNetwork) -> Copies:
        if network not in self._copies:
            self._copies[network] = Copies(network)
        found = self._copies[network]
        found.refresh()
        return found

    def forward(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """The pass that learns."""
        return self.forward_also(network, obs)[0]

    def forward_also(self, network: ConvNetwork, obs: Tensor, *also: Tensor) -> list[Tensor]:
        """The pass that learns, and what the network says about other observations: they go along, and nothing comes back."""
        copies = self.copies(network)
        with torch.no_grad():
            outputs, kept = run(self.passes, copies, obs, *also)
        rows = [len(obs), *map(len, also)]
        return self.results(network, outputs, rows, lambda g: run_backward(self.passes, copies, kept, g))

    def results(self, network: ConvNetwork, outputs: list[Tensor], rows: list[int], way_back: WayBack) -> list[Tensor]:
        """What a pass says, in parts of so many rows. The first has gradients."""
        copies, (learns, *others) = self.copies(network), zip(*(x.split(rows) for x in outputs), strict=True)
        out = network.head.combine(*_Pass.apply(way_back, learns, *copies.source))  # type: ignore[misc]
        with torch.no_grad():
            return [out, *(network.head.combine(*x) for x in others)]

    @torch.no_grad()
    def quiet(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """Without a graph: the target's values."""
        outputs, kept = run(self.passes, self.copies(network), obs)
        self.passes.done(kept)
        return network.head.combine(*outputs)

    @torch.no_grad()
    def act(self, network: ConvNetwork, obs: Tensor) -> Tensor:
        """The actions' values: a few observations, too few for anything clever."""
        return network.head.combine(*run(_DENSE, self.copies(network), obs)[0])


def count_versions(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """A hook of optimisers: says that all parameters were written to."""
    for group in optimizer.param_groups:
        torch.autograd.graph.increment_version(group["params"])
