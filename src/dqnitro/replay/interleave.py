"""Four frames of a stack, gathered with their pixels side by side: the channels-last order of a stack of four.

torch gathers frame by frame, and putting the channels innermost is then a pass over a million single bytes, ten times as long
as this. The slow twin is `FrameReplay._observations` without it.
"""

from __future__ import annotations

import numba
import numpy as np

STACK = 4  # four bytes are one word, so a pixel of all frames is written at once


@numba.njit(nogil=True, cache=True, error_model="numpy")
def interleave(frames: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    """out[i, pixel] = the four bytes of frames[index[i, 0..3], pixel], first frame lowest; a negative index is a black frame."""
    black = np.zeros(frames.shape[1], np.uint8)
    for i in range(index.shape[0]):
        a = frames[index[i, 0]] if index[i, 0] >= 0 else black
        b = frames[index[i, 1]] if index[i, 1] >= 0 else black
        c = frames[index[i, 2]] if index[i, 2] >= 0 else black
        d = frames[index[i, 3]] if index[i, 3] >= 0 else black
        words = out[i]
        for j in range(frames.shape[1]):
            low = np.uint32(a[j]) | (np.uint32(b[j]) << np.uint32(8))
            words[j] = low | (np.uint32(c[j]) << np.uint32(16)) | (np.uint32(d[j]) << np.uint32(24))
