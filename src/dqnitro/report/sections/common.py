"""Pieces that many sections share: the command to repeat a result, what was not measured, lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dqnitro.parsing import interval, number
from dqnitro.report import html as h
from dqnitro.report.formatting import plural
from dqnitro.report.read_result import Result
from dqnitro.report.table_cells import shown


def repeat(result: Result) -> h.Html:
    return h.command("repeat", result.command) if result.command else h.Html()


def not_measured(reasons: dict[str, Any]) -> h.Html:
    said = "".join(f"<li><b>{h.esc(name)}</b> {h.esc(shown(why))}</li>" for name, why in reasons.items())
    return h.Html(f'<div class="left-out"><p>Not measured</p><ul>{said}</ul></div>') if said else h.Html()


def skipped(result_rows: Sequence[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> h.Html:
    return not_measured({name(r): r.get("why") or "no reason given" for r in result_rows if is_skipped(r)})


def is_skipped(row: dict[str, Any]) -> bool:
    return row.get("state") == "skipped" or interval(row.get("fps")) is None


def rounds(result: Result) -> str:
    n, seconds = number(result.data.get("rounds")), number(result.data.get("seconds"))
    if n is None or seconds is None:
        return ""
    return f"Contenders took turns in {plural(int(n), 'round')}, {seconds:g} s per turn; 95% intervals over rounds."


def bullets(lines: Sequence[str]) -> h.Html:
    """A list of lines that are markup already."""
    return h.Html(f'<ul class="advice">{"".join(lines)}</ul>') if lines else h.Html()
