"""`dqnitro ladder --solve`: times to solve, row by row of the notes."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from dqnitro.cli.terminal import tables as t
from dqnitro.cli.terminal.flags import amount, config_changes, count
from dqnitro.cli.terminal.wording import duration
from dqnitro.errors import ConfigError
from dqnitro.report.formatting import plural

COLUMNS = (
    ("row", "left"), ("FPS", "right"), ("ΔFPS", "right"), ("time to solve", "right"), ("Δtime", "right"),
    ("solved", "right"), ("notes: FPS", "right"), ("ΔFPS", "right"), ("minutes", "right"), ("Δtime", "right"),
)  # fmt: skip


def add_flags(p: Any) -> None:
    p.add_argument("--solve", action="store_true", help="measure times to solve, row by row of the notes, in steps")
    p.add_argument(
        "--seeds", type=count(1, 1000), default=3, metavar="N", help="with --solve: seeds per row (default: 3)"
    )
    p.add_argument("--rows", metavar="A,B", help="with --solve: only these rows (default: all of the notes)")
    p.add_argument(
        "--whole", metavar="A,B", default="auto",
        help="with --solve: rows that train alone, as they are, by the clock (default: auto)",
    )  # fmt: skip
    p.add_argument(
        "--stop-at", type=amount(-1e9), metavar="SCORE", help="with --solve: the score that counts as solved"
    )
    p.add_argument("--at-once", type=count(0, 1000), default=0, metavar="N", help="with --solve: runs at the same time")
    p.add_argument("--state", metavar="DIR", help="with --solve: where runs are kept and resumed (default: solve/GAME)")


def main(args: argparse.Namespace) -> int:
    from dqnitro.common.files import alone_in, file_stem
    from dqnitro.lab.solve import rows_named, solve_rows
    from dqnitro.lab.store import default_path
    from dqnitro.seeds.folder import seed_range

    names, whole = t.names_of(args.rows), tuple(t.names_of(args.whole) or ())
    rows_named(whole)
    if not args.minutes > 0:
        raise ConfigError("--solve needs --minutes over 0", "what is not done by then is resumed by the next command")
    changes = config_changes(args)
    if args.stop_at is not None:
        changes["stop_at_score"] = args.stop_at
    seeds = seed_range(changes.pop("seed", 1), args.seeds)
    folder = pathlib.Path(args.state or f"solve/{file_stem(args.game)}")
    t.say_where(args)
    with alone_in(folder), t.Reports(f"solve {args.game}", args) as progress:
        result = solve_rows(
            args.game, names, folder, seeds=seeds, minutes=args.minutes, at_once=args.at_once, whole=whole,
            changes=changes, say=progress.say,
        )  # fmt: skip
    out = pathlib.Path(args.out) if args.out else default_path("solve", result["game"], pathlib.Path("ladders"))
    code = t.finish(result, out, args.json, show)
    missing = sum(r["of"] - r["solved"] for r in result["rows"])
    if missing and not result["interrupted"]:
        of = sum(r["of"] for r in result["rows"])
        t.note(f"not solved yet: {missing} of {plural(of, 'run')}; the same command goes on")
    return code


def cells(row: dict[str, Any]) -> list[str]:
    n = row["notes"]
    return [
        row["name"],
        t.number_text(row["fps"]),
        _percent(row["delta_fps"]),
        _time(row),
        _percent(row["delta_minutes"]),
        f"{row['solved']} of {row['of']}",
        "-" if n["fps"] is None else f"{n['fps']:g}",
        _percent(n["delta_fps"]),
        "-" if n["minutes"] is None else f"{n['minutes']:.1f}",
        _percent(n["delta_minutes"]),
    ]


def _percent(value: float | None) -> str:
    return f"{value:+.0%}" if value else "-"


def _time(row: dict[str, Any]) -> str:
    """12:30 min [11:02, 14:10] *; the star marks steps at the row's own rate."""
    m = row["minutes"]
    if m is None:
        steps = max((r["steps"] for r in row["runs"]), default=0)
        return f"not yet ({steps:,} steps)" if steps else "-"
    spread = f" [{duration(60 * m['low'])}, {duration(60 * m['high'])}]" if m["n"] > 1 else ""
    return duration(60 * m["median"]) + spread + ("" if row["how"] == "whole" else " *")


def show(result: dict[str, Any]) -> None:
    t.show_table(COLUMNS, [cells(row) for row in result["rows"]])
    print()
    print("time to solve: median over the seeds that solved it [range]; Δ: compared with the baseline")
    print("* steps of real runs at the row's own rate, measured alone; without a star: measured whole, by the clock")
    if result["notes"]["carried"]:
        print(result["notes"]["carried"])
    for row in result["rows"]:
        for run in row["runs"]:
            if run["why"]:
                print(f"{row['name']}, seed {run['seed']}: {run['why']}")
