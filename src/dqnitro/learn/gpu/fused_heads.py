"""The last layers in updates by kernels of our own: values (one kernel with the loss) or a distribution for each action
(products of their own, and Adam on large layers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from dqnitro.config import Config
from dqnitro.heads import HeadSpec
from dqnitro.learn.gpu import triton_backward, triton_distributions, triton_forward
from dqnitro.learn.gpu.compile_ahead import Kernels
from dqnitro.learn.gpu.packed_weights import COPIES, Masters, Packed

passes = Kernels(triton_forward)
back = Kernels(triton_backward)
wide = Kernels(triton_distributions)
Tuned = Mapping[str, Mapping[str, int]]


def parts(n: int, size: int) -> int:
    return -(-n // size)


def divided(division: Mapping[str, int], n: int) -> tuple[int, dict[str, int]]:
    """How many programs do n rows, and what they have to know of it."""
    out = dict(division)
    blocks = parts(n, out["BM"])
    if "SPLIT" in out:
        out["BLOCKS"] = parts(blocks, out.pop("SPLIT"))
        blocks = parts(blocks, out["BLOCKS"])
    return blocks, out


class Told(NamedTuple):
    """What the loss of one update is made of beside the hidden layer, and where it goes."""

    action: Tensor
    reward: Tensor
    discount: Tensor
    weight: Tensor
    t: Tensor  # what the target network says about the next observations
    tm1: Tensor  # ... and about the observations; only Munchausen targets read it
    loss: Tensor  # its first element
    errors: Tensor


class FusedHead(Protocol):
    """From the hidden layer to the loss and back to the hidden layer's outputs, for batches of one size."""

    shape: tuple[int, ...]  # of what it says about one observation
    shares: dict[str, Tensor]  # of gradients that the optimiser has to add up

    def say(self, weights: Packed, hidden: Tensor, out: Tensor) -> Tensor:
        """What the last layers make of a hidden layer (n, units), written to the first n rows of `out`."""
        ...

    def values(self, said: Tensor) -> Tensor:
        """Values (n, n_actions) of what was said."""
        ...

    def loss(self, weights: Packed, hidden: Tensor, told: Told, g_hidden: Tensor) -> None:
        """The loss, each sample's error, and the gradient of the hidden layer, through its ReLU."""
        ...

    def weights_back(self, hidden: Tensor, g_hidden: Tensor) -> None:
        """After `loss`: gradients of the last layers and of the hidden layer's biases, as far as it left them out."""
        ...


