"""Numbers as the terminal shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dqnitro.report.formatting import plural


def duration(seconds: float) -> str:
    """12 s, 3:05 min, 2:07:30 h."""
    s = round(seconds)
    if s < 60:
        return f"{s} s"
    if s < 3600:
        return f"{s // 60}:{s % 60:02d} min"
    return f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d} h"


def fresh_text(e: Mapping[str, Any]) -> str:
    """18.50 over 30 games, 95% interval 17.93 to 19.10; one game has no interval, nor have equal scores."""
    n = len(e["scores"])
    if n == 1:
        return f"{e['mean']:.2f} in one game"
    told = f"{e['mean']:.2f} over {n} games"
    return f"{told}, 95% interval {e['low']:.2f} to {e['high']:.2f}" if e["low"] < e["high"] else f"{told}, all equal"


def mean_of_text(games: int) -> str:
    """mean of the last 100 of 511 games"""
    return f"mean of the last {min(100, games)} of {games:,} games" if games > 1 else "the only game"


def turns_text(result: Mapping[str, Any]) -> str:
    """9 rounds, 2 s per turn, 95% intervals over rounds"""
    told = f"{plural(result['rounds'], 'round')}, {result['seconds']:.2g} s per turn"
    return told + (", 95% intervals over rounds" if result["rounds"] > 1 else "")


def evaluation_text(e: Mapping[str, Any]) -> str:
    """18.50 over 30 fresh games at step 250,000, 95% interval 17.93 to 19.10: an evaluation during training."""
    return (
        f"{e['mean']:.2f} over {e['games']} fresh games at step {e['steps']:,}, 95% interval {e['low']:.2f} to "
        f"{e['high']:.2f}"
    )
