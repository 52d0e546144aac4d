"""The hand-written passes with every distinct patch of a batch convolved once.

A convolution here is a matrix product over the distinct patches of the batch; the pictures between the layers are never
made. Gradients of equal patches are summed before they are multiplied with the weights: the same sum in another order,
so only rounding differs.

A forward pass numbers the patches of all layers (`PatchNumbers`), and then each layer (`DedupConv`) gathers its
distinct patches from the outputs of the layer below and multiplies them with the weights. The kernels are in
`patch_kernels`.

The reference implementation is `handwritten_passes.DenseConvs`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro.learn.cpu import patch_kernels
from dqnitro.learn.cpu.handwritten_passes import SCALE, Bf16Weights, DenseConvs

ROWS = 64  # the rows of a product are rounded up to this: oneDNN makes and keeps code for every shape it meets
BLOCK = 64  # numbers in a block of 4x4 pixels with four frames each
ConvShape = tuple[int, int, int]  # outputs, size, stride


def conv_shapes(convolutions: list[nn.Conv2d]) -> tuple[ConvShape, ...]:
    return tuple((c.out_channels, int(c.kernel_size[0]), int(c.stride[0])) for c in convolutions)


def fits(weights: Bf16Weights, obs: Tensor) -> bool:
    """Four bytes a pixel, an even width, and 8x8 patches 4 pixels apart: the kernels cannot number others."""
    first = weights.convolutions[0]
    return (
        obs.dtype == torch.uint8 and obs.shape[1] == 4 and obs.shape[3] % 2 == 0
        and first.kernel_size == (8, 8) and first.stride == (4, 4)
    )  # fmt: skip


class PatchNumbers:
    """The distinct patches of a batch in every layer. Made for one shape, filled again and again.

    Layer 0 are blocks of 4x4 pixels: the first convolution, over 8x8 pixels 4 apart, is one over 2x2 blocks 1 apart.
    """

    def __init__(self, obs_shape: tuple[int, ...], convolutions: tuple[ConvShape, ...]) -> None:
        batch, _, height, width = obs_shape
        self.sizes = (2, *(size for _, size, _ in convolutions[1:]))
        self.strides = (1, *(stride for _, _, stride in convolutions[1:]))
        grids = [(height // 4, width // 4)]
        for size, stride in zip(self.sizes, self.strides, strict=True):
            grids.append(((grids[-1][0] - size) // stride + 1, (grids[-1][1] - size) // stride + 1))
        self.ids = tuple(np.empty((batch, *grid), np.uint32) for grid in grids)  # the number at each place
        self.firsts = tuple(
            np.empty(x.size, np.int32) for x in self.ids[1:]
        )  # the place where each number was seen first
        self.counts = np.zeros(len(grids), np.int64)
        n = self.ids[0].size
        self.pixels = np.empty((n, 8), np.uint64)  # of the distinct blocks
        # Scratch of the kernels. The hash table is at most half full.
        table = np.empty(1 << (2 * n - 1).bit_length(), np.int32)
        keys = np.empty(n, np.uint64)
        squares = np.empty(n, np.uint32)
        places = np.empty(n, np.int32)
        self._scratch = (table, keys, squares, places)

    def fill(self, obs: tuple[Tensor, ...]) -> None:
        """Number the samples of all of these, one after the other."""
        factors = patch_kernels.FACTORS
        table = self._scratch[0]
        count = 0
        row = 0
        for part in obs:
            pixels = np.ascontiguousarray(part.numpy().transpose(0, 2, 3, 1))
            words = pixels.reshape(*pixels.shape[:2], -1).view(np.uint64)
            ids = self.ids[0][row : row + len(part)]
            count = patch_kernels.number_blocks(words, factors, table, self.pixels, ids, count)
            row += len(part)
        self.counts[0] = count
        patch_kernels.number_layers(
            self.sizes, self.strides, factors, *self._scratch, self.ids, self.firsts, self.counts
        )


class Bf16Rows:
    """Rows of bfloat16 for torch, and the same memory for NumPy.

    Views are made once: making one costs torch microseconds, and it gives the GIL away meanwhile, which another thread
    may then have for as long as it likes.
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

    def divided(self, n: int) -> np.ndarray:
        """The bits, each row divided into n."""
        return self.bits.reshape(len(self.bits), n, -1)


