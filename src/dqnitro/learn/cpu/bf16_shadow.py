"""Where an optimiser and the passes that work in bfloat16 meet: gradients and weights that need no conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor


def flat(x: Tensor) -> np.ndarray:
    """All numbers in the order in which they lie in memory; bfloat16, which NumPy has not, as bits."""
    x = x.detach() if x.requires_grad else x
    array = (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    out = array.transpose(order).reshape(-1)
    assert np.may_share_memory(out, array), "memory with holes"
    return out


class Half:
    """What a large parameter has in bfloat16: its gradient, instead of `.grad`, and a copy of itself.

    The optimiser puts it at the parameter; who makes bfloat16 gradients and reads bfloat16 weights fills it in.
    """

    def __init__(self) -> None:
        self.gradient: Tensor | None = None
        self.has_gradient = False
        self.copy: Tensor | None = None
        self.arrays: tuple[np.ndarray, ...] = ()  # both, for NumPy
        self.version: int | None = None  # the parameter's when the copy was written; None: never
        self.wait: Callable[[], Any] | None = None  # for a gradient that another thread is making; asked once
        self.step: Callable[[], None] | None = None  # what the optimiser wants to be called when the gradient is there
        self.stepped = False  # and has been, since the last step of the whole

    @staticmethod
    def of(parameter: Tensor) -> Half | None:
        """None where the optimiser does not ask for it, or nobody has filled it in."""
        half = getattr(parameter, "half", None)
        return half if isinstance(half, Half) and half.copy is not None else None

    def settle(self) -> None:
        """Until the gradient is there, and whoever made it is done with it."""
        wait, self.wait = self.wait, None
        if wait is not None:
            wait()

    @staticmethod
    def fill_in(parameter: Tensor, copy: Tensor) -> None:
        half = getattr(parameter, "half", None)
        if isinstance(half, Half):
            half.copy, half.gradient, half.version = copy, torch.empty_like(copy), None
            half.arrays = (flat(half.gradient), flat(copy))
