"""bfloat16 shadows of large parameters: weights and a gradient that the optimiser and the hand-written passes share.

The passes compute in bfloat16. They write the gradient of a parameter into its shadow as it comes out of the matrix
product. The optimiser reads it there and writes the new weights in bfloat16, too. So two million numbers are converted
neither on the way to the optimiser nor on the way back.

The optimiser owns the table of shadows and gives it to the passes (`HandwrittenPasses.use_shadows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor


def flat_view(x: Tensor) -> np.ndarray:
    """All numbers in the order in which they lie in memory; bfloat16, which NumPy does not have, as bits."""
    x = x.detach() if x.requires_grad else x
    array = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    out = array.transpose(order).reshape(-1)
    assert np.may_share_memory(out, array), "memory with holes"
    return out


class Bf16Shadow:
    """The weights and the gradient of one parameter in bfloat16. Its gradient is there or not, its weights are current
    or not.
    """

    def __init__(self, parameter: Tensor) -> None:
        # Memory that is never touched costs nothing: passes in float32 leave both alone.
        self.weights = torch.empty_like(parameter, dtype=torch.bfloat16)
        self.gradient = torch.empty_like(self.weights)
        self.arrays = (flat_view(self.gradient), flat_view(self.weights))
        self.has_gradient = False  # from a pass that writes one until a step that uses it up
        self._version: int | None = None  # the parameter's, when the weights were written

    def is_current(self, version: int) -> bool:
        """Whether the weights are those of the parameter in this version."""
        return self._version == version

    def add_gradient(self, a: Tensor, b: Tensor) -> None:
        """Add `a @ b` to the gradient."""
        if self.has_gradient:  # of another pass since the last step
            self.gradient += a @ b
        else:
            torch.mm(a, b, out=self.gradient)
        self.has_gradient = True

    def stepped(self, parameter: Tensor) -> None:
        """The optimiser has used the gradient up and has written the parameter and the shadow's weights."""
        torch.autograd.graph.increment_version(parameter)  # written past torch's own operations
        self._version = parameter._version
        self.has_gradient = False


class Bf16Shadows:
    """The shadows of an optimiser's large parameters, and what is under way for them in another thread."""

    def __init__(self, parameters: Iterable[Tensor] = ()) -> None:
        self._table = {p: Bf16Shadow(p) for p in parameters}
        self.when_made: Callable[[], None] | None = None  # for the thread that makes gradients, when all are there
        self._pending: Callable[[], Any] | None = None  # waits for gradients that another thread is making

    def get(self, parameter: Tensor) -> Bf16Shadow | None:
        return self._table.get(parameter)

    def with_gradient(self) -> Iterator[tuple[Tensor, Bf16Shadow]]:
        return ((p, shadow) for p, shadow in self._table.items() if shadow.has_gradient)

    @property
    def are_pending(self) -> bool:
        return self._pending is not None

    def expect(self, wait: Callable[[], Any]) -> None:
        """Gradients are being made in another thread; `wait` returns when they are there."""
        self.settle()
        self._pending = wait

    def settle(self) -> None:
        """Wait until nothing is under way. The error of the other thread, if there is one, is raised here."""
        wait, self._pending = self._pending, None
        if wait is not None:
            wait()

    def clear(self) -> None:
        """Forget all gradients."""
        self.settle()
        self.when_made = None
        for shadow in self._table.values():
            shadow.has_gradient = False
