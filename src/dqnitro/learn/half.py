"""Where an optimiser and the passes that work in bfloat16 meet: gradients and weights that need no conversion."""

from __future__ import annotations

import torch
from torch import Tensor


class Half:
    """What a large parameter has in bfloat16: its gradient, instead of `.grad`, and a copy of itself.

    The optimiser puts it at the parameter; who makes bfloat16 gradients and reads bfloat16 weights fills it in.
    """

    def __init__(self) -> None:
        self.gradient: Tensor | None = None
        self.has_gradient = False
        self.copy: Tensor | None = None
        self.version: int | None = None  # the parameter's when the copy was written; None: never

    @staticmethod
    def of(parameter: Tensor) -> Half | None:
        """None where the optimiser does not ask for it, or nobody has filled it in."""
        half = getattr(parameter, "half", None)
        return half if isinstance(half, Half) and half.copy is not None else None

    @staticmethod
    def fill_in(parameter: Tensor, copy: Tensor) -> None:
        half = getattr(parameter, "half", None)
        if isinstance(half, Half):
            half.copy, half.gradient, half.version = copy, torch.empty_like(copy), None