class DedupConv:
    """One convolution over distinct patches, with memory for as many as there can be: memory that is never touched
    costs nothing, and memory that is kept brings no page faults.
    """

    def __init__(self, numbers: PatchNumbers, i: int, inputs: int, outputs: int) -> None:
        most = -(-len(numbers.firsts[i]) // ROWS) * ROWS
        area = numbers.sizes[i] ** 2
        self._numbers = numbers
        self._i = i
        # How `gather_rows` finds a patch from the place where it was seen first.
        self._geometry = (numbers.sizes[i], numbers.strides[i], *numbers.ids[i + 1].shape[1:])
        self._inputs = Bf16Rows(most, area * inputs)  # the patches
        self._patches = self._inputs.words.reshape(most, area, -1)
        self._g_inputs = Bf16Rows(most, area * inputs)
        self._g_patches = self._g_inputs.divided(area)
        self.outputs = Bf16Rows(most, outputs)  # before the ReLU
        self._g_outputs = Bf16Rows(most, outputs)
        self._g_weights = Bf16Rows(outputs, area * inputs)
        self._g_bias = np.empty(outputs, np.float32)
        self.total = np.empty((most, outputs), np.float32)  # gradient after the ReLU, summed over all places

    @property
    def count(self) -> int:
        return int(self._numbers.counts[self._i + 1])

    @property
    def _rows(self) -> int:
        return -(-self.count // ROWS) * ROWS

    def forward(self, below: Bf16Rows, weights: Matrix, bias: Tensor) -> None:
        rows = self._rows
        ids, firsts = self._numbers.ids[self._i], self._numbers.firsts[self._i][: self.count]
        patch_kernels.gather_rows(below.words, ids, firsts, *self._geometry, self._patches[:rows])
        torch.addmm(bias, self._inputs.first(rows)[0], weights[1], out=self.outputs.first(rows)[0])

    def backward(self, weight: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """From `total` back through the ReLU. Returns the gradients of the weights, times `scale`, and of the bias."""
        rows = self._rows
        patch_kernels.relu_backward(
            self.total[: self.count], self.outputs.bits, self._g_outputs.bits[:rows], self._g_bias
        )
        torch.mm(self._g_outputs.first(rows)[1], self._inputs.first(rows)[0], out=self._g_weights.tensor)
        wide = np.empty(self._g_weights.bits.shape, np.float32)
        patch_kernels.widen(self._g_weights.bits, wide, np.float32(scale))
        return torch.from_numpy(from_matrix(wide, weight)), torch.from_numpy(self._g_bias.copy())

    def backward_inputs(self, weights: Matrix, below: DedupConv) -> None:
        """From before the ReLU, where `backward` got to, to the `total` of the layer below."""
        rows = self._rows
        ids, firsts = self._numbers.ids[self._i], self._numbers.firsts[self._i][: self.count]
        torch.mm(self._g_outputs.first(rows)[0], weights[0], out=self._g_inputs.first(rows)[0])
        total = below.total[: below.count]
        patch_kernels.gather_rows_backward(self._g_patches, ids, firsts, *self._geometry, total)


Matrix = tuple[Tensor, Tensor]  # and the same transposed


def to_matrix(weight: Tensor) -> Matrix:
    """A convolution's weights as (outputs, patch), with the numbers of a patch in the order in which it is gathered."""
    n, channels, size, _ = weight.shape
    if size == 8:  # 2x2 blocks of 4x4 pixels
        out = weight.view(n, channels, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(n, -1)
    else:
        out = weight.permute(0, 2, 3, 1).reshape(n, -1)  # no copy if channels are innermost
    return out, out.t()


def from_matrix(gradient: np.ndarray, like: Tensor) -> np.ndarray:
    """The inverse of `to_matrix`, in the memory order of `like`."""
    n, channels, size, _ = like.shape
    if size == 8:
        gradient = gradient.reshape(n, 2, 2, 4, 4, channels).transpose(0, 1, 3, 2, 4, 5)
    out = gradient.reshape(n, size, size, channels).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(out) if like.is_contiguous() else out


class PassBuffers:
    """All memory of a pass over one shape. After the forward pass it holds what the backward pass needs."""

    def __init__(self, obs_shape: tuple[int, ...], convolutions: tuple[ConvShape, ...]) -> None:
        self.key = (obs_shape, convolutions)
        self.numbers = PatchNumbers(obs_shape, convolutions)
        self.blocks = Bf16Rows(len(self.numbers.pixels), BLOCK)
        widths = (BLOCK, *(outputs for outputs, _, _ in convolutions))
        self.layers = [DedupConv(self.numbers, i, a, b) for i, (a, b) in enumerate(pairwise(widths))]
        last = self.numbers.ids[-1]
        self.places = last.reshape(len(last), -1)
        self.pictures = Bf16Rows(len(last), widths[-1] * self.places.shape[1])
        self.channels = self.pictures.divided(widths[-1])
        self.flat = self.pictures.tensor  # what the hidden layers read
        self.hidden: list[tuple[Tensor, Tensor]] = []  # of each stream, bfloat16 and float32
        self._numbered: list[tuple[Tensor, int]] = []  # observations and their versions

    def read(self, obs: tuple[Tensor, ...]) -> None:
        """Number the patches of these observations, unless they are in here: double DQN shows them to both networks."""
        old = self._numbered
        if len(old) == len(obs) and all(x is y and v == y._version for (x, v), y in zip(old, obs, strict=True)):
            return
        self.numbers.fill(obs)
        self._numbered = [(x, x._version) for x in obs]
        count = int(self.numbers.counts[0])
        patch_kernels.bytes_to_bf16(self.numbers.pixels[:count].view(np.uint8), self.blocks.bits)


class PatchDedup:
    """Passes over the distinct patches; over everything where the observations are not what the numbering is written
    for.
    """

    def __init__(self) -> None:
        self._dense = DenseConvs()
        self._spare: dict[Any, list[PassBuffers]] = {}

    def forward(self, weights: Bf16Weights, obs: tuple[Tensor, ...]) -> Any:
        if not all(fits(weights, x) for x in obs):
            return self._dense.forward(weights, obs)
        key = ((sum(map(len, obs)), *obs[0].shape[1:]), conv_shapes(weights.convolutions))
        try:  # without looking first: another thread may be in a pass of its own
            buffers = self._spare.setdefault(key, []).pop()
        except IndexError:
            buffers = PassBuffers(*key)
        buffers.read(obs)
        below = buffers.blocks
        for i, layer in enumerate(buffers.layers):
            layer.forward(below, weights.derived(i, to_matrix), weights.weights[2 * i + 1])
            below = layer.outputs
        patch_kernels.spread(below.bits, buffers.places, buffers.channels)
        return buffers

    def backward(self, weights: Bf16Weights, kept: Any, g_flat: Tensor) -> list[Tensor | None]:
        if not isinstance(kept, PassBuffers):
            return self._dense.backward(weights, kept, g_flat)
        rows = len(g_flat)  # the last samples may have no gradients
        top = kept.layers[-1]
        g_channels = g_flat.view(torch.uint16).numpy().reshape(rows, *kept.channels.shape[1:])
        patch_kernels.spread_backward(g_channels, kept.places[:rows], top.total[: top.count])
        out: list[Tensor | None] = []
        for i in range(len(kept.layers) - 1, -1, -1):
            layer = kept.layers[i]
            out = [*layer.backward(weights.weights[2 * i], SCALE if i == 0 else 1.0), *out]
            if i:
                layer.backward_inputs(weights.derived(i, to_matrix), kept.layers[i - 1])
        return out

    def release(self, kept: Any) -> None:
        if isinstance(kept, PassBuffers):
            self._spare[kept.key].append(kept)
