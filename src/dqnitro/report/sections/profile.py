"""Where a step's time goes, by phase and by operation, and what to try next."""

from __future__ import annotations

from typing import Any

from dqnitro.common.parsing import mapping, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.formatting import times
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.table_cells import number_cell, shown

DEEPEST = 12  # levels of a profile's tree that are shown
FIRST = 4  # pieces of advice that are shown at once


def title(result: Result) -> str:
    return "Profile"


def facts(result: Result) -> list[h.Fact]:
    """The largest phases of a step."""
    phases = [
        (share, text(c.get("name"), "?"))
        for c in rows(mapping(result.data.get("tree")).get("children"))
        if (share := number(c.get("share"))) is not None
    ]
    return [(name, f"{share:.0%}", "of the time of a step") for share, name in sorted(phases, reverse=True)[:3]]


def section(result: Result, name: str, heading: str) -> h.Html:
    """Where a step's time goes, by phase and by operation, and what to try next."""
    tree = _branch(mapping(result.data.get("tree")), 0)
    top = [
        h.Row(
            (
                h.Cell(text(r.get("op"), "?"), css="name"),
                _ms(r.get("self_s")),
                _share(r.get("share")),
                h.Cell(shown(r.get("calls")), number(r.get("calls"))),
            )
        )
        for r in rows(result.data.get("top"))
    ]
    advice = [
        f"<li>{h.esc(text(a.get('text')))}{_at_most(a)}</li>"
        for a in rows(result.data.get("advice"))
        if text(a.get("text"))
    ]
    said = common.bullets(advice[:FIRST])
    if len(advice) > FIRST:
        rest = len(advice) - FIRST
        said = h.Html(
            f"{said}<details><summary>{rest} smaller pieces of "
            f"advice</summary>{common.bullets(advice[FIRST:])}</details>"
        )
    trace = text(result.data.get("trace"))
    return h.section(
        heading,
        said,
        h.table(h.Table(("where", "ms", "share", "calls"), tree, heading, numeric=(1, 2, 3), css="tree compact"))
        if tree
        else h.paragraph("The profile holds no tree.", "empty"),
        h.paragraph("Top operations", "subtitle") if top else h.Html(),
        h.table(
            h.Table(("operation", "own ms", "share", "calls"), top, "Top operations", numeric=(1, 2, 3), css="compact")
        )
        if top
        else h.Html(),
        h.paragraph(f"The trace opens in Perfetto: {trace}" if trace else "", "note"),
        common.repeat(result),
        name=name,
    )


def _branch(node: dict[str, Any], depth: int) -> list[h.Row]:
    if not node or depth > DEEPEST:
        return []
    label = h.Html(f'<span style="padding-left:{1.2 * depth:.1f}em">{h.esc(text(node.get("name"), "?"))}</span>')
    cells = (
        h.Cell(label),
        _ms(node.get("seconds")),
        _share(node.get("share")),
        h.Cell(shown(node.get("calls")), number(node.get("calls"))),
    )
    children = [row for child in rows(node.get("children")) for row in _branch(child, depth + 1)]
    return [h.Row(cells), *children]


def _ms(x: Any) -> h.Cell:
    return number_cell(number(x), lambda v: f"{1000 * v:,.1f}")


def _share(x: Any) -> h.Cell:
    v = number(x)
    return h.Cell("–") if v is None else h.Cell(f"{v:.1%}", f"{v:.6g}", share=v)


def _at_most(advice: dict[str, Any]) -> str:
    v = number(advice.get("buys_at_most"))
    return "" if v is None or "at most" in text(advice.get("text")) else f" <small>buys at most {times(v)}</small>"
