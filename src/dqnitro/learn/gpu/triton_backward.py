"""The way back through the Nature network on a GPU, and Adam, as Triton kernels. Layouts are those of `triton_forward`.

Gradients of activations are in their precision. Of the convolutions' weights every program leaves its share, in
float32, and the optimiser adds them up: as many atomic additions would take longer than the arithmetic. To the few
others programs add atomically, and not all to the same copy (`apart` numbers lie between two copies), or they would
wait for each other.
"""

import triton
import triton.language as tl


@triton.jit
def hidden_back(
    g_h,
    w,
    act,
    out,
    g_bias,
    apart,
    n_rows,
    WIDTH: tl.constexpr,
    COPIES: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """Gradients of the hidden layer's inputs, through the ReLU below it: (B, WIDTH) x (WIDTH, 3136)."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    ok = m < n_rows
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, WIDTH, BK):
        g = tl.load(g_h + m[:, None] * WIDTH + (start + k)[None, :], mask=ok[:, None], other=0.0)
        weight = tl.load(w + (start + k)[:, None] * 3136 + n[None, :])
        acc = tl.dot(g, weight, acc)
    at = m[:, None] * 3136 + n[None, :]
    acc = tl.where(tl.load(act + at, mask=ok[:, None], other=0.0) > 0, acc, 0.0)
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=ok[:, None])
    copy = (tl.program_id(0) + tl.program_id(1)) % COPIES
    tl.atomic_add(g_bias + copy * apart + n % 64, tl.sum(acc, 0))


@triton.jit
def third_back(g, w, act, out, g_bias, apart, n_rows, COPIES: tl.constexpr, BM: tl.constexpr):
    """Gradients (B, 49, 64) of the third convolution -> (B, 81, 64) of its inputs, through the ReLU below it."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    ok = m < n_rows
    b, p = m // 81, m % 81
    y, x = p // 9, p % 9
    k = tl.arange(0, 64)
    acc = tl.zeros((BM, 64), tl.float32)
    for tap in range(9):
        ky, kx = tap // 3, tap % 3
        there = ok & (y >= ky) & (y < ky + 7) & (x >= kx) & (x < kx + 7)
        at = (b * 49 + (y - ky) * 7 + x - kx) * 64
        value = tl.load(g + at[:, None] + k[None, :], mask=there[:, None], other=0.0)
        weight = tl.load(w + (tap * 64 + k)[:, None] * 64 + k[None, :])  # (input, output)
        acc = tl.dot(value, tl.trans(weight), acc)
    at = m[:, None] * 64 + k[None, :]
    acc = tl.where(tl.load(act + at, mask=ok[:, None], other=0.0) > 0, acc, 0.0)
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=ok[:, None])
    tl.atomic_add(g_bias + tl.program_id(0) % COPIES * apart + k, tl.sum(acc, 0))


