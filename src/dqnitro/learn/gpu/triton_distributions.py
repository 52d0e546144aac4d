"""The last layers of a distributional head on a GPU, as Triton kernels: 51 atoms (C51) or quantiles (QR-DQN) for each
action.

Their product is wide, (actions + 1) x atoms columns, so it is a kernel of its own in each direction. In between, one
kernel makes the loss of a sample and the gradients of its outputs. Outputs are (B, actions and value stream, P) in
float32, where P is a power of two: columns past the last atom are 0.
"""

import triton
import triton.language as tl

from dqnitro.learn.gpu.triton_forward import soft_policy


@triton.jit
def wide_forward(
    h, w_a, b_a, w_v, b_v, out, n_rows,
    A: tl.constexpr, N: tl.constexpr, P: tl.constexpr, H: tl.constexpr, DUELING: tl.constexpr, BM: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """Hidden layer -> outputs of one action, or of the value stream. Weights are the network's own, in float32."""
    WIDTH: tl.constexpr = H * (1 + DUELING)
    m, a = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1)
    ok = m < n_rows
    n, k = tl.arange(0, P), tl.arange(0, BK)
    real = n < N
    if a < A:
        weight, bias, start = w_a + a * N * H, b_a + a * N, 0
    else:
        weight, bias, start = w_v, b_v, H
    acc = tl.zeros((BM, P), tl.float32)
    for piece in range(0, H, BK):
        hidden = tl.load(h + m[:, None] * WIDTH + (start + piece + k)[None, :], mask=ok[:, None], other=0.0)
        w = tl.load(weight + n[None, :] * H + (piece + k)[:, None], mask=real[None, :], other=0.0)
        acc = tl.dot(hidden.to(tl.float32), w, acc)
    acc += tl.load(bias + n, mask=real, other=0.0)[None, :]
    tl.store(out + (m[:, None] * (A + DUELING) + a) * P + n[None, :], acc, mask=ok[:, None])


@triton.jit
def _combined(out, row, A: tl.constexpr, AP: tl.constexpr, N: tl.constexpr, P: tl.constexpr, DUELING: tl.constexpr):
    """The outputs (AP, P) of an observation, both streams combined; 0 where there is no action or no atom."""
    a, n = tl.arange(0, AP), tl.arange(0, P)
    real = (a < A)[:, None] & (n < N)[None, :]
    here = out + row * ((A + DUELING) * P)
    x = tl.load(here + a[:, None] * P + n[None, :], mask=real, other=0.0)
    if DUELING:
        x = tl.where(real, x + (tl.load(here + A * P + n) - tl.sum(x, 0) / A)[None, :], 0.0)
    return x


@triton.jit
def _values(x, low, spacing, A: tl.constexpr, AP: tl.constexpr, N: tl.constexpr, P: tl.constexpr,
            CATEGORICAL: tl.constexpr):  # fmt: skip
    """Values (AP,) out of combined outputs; -inf where there is no action."""
    a, n = tl.arange(0, AP), tl.arange(0, P)
    if CATEGORICAL:
        x = tl.where((n < N)[None, :], x, float("-inf"))
        share = tl.exp(x - tl.max(x, 1)[:, None])
        q = tl.sum(share * (low + n * spacing)[None, :], 1) / tl.sum(share, 1)
    else:
        q = tl.sum(x, 1) / N
    return tl.where(a < A, q, float("-inf"))


@triton.jit
def _row(x, which, AP: tl.constexpr):
    """One row of a tile."""
    return tl.sum(tl.where((tl.arange(0, AP) == which)[:, None], x, 0.0), 0)


@triton.jit
def distribution_values(
    out, q, low, spacing, A: tl.constexpr, AP: tl.constexpr, N: tl.constexpr, P: tl.constexpr, DUELING: tl.constexpr,
    CATEGORICAL: tl.constexpr,
):  # fmt: skip
    """Outputs -> values (B, A): one observation."""
    row, a = tl.program_id(0), tl.arange(0, AP)
    x = _combined(out, row, A, AP, N, P, DUELING)
    tl.store(q + row * A + a, _values(x, low, spacing, A, AP, N, P, CATEGORICAL), mask=a < A)


