# ruff: noqa: F403, F405
"""The console's kernels: one thread per console plays, one block per console computes the observation.

This module is loaded by `cuda/build.py` under another package name, so that every function it imports is compiled for
CUDA.

`at` holds the address of each array (`A_...`). A console whose game has ended can begin the next one in two ways: in
its next step, while all others wait (a new game takes about a hundred frames), or frame by frame in the steps that
follow (`start_in_steps`): it makes no decisions meanwhile (`A_AWAY`), and no step takes longer because of it.
"""

from __future__ import annotations

from numba import cuda
from numba.cuda.types import float64
from numpy import float32, int32, int64, uint8

from ..chips.layout import *
from ..chips.rng import MT_SIZE
from ..games.table_language import G_SIZE
from ..jit.target import (
    LANES,
    STATE_ROWS,
    address,
    as_bytes,
    as_float32,
    as_int32,
    as_log,
    as_ram,
    as_screen,
    as_state,
    as_table,
    as_words,
    kernel,
    plain_int64,
)
from ..observation.resize_opencv import block_pixel, float_pixel, linear_pixel
from ..observation.resize_plan import COPY, FLOAT, INTEGER, LINEAR, WIDTH, Plan
from ..vector.agent_step import *
from .observation import QUADS, divide, pool, row_sum
from .start_in_steps import begin_start, play_or_start
from .start_phases import PLAYING, T_PHASE, T_SIZE

# fmt: off
(
    A_STATE, A_RAM, A_LOG, A_SCREEN, A_RULES, A_MT, A_MT_SYSTEM, A_MT_NOOPS, A_EPISODE,
    A_ROM, A_DEC, A_PROP, A_NTSC, A_OPTIONS, A_ACTION_SET, A_LUTS,
    A_COMMANDS, A_SEEDS, A_ACTIONS, A_STRENGTHS,
    A_VIEW, A_OBS, A_RAW, A_RESULTS, A_TERMINATED, A_TRUNCATED,
    A_AWAY, A_STARTS, A_ROWS,
    # The resize: eight arrays of the plan, x_first .. y_units
    A_PLAN, _1, _2, _3, _4, _5, _6, _7,
    A_SIZE,
) = range(38)
# fmt: on
NOTHING, FRESH = 3, 4  # views beside WHOLE, STALE, AGAIN: leave the observation as it is; the first one of a game
# In A_AWAY: a console plays, or its next game is being started. Saved runs of older versions also have 2 (it was about
# to be started) and READY: it has begun a game, and nobody has seen its first observation.
HERE, STARTS, READY = 0, 1, 3
SCREENS = 3  # two buffers and a spare one
GRAY_ROWS = ROWS + 1  # one more than needed: weights of 0 reach beyond the last row
MT_BYTES, RULES_BYTES = 4 * MT_SIZE, 4 * G_SIZE


# ---- one console's share of the arrays


@cuda.jit(device=True)
def console_at(at, m):
    """The arrays of console m. State and RAM lie in groups of 32 (`cuda/target.py`)."""
    group, lane = m // LANES, m % LANES
    screen = as_screen(at[A_SCREEN] + 8 * m * SCREENS * ROWS * WORDS)
    return ConsoleArrays(
        as_state(at[A_STATE] + 4 * (group * STATE_ROWS * LANES + lane)),
        as_ram(at[A_RAM] + group * 256 * LANES + lane),
        as_log(at[A_LOG] + 8 * m * LOG_PITCH),
        screen,
        screen[2],
        as_int32(at[A_RULES] + m * RULES_BYTES),
        as_words(at[A_MT] + m * MT_BYTES),
        plain_int64(at[A_EPISODE] + 8 * m * E_SIZE),
    )


@cuda.jit(device=True)
def rngs_at(at, m):
    """The generators of console m that the start of a game draws from."""
    return Generators(as_words(at[A_MT_SYSTEM] + m * MT_BYTES), as_words(at[A_MT_NOOPS] + m * MT_BYTES))


@cuda.jit(device=True)
def setup_at(at, sticky):
    return Setup(
        as_bytes(at[A_ROM]), as_words(at[A_DEC]), as_state(at[A_PROP]), as_state(at[A_NTSC]),
        plain_int64(at[A_OPTIONS]), sticky,
    )  # fmt: skip


@cuda.jit(device=True)
def report(at, n, m, reward, ended, cut):
    """The results of console m's step; `ended`: terminated, `cut`: truncated."""
    console = console_at(at, m)
    s, g = console.state, console.rules
    results = as_int32(at[A_RESULTS])
    results[R_REWARD * n + m] = int32(reward)
    results[R_LIVES * n + m] = g[G_LIVES]
    results[R_FRAMES * n + m] = int32(s[S_TOTAL_FRAMES])
    results[R_EPISODE_FRAMES * n + m] = int32(s[S_EPISODE_FRAMES])
    as_bytes(at[A_TERMINATED])[m] = uint8(1 if ended else 0)
    as_bytes(at[A_TRUNCATED])[m] = uint8(1 if cut else 0)


