"""Adam in one pass over the memory: it reads a gradient in the precision in which it was made, and writes the bfloat16
weights that the next passes read.

With two million parameters the optimiser is all memory traffic. With torch's Adam the gradients are written as float32
and read again, and the new weights are read once more to convert them. The reference implementation is
`torch.optim.Adam`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro.atari.jit.code_cache import kept
from dqnitro.learn.cpu.bf16_shadow import Bf16Shadow, Bf16Shadows, flat_view
from dqnitro.learn.cpu.patch_kernels import bf16_to_float, to_bf16
from dqnitro.learn.cpu.side_thread import SideThread
from dqnitro.process_setup import optimizers_without_compiler

# Moments of weights that get no gradient any more shrink to denormal numbers, with which a CPU takes two to three times
# as long; a third of all moments ended there. Below this number they become 0, which changes no weight.
_NOTHING = np.float32(1e-32)
LARGE = 1 << 17  # parameters of a tensor from which on its conversion takes noticeable time


# "contract": a product and a sum in one instruction, which only saves a rounding.
one_pass: Any = kept(nogil=True, error_model="numpy", fastmath={"contract"})


@one_pass
def step_float32(
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
def step_bf16(
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
    """The same from a bfloat16 gradient; writes a bfloat16 copy of the weights as well."""
    one = np.float32(1.0)
    for i in range(len(p)):
        x = bf16_to_float(g[i]) * scale
        a = m[i] + (x - m[i]) * (one - beta1)
        b = v[i] * beta2 + x * x * (one - beta2)
        m[i] = a if abs(a) > _NOTHING else np.float32(0.0)
        v[i] = b if b > _NOTHING else np.float32(0.0)
        p[i] -= size * m[i] / (np.sqrt(v[i]) * root + epsilon)
        copy[i] = to_bf16(p[i])


class OnePassAdam(torch.optim.Adam):
    """`torch.optim.Adam` on a CPU, with the same state under the same names.

    Large parameters have a shadow: where a pass leaves a bfloat16 gradient there, a step reads it, uses it up, and
    writes the new weights into the shadow, too. All others, and large ones whose gradient is in `.grad`, are stepped in
    float32.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, eps: float) -> None:
        optimizers_without_compiler()
        super().__init__(parameters, lr=lr, eps=eps)
        self.scale = 1.0  # of the gradients, for the next step
        self.side_thread: SideThread | None = None  # steps the large parameters, which lie in its core's cache
        self.shadows = Bf16Shadows(p for p in self._parameters() if p.numel() >= LARGE)
        self._views: dict[Tensor, tuple[int, tuple[Tensor, ...], tuple[np.ndarray, ...]]] = {}
        # Compile now, not in the first update.
        floats = np.zeros(0, np.float32)
        bits = np.zeros(0, np.uint16)
        numbers = [np.float32(0.0)] * 6
        step_float32(floats, floats, floats, floats, *numbers)
        step_bf16(floats, floats, floats, bits, bits, *numbers)

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Always to None. Without torch's bookkeeping, which takes longer than all of this."""
        for p in self._parameters():
            p.grad = None
        self.shadows.clear()

    def step_early(self) -> None:
        """Until the next `zero_grad`: the thread that makes bfloat16 gradients steps their parameters as soon as they
        are made. That needs a scale that does not depend on the other gradients.
        """
        self.shadows.when_made = self._step_shadows

    def gradients(self) -> list[Tensor]:
        out = [p.grad for p in self._parameters() if p.grad is not None]
        self.shadows.settle()
        return out + [shadow.gradient for _, shadow in self.shadows.with_gradient()]

    def _next_step(self, p: Tensor) -> tuple[float, tuple[np.ndarray, ...]]:
        """Count the step of a parameter. Returns its number, and the parameter and its two moments as NumPy arrays;
        these are made again only if one of the tensors moved.
        """
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"] = torch.zeros_like(p)
            state["exp_avg_sq"] = torch.zeros_like(p)
        tensors = tuple(state[k] for k in ("step", "exp_avg", "exp_avg_sq"))
        address, seen, views = self._views.get(p, (0, (), ()))
        if address != p.data_ptr() or any(a is not b for a, b in zip(seen, tensors, strict=True)):
            views = (flat_view(tensors[0]), flat_view(p), flat_view(tensors[1]), flat_view(tensors[2]))
            self._views[p] = (p.data_ptr(), tensors, views)
        count, *arrays = views
        count[0] += 1
        return float(count[0]), tuple(arrays)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        wait = None
        if self.side_thread is not None and self._is_left_to_step():
            # The thread works in order: gradients that it is still making are there when this call comes.
            wait = self.side_thread.start(self._step_shadows)
        self._step_floats([p for p in self._parameters() if p.grad is not None])
        if wait is not None:
            wait()
        self.shadows.settle()
        self._step_shadows()

    def _is_left_to_step(self) -> bool:
        """Whether there are bfloat16 gradients, or will be, that are not stepped early."""
        if self.shadows.are_pending:
            return self.shadows.when_made is None
        return any(True for _ in self.shadows.with_gradient())

    def _step_floats(self, parameters: list[Tensor]) -> None:
        numbers: dict[float, tuple[np.float32, ...]] = {}
        for p in parameters:
            t, arrays = self._next_step(p)
            if t not in numbers:
                numbers[t] = self._numbers(t)
            assert p.grad is not None
            g = p.grad if p.grad.stride() == p.stride() else torch.empty_like(p).copy_(p.grad)
            step_float32(*arrays, flat_view(g), *numbers[t])
        torch.autograd.graph.increment_version(parameters)  # written past torch's own operations

    def _step_shadows(self) -> None:
        """Step the parameters with a bfloat16 gradient, in whichever thread calls this."""
        for p, shadow in self.shadows.with_gradient():
            self._step_shadow(p, shadow)

    def _step_shadow(self, p: Tensor, shadow: Bf16Shadow) -> None:
        assert p.grad is None, "a parameter has a float32 and a bfloat16 gradient in one step"
        t, arrays = self._next_step(p)
        step_bf16(*arrays, *shadow.arrays, *self._numbers(t))
        shadow.stepped(p)

    def _numbers(self, t: float) -> tuple[np.float32, ...]:
        """The factors of step t, in the order in which the kernels take them."""
        (group,) = self.param_groups
        beta1, beta2 = group["betas"]
        size = group["lr"] / (1 - beta1**t)
        root = 1 / math.sqrt(1 - beta2**t)
        return tuple(np.float32(x) for x in (self.scale, beta1, beta2, size, root, group["eps"]))


class OnePassStep:
    """Backward pass, clipping by a scale that the optimiser applies as it reads, optimiser."""

    def __call__(self, loss: Tensor, network: nn.Module, optimizer: torch.optim.Optimizer, largest_norm: float) -> None:
        assert isinstance(optimizer, OnePassAdam)
        optimizer.zero_grad()
        if optimizer.side_thread is not None and not largest_norm:
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
