"""Updates of the Nature network by kernels of our own (`triton_forward`, `triton_backward`): eighteen launches, not a
hundred. What follows the hidden layer is in `fused_heads`.

They read frames out of the ring as bytes, keep activations and packed weights in bfloat16, add bias and ReLU (and on
the way back its mask) where a layer's numbers are in registers anyway, and leave the packed weights of the next update
behind. With several ranks, gradients are averaged between the passes back and the optimiser (`_averaged_update`). What
is not on the way to the first layer (gradients of weights, the hidden layer's optimiser) runs on a second
stream beside it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from dqnitro.config import Config
from dqnitro.distributed.ranks import ALONE, Ranks
from dqnitro.dqn import ConvNetwork
from dqnitro.learn.gpu import triton_backward, triton_forward
from dqnitro.learn.gpu.compile_ahead import Kernels, compile_at_once
from dqnitro.learn.gpu.fused_heads import Told, divided, make_head, parts
from dqnitro.learn.gpu.packed_weights import COPIES, FEATURES, Masters, Packed
from dqnitro.learn.learner import Learner
from dqnitro.learn.rate import Rate
from dqnitro.replay.gpu_ring import Ring

passes = Kernels(triton_forward)
back = Kernels(triton_backward)
# How each kernel is divided; measured on an H200 (batches of 256 to 2,048). BM: rows of a product in one program.
# SPLIT: programs among which the samples are divided.
TUNED: dict[str, dict[str, int]] = {
    "first_forward": {"ASM": 1, "BM": 64, "num_warps": 4, "num_stages": 1},
    "second_forward": {"BM": 64, "num_warps": 4, "num_stages": 2},
    "third_forward": {"BM": 64, "num_warps": 4, "num_stages": 3},
    "head": {"BB": 4, "num_warps": 1},
    "head_weights": {"BM": 64, "SPLIT": 16, "num_warps": 4, "num_stages": 2},
    "hidden_back": {"BM": 64, "BK": 64, "BN": 64, "num_warps": 4, "num_stages": 3},
    "third_back": {"BM": 64, "num_warps": 4, "num_stages": 2},
    "second_back": {"BM": 64, "num_warps": 4, "num_stages": 2},
    "third_weights": {"BM": 64, "SPLIT": 88, "num_warps": 4, "num_stages": 3},
    "second_weights": {"BM": 64, "SPLIT": 132, "num_warps": 4, "num_stages": 3},
    "first_weights": {"ASM": 1, "BM": 128, "SPLIT": 264, "num_warps": 4, "num_stages": 1},
    "adam_hidden": {"CHANNELS": 16, "num_warps": 8},
    "wide_forward": {"BM": 64, "BK": 64, "num_warps": 4, "num_stages": 3},
    "distribution_values": {"num_warps": 2},
    "distribution_loss": {"num_warps": 4},
    "wide_back": {"BM": 64, "BN": 64, "num_warps": 4, "num_stages": 3},
    "wide_weights": {"BM": 64, "SPLIT": 4, "num_warps": 4, "num_stages": 3},
    "adam_small": {"NUMBERS": 512, "num_warps": 4},
    "look_up": {"BLOCK": 128, "num_warps": 4},
}
SECOND = {"WIDE": 20, "HIGH_OUT": 9, "WIDE_OUT": 9, "CHANNELS": 32, "STRIDE": 2, "KY": 4, "RUNS": 1, "RUN": 128}
THIRD = {"WIDE": 9, "HIGH_OUT": 7, "WIDE_OUT": 7, "CHANNELS": 64, "STRIDE": 1, "KY": 3, "RUNS": 3, "RUN": 64}
ROWS = {
    "first": 441,
    "second": 100,
    "third": 49,
}  # of the products for the weights' gradients: blocks, squares, outputs
BETAS = (0.9, 0.999)
ADAM = {"BETA1": BETAS[0], "BETA2": BETAS[1], "LOG1": math.log2(BETAS[0]), "LOG2": math.log2(BETAS[1])}


class Room:
    """Activations of n observations."""

    def __init__(self, n: int, like: dict[str, Any]) -> None:
        self.first, self.second = torch.empty((n, 400, 32), **like), torch.empty((n, 81, 64), **like)
        self.third = torch.empty((n, FEATURES), **like)


class FusedUpdate:
    """A `RingUpdate`, at most `together` at a time. Everything is enqueued and nothing waits, so all of it can be
    recorded.
    """

    def __init__(
        self,
        config: Config,
        learner: Learner,
        ring: Ring,
        together: int,
        dtype: torch.dtype = torch.bfloat16,
        ranks: Ranks = ALONE,
    ) -> None:
        assert isinstance(learner.online, ConvNetwork) and isinstance(learner.target, ConvNetwork)
        self.config, self.ring, self.batch = config, ring, config.batch_size
        self.online, self.target, self.rate = learner.online, learner.target, Rate.of(config)
        self.masters = Masters(self.online, learner.optimizer, dtype)
        self.target_masters = self.masters.gather(self.target)
        self.weights, self.target_weights = self.masters.packed(self.online), self.masters.packed(self.target)
        device = ring.frames.device
        like: dict[str, Any] = {"device": device, "dtype": dtype}
        n, passed = self.batch, self.batch * (1 + config.double)
        self.acting, self.learning, self.looking = Room(ring.n, like), Room(passed, like), Room(together * n, like)
        asm = dtype == torch.bfloat16 and device.type == "cuda"
        self.tuned = {k: v if asm or "ASM" not in v else {**v, "ASM": 0} for k, v in TUNED.items()}
        self.head = make_head(config, learner.head, self.masters, self.tuned, ring.n)
        self.said_acting = torch.empty((ring.n, *self.head.shape), device=device)
        self._envs = torch.arange(ring.n, device=device)
        # What the target network says about the next observations and, for Munchausen targets, the observations.
        self.said = torch.empty((1 + config.munchausen, together * n, *self.head.shape), device=device)
        self.g_first, self.g_second = torch.empty((n, 400, 32), **like), torch.empty((n, 81, 64), **like)
        self.g_third, self.g_hidden = torch.empty((n, FEATURES), **like), torch.empty((n, self.masters.units), **like)
        self.losses, self.errors = torch.zeros(together, device=device), torch.zeros((together, n), device=device)
        # The transitions of updates that are made together, as `triton_forward.look_up` writes them.
        places = {"dtype": torch.int64, "device": device}
        self.rows, self.rows_t = torch.zeros((together, passed, 4), **places), torch.zeros((together * n, 4), **places)
        self.seen = torch.zeros_like(self.rows, dtype=torch.bool)
        self.seen_t = torch.zeros_like(self.rows_t, dtype=torch.bool)
        self.action = torch.zeros((together, n), **places)
        self.reward, self.discount, self.weight = torch.zeros((3, together, n), device=device)
        # What each program adds to the gradients of a convolution's weights, or of large last layers.
        self.shares = dict(self.head.shares)
        for name, rows in ROWS.items():
            programs, _ = divided(self.tuned[f"{name}_weights"], n * rows)
            self.shares[name] = torch.empty((programs, getattr(self.weights, name).numel()), device=device)
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None
        # With several ranks: all gradients but the hidden layer's, each summed up, and the loss.
        self.ranks = ranks
        self.gradients = None if ranks is ALONE else torch.zeros(self.masters.n_small + 1, device=device)

    # ---- what an agent calls

    def compile_for(self, passes: Callable[[], None]) -> None:
        """All kernels at the same time."""
        compile_at_once(passes)

    def refresh(self) -> None:
        """Pack the weights again, after a resume or a warm-up."""
        self.masters.pack(self.online, self.weights)
        self.masters.pack(self.target, self.target_weights)

    def target_copies(self) -> list[tuple[Tensor, Tensor]]:
        """A handful of large tensors: inside a graph each pair is a launch, due or not."""
        masters = self.masters.small[0], self.masters.hidden[0]
        packed = zip(self.target_weights.copies, self.weights.copies, strict=True)
        return [*zip(self.target_masters, masters, strict=True), *packed]

    def copy_weights(self) -> Packed:
        """The packed weights as they are now, with outputs of their own."""
        copy = self.masters.packed(self.online)
        return copy._replace(outputs=tuple(x.detach().clone() for x in copy.outputs))

    def tensors(self, weights: Packed) -> list[Tensor]:
        return [*weights.copies, *(x.detach() for x in weights.outputs)]

    def values(self, ring: Ring, obs: Tensor | None, weights: Packed, chance: torch.Generator | None = None) -> Tensor:
        """Values of the newest observations in the ring, or in a part of it; `obs` is not read."""
        rows, seen = ring.rows(ring.head.expand(ring.n), self._envs[: ring.n])
        return self.head.values(self._say(weights, rows, seen, self.acting, self.said_acting))

    def learn(
        self, t: Tensor, env: Tensor, weight: Tensor | None = None, chance: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """One update for each `batch` of transitions that begin at slots t of environments env, weighted by `weight`
        if it is given; the losses, and each transition's error. Both are overwritten by the next call.
        """
        size = len(t)
        self._look_up(t, env)
        if weight is not None:
            self.weight.view(-1)[:size].mul_(weight)
        target = self.target_weights
        self._say(target, self.rows_t[:size], self.seen_t[:size], self.looking, self.said[0])
        if self.config.munchausen:  # without double DQN `rows` are the observations of all updates
            rows, seen = self.rows.view(-1, 4)[:size], self.seen.view(-1, 4)[:size]
            self._say(target, rows, seen, self.looking, self.said[1])
        self.losses.zero_()
        update = self._update if self.gradients is None else self._averaged_update
        k = size // self.batch
        for i in range(k):
            update(i)
        return self.losses[:k], self.errors.view(-1)[:size]

    # ---- passes

    def _look_up(self, t: Tensor, env: Tensor) -> None:
        ring, config, division = self.ring, self.config, self.tuned["look_up"]
        passes.look_up[(parts(len(t), division["BLOCK"]),)](
            t, env, ring.action, ring.reward, ring.terminated, ring.truncated, ring.valid, ring.age,
            self.rows, self.seen, self.rows_t, self.seen_t, self.action, self.reward, self.discount, self.weight,
            len(t), ring.slots, ring.n, self.batch, config.gamma,
            N_STEP=config.n_step, DOUBLE=int(config.double), **division,
        )  # fmt: skip

    def _hidden(self, weights: Packed, rows: Tensor, seen: Tensor, room: Room) -> Tensor:
        """The hidden layer (n, units) of the observations whose frames lie in these rows of the ring."""
        n = len(rows)
        programs, division = divided(self.tuned["first_forward"], n * 400)
        passes.first_forward[(programs,)](
            self.ring.frames, rows, seen, weights.first, weights.biases[0], room.first, n * 400, **division
        )
        programs, division = divided(self.tuned["second_forward"], n * 81)
        passes.conv_forward[(programs,)](
            room.first, weights.second, weights.biases[1], room.second, n * 81, **SECOND, **division
        )
        programs, division = divided(self.tuned["third_forward"], n * 49)
        passes.conv_forward[(programs,)](
            room.second, weights.third, weights.biases[2], room.third, n * 49, **THIRD, **division
        )
        return torch._addmm_activation(weights.hidden_bias, room.third[:n], weights.hidden.t(), use_gelu=False)  # pyright: ignore[reportPrivateImportUsage]

    def _say(self, weights: Packed, rows: Tensor, seen: Tensor, room: Room, out: Tensor) -> Tensor:
        return self.head.say(weights, self._hidden(weights, rows, seen, room), out)

    def _update(self, i: int) -> None:
        """Packed weights are overwritten when nothing reads them any more: each stands behind the pass back through its
        layer.
        """
        rows, seen = self.rows[i], self.seen[i]
        hidden = self._hidden(self.weights, rows, seen, self.learning)
        self._loss(i, hidden)
        with self._beside():
            torch.mm(self.g_hidden.t(), self.learning.third[: self.batch], out=self.masters.g_hidden)
            self.head.weights_back(hidden, self.g_hidden)
            self._adam_outputs()
        self._hidden_back()
        with self._beside():
            self._adam_hidden()
            self._conv_weights("third", self.learning.second, self.g_third, lines=3)
        self._conv_back("third", self.g_third, self.learning.second, self.g_second, self.batch * 81)
        with self._beside():
            self._adam("third")
            self._conv_weights("second", self.learning.first, self.g_second, lines=2)
        self._conv_back("second", self.g_second, self.learning.first, self.g_first, self.batch * 100)
        with self._beside():
            self._adam("second")
        self._first_weights(rows, seen)
        self._adam("first")
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)
        self._adam_rest()

    def _averaged_update(self, i: int) -> None:
        """The same with the mean over all ranks before the optimiser. The hidden layer's gradient, nearly all of the
        bytes, is there first: it travels while the pass goes on through the convolutions. All others follow in one
        piece, during which the hidden layer's optimiser runs.
        """
        rows, seen = self.rows[i], self.seen[i]
        hidden = self._hidden(self.weights, rows, seen, self.learning)
        self._loss(i, hidden)
        with self._beside():
            torch.mm(self.g_hidden.t(), self.learning.third[: self.batch], out=self.masters.g_hidden)
            hidden_mean = self.ranks.start_mean_(self.masters.g_hidden)
            self.head.weights_back(hidden, self.g_hidden)
        self._hidden_back()
        with self._beside():
            self._conv_weights("third", self.learning.second, self.g_third, lines=3)
            self._sum("third")
        self._conv_back("third", self.g_third, self.learning.second, self.g_second, self.batch * 81)
        with self._beside():
            self._conv_weights("second", self.learning.first, self.g_second, lines=2)
            self._sum("second")
        self._conv_back("second", self.g_second, self.learning.first, self.g_first, self.batch * 100)
        with self._beside():
            self._sum_rest(i)
        self._first_weights(rows, seen)
        self._sum("first")
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)
        assert self.gradients is not None
        others_mean = self.ranks.start_mean_(self.gradients)
        hidden_mean()
        self._adam_hidden()
        others_mean()
        self._adam_averaged(i, self.gradients)

    def _sum(self, name: str) -> None:
        """The gradient of a convolution's weights, to where all but the hidden layer's are sent from."""
        assert self.gradients is not None
        torch.sum(self.shares[name], 0, out=self.gradients[self.masters.at[name]])

    def _sum_rest(self, i: int) -> None:
        """The same of biases and output layers, and the loss of update i."""
        assert self.gradients is not None
        torch.sum(self.masters.g_rest, 0, out=self.gradients[self.masters.rest])
        self.masters.g_rest.zero_()
        if "outputs" in self.shares:
            torch.sum(self.shares["outputs"], 0, out=self.gradients[self.masters.outputs])
        self.gradients[-1].copy_(self.losses[i])

    def _adam_averaged(self, i: int, gradients: Tensor) -> None:
        """Two launches: the first layer's packed weights have a precision of their own, all others lie in one piece."""
        first = self.masters.at["first"]
        others = slice(first.stop, self.masters.n_small)
        self._adam_small(first, gradients[first], self.weights.first, SHARES=1, ZERO=0)
        self._adam_small(others, gradients[others], self.weights.flat[others], SHARES=1, ZERO=0)
        self.losses[i].copy_(gradients[-1])

    def _beside(self) -> AbstractContextManager[Any]:
        """What follows runs beside the main stream, after all that is on it by now."""
        if self._side is None:
            return contextlib.nullcontext()
        self._side.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._side)

    # ---- single kernels

    def _loss(self, i: int, hidden: Tensor) -> None:
        here = slice(i * self.batch, (i + 1) * self.batch)
        told = Told(
            self.action[i], self.reward[i], self.discount[i], self.weight[i], self.said[0, here],
            self.said[-1, here], self.losses[i:], self.errors[i],
        )  # fmt: skip
        self.head.loss(self.weights, hidden, told, self.g_hidden)

    def _hidden_back(self) -> None:
        programs, division = divided(self.tuned["hidden_back"], self.batch)
        back.hidden_back[(programs, FEATURES // division["BN"])](
            self.g_hidden, self.weights.hidden, self.learning.third, self.g_third, *self._bias("third"), self.batch,
            WIDTH=self.masters.units, COPIES=COPIES, **division,
        )  # fmt: skip

    def _bias(self, name: str) -> tuple[Tensor, int]:
        """Where a convolution's bias is summed, and how far apart its copies are."""
        return self.masters.gradient(f"{name}_bias"), self.masters.g_rest.shape[1]

    def _conv_back(self, name: str, gradient: Tensor, below: Tensor, out: Tensor, n: int) -> None:
        programs, division = divided(self.tuned[f"{name}_back"], n)
        bias = self._bias({"third": "second", "second": "first"}[name])  # the layer below
        getattr(back, f"{name}_back")[(programs,)](
            gradient, getattr(self.weights, name), below, out, *bias, n, COPIES=COPIES, **division
        )

    def _conv_weights(self, name: str, below: Tensor, gradient: Tensor, lines: int) -> None:
        n = self.batch * ROWS[name]
        programs, division = divided(self.tuned[f"{name}_weights"], n)
        getattr(back, f"{name}_weights")[(programs, lines)](below, gradient, self.shares[name], n, **division)

    def _first_weights(self, rows: Tensor, seen: Tensor) -> None:
        n = self.batch * ROWS["first"]
        programs, division = divided(self.tuned["first_weights"], n)
        back.first_weights[(programs,)](
            self.ring.frames, rows, seen, self.g_first, self.shares["first"], n, **division
        )  # fmt: skip

    def _adam_hidden(self) -> None:
        division, masters = self.tuned["adam_hidden"], self.masters
        back.adam_hidden[(masters.units, 64 // division["CHANNELS"])](
            *masters.hidden, masters.g_hidden, self.weights.hidden, masters.step,
            *self.rate, self.config.adam_epsilon, **ADAM, **division,
        )  # fmt: skip

    def _adam(self, name: str) -> None:
        """A convolution's weights."""
        shares = self.shares[name]
        self._adam_small(self.masters.at[name], shares, getattr(self.weights, name), SHARES=len(shares), ZERO=0)

    def _adam_outputs(self) -> None:
        """The last layers, where they are large."""
        if (shares := self.shares.get("outputs")) is not None:
            place = self.masters.outputs
            self._adam_small(place, shares, self.weights.flat[place], SHARES=len(shares), ZERO=0)

    def _adam_rest(self) -> None:
        rest = self.masters.rest
        self._adam_small(rest, self.masters.g_rest, self.weights.flat[rest], SHARES=COPIES, ZERO=1)

    def _adam_small(self, place: slice, gradients: Tensor, packed: Tensor, **kind: int) -> None:
        division, masters, n = dict(self.tuned["adam_small"]), self.masters, place.stop - place.start
        at_once = min(16, 1 << (kind["SHARES"] - 1).bit_length())
        block = division.pop("NUMBERS") // at_once
        back.adam_small[(parts(n, block),)](
            *masters.small, masters.master[place], gradients, packed, n, masters.step,
            *self.rate, self.config.adam_epsilon, **ADAM, **kind, **division, AT_ONCE=at_once, BLOCK=block,
        )  # fmt: skip