@triton.jit
def second_back(g, w, act, out, g_bias, apart, n_rows, COPIES: tl.constexpr, BM: tl.constexpr):
    """Gradients (B, 81, 64) of the second convolution -> (B, 400, 32) of its inputs, through the ReLU below it.

    Its windows move by two, so squares of 2x2 inputs see the same four outputs: a row of the product is such a square.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    ok = m < n_rows
    b, p = m // 100, m % 100
    y, x = p // 10, p % 10
    k, n = tl.arange(0, 64), tl.arange(0, 128)  # n: (line, column) in the square, channel
    line, column, channel = n // 64, n // 32 % 2, n % 32
    acc = tl.zeros((BM, 128), tl.float32)
    for corner in range(4):
        j, i = corner // 2, corner % 2
        there = ok & (y >= j) & (y < 9 + j) & (x >= i) & (x < 9 + i)
        at = (b * 81 + (y - j) * 9 + x - i) * 64
        value = tl.load(g + at[:, None] + k[None, :], mask=there[:, None], other=0.0)
        tap = ((2 * j + line) * 4 + 2 * i + column) * 32 + channel
        weight = tl.load(w + tap[:, None] * 64 + k[None, :])  # (input, output)
        acc = tl.dot(value, tl.trans(weight), acc)
    at = ((b * 20 + 2 * y) * 20 + 2 * x)[:, None] * 32 + ((line * 20 + column) * 32 + channel)[None, :]
    acc = tl.where(tl.load(act + at, mask=ok[:, None], other=0.0) > 0, acc, 0.0)
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=ok[:, None])
    tl.atomic_add(g_bias + tl.program_id(0) % COPIES * apart + channel, tl.sum(acc, 0))


@triton.jit
def third_weights(x, g, shares, n_rows, BLOCKS: tl.constexpr, BM: tl.constexpr):
    """Gradients of the third convolution's weights, this program's share of the samples, one line of the window."""
    ky = tl.program_id(1)
    k = tl.arange(0, 64)
    acc0 = tl.zeros((64, 64), tl.float32)
    acc1 = tl.zeros((64, 64), tl.float32)
    acc2 = tl.zeros((64, 64), tl.float32)
    for i in range(BLOCKS):
        m = (tl.program_id(0) * BLOCKS + i) * BM + tl.arange(0, BM)
        ok = (m < n_rows)[:, None]
        b, p = m // 49, m % 49
        at = ((b * 81 + (p // 7 + ky) * 9 + p % 7) * 64)[:, None] + k[None, :]
        grad = tl.load(g + m[:, None] * 64 + k[None, :], mask=ok, other=0.0)
        acc0 = tl.dot(tl.trans(tl.load(x + at, mask=ok, other=0.0)), grad, acc0)
        acc1 = tl.dot(tl.trans(tl.load(x + at + 64, mask=ok, other=0.0)), grad, acc1)
        acc2 = tl.dot(tl.trans(tl.load(x + at + 128, mask=ok, other=0.0)), grad, acc2)
    to = shares + tl.program_id(0) * 36864 + (ky * 192 + k)[:, None] * 64 + k[None, :]
    tl.store(to, acc0)
    tl.store(to + 64 * 64, acc1)
    tl.store(to + 128 * 64, acc2)


@triton.jit
def second_weights(x, g, shares, n_rows, BLOCKS: tl.constexpr, BM: tl.constexpr):
    """The same for the second convolution: squares of 2x2 inputs beside two of the four outputs that see them."""
    j = tl.program_id(1)
    k = tl.arange(0, 128)  # (line, column) in the square, channel
    line, column, channel = k // 64, k // 32 % 2, k % 32
    n = tl.arange(0, 128)  # (i, output)
    i, o = n // 64, n % 64
    acc = tl.zeros((128, 128), tl.float32)
    for block in range(BLOCKS):
        m = (tl.program_id(0) * BLOCKS + block) * BM + tl.arange(0, BM)
        ok = m < n_rows
        b, p = m // 100, m % 100
        y, x_ = p // 10, p % 10
        at = ((b * 20 + 2 * y) * 20 + 2 * x_)[:, None] * 32 + ((line * 20 + column) * 32 + channel)[None, :]
        value = tl.load(x + at, mask=ok[:, None], other=0.0)
        gy, gx = y - j, x_[:, None] - i[None, :]
        there = (ok & (gy >= 0) & (gy < 9))[:, None] & (gx >= 0) & (gx < 9)
        grad = tl.load(g + ((b * 81 + gy * 9)[:, None] + gx) * 64 + o[None, :], mask=there, other=0.0)
        acc = tl.dot(tl.trans(value), grad, acc)
    tap = ((2 * j + line) * 4 + column) * 32 + channel
    tl.store(shares + tl.program_id(0) * 32768 + (tap[:, None] + (i * 64)[None, :]) * 64 + o[None, :], acc)


@triton.jit
def _numbers(x, like, ASM: tl.constexpr):
    """Bytes as bfloat16, four at a time: each below the exponent of 2^23, less 2^23, and the upper halves of two."""
    if ASM:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b, c, d; .reg .f32 p, q, r, s;
            prmt.b32 a, $2, 0x4B000000, 0x7440;
            prmt.b32 b, $2, 0x4B000000, 0x7441;
            prmt.b32 c, $2, 0x4B000000, 0x7442;
            prmt.b32 d, $2, 0x4B000000, 0x7443;
            mov.b32 p, a; mov.b32 q, b; mov.b32 r, c; mov.b32 s, d;
            sub.rn.f32 p, p, 0f4B000000; sub.rn.f32 q, q, 0f4B000000;
            sub.rn.f32 r, r, 0f4B000000; sub.rn.f32 s, s, 0f4B000000;
            mov.b32 a, p; mov.b32 b, q; mov.b32 c, r; mov.b32 d, s;
            prmt.b32 $0, a, b, 0x7632;
            prmt.b32 $1, c, d, 0x7632;
            }""",
            "=r,=r,r", [x], dtype=tl.bfloat16, is_pure=True, pack=4,
        )  # fmt: skip
    return x.to(like.dtype)


