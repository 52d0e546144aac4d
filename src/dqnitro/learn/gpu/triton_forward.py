"""The Nature network's passes on a GPU, as Triton kernels: each does one layer in one direction and what belongs to it.

Activations are (B, height * width, channels). Weights are *packed*: in the order in which a product reads them, inputs
first, in the activations' precision.

    first     (frame, ky, kx, pixel of the block: 256, 32)   in float16; 4x4 pixels are channels (`space_to_depth`)
    second    (ky, kx, channel: 512, 64)
    third     (ky, kx, channel: 576, 64)
    hidden    (unit, position * 64 + channel: 3136)           both streams of a dueling head, one after the other

Products are summed in float32. Sizes are those of 84x84 pixels and stacks of four.
"""

import triton
import triton.language as tl


@triton.jit
def _half(x, like, ASM: tl.constexpr):
    """Bytes as float16, four at a time: each below the exponent of 1024, less 1024. (A converter takes 16 a cycle.)"""
    if ASM:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 low, high, offset;
            mov.b32 offset, 0x64006400;
            prmt.b32 low, $2, offset, 0x7170;
            prmt.b32 high, $2, offset, 0x7372;
            sub.f16x2 $0, low, offset;
            sub.f16x2 $1, high, offset;
            }""",
            "=r,=r,r", [x], dtype=tl.float16, is_pure=True, pack=4,
        )  # fmt: skip
    return x.to(like.dtype)


@triton.jit
def first_forward(frames, rows, seen, w, bias, out, n_rows, ASM: tl.constexpr, BM: tl.constexpr):
    """Frames (rows of the ring, bytes) -> (B, 400, 32). What was not seen (before the game began) is black.

    All that a window sees is asked for at once: frames are far away, and their addresses have to be fetched, too.
    """
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    ok = m < n_rows
    b, p = m // 400, m % 400
    j, k, n = tl.arange(0, 8), tl.arange(0, 32), tl.arange(0, 32)  # j: frame, line; k: two blocks of 16 side by side
    which = (b * 4)[:, None] + (j // 2)[None, :]
    row = tl.load(rows + which, mask=ok[:, None], other=0)
    here = (tl.load(seen + which, mask=ok[:, None], other=0) != 0) & ok[:, None]
    at = row * 7056 + ((p // 20 * 21 + p % 20) * 16)[:, None] + (j % 2 * 336)[None, :]  # 21 blocks to the next line
    x = tl.load(frames + at[:, :, None] + k[None, None, :], mask=here[:, :, None], other=0)
    weight = tl.load(w + tl.arange(0, 256)[:, None] * 32 + n[None, :])
    acc = tl.dot(tl.reshape(_half(x, weight, ASM), (BM, 256)), weight)
    y = tl.maximum(acc * (1.0 / 255.0) + tl.load(bias + n)[None, :], 0.0)
    tl.store(out + m[:, None] * 32 + n[None, :], y.to(out.dtype.element_ty), mask=ok[:, None])


@triton.jit
def conv_forward(
    x, w, bias, out, n_rows,
    WIDE: tl.constexpr, HIGH_OUT: tl.constexpr, WIDE_OUT: tl.constexpr, CHANNELS: tl.constexpr, STRIDE: tl.constexpr,
    KY: tl.constexpr, RUNS: tl.constexpr, RUN: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """A convolution to 64 channels. A line of the window is RUNS pieces of RUN numbers that lie side by side."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    ok = m < n_rows
    b, p = m // (HIGH_OUT * WIDE_OUT), m % (HIGH_OUT * WIDE_OUT)
    high: tl.constexpr = (HIGH_OUT - 1) * STRIDE + KY
    at = ((b * high + p // WIDE_OUT * STRIDE) * WIDE + p % WIDE_OUT * STRIDE) * CHANNELS
    k, n = tl.arange(0, RUN), tl.arange(0, 64)
    acc = tl.zeros((BM, 64), tl.float32)
    for piece in range(KY * RUNS):
        from_here = at + (piece // RUNS * WIDE) * CHANNELS + piece % RUNS * RUN
        value = tl.load(x + from_here[:, None] + k[None, :], mask=ok[:, None], other=0.0)
        weight = tl.load(w + (piece * RUN + k)[:, None] * 64 + n[None, :])
        acc = tl.dot(value, weight, acc)
    y = tl.maximum(acc + tl.load(bias + n)[None, :], 0.0)
    tl.store(out + m[:, None] * 64 + n[None, :], y.to(out.dtype.element_ty), mask=ok[:, None])


@triton.jit
def _values(h, w_a, b_a, w_v, b_v, rows, ok, A: tl.constexpr, AP: tl.constexpr, H: tl.constexpr, DUELING: tl.constexpr,
            BB: tl.constexpr):  # fmt: skip
    """Values (BB, AP) of observations, from their hidden layer."""
    WIDTH: tl.constexpr = H * (1 + DUELING)
    k, n = tl.arange(0, H), tl.arange(0, AP)
    at = rows[:, None] * WIDTH + k[None, :]
    hidden = tl.load(h + at, mask=ok[:, None], other=0.0).to(tl.float32)
    q = tl.zeros((BB, AP), tl.float32)
    for a in tl.static_range(A):
        said = tl.sum(hidden * tl.load(w_a + a * H + k)[None, :], 1) + tl.load(b_a + a)
        q = tl.where(n[None, :] == a, said[:, None], q)
    if DUELING:
        other = tl.load(h + at + H, mask=ok[:, None], other=0.0).to(tl.float32)
        value = tl.sum(other * tl.load(w_v + k)[None, :], 1) + tl.load(b_v)
        q = q + value[:, None] - (tl.sum(q, 1) / A)[:, None]
    return q


@triton.jit
def soft_policy(q, real, temperature):
    """temperature * log softmax(q / temperature) over actions (the last axis), and that policy; 0 where not `real`."""
    z = tl.where(real, q / temperature, float("-inf"))
    z = z - tl.max(z, 1)[:, None]
    log = z - tl.log(tl.sum(tl.exp(z), 1))[:, None]
    return tl.where(real, temperature * log, 0.0), tl.where(real, tl.exp(log), 0.0)


@triton.jit
def head_forward(h, w_a, b_a, w_v, b_v, out, n_rows, A: tl.constexpr, AP: tl.constexpr, H: tl.constexpr,
                 DUELING: tl.constexpr, BB: tl.constexpr):  # fmt: skip
    """Hidden layer -> values (B, A), float32."""
    rows = tl.program_id(0) * BB + tl.arange(0, BB)
    ok = rows < n_rows
    q = _values(h, w_a, b_a, w_v, b_v, rows, ok, A, AP, H, DUELING, BB)
    n = tl.arange(0, AP)
    tl.store(out + rows[:, None] * A + n[None, :], q, mask=ok[:, None] & (n[None, :] < A))


@triton.jit
def head_loss(
    h, w_a, b_a, w_v, b_v, q_t, q_tm1, action, reward, discount, weight, g_h, g_out, loss, errors, step, n_rows,
    temperature, scale, floor,
    A: tl.constexpr, AP: tl.constexpr, H: tl.constexpr, DUELING: tl.constexpr, DOUBLE: tl.constexpr,
    MUNCHAUSEN: tl.constexpr, HUBER: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """The last layers, the loss, and back to the hidden layer's inputs. The step is counted for the optimiser that
    follows.

    With double DQN rows n_rows to 2 * n_rows of `h` are the next observations. Only Munchausen targets read `q_tm1`,
    what the target network says about the observations. Column A of `g_out` belongs to the value stream.
    """
    WIDTH: tl.constexpr = H * (1 + DUELING)
    rows = tl.program_id(0) * BB + tl.arange(0, BB)
    ok = rows < n_rows
    k, n = tl.arange(0, H), tl.arange(0, AP)
    real = n[None, :] < A
    q = _values(h, w_a, b_a, w_v, b_v, rows, ok, A, AP, H, DUELING, BB)
    later = tl.load(q_t + rows[:, None] * A + n[None, :], mask=ok[:, None] & real, other=float("-inf"))
    if MUNCHAUSEN:
        later = tl.where(real & ok[:, None], later, 0.0)
        scaled, policy = soft_policy(later, real, temperature)
        next_value = tl.sum(policy * (later - scaled), 1)
    elif DOUBLE:
        chosen = _values(h, w_a, b_a, w_v, b_v, rows + n_rows, ok, A, AP, H, DUELING, BB)
        best = tl.argmax(tl.where(real, chosen, float("-inf")), 1)
        next_value = tl.sum(tl.where((n[None, :] == best[:, None]) & ok[:, None], later, 0.0), 1)
    else:
        next_value = tl.max(tl.where(ok[:, None], later, 0.0), 1)
    took = n[None, :] == tl.load(action + rows, mask=ok, other=0)[:, None]
    y = tl.load(reward + rows, mask=ok, other=0.0) + tl.load(discount + rows, mask=ok, other=0.0) * next_value
    if MUNCHAUSEN:
        before = tl.load(q_tm1 + rows[:, None] * A + n[None, :], mask=ok[:, None] & real, other=0.0)
        sure, _ = soft_policy(before, real, temperature)
        y += scale * tl.minimum(tl.maximum(tl.sum(tl.where(took, sure, 0.0), 1), floor), 0.0)
    td = y - tl.sum(tl.where(took, q, 0.0), 1)
    share = tl.load(weight + rows, mask=ok, other=0.0) / n_rows
    if HUBER:
        size = tl.abs(td)
        each = tl.where(size < 1.0, 0.5 * td * td, size - 0.5)
        g = -tl.minimum(tl.maximum(td, -1.0), 1.0) * share
    else:
        each = td * td
        g = -2.0 * td * share
    tl.atomic_add(loss, tl.sum(each * share, 0))
    tl.store(errors + rows, td, mask=ok)
    if tl.program_id(0) == 0:
        tl.store(step, tl.load(step) + 1.0)
    g_q = tl.where(took, g[:, None], 0.0)
    at = rows[:, None] * WIDTH + k[None, :]
    if DUELING:
        g_q = tl.where(real, g_q - (g / A)[:, None], 0.0)
        other = tl.load(h + at + H, mask=ok[:, None], other=0.0)
        back_v = tl.where(other > 0, g[:, None] * tl.load(w_v + k)[None, :], 0.0)
        tl.store(g_h + at + H, back_v.to(g_h.dtype.element_ty), mask=ok[:, None])
    back = tl.zeros((BB, H), tl.float32)
    if DUELING:
        for a in tl.static_range(A):
            back += tl.sum(tl.where(n[None, :] == a, g_q, 0.0), 1)[:, None] * tl.load(w_a + a * H + k)[None, :]
    else:
        chose = tl.load(action + rows, mask=ok, other=0)
        back = g[:, None] * tl.load(w_a + chose[:, None] * H + k[None, :])
    hidden = tl.load(h + at, mask=ok[:, None], other=0.0)
    tl.store(g_h + at, tl.where(hidden > 0, back, 0.0).to(g_h.dtype.element_ty), mask=ok[:, None])
    tl.store(g_out + rows[:, None] * AP + n[None, :], tl.where(n[None, :] == A, g[:, None], g_q), mask=ok[:, None])


@triton.jit
def look_up(
    t, env, action, reward, terminated, truncated, valid, age, rows, seen, rows_t, seen_t, actions, returns, discounts,
    weights, size, slots, n_envs, batch, gamma, N_STEP: tl.constexpr, DOUBLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Transitions that begin at slots t of environments env, as `Ring.look_up` finds them, without their pictures.

    `rows` and `seen` are in the order of the online network's passes: for each update its observations and, with double
    DQN, the next observations after them; `rows_t` and `seen_t` are the next observations of all updates.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < size
    slot, e = tl.load(t + at, mask=ok, other=0), tl.load(env + at, mask=ok, other=0)
    first = slot * n_envs + e
    alive = tl.load(valid + first, mask=ok, other=0) != 0
    tl.store(weights + at, alive.to(tl.float32), mask=ok)
    tl.store(actions + at, tl.load(action + first, mask=ok, other=0), mask=ok)
    total = tl.zeros((BLOCK,), tl.float32)
    discount = tl.full((BLOCK,), 1.0, tl.float32)
    steps = tl.zeros((BLOCK,), tl.int64)
    power = 1.0
    for k in tl.static_range(N_STEP):
        here = (slot + k) % slots * n_envs + e
        alive = alive & (tl.load(valid + here, mask=ok, other=0) != 0)
        total += tl.where(alive, power * tl.load(reward + here, mask=ok, other=0.0), 0.0)
        steps += alive.to(tl.int64)
        power = power * gamma
        discount = tl.where(alive, power, discount)
        ended = alive & (tl.load(terminated + here, mask=ok, other=0) != 0)
        discount = tl.where(ended, 0.0, discount)
        alive = alive & (ended == 0) & (tl.load(truncated + here, mask=ok, other=0) == 0)
    tl.store(returns + at, total, mask=ok)
    tl.store(discounts + at, discount, mask=ok)
    later = (slot + steps) % slots
    age_tm1 = tl.load(age + first, mask=ok, other=0)
    age_t = tl.load(age + later * n_envs + e, mask=ok, other=0)
    place = at // batch * (batch * (1 + DOUBLE)) + at % batch
    for s in tl.static_range(4):
        back = 3 - s
        tl.store(rows + place * 4 + s, (slot + slots - back) % slots * n_envs + e, mask=ok)
        tl.store(seen + place * 4 + s, back <= age_tm1, mask=ok)
        row_t = (later + slots - back) % slots * n_envs + e
        tl.store(rows_t + at * 4 + s, row_t, mask=ok)
        tl.store(seen_t + at * 4 + s, back <= age_t, mask=ok)
        if DOUBLE:
            tl.store(rows + (place + batch) * 4 + s, row_t, mask=ok)
            tl.store(seen + (place + batch) * 4 + s, back <= age_t, mask=ok)
