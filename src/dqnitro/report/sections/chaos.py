"""A campaign of faults (`make chaos`): what they cost, by kind."""

from __future__ import annotations

from typing import Any

from dqnitro.common.parsing import mapping, number, rows, text
from dqnitro.report import html as h
from dqnitro.report.formatting import plural
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.table_cells import shown

COLUMNS = ("lost", "different", "tracebacks", "crashes", "hangs", "orphans")


def title(result: Result) -> str:
    kinds = [text(r.get("kind")) for r in rows(result.data.get("rows"))]
    return f"Faults made on purpose: {kinds[0]}" if len(kinds) == 1 and kinds[0] else "Faults made on purpose"


def facts(result: Result) -> list[h.Fact]:
    total = mapping(result.data.get("total"))
    bad = sum(int(number(total.get(c)) or 0) for c in COLUMNS)
    kinds = len(rows(result.data.get("rows")))
    return [
        ("faults", shown(total.get("faults")), f"of {plural(kinds, 'kind')}"),
        ("cost something", str(bad), "of them"),
    ]


def section(result: Result, name: str, heading: str) -> h.Html:
    """A row for each kind of fault, and the faults that cost something."""
    kinds, total = rows(result.data.get("rows")), mapping(result.data.get("total"))
    bad = sum(int(number(total.get(c)) or 0) for c in COLUMNS)
    faults = int(number(total.get("faults")) or 0)
    said = f"{plural(faults, 'fault')} of {plural(len(kinds), 'kind')}: "
    said += f"{bad} cost something." if bad else "nothing was lost."
    cells = [
        h.Row(
            (
                h.Cell(text(r.get("kind"), "?"), css="rung"),
                text(r.get("what")),
                *(h.Cell(shown(r.get(c)), number(r.get(c))) for c in ("faults", *COLUMNS)),
            ),
            marked=any(number(r.get(c)) for c in COLUMNS),
        )
        for r in kinds
    ]
    columns = ("kind", "fault", "faults", *COLUMNS)
    numeric = tuple(range(2, len(columns)))
    table = h.table(h.Table(columns, cells, heading, numeric=numeric)) if cells else h.Html()
    failed = [h.paragraph(f"{text(f.get('repeat'))}: {text(f.get('what'))}") for f in rows(result.data.get("failures"))]
    note = text(result.data.get("protocol"))
    body = (h.paragraph(said, "verdict"), table, *_measured(kinds), *failed, common.repeat(result))
    return h.section(heading, *body, note=note, name=name)


def _measured(kinds: list[dict[str, Any]]) -> list[h.Html]:
    """How long each fault held a run up, where that was measured."""
    out = []
    for row in kinds:
        told = [
            f"{name} {shown(number(m.get('median')))} s, at most {shown(number(m.get('max')))} s of {shown(m.get('n'))}"
            for name, m in ((str(k), mapping(v)) for k, v in mapping(row.get("measured_s")).items())
        ]
        out += [h.paragraph(f"Held up by, median: {'; '.join(told)}.")] if told else []
    return out
