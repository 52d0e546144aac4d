"""`dqnitro compare`."""

from __future__ import annotations

import pathlib
from typing import Any

from dqnitro.cli.terminal.flags import Parser, count, out_file
from dqnitro.cli.terminal.tables import finish, number_text, show_table
from dqnitro.errors import ConfigError

DESCRIPTION = """\
Tell whether the difference between two runs is real or noise, by intervals and a rank test.

Examples
  dqnitro compare runs/pong-auto-s1-... runs/pong-fast-s1-...
  dqnitro compare runs/a-s1,runs/a-s2,runs/a-s3 runs/b-s1,runs/b-s2,runs/b-s3    seeds of two recipes
  dqnitro compare runs/a runs/b --window 100_000 200_000                         games that ended in these steps
  dqnitro compare runs/a runs/b --json

Scores are compared over games that ended in the same window of steps (the last quarter of what both have), speeds over
intervals of 10 s after the first update. If a side has several runs, each run counts once: a rank test needs 4 or more.
Exit codes: 0 done (whatever the verdict), 2 bad input.
"""


def main(argv: list[str]) -> int:
    p = Parser("compare", "RUN RUN [options]", DESCRIPTION)
    p.add_argument("left", metavar="RUN", help="the folder of a run, or several separated by commas")
    p.add_argument("right", metavar="RUN", help="the other side")
    p.add_argument(
        "--window",
        nargs=2,
        type=count(0, 10**12),
        metavar=("FROM", "TO"),
        help="compare games that ended between these steps",
    )
    p.add_argument("--out", type=out_file, metavar="FILE", help="write the result as JSON")
    p.add_argument("--json", action="store_true", help="print the result as JSON")
    args = p.parse(argv)
    window = None
    if args.window:
        window = (float(args.window[0]), float(args.window[1]))
        if not window[0] < window[1]:
            raise ConfigError(f"--window needs FROM below TO, got {window[0]:g} to {window[1]:g}")
    from dqnitro.lab.compare import compare_runs

    result = compare_runs(args.left, args.right, window)
    return finish(result, pathlib.Path(args.out) if args.out else None, args.json, show)


def show(result: dict[str, Any]) -> None:
    low, high = result["window_steps"]
    show_table(
        (("run", "left"), ("recipe", "left"), (f"score, steps {low:,.0f} to {high:,.0f}", "right"),
         (result["values"], "right"), ("steps/s", "right")),
        [
            [r["name"], r["recipe"], number_text(r["scores"]), str(r["scores"].n), number_text(r["fps"])]
            for r in result["runs"]
        ],
    )  # fmt: skip
    print()
    for line in result["sentences"]:
        print(line)