@triton.jit
def _quantile_loss(theta, y, N: tl.constexpr, P: tl.constexpr):
    """The quantile Huber loss, and its gradient by each quantile."""
    n = tl.arange(0, P)
    error = y[None, :] - theta[:, None]  # (quantiles, samples of the target)
    size = tl.abs(error)
    tau = ((n + 0.5) / N)[:, None]
    share = tl.where(error < 0, 1.0 - tau, tau) / N
    share = tl.where((n < N)[:, None] & (n < N)[None, :], share, 0.0)
    each = share * tl.where(size < 1.0, 0.5 * error * error, size - 0.5)
    return tl.sum(tl.sum(each, 1), 0), -tl.sum(share * tl.minimum(tl.maximum(error, -1.0), 1.0), 1)


@triton.jit
def _cross_entropy(logits, later, reward, discount, low, high, spacing, N: tl.constexpr, P: tl.constexpr):
    """Between the moved distribution of `later`, put back on the atoms, and that of `logits`; its gradient."""
    n = tl.arange(0, P)
    real = n < N
    later = tl.where(real, later, float("-inf"))
    p_t = tl.exp(later - tl.max(later, 0))
    p_t = p_t / tl.sum(p_t, 0)
    atoms = low + n * spacing
    moved = tl.minimum(tl.maximum(reward + discount * atoms, low), high)
    near = 1.0 - tl.abs(moved[None, :] - atoms[:, None]) / spacing  # (atoms, moved atoms)
    target = tl.where(real, tl.sum(tl.maximum(near, 0.0) * p_t[None, :], 1), 0.0)
    logits = tl.where(real, logits, float("-inf"))
    shifted = logits - tl.max(logits, 0)
    p = tl.exp(shifted)
    total = tl.sum(p, 0)
    log_p = tl.where(real, shifted - tl.log(total), 0.0)
    return -tl.sum(target * log_p, 0), p / total * tl.sum(target, 0) - target


@triton.jit
def distribution_loss(
    out, out_t, out_tm1, action, reward, discount, weight, g_out, loss, errors, step, n_rows,
    low, high, spacing, temperature, scale, floor,
    A: tl.constexpr, AP: tl.constexpr, N: tl.constexpr, P: tl.constexpr, DUELING: tl.constexpr,
    CATEGORICAL: tl.constexpr, DOUBLE: tl.constexpr, MUNCHAUSEN: tl.constexpr,
):  # fmt: skip
    """The loss of one sample, and the gradients of its outputs. The step is counted for the optimiser that follows.

    `out` is what the online network says, with double DQN also about the next observations (rows from n_rows on);
    `out_t` is the target network's about those, `out_tm1` about the observations, which only Munchausen targets read.
    """
    row, a, n = tl.program_id(0), tl.arange(0, AP), tl.arange(0, P)
    took = tl.load(action + row)
    r, d = tl.load(reward + row), tl.load(discount + row)
    x_t = _combined(out_t, row, A, AP, N, P, DUELING)
    q_t = _values(x_t, low, spacing, A, AP, N, P, CATEGORICAL)
    if MUNCHAUSEN:
        x_tm1 = _combined(out_tm1, row, A, AP, N, P, DUELING)
        q_tm1 = _values(x_tm1, low, spacing, A, AP, N, P, CATEGORICAL)
        sure, _ = soft_policy(q_tm1[None, :], (a < A)[None, :], temperature)
        bonus = tl.sum(tl.sum(tl.where((a == took)[None, :], sure, 0.0), 1), 0)
        scaled, policy = soft_policy(q_t[None, :], (a < A)[None, :], temperature)
        scaled, policy = tl.reshape(scaled, (AP,)), tl.reshape(policy, (AP,))
        r += scale * tl.minimum(tl.maximum(bonus, floor), 0.0)
        later = tl.sum(policy[:, None] * (x_t - scaled[:, None]), 0)
    else:
        if DOUBLE:
            q_t = _values(_combined(out, row + n_rows, A, AP, N, P, DUELING), low, spacing, A, AP, N, P, CATEGORICAL)
        later = _row(x_t, tl.argmax(q_t, 0), AP)
    mine = _row(_combined(out, row, A, AP, N, P, DUELING), took, AP)
    if CATEGORICAL:
        each, g = _cross_entropy(mine, later, r, d, low, high, spacing, N, P)
    else:
        each, g = _quantile_loss(mine, r + d * later, N, P)
    share = tl.load(weight + row) / n_rows
    tl.atomic_add(loss, each * share)
    tl.store(errors + row, each)
    if row == 0:
        tl.store(step, tl.load(step) + 1.0)
    g = g * share
    back = tl.where((a == took)[:, None], g[None, :], 0.0)
    if DUELING:
        back = tl.where((a == A)[:, None], g[None, :], back - (g / A)[None, :])
    at = (row * (A + DUELING) + a)[:, None] * P + n[None, :]
    tl.store(g_out + at, back.to(g_out.dtype.element_ty), mask=(a < A + DUELING)[:, None])


