"""What an update of a `VectorNetwork` computes beside its four large products, compiled.

Gradients and parameters lie in flat arrays, in the order of the layers; `layers` gives views of them. All is float32,
in one thread. The reference implementation is `Learner.update` without the rung `few-calls`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dqnitro.atari.jit.code_cache import kept

# Sums may be added in any order, and a product and a sum may be one instruction. Infinities and NaN keep their meaning:
# an update that diverges has to show.
compiled: Any = kept(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
part: Any = kept(nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"}, inline="always")


@part
def layers(flat: np.ndarray, inputs: int, width: int) -> tuple[np.ndarray, ...]:
    """Weights and biases of the three layers, as views of an array that has them one after the other."""
    a = width * inputs
    b = a + width
    c = b + width * width
    d = c + width
    actions = (len(flat) - d) // (width + 1)
    e = d + actions * width
    return (
        flat[:a].reshape(width, inputs), flat[a:b], flat[b:c].reshape(width, width), flat[c:d],
        flat[d:e].reshape(actions, width), flat[e:],
    )  # fmt: skip


@compiled
def first_layer(x: np.ndarray, flat: np.ndarray, out: np.ndarray) -> None:
    """The first hidden layer, row by row of the transposed weights: observations are short, layers are wide."""
    inputs, width = x.shape[1], out.shape[1]
    w, b = layers(flat, inputs, width)[:2]
    w_t = np.empty((inputs, width), np.float32)
    for j in range(width):
        for k in range(inputs):
            w_t[k, j] = w[j, k]
    for i in range(len(x)):
        row = out[i]
        for j in range(width):
            row[j] = b[j]
        for k in range(inputs):
            value, weights = x[i, k], w_t[k]
            for j in range(width):
                row[j] += value * weights[j]
        for j in range(width):
            row[j] = max(row[j], np.float32(0.0))


@compiled
def last_layers(z: np.ndarray, flat: np.ndarray, inputs: int, q: np.ndarray) -> None:
    """Bias and ReLU of the second hidden layer, in place, and the values of the actions."""
    width = z.shape[1]
    _, _, _, b2, w3, b3 = layers(flat, inputs, width)
    for i in range(len(z)):
        row = z[i]
        for j in range(width):
            row[j] = max(row[j] + b2[j], np.float32(0.0))
        for a in range(len(b3)):
            s, weights = np.float32(0.0), w3[a]
            for j in range(width):
                s += row[j] * weights[j]
            q[i, a] = s + b3[a]


@compiled
def errors(
    action: np.ndarray,
    reward: np.ndarray,
    discount: np.ndarray,
    weight: np.ndarray,
    q_tm1: np.ndarray,
    q_t: np.ndarray,
    selector: np.ndarray,
    huber: bool,
    td: np.ndarray,
    slope: np.ndarray,
) -> float:
    """The mean loss; writes each sample's error, and the derivative of the mean loss by its value."""
    one, half = np.float32(1.0), np.float32(0.5)
    total, share = np.float32(0.0), one / np.float32(len(action))
    for i in range(len(action)):
        best = 0
        for a in range(1, selector.shape[1]):
            if selector[i, a] > selector[i, best]:
                best = a
        e = reward[i] + discount[i] * q_t[i, best] - q_tm1[i, action[i]]
        td[i] = e
        size = abs(e)
        if not huber:
            each, d = e * e, e + e
        elif size <= one:
            each, d = half * e * e, e
        else:
            each, d = size - half, one if e > np.float32(0.0) else -one
        total += each * weight[i]
        slope[i] = -d * weight[i] * share
    return float(total * share)


@compiled
def last_gradients(
    action: np.ndarray, slope: np.ndarray, h2: np.ndarray, flat: np.ndarray, inputs: int, gradient: np.ndarray,
    d2: np.ndarray,
) -> None:  # fmt: skip
    """Of the output layer and of the second layer's bias; `d2`: of what goes into its ReLU."""
    width, zero = h2.shape[1], np.float32(0.0)
    w3 = layers(flat, inputs, width)[4]
    _, _, _, gb2, g3, gb3 = layers(gradient, inputs, width)
    g3[:], gb3[:], gb2[:] = zero, zero, zero
    for i in range(len(action)):
        s, row, weights, seen, up = slope[i], g3[action[i]], w3[action[i]], h2[i], d2[i]
        gb3[action[i]] += s
        for j in range(width):
            row[j] += s * seen[j]
        for j in range(width):
            up[j] = s * weights[j] if seen[j] > zero else zero
        for j in range(width):
            gb2[j] += up[j]


@compiled
def first_gradients(x: np.ndarray, h1: np.ndarray, d1: np.ndarray, gradient: np.ndarray) -> None:
    """Of the first layer, from those of its output in `d1`."""
    inputs, width, zero = x.shape[1], h1.shape[1], np.float32(0.0)
    g1, gb1 = layers(gradient, inputs, width)[:2]
    gb1[:] = zero
    g1_t = np.zeros((inputs, width), np.float32)
    for i in range(len(x)):
        seen, up = h1[i], d1[i]
        for j in range(width):
            up[j] = up[j] if seen[j] > zero else zero
        for j in range(width):
            gb1[j] += up[j]
        for k in range(inputs):
            value, row = x[i, k], g1_t[k]
            for j in range(width):
                row[j] += value * up[j]
    for j in range(width):
        for k in range(inputs):
            g1[j, k] = g1_t[k, j]


@compiled
def clip_scale(gradient: np.ndarray, largest_norm: float) -> float:
    """What to multiply a gradient by so that its norm is at most this (0: any), as torch's `clip_grad_norm_` does."""
    if largest_norm <= 0.0:
        return 1.0
    squares = np.float32(0.0)
    for i in range(len(gradient)):
        squares += gradient[i] * gradient[i]
    return min(1.0, largest_norm / (math.sqrt(squares) + 1e-6))