@cuda.jit(device=True)
def first_view(s):
    """The first observation of a game: one screen, and nothing before it."""
    return int32(FRESH | (s[S_BUFFER] << 4) | (s[S_BUFFER] << 8))


# ---- playing


@kernel(sticky=float64)
def step_kernel(at_, n, per_warp, sticky, background):
    """One step of every console. `per_warp` consoles share a warp; fewer of them wait less for one another.

    With `background` a console whose game has ended starts the next one in the steps that follow.
    """
    at = plain_int64(at_)
    thread = cuda.grid(1)
    m = thread // 32 * per_warp + thread % 32
    if thread % 32 >= per_warp or m >= n:
        return
    views, away = as_int32(at[A_VIEW]), as_int32(at[A_AWAY])
    console, setup, rngs = console_at(at, m), setup_at(at, sticky), rngs_at(at, m)
    s, e = console.state, console.episode
    command = as_int32(at[A_COMMANDS])[m]
    reward, ended, cut = 0, False, False
    views[m] = NOTHING
    t = plain_int64(at[A_STARTS] + 8 * m * T_SIZE)
    if away[m] == READY:
        away[m] = HERE
        views[m] = first_view(s)
        report(at, n, m, 0, False, False)
        return
    if command == STEP and e[E_RESET] and away[m] == HERE:
        command = RESET
    if command == STEP:
        # Not a branch of its own: consoles that start and consoles that play run the same frames of a warp.
        action = plain_int64(at[A_ACTION_SET])[plain_int64(at[A_ACTIONS])[m]]
        reward, ended, cut, view, other = play_or_start(console, setup, rngs, t, action, as_float32(at[A_STRENGTHS])[m])
        if away[m] == HERE:
            views[m] = int32(view | (other << 4) | (s[S_BUFFER] << 8))
            if background and e[E_RESET]:
                begin_start(s, t)
                away[m] = STARTS
        elif t[T_PHASE] == PLAYING:
            away[m] = HERE
            views[m] = first_view(s)
    if command == RESET or command == SEEDED_RESET:
        t[T_PHASE] = PLAYING
        # a seed of -1 leaves the generators as they are
        begin(console, setup, rngs, plain_int64(at[A_SEEDS])[m] if command == SEEDED_RESET else int64(-1))
        views[m] = first_view(s)
    report(at, n, m, reward, ended, cut)


# ---- observations: pool the last two frames, resize, push onto the stack


@cuda.jit(device=True)
def pixel(p, dy, x, gray, rows):
    """One pixel of the resized picture."""
    if p.kind == INTEGER:
        total = 0
        for j in range(p.y_taps[dy]):
            line = 0
            for t in range(p.x_taps[x]):
                line += int32(p.x_units[t, x]) * int32(gray[p.y_first[dy] + j, p.x_first[x] + t])
            total += int32(p.y_units[j, dy]) * line
        twice = int32(2 * p.total)
        total = 2 * total + int32(p.total)
        v = total // twice
        if v * twice == total:  # a tie: float32 decides
            v = float_pixel(p, dy, x, gray, rows)
        return int64(v)
    if p.kind == COPY:
        return int64(gray[dy, x])
    if p.kind == FLOAT:
        return float_pixel(p, dy, x, gray, rows)
    if p.kind == LINEAR:
        return linear_pixel(p, dy, x, gray, rows)
    return int64(block_pixel(p, dy, x, gray, rows))


@cuda.jit(device=True)
def push(obs_at, stack, size, fresh, me, threads):
    """Move older frames up in the stack, or clear them; the newest place is written later.

    Each thread moves its own bytes.
    """
    if size % 8 == 0:
        words, size = plain_int64(obs_at), size // 8
        for x in range(me, size, threads):
            for k in range(stack - 1):
                words[k * size + x] = int64(0) if fresh else words[(k + 1) * size + x]
        return
    obs = as_bytes(obs_at)
    for x in range(me, size, threads):
        for k in range(stack - 1):
            obs[k * size + x] = uint8(0) if fresh else obs[(k + 1) * size + x]


@cuda.jit(device=True)
def plan_at(at, kind, height, out_height, out_width, total):
    """The resize plan from the arrays in `at`; fields that only the CPU uses get something of the same type."""
    rows = as_int32(at[A_ROWS])
    return Plan(
        kind, height, out_height, out_width,
        as_int32(at[A_PLAN]), as_int32(at[A_PLAN + 1]),
        as_table(at[A_PLAN + 2], out_width), as_table(at[A_PLAN + 3], out_width),
        as_int32(at[A_PLAN + 4]), as_int32(at[A_PLAN + 5]),
        as_table(at[A_PLAN + 6], out_height), as_table(at[A_PLAN + 7], out_height),
        total, rows, rows, as_table(at[A_PLAN + 2], out_width),
    )  # fmt: skip


