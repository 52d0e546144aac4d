"""The sections of a page: one module for each kind of result.

A module has `title(result)`, `facts(result)` (the headline of a page about this result alone) and
`section(result, name, heading)`: a chart, a table, a sentence and the command that repeats it.
"""

from __future__ import annotations

from typing import Protocol

from dqnitro.report.html import Fact, Html
from dqnitro.report.read_result import Result
from dqnitro.report.sections import (
    ablate,
    atari,
    bench,
    beside,
    chaos,
    compare,
    console,
    cost,
    exactness,
    ladder,
    peers,
    profile,
    record,
    search,
    solve,
    sweep,
    trial,
    tune,
)  # fmt: skip


class Section(Protocol):
    """What a module of this package offers."""

    def title(self, result: Result) -> str: ...

    def facts(self, result: Result) -> list[Fact]: ...

    def section(self, result: Result, name: str, heading: str) -> Html: ...


# By the kind of the result (`Result.kind`).
SECTIONS: dict[str, Section] = {
    "record": record,
    "atari": atari,
    "peers": peers,
    "beside": beside,
    "ladder": ladder,
    "solve": solve,
    "sweep": sweep,
    "search": search,
    "ablate": ablate,
    "cost": cost,
    "tune": tune,
    "compare": compare,
    "profile": profile,
    "bench": bench,
    "console": console,
    "exact": exactness,
    "chaos": chaos,
    "trial": trial,
}

# The groups of the page and of its contents, in order, and the kinds of result in each; runs stand with the records.
GROUPS: dict[str, tuple[str, ...]] = {
    "Records and runs": ("record", "atari", "peers", "beside"),
    "Speed-ups": ("ladder", "solve", "ablate", "cost", "tune", "profile"),
    "Benchmarks": ("bench", "console"),
    "Exactness and faults": ("exact", "chaos"),
    "Settings": ("sweep", "search", "compare", "trial"),
}