class ValueHead:
    """One value for each action: few columns, so no product but sums, in float32."""

    def __init__(self, config: Config, spec: HeadSpec, masters: Masters, tuned: Tuned) -> None:
        self.config, self.masters, self.tuned = config, masters, tuned
        self.shape, self.shares = (spec.n_actions,), {}
        columns = max(16, 1 << spec.n_actions.bit_length())  # the actions, and the value stream
        self.sizes: dict[str, Any] = {
            "A": spec.n_actions, "AP": columns, "H": config.hidden_units, "DUELING": int(spec.dueling),
        }  # fmt: skip
        self.division = dict(tuned["head"])
        if spec.n_actions > 8:  # the values of four samples would not fit into registers
            self.division["BB"] = 1
        self.g_out = torch.empty((config.batch_size, columns), device=masters.step.device)

    def say(self, weights: Packed, hidden: Tensor, out: Tensor) -> Tensor:
        n = len(hidden)
        passes.head_forward[(parts(n, self.division["BB"]),)](
            hidden, *weights.outputs, out, n, **self.sizes, **self.division
        )
        return out[:n]

    def values(self, said: Tensor) -> Tensor:
        return said

    def loss(self, weights: Packed, hidden: Tensor, told: Told, g_hidden: Tensor) -> None:
        c, n = self.config, self.config.batch_size
        passes.head_loss[(parts(n, self.division["BB"]),)](
            hidden, *weights.outputs, told.t, told.tm1, told.action, told.reward, told.discount, told.weight,
            g_hidden, self.g_out, told.loss, told.errors, self.masters.step, n,
            c.munchausen_temperature, c.munchausen_scale, c.munchausen_floor, **self.sizes,
            DOUBLE=int(c.double), MUNCHAUSEN=int(c.munchausen), HUBER=int(c.loss == "huber"), **self.division,
        )  # fmt: skip

    def weights_back(self, hidden: Tensor, g_hidden: Tensor) -> None:
        n, masters, value = self.config.batch_size, self.masters, self.sizes["DUELING"]
        programs, division = divided(self.tuned["head_weights"], n)
        back.head_weights[(masters.units // 64, programs)](
            hidden, g_hidden, self.g_out, *(masters.gradient(name) for name in (
                "output0", "output_bias0", f"output{value}", f"output_bias{value}", "hidden_bias0")),
            n, **self.sizes, **division,
        )  # fmt: skip


class DistributionHead:
    """51 atoms or quantiles for each action: a product forward with the masters, so that values are as precise as
    those of a value head, and two back in the precision of all others.
    """

    def __init__(self, config: Config, spec: HeadSpec, masters: Masters, tuned: Tuned, most: int) -> None:
        """`most`: observations in a pass whose values are asked for."""
        self.config, self.masters, self.tuned = config, masters, tuned
        device, streams = masters.step.device, spec.n_actions + spec.dueling
        width = max(16, 1 << (spec.atoms - 1).bit_length())
        self.shape = (streams, width)
        self.layers: dict[str, int] = {
            "A": spec.n_actions, "N": spec.atoms, "P": width, "H": config.hidden_units, "DUELING": int(spec.dueling),
        }  # fmt: skip
        columns = 1 << (streams - 1).bit_length()
        self.sizes = {k: v for k, v in self.layers.items() if k != "H"} | {
            "AP": columns, "CATEGORICAL": int(spec.categorical),
        }  # fmt: skip
        spacing = (spec.value_max - spec.value_min) / (spec.atoms - 1)
        self.low, self.high, self.spacing = spec.value_min, spec.value_max, spacing
        self.q = torch.empty((most, spec.n_actions), device=device)
        self.out = torch.empty((config.batch_size * (1 + config.double), *self.shape), device=device)
        self.g_out = torch.empty((config.batch_size, *self.shape), device=device, dtype=masters.dtype)
        programs, _ = divided(tuned["wide_weights"], config.batch_size)
        n_outputs = masters.outputs.stop - masters.outputs.start
        self.shares = {"outputs": torch.empty((programs, n_outputs), device=device)}

    def say(self, weights: Packed, hidden: Tensor, out: Tensor) -> Tensor:
        n = len(hidden)
        programs, division = divided(self.tuned["wide_forward"], n)
        wide.wide_forward[(programs, self.shape[0])](hidden, *weights.outputs, out, n, **self.layers, **division)
        return out[:n]

    def values(self, said: Tensor) -> Tensor:
        n = len(said)
        wide.distribution_values[(n,)](
            said, self.q, self.low, self.spacing, **self.sizes, **self.tuned["distribution_values"]
        )
        return self.q[:n]

    def loss(self, weights: Packed, hidden: Tensor, told: Told, g_hidden: Tensor) -> None:
        c, n, masters = self.config, self.config.batch_size, self.masters
        out = self.say(weights, hidden, self.out)
        wide.distribution_loss[(n,)](
            out, told.t, told.tm1, told.action, told.reward, told.discount, told.weight, self.g_out, told.loss,
            told.errors, masters.step, n, self.low, self.high, self.spacing,
            c.munchausen_temperature, c.munchausen_scale, c.munchausen_floor, **self.sizes,
            DOUBLE=int(c.double), MUNCHAUSEN=int(c.munchausen), **self.tuned["distribution_loss"],
        )  # fmt: skip
        programs, division = divided(self.tuned["wide_back"], n)
        wide.wide_back[(programs, masters.units // division["BN"])](
            self.g_out, weights.flat[masters.outputs], hidden, g_hidden, masters.gradient("hidden_bias0"),
            masters.g_rest.shape[1], n, **self.layers, COPIES=COPIES, **division,
        )  # fmt: skip

    def weights_back(self, hidden: Tensor, g_hidden: Tensor) -> None:
        n, shares = self.config.batch_size, self.shares["outputs"]
        programs, division = divided(self.tuned["wide_weights"], n)
        wide.wide_weights[(programs, self.shape[0], self.layers["H"] // 64)](
            hidden, self.g_out, shares, shares.shape[1], n, **self.layers, **division
        )


def make_head(config: Config, spec: HeadSpec, masters: Masters, tuned: Tuned, most: int) -> FusedHead:
    """The last layers that the config's network has."""
    if spec.atoms > 1:
        return DistributionHead(config, spec, masters, tuned, most)
    return ValueHead(config, spec, masters, tuned)
