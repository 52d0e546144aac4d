"""The resize for many pictures in one call: what `bench resize` measures against OpenCV and others."""

from __future__ import annotations

import numpy as np

from ..jit.target import compiled
from .resize import Plan, make_scratch, plan, resize_codes


@compiled
def resize_all(p, codes, words, lut, raw, source, scratch, out):
    """Resize screens of colour codes (`words`: the same bytes, 8 pixels each) into rows of `out`, flat pictures."""
    for i in range(len(codes)):
        resize_codes(p, codes[i], words[i], codes[i], words[i], lut, 0, raw, source, scratch, out[i], 0, 1)


class Resizer:
    """The plan and the scratch memory for screens of one size."""

    def __init__(self, height: int, size: int, lut: np.ndarray) -> None:
        self.plan: Plan = plan(height, size, size)
        self._lut = np.ascontiguousarray(lut)
        self._scratch = make_scratch(self.plan, self._lut[None])
        self._raw, self._source = np.zeros((height, 160), np.uint8), np.zeros(height, np.int32)

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """uint8 (n, height, 160) colour codes to uint8 (n, size, size) grey pictures."""
        out = np.zeros((len(codes), self.plan.out_height * self.plan.out_width), np.uint8)
        words = codes.view(np.uint64)
        resize_all(self.plan, codes, words, self._lut, self._raw, self._source, self._scratch, out)
        return out.reshape(len(codes), self.plan.out_height, self.plan.out_width)
