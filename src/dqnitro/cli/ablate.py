"""`dqnitro ablate`."""

from __future__ import annotations

import pathlib
from typing import Any

from dqnitro.cli.terminal import tables as t
from dqnitro.cli.terminal.flags import Parser

DESCRIPTION = """\
Leave one thing out at a time and measure what it was worth. All variants take turns in one process.

Examples
  dqnitro ablate                          recipe fast, without each of its rungs
  dqnitro ablate auto --game breakout
  dqnitro ablate cost                     where the CPU time goes: without sampling, optimiser, loss,
                                          episodic life, clipping, resizing
  dqnitro ablate cost --recipe fast --rounds 20
  dqnitro ablate --json --out results/ablate.json

A ratio under 1x means slower without it: it pays. The agents of `cost` do not learn properly; only their speed counts.
Exit codes: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM (complete rounds are kept).
"""


def make_parser() -> Parser:
    p = Parser("ablate", "[RECIPE|cost] [options]", DESCRIPTION)
    p.add_argument("what", nargs="?", default="fast", help="a recipe (auto or fast), or cost (default: fast)")
    p.add_argument("--game", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--recipe", default="baseline", help="with cost: the recipe to take apart (default: baseline)")
    t.add_race_flags(p)
    return p


def main(argv: list[str]) -> int:
    args = t.parse_race(make_parser(), argv)
    from dqnitro.lab import ablate as lab

    t.say_where(args)
    with t.Reports(f"ablate {args.what}", args) as progress:
        options = t.race_options(args, progress)
        if args.what == "cost":
            result = lab.cost(args.game, args.recipe, **options)
        else:
            result = lab.ablate(args.game, args.what, **options)
    return t.finish(result, pathlib.Path(args.out) if args.out else None, args.json, show)


def show(result: dict[str, Any]) -> None:
    from dqnitro.lab.ablate import verdict

    is_cost = result["what"] == "cost"
    columns = [("without", "left"), ("steps/s", "right"), ("ratio to the whole", "right")]
    columns += [("share of time", "right"), ("", "left")] if is_cost else [("promise", "left")]
    lines = []
    for r in result["rows"]:
        name = r["without"] or ("nothing" if is_cost else f"nothing (recipe {result['recipe']})")
        if r["state"] == "skipped":
            lines.append([name, "-", "-", *(["-", ""] if is_cost else [r["promise"] or ""])])
            continue
        share = r.get("saves_share")
        more = ["-" if share is None else f"{share:.0%}", r["note"]] if is_cost else [r["promise"] or ""]
        lines.append([name, t.number_text(r["fps"]), t.ratio_text(r["ratio"]) if r["without"] else "-", *more])
    t.show_table(columns, lines)
    print()
    for r in result["rows"]:
        if r["state"] == "skipped":
            print(f"not measured: {r['without']}: {r['why']}")
    if is_cost:
        print(verdict(result["rows"]))
    print(
        f"{result['rounds']} rounds, {result['seconds']:.2g} s per turn, 95% intervals over rounds; "
        f"{result['notes']['replay']}"
    )
