"""`dqnitro tune`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from dqnitro.cli.terminal.flags import Parser, amount, count
from dqnitro.cli.terminal.tables import (
    Reports,
    add_result_flags,
    finish,
    names_of,
    number_text,
    ratio_text,
    show_table,
)  # fmt: skip
from dqnitro.cli.terminal.wording import turns_text
from dqnitro.errors import ConfigError

DESCRIPTION = """\
Measure possible changes of a recipe on this machine, a few seconds each, and keep the fastest that learns the same.

Examples
  dqnitro tune                       recipes auto and fast, with Pong, about 10 minutes
  dqnitro tune --recipe fast         only one
  dqnitro tune CartPole-v1           for environments whose observations are vectors
  dqnitro tune --dry-run --json      measure and show, but keep nothing
  dqnitro tune --forget              forget what was found on this machine

It measures each exact or close rung, torch threads, console threads and the runner. On a GPU that includes device and
hybrid, with and without groups of environments; they are `alike`: the same experiment with other random numbers. More
environments, more steps per update and larger batches change learning: they are measured for comparison, never chosen.
A change is chosen only if its whole 95% interval is faster, and all chosen changes are measured again together. The
choice and its evidence are kept in dqnitro/tuned.json in your configuration folder (or in $DQNITRO_TUNED); `auto` and
`fast` use it from then on, and `dqnitro env` says so.
Exit codes: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM (nothing is changed).
"""


def make_parser() -> Parser:
    p = Parser("tune", "[GAME] [options]", DESCRIPTION)
    p.add_argument("game", nargs="?", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--recipe", metavar="A,B", help="recipes to tune (default: auto,fast)")
    p.add_argument(
        "--minutes", type=amount(), default=10.0, metavar="M", help="time limit for everything (default: 10; 0: none)"
    )
    p.add_argument("--rounds", type=count(), default=8, metavar="N", help="rounds, if time allows (default: 8)")
    p.add_argument("--seconds", type=amount(0.001), default=1.0, metavar="S", help="seconds per turn (default: 1)")
    p.add_argument("--dry-run", action="store_true", help="measure and show, but keep nothing")
    p.add_argument("--forget", action="store_true", help="forget what was found on this machine")
    add_result_flags(p)
    return p


def main(argv: list[str]) -> int:
    args = make_parser().parse(argv)
    if args.forget:
        return _forget(args.json)
    from dqnitro.lab.race import Budget
    from dqnitro.lab.tune import FEWEST_ROUNDS, tune
    from dqnitro.recipes import tuned

    if args.rounds < FEWEST_ROUNDS:
        raise ConfigError(
            f"--rounds must be at least {FEWEST_ROUNDS}, got {args.rounds}", "fewer cannot tell a real gain from luck"
        )
    with Reports("tune", args) as progress:
        budget = Budget(args.minutes, args.rounds, args.seconds)
        names = names_of(args.recipe) or tuned.RECIPES
        result = tune(args.game, names, budget=budget, say=progress.say, write=not args.dry_run)
    return finish(result, pathlib.Path(args.out) if args.out else None, args.json, show)


def _forget(as_json: bool) -> int:
    from dqnitro.recipes import tuned

    gone = tuned.forget()
    if as_json:
        json.dump({"forgotten": gone, "file": str(tuned.path())}, sys.stdout, indent=1)
        print()
    else:
        print(f"forgotten: {', '.join(gone)}" if gone else f"nothing was tuned on this machine ({tuned.path()})")
    return 0


def show(result: dict[str, Any]) -> None:
    from dqnitro.lab.tune import gain_text

    columns = (
        ("change", "left"), ("value", "left"), ("steps/s", "right"), ("ratio to the recipe as it is", "right"),
        ("", "left"), ("promise", "left"),
    )  # fmt: skip
    for recipe, found in result["recipes"].items():
        print(f"recipe {recipe}")
        rows = [r for r in result["evidence"] if r["recipe"] == recipe]
        show_table(
            columns,
            [
                [f"  {r['knob']}", r["value"], number_text(r["fps"]), ratio_text(r["ratio"]),
                 "chosen" if r["chosen"] else "", r["promise"]]
                for r in rows if r["state"] == "measured"
            ],
        )  # fmt: skip
        for r in rows:
            if r["state"] == "skipped":
                print(f"  not measured: {r['knob']} {r['value']}: {r['why']}")
        print(f"  {gain_text(found['gain'])}" + (f": {', '.join(found['turned'])}" if found["turned"] else "") + "\n")
    print(f"{turns_text(result)}; {result['notes']['replay']}")
    if "file" in result:
        print(f"kept in {result['file']}: `auto` and `fast` use it from now on; `dqnitro tune --forget` undoes this")
    else:
        print("nothing was kept")