@cuda.jit(device=True)
def shrink(at, p, gray, to_at, step, me, threads):
    """Resize the grey picture into every `step`-th byte. A thread stays in one column, so it loads its weights once."""
    together = threads // p.out_width
    if me >= together * p.out_width:
        return
    x = me % p.out_width
    first, taps, gray_at = int32(p.x_first[x]), p.x_taps[x], address(gray)
    w0 = int32(p.x_units[0, x])
    w1 = int32(p.x_units[1, x]) if taps > 1 else int32(0)
    w2 = int32(p.x_units[2, x]) if taps > 2 else int32(0)
    w3 = int32(p.x_units[3, x]) if taps > 3 else int32(0)
    half, twice = int32(p.total), int32(2 * p.total)
    inverse = float32(1.0) / float32(twice)
    out = as_bytes(to_at)
    for dy in range(me // p.out_width, p.out_height, together):
        total, y = int32(0), int32(p.y_first[dy])
        for j in range(p.y_taps[dy]):
            line = row_sum(gray_at, int32((y + j) * WIDTH + first), w0, w1, w2, w3)
            total = int32(total + int32(p.y_units[j, dy]) * line)
        v, rest = divide(int32(2 * total + half), twice, inverse)
        if rest == 0:  # a tie: float32 decides
            v = int32(float_pixel(p, dy, x, gray, as_int32(at[A_ROWS])))
        out[step * (dy * p.out_width + x)] = uint8(v)


@kernel()
def shrink_kernel(at_, n, height, out_height, out_width, total):
    """`show_kernel` for the sizes that integers and few taps can do: 84x84 and most others."""
    at = plain_int64(at_)
    m, me, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    code = int64(as_int32(at[A_VIEW])[m])
    view, other, buffer = code & 15, (code >> 4) & 15, (code >> 8) & 15
    gray = cuda.shared.array((GRAY_ROWS, WIDTH), uint8)
    lut = cuda.shared.array(256, uint8)
    o = plain_int64(at[A_OPTIONS])
    stack, size, channels = o[O_STACK], o[O_FRAME_BYTES], o[O_CHANNELS]
    obs_at = at[A_OBS] + m * stack * size
    if view != NOTHING:
        push(obs_at, stack, size, view == FRESH, me, threads)
        screens = at[A_SCREEN] + 8 * m * SCREENS * ROWS * WORDS
        if view != AGAIN:
            p = plan_at(at, INTEGER, height, out_height, out_width, total)
            for c in range(channels):
                for k in range(me, 256, threads):
                    lut[k] = as_bytes(at[A_LUTS] + 256 * c)[k]
                cuda.syncthreads()
                pool(
                    address(lut), screens + buffer * ROWS * WIDTH, screens + other * ROWS * WIDTH,
                    at[A_RAW] + (m * channels + c) * height * WIDTH, address(gray), view == STALE,
                    height * QUADS, me, threads,
                )  # fmt: skip
                cuda.syncthreads()
                shrink(at, p, gray, obs_at + (stack - 1) * size + c, channels, me, threads)
                cuda.syncthreads()


@kernel()
def show_kernel(at_, n, kind, height, out_height, out_width, total):
    """The observation of each console after a step: pool, resize, push onto the stack."""
    at = plain_int64(at_)
    m, me, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
    code = int64(as_int32(at[A_VIEW])[m])
    view, other, buffer = code & 15, (code >> 4) & 15, (code >> 8) & 15
    gray = cuda.shared.array((ROWS, WIDTH), uint8)
    o = plain_int64(at[A_OPTIONS])
    stack, size, channels = o[O_STACK], o[O_FRAME_BYTES], o[O_CHANNELS]
    obs_at = at[A_OBS] + m * stack * size
    obs = as_bytes(obs_at)
    if view != NOTHING:
        push(obs_at, stack, size, view == FRESH, me, threads)
        rows = as_int32(at[A_ROWS])
        p = plan_at(at, kind, height, out_height, out_width, total)
        screens = as_bytes(at[A_SCREEN] + 8 * m * SCREENS * ROWS * WORDS)
        now, pooled = buffer * ROWS * WIDTH, other * ROWS * WIDTH
        newest = (stack - 1) * size
        if view != AGAIN:
            for c in range(channels):
                lut = as_bytes(at[A_LUTS] + 256 * c)
                raw = as_bytes(at[A_RAW] + (m * channels + c) * height * WIDTH)
                for x in range(me, height * WIDTH, threads):
                    v = lut[screens[pooled + x]]
                    v = max(v, raw[x] if view == STALE else lut[screens[now + x]])
                    raw[x] = v
                    gray[x // WIDTH, x % WIDTH] = v
                cuda.syncthreads()
                for x in range(me, out_height * out_width, threads):
                    obs[newest + x * channels + c] = uint8(pixel(p, x // out_width, x % out_width, gray, rows))
                cuda.syncthreads()
