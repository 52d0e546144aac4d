"""`FrameReplay.gather` compiled by Numba, for channels-last stacks of four frames.

torch gathers frame by frame, and moving the channels innermost is then a pass over a million single bytes, which takes
ten times as long as the loop here. Returns are computed here, too: for 32 samples NumPy's three dozen calls cost more
than the work itself. The reference implementation is `FrameReplay._gather_plain`.
"""

from __future__ import annotations

import numpy as np

from dqnitro.atari.jit.code_cache import kept

STACK = 4  # four bytes are one word, so one write stores a pixel of all four frames


@kept(nogil=True, error_model="numpy")
def stacks(
    frames: np.ndarray, age: np.ndarray, env: np.ndarray, position: np.ndarray, ahead: np.ndarray, out: np.ndarray
) -> None:
    """out[i, pixel] = that pixel of the four frames at `position[i] + ahead[i]`, the oldest frame in the lowest byte.

    Frames from before the start of the game are black.
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


@kept(nogil=True, error_model="numpy")
def returns(
    reward: np.ndarray,
    flags: np.ndarray,
    powers: np.ndarray,
    env: np.ndarray,
    position: np.ndarray,
    out_reward: np.ndarray,
    out_discount: np.ndarray,
    out_length: np.ndarray,
    terminated: int,
    truncated: int,
) -> None:
    """The n-step returns from these positions, summed in float32 in the same order as `FrameReplay._gather_plain`."""
    slots = reward.shape[0]
    for i in range(len(env)):
        e, total, discount, length = env[i], np.float32(0.0), powers[0], 0
        for k in range(len(powers) - 1):
            at = (position[i] + k) % slots
            if flags[at, e] & truncated:
                break
            total += powers[k] * reward[at, e]
            length += 1
            discount = powers[k + 1]
            if flags[at, e] & terminated:
                discount = np.float32(0.0)
                break
        out_reward[i], out_discount[i], out_length[i] = total, discount, length


@kept(nogil=True, error_model="numpy")
def vectors(
    frames: np.ndarray,
    action: np.ndarray,
    env: np.ndarray,
    position: np.ndarray,
    length: np.ndarray,
    obs_tm1: np.ndarray,
    obs_t: np.ndarray,
    out_action: np.ndarray,
) -> None:
    """Observations that are not stacked: those at these positions and `length` steps later, and the actions."""
    slots, n_envs = action.shape
    for i in range(len(env)):
        e, here, there = env[i], position[i] % slots, (position[i] + length[i]) % slots
        out_action[i] = action[here, e]
        first, second = frames[here * n_envs + e], frames[there * n_envs + e]
        for j in range(frames.shape[1]):
            obs_tm1[i, j] = first[j]
            obs_t[i, j] = second[j]


@kept(nogil=True, error_model="numpy")
def frame_rows(
    age: np.ndarray,
    action: np.ndarray,
    env: np.ndarray,
    position: np.ndarray,
    length: np.ndarray,
    rows: np.ndarray,
    out_action: np.ndarray,
) -> None:
    """rows[0, i] and rows[1, i]: where the frames of the observations at `position[i]` and `length[i]` steps later lie.

    Frames from before the start of the game are those of the row behind the ring, which is black.
    """
    slots, n_envs = age.shape
    stack, black = rows.shape[2], slots * n_envs
    for i in range(len(env)):
        e = env[i]
        out_action[i] = action[position[i] % slots, e]
        for end in range(2):
            p = position[i] + end * length[i]
            reach = age[p % slots, e]
            for k in range(stack):
                back = stack - 1 - k
                rows[end, i, k] = black if back > reach else (p - back) % slots * n_envs + e


@kept(nogil=True, error_model="numpy")
def add(
    action: np.ndarray,
    reward: np.ndarray,
    flags: np.ndarray,
    age: np.ndarray,
    head: np.ndarray,
    was_truncated: np.ndarray,
    actions: np.ndarray,
    reward_t: np.ndarray,
    terminated_t: np.ndarray,
    truncated_t: np.ndarray,
    reset: np.ndarray,
    stack: int,
    terminated: int,
    truncated: int,
) -> None:
    """What a step changes in the columns of `FrameReplay`, and where its heads are then."""
    slots = age.shape[0]
    for e in range(len(head)):
        here, cut = head[e] % slots, reset[e] and was_truncated[e]
        action[here, e], reward[here, e] = actions[e], reward_t[e]
        flags[here, e] = truncated if cut else terminated if terminated_t[e] else 0
        older = min(age[here, e] + 1, stack - 1)
        # A reset after a terminated game does not move the head: its first frame overwrites the final one.
        if cut or not reset[e]:
            head[e] += 1
        age[head[e] % slots, e] = 0 if reset[e] else older
        was_truncated[e] = truncated_t[e] and not terminated_t[e]
