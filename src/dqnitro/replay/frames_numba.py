"""What `FrameReplay.gather` does, compiled, for stacks of four frames whose pixels are to lie side by side (channels-last).

torch gathers frame by frame, and putting the channels innermost is then a pass over a million single bytes, ten times as long
as the loop here. The numbers beside the frames come along: for 32 samples NumPy's three dozen calls cost more than its work.
The slow twin is `FrameReplay.gather` without it.
"""

from __future__ import annotations

import numba
import numpy as np

STACK = 4  # four bytes are one word, so a pixel of all frames is written at once


@numba.njit(nogil=True, cache=True, error_model="numpy")
def stacks(
    frames: np.ndarray, age: np.ndarray, env: np.ndarray, position: np.ndarray, ahead: np.ndarray, out: np.ndarray
) -> None:
    """out[i, pixel] = four bytes: that pixel in the stack at `position[i] + ahead[i]`, oldest frame lowest.

    Frames from before the game's first one are black.
    """
    slots, n_envs = age.shape
    black = np.zeros(frames.shape[1], np.uint8)
    for i in range(len(env)):
        e, p = env[i], position[i] + ahead[i]
        reach = age[p % slots, e]
        a = frames[(p - 3) % slots * n_envs + e] if reach >= 3 else black
        b = frames[(p - 2) % slots * n_envs + e] if reach >= 2 else black
        c = frames[(p - 1) % slots * n_envs + e] if reach >= 1 else black
        d = frames[p % slots * n_envs + e]
        words = out[i]
        for j in range(frames.shape[1]):
            low = np.uint32(a[j]) | (np.uint32(b[j]) << np.uint32(8))
            words[j] = low | (np.uint32(c[j]) << np.uint32(16)) | (np.uint32(d[j]) << np.uint32(24))


@numba.njit(nogil=True, cache=True, error_model="numpy")
def returns(
    reward: np.ndarray, flags: np.ndarray, powers: np.ndarray, env: np.ndarray, position: np.ndarray,
    out_reward: np.ndarray, out_discount: np.ndarray, out_length: np.ndarray, ended: int, cut: int,
) -> None:  # fmt: skip
    """The n-step returns that begin at these positions, summed in float32 in the order in which NumPy sums them."""
    slots = reward.shape[0]
    for i in range(len(env)):
        e, total, discount, length = env[i], np.float32(0.0), powers[0], 0
        for k in range(len(powers) - 1):
            at = (position[i] + k) % slots
            if flags[at, e] & cut:
                break
            total += powers[k] * reward[at, e]
            length += 1
            discount = powers[k + 1]
            if flags[at, e] & ended:
                discount = np.float32(0.0)
                break
        out_reward[i], out_discount[i], out_length[i] = total, discount, length
