"""Adam in one pass over the memory: reads a gradient as it comes, in bfloat16 if need be, and writes the bfloat16 weights that
the next passes read.

With two million parameters the optimiser is all memory traffic. torch's own, for the same end, writes the gradients as float32,
reads them again, and has the new weights read once more to convert them. The slow twin is `torch.optim.Adam`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, nn

from dqnitro.learn.half import Half, flat
from dqnitro.learn.patches import to_float, to_half

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
        self._views: dict[Tensor, tuple[tuple[Any, ...], tuple[np.ndarray, ...]]] = {}
        for p in self._parameters():
            if p.numel() >= LARGE:
                p.half = Half()  # type: ignore[attr-defined]
        none, bits, number = np.zeros(0, np.float32), np.zeros(0, np.uint16), np.float32(0.0)
        step_float(none, none, none, none, *[number] * 6)  # compiled now, not in the first update
        step_half(none, none, none, bits, bits, *[number] * 6)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Always to None. Without torch's bookkeeping, which takes longer than all of this."""
        for p in self._parameters():
            p.grad = None
            if half := Half.of(p):
                half.has_gradient = False

    def gradients(self) -> list[Tensor]:
        out = [p.grad for p in self._parameters() if p.grad is not None]
        halves = [half for p in self._parameters() if (half := Half.of(p)) and half.has_gradient]
        return out + [half.gradient for half in halves if half.gradient is not None]

    def _memory(self, p: Tensor) -> tuple[np.ndarray, ...]:
        """The parameter and its two moments as NumPy sees them; looked up again only if one of them moved."""
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        is_now = (p.data_ptr(), state["exp_avg"], state["exp_avg_sq"])
        was, views = self._views.get(p, ((), ()))
        if len(was) != 3 or was[0] != is_now[0] or was[1] is not is_now[1] or was[2] is not is_now[2]:
            views = (flat(p), flat(is_now[1]), flat(is_now[2]))
            self._views[p] = (is_now, views)
        return views

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            halves = {p: half for p in group["params"] if (half := Half.of(p)) is not None and half.has_gradient}
            moving = [p for p in group["params"] if p in halves or p.grad is not None]
            memory = [self._memory(p) for p in moving]
            steps = [self.state[p]["step"] for p in moving]
            torch._foreach_add_(steps, 1)  # pyright: ignore[reportPrivateImportUsage]
            numbers: dict[float, tuple[np.float32, ...]] = {}
            for p, arrays, step in zip(moving, memory, steps, strict=True):
                t = step.item()
                if t not in numbers:
                    numbers[t] = self._numbers(group, t)
                if p in halves:
                    step_half(*arrays, *halves[p].arrays, *numbers[t])
                else:
                    g = p.grad if p.grad.stride() == p.stride() else torch.empty_like(p).copy_(p.grad)
                    step_float(*arrays, flat(g), *numbers[t])
            torch.autograd.graph.increment_version(group["params"])  # written past torch's own operations
            for p, half in halves.items():
                half.version = p._version

    def _numbers(self, group: dict[str, Any], t: float) -> tuple[np.float32, ...]:
        """All that step t multiplies with."""
        beta1, beta2 = group["betas"]
        size, root = group["lr"] / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)
        return tuple(np.float32(x) for x in (self.scale, beta1, beta2, size, root, group["eps"]))


class OnePassStep:
    """Backward pass, clipping by a scale that the optimiser applies as it reads, optimiser."""

    def __call__(self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, largest_norm: float) -> None:
        assert isinstance(optimizer, OnePassAdam)
        optimizer.zero_grad()
        loss.backward()
        if largest_norm:
            norm = math.sqrt(sum(float(g.float().norm()) ** 2 for g in optimizer.gradients()))
            optimizer.scale = min(1.0, largest_norm / (norm + 1e-6))
        optimizer.step()

    def get_state(self) -> dict[str, Tensor]:
        return {}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing is kept."""
