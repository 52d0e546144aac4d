"""Contenders take turns in rounds, so that a machine that slows down slows all of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dqnitro.common.intervals import ratio_interval


def interleave(
    contenders: Mapping[str, Callable[[float], float]], rounds: int, seconds: float
) -> Iterator[tuple[int, str, float]]:
    """Yield (round, name, rate). A contender works for about `seconds` and returns its own rate;
    the order alternates.
    """
    names = list(contenders)
    for r in range(rounds):
        for name in names if r % 2 == 0 else reversed(names):
            yield r, name, contenders[name](seconds)


@contextlib.contextmanager
def threads_put_back(now: int = 0) -> Iterator[None]:
    """Restore the number of torch's threads at the end, whatever happens to it in between (`now` sets it)."""
    import torch

    usual = torch.get_num_threads()
    if now:
        torch.set_num_threads(now)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def timed_rate(step: Callable[[], float], seconds: float) -> float:
    """Amount per second of a step that returns the amount it did."""
    amount, start = 0.0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        amount += step()
    return amount / spent


def compare(rates: Mapping[str, list[float]], to: str) -> dict[str, dict[str, Any]]:
    """Each contender's mean rate and its ratio to `to`, with the 95% interval over rounds."""
    out = {}
    for name, values in rates.items():
        ratio = ratio_interval(values, rates[to])
        out[name] = {
            "rate": sum(values) / len(values),
            "ratio": ratio.mean,
            "low": ratio.low,
            "high": ratio.high,
            "rounds": len(values),
        }
    return out
