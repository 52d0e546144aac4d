"""The written-out passes with every distinct patch of a batch convolved once.

A convolution here is a matrix product over the distinct patches of the batch; the pictures between the layers are never made.
Gradients of equal patches are summed before they meet the weights: the same sum in another order, so only rounding differs.

The slow twin is `written_out.Dense`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro.learn.cpu import patch_kernels
from dqnitro.learn.cpu.handwritten_passes import SCALE, Copies, Dense

ROWS = 64  # rows of a product are rounded up to this: oneDNN makes and keeps code for every shape it meets
Shape = tuple[int, int, int]  # of a convolution: outputs, size, stride


def shapes(convolutions: list[nn.Conv2d]) -> tuple[Shape, ...]:
    return tuple((c.out_channels, int(c.kernel_size[0]), int(c.stride[0])) for c in convolutions)


def fits(copies: Copies, obs: Tensor) -> bool:
    """Four bytes a pixel, an even width, and 8x8 patches 4 pixels apart: what the numbering of pixels is written for."""
    first = copies.convolutions[0]
    return (
        obs.dtype == torch.uint8 and obs.shape[1] == 4 and obs.shape[3] % 2 == 0
        and first.kernel_size == (8, 8) and first.stride == (4, 4)
    )  # fmt: skip


class Numbers:
    """The distinct patches of a batch in every layer. Made for one shape, filled again and again.

    A convolution over 8x8 pixels is one over 2x2 blocks of 4x4 pixels.
    """

    def __init__(self, obs_shape: tuple[int, ...], convolutions: tuple[Shape, ...]) -> None:
        batch, _, height, width = obs_shape
        self.sizes = (2, *(size for _, size, _ in convolutions[1:]))
        self.strides = (1, *(stride for _, _, stride in convolutions[1:]))
        grids = [(height // 4, width // 4)]
        for size, stride in zip(self.sizes, self.strides, strict=True):
            grids.append(((grids[-1][0] - size) // stride + 1, (grids[-1][1] - size) // stride + 1))
        self.ids = tuple(np.empty((batch, *grid), np.uint32) for grid in grids)  # the number at each place
        self.firsts = tuple(np.empty(x.size, np.int32) for x in self.ids[1:])  # the place where each was seen first
        self.counts = np.zeros(len(grids), np.int64)
        n = self.ids[0].size
        self.pixels = np.empty((n, 8), np.uint64)  # of the distinct blocks
        # The table is never more than half full.
        table, short = np.empty(1 << (2 * n - 1).bit_length(), np.int32), np.empty(n, np.uint64)
        self._scratch = (table, short, np.empty(n, np.uint32), np.empty(n, np.int32))

    def fill(self, obs: tuple[Tensor, ...]) -> None:
        """The samples of all of these, one after the other."""
        n, row, table = 0, 0, self._scratch[0]
        for part in obs:
            pixels = np.ascontiguousarray(part.numpy().transpose(0, 2, 3, 1))
            words = pixels.reshape(*pixels.shape[:2], -1).view(np.uint64)
            ids = self.ids[0][row : row + len(part)]
            n, row = (
                patch_kernels.number_blocks(words, patch_kernels.FACTORS, table, self.pixels, ids, n),
                row + len(part),
            )
        self.counts[0] = n
        patch_kernels.number_layers(
            self.sizes, self.strides, patch_kernels.FACTORS, *self._scratch, self.ids, self.firsts, self.counts
        )


class Memory:
    """Rows of bfloat16 for torch, and the same memory for NumPy. Views are made once: making one costs torch microseconds, and it
    gives the GIL away meanwhile, which another thread may then have for as long as it likes.
    """

    def __init__(self, rows: int, width: int) -> None:
        self.tensor = torch.empty(rows, width, dtype=torch.bfloat16)
        self.bits = self.tensor.view(torch.uint16).numpy()
        self.words = self.bits.view(np.uint64)  # four numbers each
        self._first: dict[int, tuple[Tensor, Tensor]] = {}

    def first(self, rows: int) -> tuple[Tensor, Tensor]:
        """The first rows, and the same transposed."""
        if rows not in self._first:
            self._first[rows] = (self.tensor[:rows], self.tensor[:rows].t())
        return self._first[rows]

    def parts(self, n: int) -> np.ndarray:
        return self.bits.reshape(len(self.bits), n, -1)


class Layer:
    """One convolution over distinct patches, with room for as many as there can be: memory that is never touched costs nothing,
    and memory that is kept brings no page faults.
    """

    def __init__(self, numbers: Numbers, i: int, inputs: int, outputs: int) -> None:
        most, area = -(-len(numbers.firsts[i]) // ROWS) * ROWS, numbers.sizes[i] ** 2
        self._numbers, self._i, self._where = (
            numbers,
            i,
            (numbers.sizes[i], numbers.strides[i], *numbers.ids[i + 1].shape[1:]),
        )
        self._inputs = Memory(most, area * inputs)
        self._patches = self._inputs.words.reshape(most, area, -1)
        self._back = Memory(most, area * inputs)
        self._parts = self._back.parts(area)
        self.outputs, self._gradient = Memory(most, outputs), Memory(most, outputs)  # before the ReLU
        self._weights = Memory(outputs, area * inputs)  # their gradient
        self.total = np.empty((most, outputs), np.float32)  # of the gradients of all places
        self.bias = np.empty(outputs, np.float32)

    @property
    def count(self) -> int:
        return int(self._numbers.counts[self._i + 1])

    @property
    def _rows(self) -> int:
        return -(-self.count // ROWS) * ROWS

    def forward(self, below: Memory, weights: Matrix, bias: Tensor) -> None:
        n, rows = self._numbers, self._rows
        patch_kernels.gather_rows(
            below.words, n.ids[self._i], n.firsts[self._i][: self.count], *self._where, self._patches[:rows]
        )
        torch.addmm(bias, self._inputs.first(rows)[0], weights[1], out=self.outputs.first(rows)[0])

    def backward(self, weight: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """From the total over all places to before the ReLU. The gradients of weights, times `scale`, and of the bias."""
        gradient, rows, product = self._gradient, self._rows, self._weights
        patch_kernels.through_relu(self.total[: self.count], self.outputs.bits, gradient.bits[:rows], self.bias)
        torch.mm(gradient.first(rows)[1], self._inputs.first(rows)[0], out=product.tensor)
        wide = np.empty(product.bits.shape, np.float32)
        patch_kernels.widen(product.bits, wide, np.float32(scale))
        return torch.from_numpy(unmatrix(wide, weight)), torch.from_numpy(self.bias.copy())

    def send_back(self, weights: Matrix, below: Layer) -> None:
        """To the total of the layer below."""
        n, rows = self._numbers, self._rows
        torch.mm(self._gradient.first(rows)[0], weights[0], out=self._back.first(rows)[0])
        patch_kernels.sum_rows(
            self._parts, n.ids[self._i], n.firsts[self._i][: self.count], *self._where, below.total[: below.count]
        )


Matrix = tuple[Tensor, Tensor]  # and the same transposed


def matrix(weight: Tensor) -> Matrix:
    """A convolution's weights as (outputs, patch), a patch being in the order in which it is gathered."""
    n, channels, size, _ = weight.shape
    if size == 8:  # of 2x2 blocks, which are of 4x4 pixels
        out = weight.view(n, channels, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(n, -1)
    else:
        out = weight.permute(0, 2, 3, 1).reshape(n, -1)  # no copy if channels are innermost
    return out, out.t()


def unmatrix(gradient: np.ndarray, like: Tensor) -> np.ndarray:
    """The inverse of `matrix`, in the memory order of `like`."""
    n, channels, size, _ = like.shape
    if size == 8:
        gradient = gradient.reshape(n, 2, 2, 4, 4, channels).transpose(0, 1, 3, 2, 4, 5)
    out = gradient.reshape(n, size, size, channels).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(out) if like.is_contiguous() else out


class Kept:
    """All memory of a pass; what is in it after the way there is what the way back needs."""

    def __init__(self, obs_shape: tuple[int, ...], convolutions: tuple[Shape, ...]) -> None:
        self.key = (obs_shape, convolutions)
        self.numbers = Numbers(obs_shape, convolutions)
        self.blocks = Memory(len(self.numbers.pixels), 64)
        widths = (64, *(outputs for outputs, _, _ in convolutions))
        self.layers = [Layer(self.numbers, i, a, b) for i, (a, b) in enumerate(pairwise(widths))]
        last = self.numbers.ids[-1]
        self.places = last.reshape(len(last), -1)
        self.pictures = Memory(len(last), widths[-1] * self.places.shape[1])
        self.channels = self.pictures.parts(widths[-1])
        self.flat = self.pictures.tensor  # what the hidden layers read
        self.hidden: list[tuple[Tensor, Tensor]] = []  # of each stream, bfloat16 and float32
        self._read: list[tuple[Tensor, int]] = []

    def read(self, obs: tuple[Tensor, ...]) -> None:
        """Number the patches of these observations, unless they are in here: double DQN looks at them with both networks."""
        was = self._read
        if len(was) == len(obs) and all(x is y and v == y._version for (x, v), y in zip(was, obs, strict=True)):
            return
        self.numbers.fill(obs)
        self._read = [(x, x._version) for x in obs]
        count = int(self.numbers.counts[0])
        patch_kernels.to_bfloat16(self.numbers.pixels[:count].view(np.uint8), self.blocks.bits)


class Distinct:
    """Passes over the distinct patches; over everything where the observations are not what the numbering is written for."""

    def __init__(self) -> None:
        self._dense = Dense()
        self._spare: dict[Any, list[Kept]] = {}

    def convolve(self, copies: Copies, obs: tuple[Tensor, ...]) -> Any:
        if not all(fits(copies, x) for x in obs):
            return self._dense.convolve(copies, obs)
        key = ((sum(map(len, obs)), *obs[0].shape[1:]), shapes(copies.convolutions))
        try:  # in one step: another thread may be in a pass of its own
            kept = self._spare.setdefault(key, []).pop()
        except IndexError:
            kept = Kept(*key)
        kept.read(obs)
        convolve(copies, kept)
        return kept

    def convolve_backward(self, copies: Copies, kept: Any, g_flat: Tensor) -> list[Tensor | None]:
        if not isinstance(kept, Kept):
            return self._dense.convolve_backward(copies, kept, g_flat)
        return convolve_backward(copies, kept, g_flat)

    def done(self, kept: Any) -> None:
        if isinstance(kept, Kept):
            self._spare[kept.key].append(kept)


def convolve(copies: Copies, kept: Kept) -> None:
    """All convolutions over the observations that were numbered."""
    below = kept.blocks
    for i, layer in enumerate(kept.layers):
        layer.forward(below, copies.derived(i, matrix), copies.weights[2 * i + 1])
        below = layer.outputs
    patch_kernels.spread(below.bits, kept.places, kept.channels)


def convolve_backward(copies: Copies, kept: Kept, g_flat: Tensor) -> list[Tensor | None]:
    """The gradients of the convolutions, float32. The last samples may have none."""
    out: list[Tensor | None] = []
    top, rows = kept.layers[-1], len(g_flat)
    parts = g_flat.view(torch.uint16).numpy().reshape(rows, *kept.channels.shape[1:])
    patch_kernels.sum_spread(parts, kept.places[:rows], top.total[: top.count])
    for i in range(len(kept.layers) - 1, -1, -1):
        layer = kept.layers[i]
        out = [*layer.backward(copies.weights[2 * i], SCALE if i == 0 else 1.0), *out]
        if i:
            layer.send_back(copies.derived(i, matrix), kept.layers[i - 1])
    return out