@triton.jit
def wide_back(
    g_out, w, h, g_h, g_bias, apart, n_rows,
    A: tl.constexpr, N: tl.constexpr, P: tl.constexpr, H: tl.constexpr, DUELING: tl.constexpr, COPIES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Gradients of outputs -> of the hidden layer, through its ReLU, and of its biases. `w`: packed weights of the
    advantages and, after them, of the value stream.
    """
    WIDTH: tl.constexpr = H * (1 + DUELING)
    m, first = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN
    ok = m < n_rows
    u, n = tl.arange(0, BN), tl.arange(0, P)
    g_at = g_out + m[:, None] * ((A + DUELING) * P) + n[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    if first < H:
        for a in range(A):
            g = tl.load(g_at + a * P, mask=ok[:, None], other=0.0)
            at = w + (a * N + n)[:, None] * H + (first + u)[None, :]
            acc = tl.dot(g, tl.load(at, mask=(n < N)[:, None], other=0.0), acc)
    else:
        g = tl.load(g_at + A * P, mask=ok[:, None], other=0.0)
        at = w + (A * N + n)[:, None] * H + (first - H + u)[None, :]
        acc = tl.dot(g, tl.load(at, mask=(n < N)[:, None], other=0.0), acc)
    at = m[:, None] * WIDTH + (first + u)[None, :]
    acc = tl.where(tl.load(h + at, mask=ok[:, None], other=0.0) > 0, acc, 0.0)
    tl.store(g_h + at, acc.to(g_h.dtype.element_ty), mask=ok[:, None])
    tl.atomic_add(g_bias + tl.program_id(0) % COPIES * apart + first + u, tl.sum(acc, 0))


@triton.jit
def wide_weights(
    h, g_out, shares, apart, n_rows,
    A: tl.constexpr, N: tl.constexpr, P: tl.constexpr, H: tl.constexpr, DUELING: tl.constexpr, BLOCKS: tl.constexpr,
    BM: tl.constexpr,
):  # fmt: skip
    """Gradients of the last layers' weights and biases: one action or the value stream, 64 units, a share of the
    samples. They lie in the order of the parameters: weights and biases of the advantages, then of the value stream.
    """
    WIDTH: tl.constexpr = H * (1 + DUELING)
    a, first = tl.program_id(1), tl.program_id(2) * 64
    u, n = tl.arange(0, 64), tl.arange(0, P)
    start = tl.where(a < A, 0, H)
    acc, sums = tl.zeros((P, 64), tl.float32), tl.zeros((P,), tl.float32)
    for i in range(BLOCKS):
        m = (tl.program_id(0) * BLOCKS + i) * BM + tl.arange(0, BM)
        ok = (m < n_rows)[:, None]
        g = tl.load(g_out + (m[:, None] * (A + DUELING) + a) * P + n[None, :], mask=ok, other=0.0)
        hidden = tl.load(h + m[:, None] * WIDTH + (start + first + u)[None, :], mask=ok, other=0.0)
        acc = tl.dot(tl.trans(g), hidden, acc)
        sums += tl.sum(g.to(tl.float32), 0)
    mine = shares + tl.program_id(0) * apart
    tl.store(mine + (a * N + n)[:, None] * H + (first + u)[None, :], acc, mask=(n < N)[:, None])
    if first == 0:
        tl.store(mine + (A + DUELING) * N * H + a * N + n, sums, mask=n < N)
