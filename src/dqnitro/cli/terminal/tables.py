"""Options, tables and results of the lab's commands: rich on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dqnitro.cli.terminal.flags import Parser, add_config_flags, amount, config_changes, count, note, out_file
from dqnitro.cli.terminal.progress import PIPE_S, Progress
from dqnitro.cli.terminal.wording import duration

if TYPE_CHECKING:
    from dqnitro.common.intervals import Interval

Column = tuple[str, str]  # heading, "left" or "right"
LOG_EVERY_HELP = "seconds between lines of progress where there is no terminal (default: 60)"


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """On a terminal a rich table that fits it; in a pipe or file nothing is wrapped or cut."""
    if not sys.stdout.isatty():
        print(plain_table(columns, rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for i, (name, side) in enumerate(columns):
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    Console().print(table)


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(name), *(len(row[i]) for row in rows), 0) for i, (name, _) in enumerate(columns)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            c.rjust(w) if side == "right" else c.ljust(w)
            for c, w, (_, side) in zip(cells, widths, columns, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line([name for name, _ in columns]), *(line(row) for row in rows)])


def ratio_text(i: Interval | None) -> str:
    """2.41x [2.30, 2.52]; one value has no interval."""
    if i is None:
        return "-"
    return f"{i.mean:.2f}x" + (f" [{i.low:.2f}, {i.high:.2f}]" if i.n > 1 else "")


def percent_text(i: Interval | None) -> str:
    """A ratio as a change in percent, as the book writes it: +72% [68, 76]."""
    if i is None:
        return "-"
    mean, low, high = ((x - 1) * 100 for x in i[:3])
    return f"{mean:+.0f}%" + (f" [{low:+.0f}, {high:+.0f}]" if i.n > 1 else "")


def number_text(i: Interval | None) -> str:
    if i is None:
        return "-"
    digits = 0 if abs(i.mean) >= 20 else 1 if abs(i.mean) >= 2 else 2
    mean, low, high = (f"{x:,.{digits}f}" for x in i[:3])
    return mean + (f" [{low}, {high}]" if i.n > 1 else "")


def store_and_show(
    result: dict[str, Any],
    out: pathlib.Path | None,
    as_json: bool,
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Write the file if one was asked for, then print."""
    from dqnitro.common.files import plain
    from dqnitro.lab.store import save

    if out is not None:
        save(out, result)
    if as_json:
        json.dump(plain(result), sys.stdout, indent=1)
        print()
    else:
        show(result)


def finish(
    result: dict[str, Any],
    out: pathlib.Path | None,
    as_json: bool,
    show: Callable[[dict[str, Any]], None],
    shown_as: str = "",
) -> int:
    """Store and show the result, also one cut short by Ctrl-C; returns the exit code. `shown_as`: the name of the file
    for its user, if it is the copy of one at a URL.
    """
    store_and_show(result, out, as_json, show)
    if warning := result.get("notes", {}).get("warning"):
        note(f"warning: {warning}")
    if out is not None:
        note(f"written to {shown_as or out}")
    from dqnitro.session import EXIT_CODES

    return EXIT_CODES[result["interrupted"]] if result.get("interrupted") else 0


def add_result_flags(p: Parser, out: str = "write the result as JSON") -> None:
    """Where a result goes, for commands that measure for minutes."""
    p.add_argument("--out", type=out_file, metavar="FILE", help=out)
    p.add_argument("--quiet", action="store_true", help="do not report progress")
    p.add_argument("--log-every", type=amount(0.001), metavar="S", help=LOG_EVERY_HELP)
    p.add_argument("--json", action="store_true", help="print the result as JSON")


def add_race_flags(p: Parser, out: str = "write the result as JSON") -> None:
    """How long contenders take turns, where the result goes, and all settings that do not end a run."""
    p.add_argument(
        "--minutes", type=amount(), default=8.0, metavar="M", help="time limit for everything (default: 8; 0: none)"
    )
    p.add_argument("--rounds", type=count(), default=10, metavar="N", help="rounds, if time allows (default: 10)")
    p.add_argument("--seconds", type=amount(0.001), default=1.0, metavar="S", help="seconds per turn (default: 1)")
    add_result_flags(p, out)
    add_config_flags(p, leave_out=("max_minutes", "max_steps", "stop_at_score"))


def race_options(args: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """The arguments that every race of the lab takes."""
    from dqnitro.lab.race import Budget

    budget = Budget(args.minutes, args.rounds, args.seconds)
    return {"budget": budget, "changes": config_changes(args), "say": progress.say}


class Reports(Progress):
    """Progress of the lab's commands: `say` takes their reports, such as `building 3 of 14: console`."""

    def __init__(self, what: str, args: argparse.Namespace) -> None:
        every_s = getattr(args, "log_every", None) or PIPE_S
        super().__init__(what, quiet=getattr(args, "quiet", False), every_s=every_s)

    def text(self, done: int, more: str = "") -> str:
        return f"{self.what} ({duration(self.seconds)}): {more or 'preparing'}"


def say_where(args: argparse.Namespace, recipe: str = "baseline", game: str = "") -> None:
    """The first line: on what is measured, with how many threads."""
    from dqnitro.lab.where import lab_plan, where

    changes = config_changes(args)
    note(where(changes, lab_plan(recipe, game or args.game, changes).config()).text)


def names_of(text: str | None) -> list[str] | None:
    """A list given as a,b,c; a comma inside a number (1,024) or between double quotes is part of a name."""
    if text is None:
        return None
    names = re.findall(r'(?:"[^"]*"|(?<=\d),(?=\d{3}\b)|[^,])+', text)
    return [name for t in names if (name := t.replace('"', "").strip())]