@triton.jit
def first_weights(frames, rows, seen, g, shares, n_rows, ASM: tl.constexpr, BLOCKS: tl.constexpr, BM: tl.constexpr):
    """The same for the first convolution: blocks of 4x4 pixels beside the four outputs that see them."""
    n, s, c = (
        tl.arange(0, 128),
        tl.arange(0, 4),
        tl.arange(0, 16),
    )  # n: (ky, kx), output; s: frame; c: pixel of the block
    ky, kx, o = n // 64, n // 32 % 2, n % 32
    acc = tl.zeros((128, 64), tl.float32)
    for i in range(BLOCKS):
        m = (tl.program_id(0) * BLOCKS + i) * BM + tl.arange(0, BM)
        ok = m < n_rows
        b, p = m // 441, m % 441
        which = (b * 4)[:, None] + s[None, :]
        row = tl.load(rows + which, mask=ok[:, None], other=0)
        here = (tl.load(seen + which, mask=ok[:, None], other=0) != 0) & ok[:, None]
        at = row * 7056 + (p * 16)[:, None]
        value = tl.load(frames + at[:, :, None] + c[None, None, :], mask=here[:, :, None], other=0)
        gy, gx = (p // 21)[:, None] - ky[None, :], (p % 21)[:, None] - kx[None, :]
        there = ok[:, None] & (gy >= 0) & (gy < 20) & (gx >= 0) & (gx < 20)
        grad = tl.load(g + ((b * 400)[:, None] + gy * 20 + gx) * 32 + o[None, :], mask=there, other=0.0)
        acc = tl.dot(tl.trans(grad), tl.reshape(_numbers(value, grad, ASM), (BM, 64)), acc)
    k = tl.arange(0, 64)
    to = (n // 32 * 16)[:, None] + (k // 16 * 64 + k % 16)[None, :]
    tl.store(shares + tl.program_id(0) * 8192 + to * 32 + o[:, None], acc * (1.0 / 255.0))


@triton.jit
def _adam(
    p, m, v, at, ok, g, step, lr, lr_end, per_update, eps,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG1: tl.constexpr, LOG2: tl.constexpr,
):  # fmt: skip
    """Adam on the parameters at these places; the new ones. LOG1, LOG2: logarithms of the betas to base 2. The rate is
    that of `rate.Rate`.
    """
    t = tl.load(step)
    rate = lr + (lr_end - lr) * tl.minimum((t - 1.0) * per_update, 1.0)
    rate = rate / (1.0 - tl.exp2(t * LOG1))
    root = tl.sqrt(1.0 - tl.exp2(t * LOG2))
    first = BETA1 * tl.load(m + at, mask=ok, other=0.0) + (1.0 - BETA1) * g
    second = BETA2 * tl.load(v + at, mask=ok, other=0.0) + (1.0 - BETA2) * g * g
    new = tl.load(p + at, mask=ok, other=0.0) - rate * first / (tl.sqrt(second) / root + eps)
    tl.store(p + at, new, mask=ok)
    tl.store(m + at, first, mask=ok)
    tl.store(v + at, second, mask=ok)
    return new


@triton.jit
def adam_hidden(
    p, m, v, g, packed, step, lr, lr_end, per_update, eps,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG1: tl.constexpr, LOG2: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Adam on the hidden layer, which also packs its weights again: some inputs of one unit. torch orders inputs by
    channel, we by position.
    """
    c, s = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS), tl.arange(0, 64)
    ours = tl.program_id(0) * 3136 + s[:, None] * 64 + c[None, :]  # (position, channel)
    theirs = tl.program_id(0) * 3136 + c[:, None] * 49 + s[None, :]  # (channel, position)
    grad = tl.trans(tl.load(g + ours, mask=s[:, None] < 49, other=0.0)).to(tl.float32)
    new = _adam(p, m, v, theirs, s[None, :] < 49, grad, step, lr, lr_end, per_update, eps, BETA1, BETA2, LOG1, LOG2)
    tl.store(packed + ours, tl.trans(new.to(packed.dtype.element_ty)), mask=s[:, None] < 49)


@triton.jit
def adam_small(
    p, m, v, master, shares, packed, n, step, lr, lr_end, per_update, eps,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG1: tl.constexpr, LOG2: tl.constexpr,
    SHARES: tl.constexpr, ZERO: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """Adam on n packed weights, whose masters are found in a table. Gradients are the sums of SHARES shares, of which
    AT_ONCE are loaded together; they are zeroed for the next update where programs add to them.
    """
    i, s = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, AT_ONCE)
    ok = i < n
    total = tl.zeros((AT_ONCE, BLOCK), tl.float32)
    for start in range(0, SHARES, AT_ONCE):
        some = (start + s < SHARES)[:, None] & ok[None, :]
        here = shares + (start + s)[:, None] * n + i[None, :]
        total += tl.load(here, mask=some, other=0.0)
        if ZERO:
            tl.store(here, tl.zeros((AT_ONCE, BLOCK), tl.float32), mask=some)
    at = tl.load(master + i, mask=ok, other=0)
    new = _adam(p, m, v, at, ok, tl.sum(total, 0), step, lr, lr_end, per_update, eps, BETA1, BETA2, LOG1, LOG2)
    tl.store(packed + i, new.to(packed.dtype.element_ty), mask=ok)


@triton.jit
def head_weights(
    h, g_h, g_out, g_wa, g_ba, g_wv, g_bv, g_bias, n_rows,
    A: tl.constexpr, AP: tl.constexpr, H: tl.constexpr, DUELING: tl.constexpr, BLOCKS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Gradients of the last layers' weights, and of the biases there and in the hidden layer: 64 units, a share of the
    samples.
    """
    WIDTH: tl.constexpr = H * (1 + DUELING)
    unit, n = tl.program_id(0) * 64 + tl.arange(0, 64), tl.arange(0, AP)
    acc = tl.zeros((AP, 64), tl.float32)
    bias, outs = tl.zeros((64,), tl.float32), tl.zeros((AP,), tl.float32)
    for i in range(BLOCKS):
        m = (tl.program_id(1) * BLOCKS + i) * BM + tl.arange(0, BM)
        ok = m < n_rows
        g = tl.load(g_out + m[:, None] * AP + n[None, :], mask=ok[:, None], other=0.0)
        hidden = tl.load(h + m[:, None] * WIDTH + unit[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        acc = tl.dot(tl.trans(g), hidden, acc)
        bias += tl.sum(tl.load(g_h + m[:, None] * WIDTH + unit[None, :], mask=ok[:, None], other=0.0).to(tl.float32), 0)
        outs += tl.sum(g, 0)
    tl.atomic_add(g_bias + unit, bias)
    if tl.program_id(0) * 64 < H:
        tl.atomic_add(g_wa + n[:, None] * H + unit[None, :], acc, mask=n[:, None] < A)
    else:
        tl.atomic_add(g_wv + (n[:, None] - A) * H + (unit - H)[None, :], acc, mask=n[:, None] == A)
    if tl.program_id(0) == 0:
        tl.atomic_add(g_ba + n, outs, mask=n < A)
        if DUELING:
            tl.atomic_add(g_bv + n - A, outs, mask=n == A)
