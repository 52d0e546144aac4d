"""Cells of tables that many sections share: a number, a number with its interval, the value of a setting."""

from __future__ import annotations

from typing import Any

from dqnitro.report.formatting import Say, bounds, rate
from dqnitro.report.html import Cell, Html, esc
from dqnitro.report.parsing import Interval, number


def interval_cell(value: Interval | None, say: Say = rate) -> Cell:
    if value is None:
        return Cell("–")
    small = f"<small>{esc(bounds(value, say))}</small>" if value.n > 1 else ""
    return Cell(Html(f"{esc(say(value.mean))}{small}"), f"{value.mean:.6g}")


def number_cell(value: float | None, say: Say = rate) -> Cell:
    return Cell("–") if value is None else Cell(say(value), f"{value:.6g}")


def shown(value: Any) -> str:
    """A value of a setting, or of a benchmark's own column."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if (v := number(value)) is not None:
        return f"{v:,}" if isinstance(v, int) else f"{v:,.0f}" if abs(v) >= 1_000 else f"{v:.3g}"
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    return "–" if value is None else str(value)
