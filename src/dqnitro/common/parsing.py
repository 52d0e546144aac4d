"""Values from JSON files that may be damaged (null, NaN, and whatever a crash left half written), and numbers that
people type.
"""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """A mean (or a ratio) with its 95% interval over n values. (`intervals` computes them; this one needs no NumPy.)"""

    mean: float
    low: float
    high: float
    n: int


def number(x: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(x, bool) or not isinstance(x, int | float):
        return None
    try:
        return x if math.isfinite(x) else None
    except OverflowError:  # JSON's integers have no end
        return None


def whole(text: str) -> int | None:
    """A whole number as people write step counts (1000000, 1_000_000, 1e6), or None. Nothing is cut: 1.9 is not 1."""
    try:
        if "." not in text and "e" not in text.lower():
            return int(text)
        value = float(text)
        return int(value) if value == int(value) else None
    except (ValueError, OverflowError):  # OverflowError: int(inf)
        return None


def real(text: str) -> float | None:
    """A number, perhaps infinite, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def interval(x: Any) -> Interval | None:
    """{"mean", "low", "high", "n"}, or None; a mean without bounds counts as a single value, which has no interval."""
    mean = number(mapping(x).get("mean"))
    if mean is None:
        return None
    low, high, n = (number(x.get(k)) for k in ("low", "high", "n"))
    single = n is None or (low is None and high is None)
    low, high = (mean if v is None else v for v in (low, high))
    return Interval(mean, min(low, mean), max(high, mean), 1 if n is None or single else int(n))


def mapping(x: Any) -> dict[str, Any]:
    return x if isinstance(x, dict) else {}


def items(x: Any) -> list[Any]:
    return x if isinstance(x, list) else []


def rows(x: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [r for r in items(x) if isinstance(r, dict)]


def text(x: Any, default: str = "") -> str:
    return x if isinstance(x, str) else default


def shares(x: Any) -> dict[str, float]:
    """Shares of a whole by name; values that are not numbers are left out."""
    return {str(k): max(0.0, v) for k, raw in mapping(x).items() if (v := number(raw)) is not None}


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """A JSON object; empty if the file is missing or damaged."""
    try:
        return mapping(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}
