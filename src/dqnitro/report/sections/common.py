"""Pieces that many sections share: the command to repeat a result, what was not measured, lists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from dqnitro.common.parsing import interval, number
from dqnitro.report import html as h
from dqnitro.report.formatting import plural
from dqnitro.report.read_result import Result
from dqnitro.report.table_cells import shown

SAME = "The same figures as a table"
OURS = ("dqnitro ", "python examples/")  # the second in a checkout
PLACEHOLDER = re.compile(r"\b(GAME|RUN)\b|--seed N\b")


def repeat(result: Result) -> h.Html:
    """The command that repeats a result, to copy if it can be run as it stands; otherwise in words."""
    base, remark = split_command(result.command)
    if base and not PLACEHOLDER.search(base):
        return h.join(
            h.command("repeat", base), h.paragraph(f"As it was run: {result.command}" if remark else "", "note")
        )
    return h.paragraph(f"Made with: {result.command}" if result.command else "", "note")


def split_command(command: str) -> tuple[str, str]:
    """A command of ours and the remark that follows it in older files, which no shell would understand."""
    if not command.startswith(OURS):
        return "", command
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    for k, word in enumerate(words):
        if word.startswith("(") or (word.endswith((",", ";")) and k + 1 < len(words)):
            keep = words[:k] if word.startswith("(") else [*words[:k], word[:-1]]
            at = command.index(word) + (0 if word.startswith("(") else len(word))
            return shlex.join(keep), command[at:].strip().strip("()")
    return command, ""


def not_measured(reasons: dict[str, Any]) -> h.Html:
    said = "".join(f"<li><b>{h.esc(name)}</b> {h.esc(shown(why))}</li>" for name, why in reasons.items())
    return h.Html(f'<div class="left-out"><p>Not measured</p><ul>{said}</ul></div>') if said else h.Html()


def skipped(result_rows: Sequence[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> h.Html:
    return not_measured({name(r): r.get("why") or "no reason given" for r in result_rows if is_skipped(r)})


def is_skipped(row: dict[str, Any]) -> bool:
    return row.get("state") == "skipped" or interval(row.get("fps")) is None


def folded(table: h.Table, summary: str = SAME) -> h.Html:
    """A table that repeats the chart above it: closed, for those who want to sort or copy."""
    return h.details(summary, h.table(table)) if table.rows else h.Html()


def rounds(result: Result) -> str:
    n, seconds = number(result.data.get("rounds")), number(result.data.get("seconds"))
    if n is None or seconds is None:
        return ""
    return f"Contenders took turns in {plural(int(n), 'round')}, {seconds:g} s per turn; 95% intervals over rounds."


def bullets(lines: Sequence[str]) -> h.Html:
    """A list of lines that are markup already."""
    return h.Html(f'<ul class="advice">{"".join(lines)}</ul>') if lines else h.Html()
