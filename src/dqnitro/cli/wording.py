"""Numbers as the terminal shows them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """12 s, 3:05 min, 2:07:30 h."""
    s = round(seconds)
    if s < 60:
        return f"{s} s"
    if s < 3600:
        return f"{s // 60}:{s % 60:02d} min"
    return f"{s // 3600}:{s // 60 % 60:02d}:{s % 60:02d} h"
