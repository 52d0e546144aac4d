"""Cells of tables that many sections share: a number, a number with its interval, the value of a setting."""

from __future__ import annotations

from typing import Any

from dqnitro.common.parsing import Interval, number
from dqnitro.report import html as h
from dqnitro.report.formatting import Say, bounds, rate


def interval_cell(value: Interval | None, say: Say = rate) -> h.Cell:
    if value is None:
        return h.Cell("–")
    told = bounds(value, say)
    small = f"<small>{h.esc(told)}</small>" if told else ""
    return h.Cell(h.Html(f"{h.esc(say(value.mean))}{small}"), f"{value.mean:.6g}")


def number_cell(value: float | None, say: Say = rate) -> h.Cell:
    return h.Cell("–") if value is None else h.Cell(say(value), f"{value:.6g}")


def shown(value: Any) -> str:
    """A value of a setting, or of a benchmark's own column."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if (v := number(value)) is not None:
        return f"{v:,}" if isinstance(v, int) else f"{v:,.0f}" if abs(v) >= 1_000 else f"{v:.3g}"
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    return "–" if value is None else str(value)
