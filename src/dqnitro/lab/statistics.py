"""Intervals instead of single numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A mean (or a ratio) with its 95% bootstrap interval over n values."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        if self.n < 2:
            return f"{self.mean:.2f} (n={self.n})"
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}] (n={self.n})"


def mean_interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Mean and percentile-bootstrap interval; one value, or equal ones, give an interval of no width."""
    x = np.asarray(values, np.float64)
    if len(x) == 0:
        raise ValueError("no values")
    mean = float(x.mean())
    if len(x) == 1 or np.ptp(x) == 0:
        return Interval(mean, mean, mean, len(x))
    from scipy.stats import bootstrap

    r = bootstrap((x,), np.mean, method="percentile", n_resamples=5000, rng=np.random.default_rng(seed))
    return Interval(mean, float(r.confidence_interval.low), float(r.confidence_interval.high), len(x))


def ratio_interval(of: Sequence[float], to: Sequence[float], seed: int = 0) -> Interval:
    """Geometric mean of of[i]/to[i], pairs taken in the same round, so that drift of the machine cancels."""
    log = mean_interval([float(np.log(a / b)) for a, b in zip(of, to, strict=True)], seed)
    return Interval(float(np.exp(log.mean)), float(np.exp(log.low)), float(np.exp(log.high)), log.n)
