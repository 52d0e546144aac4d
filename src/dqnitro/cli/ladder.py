"""`dqnitro ladder`."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from dqnitro.cli import solve
from dqnitro.cli.terminal import tables as t
from dqnitro.cli.terminal.flags import Parser
from dqnitro.cli.terminal.wording import turns_text
from dqnitro.common.files import check_writable

DESCRIPTION = """\
Climb from the textbook DQN to the fastest one, one named change at a time, and measure what each buys here.

Examples
  dqnitro ladder                                   Pong, every rung that this machine can use, in about 8 minutes
  dqnitro ladder --same-learning                   only rungs that promise the same learning (exact, close)
  dqnitro ladder breakout --rungs frame-replay,console,bfloat16
  dqnitro ladder --minutes 30 --rounds 40          narrower intervals
  dqnitro ladder --solved runs/pong-baseline-s1-.. time to solve, from runs that solved the game
  dqnitro ladder --solve --minutes 9               times to solve, row by row of the notes; continues if repeated
  dqnitro ladder --json --out results/ladder-2-cores.json

All rungs take a turn in every round, so a machine that slows down slows all of them. FPS is steps (decisions) per
second. A row includes the rungs above it. `~` marks rungs that change the number of samples trained per step: part of
their speed comes from learning less. Time to solve is measured (from the runs given), projected (the same steps at this
speed) or unknown (-).
Exit codes: 0 done, 1 unexpected failure, 2 bad input, 130 Ctrl-C, 143 SIGTERM (complete rounds are kept).
"""

COLUMNS = (
    ("step", "left"), ("FPS", "right"), ("ΔFPS", "right"), ("rung alone", "right"), ("console frames/s", "right"),
    ("samples/step", "right"), ("time to solve", "right"), ("Δtime", "right"), ("promise", "left"),
)  # fmt: skip


def make_parser() -> Parser:
    p = Parser("ladder", "[GAME] [options]", DESCRIPTION)
    p.add_argument("game", nargs="?", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--rungs", metavar="A,B", help="climb these rungs, in this order (default: all)")
    p.add_argument("--same-learning", action="store_true", help="only rungs that promise exact or close")
    p.add_argument(
        "--solved", nargs="+", action="extend", default=[], metavar="RUN",
        help="runs (or folders of several seeds) that solved the game",
    )  # fmt: skip
    solve.add_flags(p)
    t.add_race_flags(p, out="write the result to this file (default: ladders/GAME-DATE.json)")
    return p


def main(argv: list[str]) -> int:
    args = make_parser().parse(argv)
    if args.solve:
        return solve.main(args)
    from dqnitro.lab.ladder import climb_ladder
    from dqnitro.lab.store import default_path
    from dqnitro.lab.time_to_solve import read_solved
    from dqnitro.store.read_run import run_folders

    solved = [read_solved(run) for path in args.solved for run in run_folders(pathlib.Path(path))]
    out = pathlib.Path(args.out) if args.out else default_path("ladder", args.game, pathlib.Path("ladders"))
    check_writable(out)
    t.say_where(args)
    with t.Reports(f"ladder {args.game}", args) as progress:
        result = climb_ladder(
            args.game, t.names_of(args.rungs), same_learning=args.same_learning, solved=solved,
            **t.race_options(args, progress),
        )  # fmt: skip
    return t.finish(result, out, args.json, show)


def cells(row: dict[str, Any], number: str) -> list[str]:
    """One row as text."""
    from dqnitro.cli.terminal.wording import duration

    solve = row["solve"]
    mark = " ~" if row["changes_ratio"] else ""
    return [
        f"{number} {row['name']}",
        t.number_text(row["fps"]),
        t.percent_text(row["total"]) if row["on"] else "-",
        t.ratio_text(row["gain"]),
        f"{row['frames_per_s']:,.0f}" if row["frames_per_step"] > 1 else "-",
        f"{row['samples_per_step']:.1f}{mark}",
        f"{_spread(solve['seconds'], duration)} {solve['how']}" if solve else "-",
        f"{(solve['gain'] - 1) * 100:+.0f}%" if solve and solve["gain"] and row["on"] else "-",
        row["promise"],
    ]


def _spread(i: Any, text: Callable[[float], str]) -> str:
    """12:30 min [11:02 min, 14:10 min]; a single run has no interval."""
    return text(i.mean) + (f" [{text(i.low)}, {text(i.high)}]" if i.high > i.low else "")


def show(result: dict[str, Any]) -> None:
    from dqnitro.lab.ladder import BELOW, headlines

    number, lines = 0, []
    rows = [row for row in result["rows"] if row["state"] == "measured"]
    for row in rows:
        if row["aside"]:
            mark = "↓" if row["name"] == BELOW else "·"
        else:
            mark, number = str(number), number + 1
        lines.append(cells(row, mark))
    t.show_table(COLUMNS, lines)
    print()
    reasons: dict[str, list[str]] = {}
    for row in result["rows"]:
        if row["state"] == "skipped":
            reasons.setdefault(row["why"], []).append(row["name"])
    for why, names in reasons.items():
        print(f"not measured: {', '.join(names)}: {why}")
    for line in headlines(rows):
        print(line)
    n = result["notes"]
    print()
    print(turns_text(result))
    print(
        "ΔFPS and Δtime: compared with the baseline; rung alone: with the row that it builds on; "
        "~ changes the samples trained per step"
    )
    print("↓ slower than the baseline by design; · measured in its place, then removed: later rungs do not build on it")
    print(n["replay"])
    print(f"measuring took {n['measuring_share']:.3%} of the time")
