"""What a step of some environments writes on the card, as four Triton kernels; `books` says what for.

Pictures are words of four pixels. A ring's frame is SIDE x SIDE blocks of four such words (`ring.space_to_depth`). Flags are four rows:
terminated, truncated, reset, ended.
"""

import triton
import triton.language as tl


@triton.jit
def look(
    obs, age, head, frames, ages, rows, seen, slots, width, first, SIDE: tl.constexpr, STACK: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The newest frame of each environment goes into the ring; which frames there are its observation now."""
    e = tl.program_id(0)
    slot = tl.load(head)
    place = slot * width + first + e
    words: tl.constexpr = SIDE * SIDE * 4
    i = tl.arange(0, BLOCK)
    block, line = i // 4, i % 4
    from_here = obs + (e * STACK + STACK - 1) * words + (block // SIDE * 4 + line) * SIDE + block % SIDE
    tl.store(frames + place * words + i, tl.load(from_here, mask=i < words, other=0), mask=i < words)
    steps = tl.load(age + e)
    tl.store(ages + place, steps)
    for s in tl.static_range(STACK):
        back = STACK - 1 - s
        tl.store(rows + e * STACK + s, (slot + slots - back) % slots * width + first + e)
        tl.store(seen + e * STACK + s, back <= steps)


@triton.jit
def decide(
    values, chance, epsilon, away, head, filled, actions, ring_action, ring_valid, was_away, ring_head, head_seen, filled_seen,
    n, width, first, A: tl.constexpr, AP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The best action, or any; what the updates after it may read is fixed."""
    e, a = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, AP)
    ok = e < n
    known = ok[:, None] & (a[None, :] < A)
    best = tl.argmax(tl.load(values + e[:, None] * A + a[None, :], mask=known, other=float("-inf")), 1)
    explore = tl.load(chance + e, mask=ok, other=0.0) < tl.load(epsilon)
    random = tl.minimum((tl.load(chance + n + e, mask=ok, other=0.0) * A).to(tl.int64), A - 1)
    action = tl.where(explore, random, best.to(tl.int64))
    here = tl.load(away + e, mask=ok, other=1) == 0
    at = tl.load(ring_head) * width + first + e
    tl.store(actions + e, action, mask=ok)
    tl.store(ring_action + at, action, mask=ok)
    tl.store(ring_valid + at, here, mask=ok)
    tl.store(was_away + e, here == 0, mask=ok)
    if tl.program_id(0) == 0:
        tl.store(head_seen, tl.load(head))
        tl.store(filled_seen, tl.load(filled))


@triton.jit
def push(frame, flags, obs, n, WORDS: tl.constexpr, STACK: tl.constexpr, BLOCK: tl.constexpr):
    """A new frame on each stack; a new game's stack is black but for its first frame."""
    e = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = i < WORDS
    goes_on = tl.load(flags + 2 * n + e) == 0
    at = obs + e * STACK * WORDS + i
    for s in tl.static_range(STACK - 1):
        tl.store(at + s * WORDS, tl.load(at + (s + 1) * WORDS, mask=ok & goes_on, other=0), mask=ok)
    tl.store(at + (STACK - 1) * WORDS, tl.load(frame + e * WORDS + i, mask=ok, other=0), mask=ok)


@triton.jit
def book(
    reward, flags, was_away, away, age, head, filled, ring_reward, ring_done, ring_cut, n, slots, width, first,
    CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What came of the decisions; then the next slot is the current one. One program, so that nobody reads the new one."""
    e = tl.arange(0, BLOCK)
    ok = e < n
    slot, full = tl.load(head), tl.load(filled)
    here = tl.load(was_away + e, mask=ok, other=1) == 0
    gained = tl.load(reward + e, mask=ok, other=0.0)
    if CLIP:
        gained = tl.minimum(tl.maximum(gained, -1.0), 1.0)
    at = slot * width + first + e
    tl.store(ring_reward + at, tl.where(here, gained, 0.0), mask=ok)
    tl.store(ring_done + at, (tl.load(flags + e, mask=ok, other=0) != 0) & here, mask=ok)
    tl.store(ring_cut + at, (tl.load(flags + n + e, mask=ok, other=0) != 0) & here, mask=ok)
    begins = tl.load(flags + 2 * n + e, mask=ok, other=0) != 0
    tl.store(age + e, tl.where(begins, 0, tl.load(age + e, mask=ok, other=0) + 1), mask=ok)
    tl.store(away + e, (tl.load(flags + 3 * n + e, mask=ok, other=0) != 0).to(tl.int32), mask=ok)
    tl.debug_barrier()  # all have read the head
    tl.store(head, (slot + 1) % slots)
    tl.store(filled, tl.minimum(full + 1, slots))
