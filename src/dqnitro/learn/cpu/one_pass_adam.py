"""Adam in one pass over the memory: reads a gradient as it comes, in bfloat16 if need be, and writes the bfloat16 weights that
the next passes read.

With two million parameters the optimiser is all memory traffic. torch's own, for the same end, writes the gradients as float32,
reads them again, and has the new weights read once more to convert them. The slow twin is `torch.optim.Adam`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, nn

from dqnitro.learn.cpu.bf16_shadow import Half, flat
from dqnitro.learn.cpu.patch_kernels import to_float, to_half
from dqnitro.learn.cpu.side_thread import Beside

# Moments of weights that get no gradient any more shrink until rounding stops them, at numbers so small that a CPU takes two to
# three times as long with them; a third of all ended there. They are 0 from here on, which changes no weight.
_NOTHING = np.float32(1e-32)
LARGE = 1 << 17  # parameters from which on converting a tensor shows


# Contracting a product and a sum into one instruction only saves a rounding.
def one_pass(f: Any) -> Any:
    return numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})(f)


@one_pass
def step_float(
    p: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    scale: np.float32,
    beta1: np.float32,
    beta2: np.float32,
    size: np.float32,
    root: np.float32,
    epsilon: np.float32,
) -> None:
    """m and v move towards the gradient and its square; p goes on by size * m / (root * sqrt(v) + epsilon)."""
    one = np.float32(1.0)
    for i in range(len(p)):
        x = g[i] * scale
        a = m[i] + (x - m[i]) * (one - beta1)
        b = v[i] * beta2 + x * x * (one - beta2)
        m[i] = a if abs(a) > _NOTHING else np.float32(0.0)
        v[i] = b if b > _NOTHING else np.float32(0.0)
        p[i] -= size * m[i] / (np.sqrt(v[i]) * root + epsilon)


@one_pass
def step_half(
    p: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    copy: np.ndarray,
    scale: np.float32,
    beta1: np.float32,
    beta2: np.float32,
    size: np.float32,
    root: np.float32,
    epsilon: np.float32,
) -> None:
    """The same from a bfloat16 gradient, and into a bfloat16 copy as well."""
    one = np.float32(1.0)
    for i in range(len(p)):
        x = to_float(g[i]) * scale
        a = m[i] + (x - m[i]) * (one - beta1)
        b = v[i] * beta2 + x * x * (one - beta2)
        m[i] = a if abs(a) > _NOTHING else np.float32(0.0)
        v[i] = b if b > _NOTHING else np.float32(0.0)
        p[i] -= size * m[i] / (np.sqrt(v[i]) * root + epsilon)
        copy[i] = to_half(p[i])


class OnePassAdam(torch.optim.Adam):
    """`torch.optim.Adam` on a CPU, with the same state under the same names."""

    counts_versions = True  # of the parameters it writes; torch's fused one does not

    def __init__(self, parameters: Iterable[Tensor], lr: float, eps: float) -> None:
        super().__init__(parameters, lr=lr, eps=eps)
        self.scale = 1.0  # of the gradients, for the next step
        self.beside: Beside | None = None  # the thread of the large parameters, in whose core's cache they lie
        self._views: dict[Tensor, tuple[int, tuple[Tensor, ...], tuple[np.ndarray, ...]]] = {}
        for p in self._parameters():
            if p.numel() >= LARGE:
                p.half = Half()  # type: ignore[attr-defined]
        none, bits, number = np.zeros(0, np.float32), np.zeros(0, np.uint16), np.float32(0.0)
        step_float(none, none, none, none, *[number] * 6)  # compiled now, not in the first update
        step_half(none, none, none, bits, bits, *[number] * 6)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _halves(self) -> list[tuple[Tensor, Half]]:
        return [(p, half) for p in self._parameters() if (half := Half.of(p)) is not None]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Always to None. Without torch's bookkeeping, which takes longer than all of this."""
        for p in self._parameters():
            p.grad = None
        for _, half in self._halves():
            half.settle()
            half.has_gradient, half.stepped, half.step = False, False, None

    def step_early(self) -> None:
        """Large parameters are stepped as soon as their gradients are made, by the thread that makes them: nothing else has to
        be known of the others'.
        """
        for p, half in self._halves():
            half.step = functools.partial(self._step_half, p, half)

    def gradients(self) -> list[Tensor]:
        out = [p.grad for p in self._parameters() if p.grad is not None]
        for _, half in self._halves():
            half.settle()
            if half.has_gradient and half.gradient is not None:
                out.append(half.gradient)
        return out

    def _next_step(self, p: Tensor) -> tuple[float, tuple[np.ndarray, ...]]:
        """Which step this is, counted, and the parameter and its two moments as NumPy sees them; looked up again only if one of
        them moved.
        """
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        kept = tuple(state[k] for k in ("step", "exp_avg", "exp_avg_sq"))
        place, was, views = self._views.get(p, (0, (), ()))
        if place != p.data_ptr() or any(a is not b for a, b in zip(was, kept, strict=True)):
            views = (flat(kept[0]), flat(p), flat(kept[1]), flat(kept[2]))
            self._views[p] = (p.data_ptr(), kept, views)
        count, *arrays = views
        count[0] += 1
        return float(count[0]), tuple(arrays)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        halves = [(p, half) for p, half in self._halves() if half.has_gradient or half.wait is not None]
        left = [(p, half) for p, half in halves if half.step is None or half.wait is None]
        wait = self.beside.start(self._step_halves, left) if self.beside is not None and left else None
        self._step_floats([p for p in self._parameters() if p.grad is not None and not any(p is q for q, _ in halves)])
        if wait is not None:
            wait()
        for _, half in halves:
            half.settle()
        self._step_halves(halves)
        torch.autograd.graph.increment_version(self._parameters())  # written past torch's own operations
        for p, half in halves:
            half.version, half.stepped = p._version, False

    def _step_floats(self, parameters: list[Tensor]) -> None:
        numbers: dict[float, tuple[np.float32, ...]] = {}
        for p in parameters:
            t, arrays = self._next_step(p)
            if t not in numbers:
                numbers[t] = self._numbers(t)
            assert p.grad is not None
            g = p.grad if p.grad.stride() == p.stride() else torch.empty_like(p).copy_(p.grad)
            step_float(*arrays, flat(g), *numbers[t])

    def _step_halves(self, halves: list[tuple[Tensor, Half]]) -> None:
        """Those that were not stepped early."""
        for p, half in halves:
            if not half.stepped:
                self._step_half(p, half)

    def _step_half(self, p: Tensor, half: Half) -> None:
        t, arrays = self._next_step(p)
        step_half(*arrays, *half.arrays, *self._numbers(t))
        half.stepped = True

    def _numbers(self, t: float) -> tuple[np.float32, ...]:
        """All that step t multiplies with."""
        (group,) = self.param_groups
        beta1, beta2 = group["betas"]
        size, root = group["lr"] / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)
        return tuple(np.float32(x) for x in (self.scale, beta1, beta2, size, root, group["eps"]))


class OnePassStep:
    """Backward pass, clipping by a scale that the optimiser applies as it reads, optimiser."""

    def __call__(self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, largest_norm: float) -> None:
        assert isinstance(optimizer, OnePassAdam)
        optimizer.zero_grad()
        if optimizer.beside is not None and not largest_norm:
            optimizer.step_early()
        loss.backward()
        if largest_norm:
            norm = math.sqrt(sum(float(g.float().norm()) ** 2 for g in optimizer.gradients()))
            optimizer.scale = min(1.0, largest_norm / (norm + 1e-6))
        optimizer.step()

    def get_state(self) -> dict[str, Tensor]:
        return {}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing is kept."""
