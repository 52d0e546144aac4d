"""`dqnitro tune`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from dqnitro.cli.flags import Parser
from dqnitro.cli.tables import Progress, check_turns, finish, names_of, number_text, ratio_text, show_table
from dqnitro.errors import ConfigError

DESCRIPTION = """\
Measure the knobs on this machine for a few seconds each, in turns, and keep the fastest recipe that learns the same.

Examples
  dqnitro tune                       recipes auto and fast, with Pong, some 10 minutes
  dqnitro tune --recipe fast         only one
  dqnitro tune CartPole-v1           for environments whose observations are plain vectors
  dqnitro tune --dry-run --json      measure and show, change nothing
  dqnitro tune --forget              drop what was found on this machine

Knobs: each exact or close rung, torch threads, console threads, the runner (on a GPU also hybrid, with and without
environments that take turns, and device, which are `alike`: the same experiment with other random numbers). Environments, steps per update and batch change learning: they are measured for you
to see and never chosen. A knob is taken only if its whole 95% interval is faster, and
then measured once more. The choice and its evidence go to a file of yours (dqnitro/tuned.json in your configuration folder, or
$DQNITRO_TUNED); `auto` and `fast` use it from then on, and `dqnitro env` says so.
Exit codes: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM (nothing is changed).
"""


def make_parser() -> Parser:
    p = Parser("tune", "[GAME] [options]", DESCRIPTION)
    p.add_argument("game", nargs="?", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--recipe", metavar="A,B", help="recipes to tune (default: auto,fast)")
    p.add_argument(
        "--minutes", type=float, default=10.0, metavar="M", help="bound of the measuring (default: 10; 0: none)"
    )
    p.add_argument("--rounds", type=int, default=8, metavar="N", help="rounds, if the minutes suffice (default: 8)")
    p.add_argument("--seconds", type=float, default=1.0, metavar="S", help="seconds a turn (default: 1)")
    p.add_argument("--dry-run", action="store_true", help="measure and show, but keep nothing")
    p.add_argument("--forget", action="store_true", help="drop what was found on this machine")
    p.add_argument("--out", metavar="FILE", help="write the result as JSON")
    p.add_argument("--quiet", action="store_true", help="no word on progress")
    p.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    return p


def main(argv: list[str]) -> int:
    args = make_parser().parse(argv)
    if args.forget:
        return _forget(args.json)
    check_turns(args.rounds, args.seconds, args.minutes)
    from dqnitro import tuned
    from dqnitro.lab.tune import FEWEST_ROUNDS, tune

    if args.rounds < FEWEST_ROUNDS:
        raise ConfigError(
            f"--rounds must be at least {FEWEST_ROUNDS}, got {args.rounds}", "fewer cannot tell a faster knob from luck"
        )
    with Progress(args.quiet) as progress:
        result = tune(
            args.game, names_of(args.recipe) or tuned.RECIPES, minutes=args.minutes, rounds=args.rounds, seconds=args.seconds,
            say=progress, write=not args.dry_run,
        )  # fmt: skip
    return finish(result, pathlib.Path(args.out) if args.out else None, args.json, show)


def _forget(as_json: bool) -> int:
    from dqnitro import tuned

    gone = tuned.forget()
    if as_json:
        json.dump({"forgotten": gone, "file": str(tuned.path())}, sys.stdout, indent=1)
        print()
    else:
        print(f"forgotten: {', '.join(gone)}" if gone else f"nothing was tuned on this machine ({tuned.path()})")
    return 0


def show(result: dict[str, Any]) -> None:
    from dqnitro.lab.tune import gain_text

    columns = (("knob", "left"), ("value", "left"), ("steps/s", "right"), ("to the recipe as it is", "right"), ("", "left"),
               ("promise", "left"))  # fmt: skip
    for recipe, found in result["recipes"].items():
        print(f"recipe {recipe}")
        rows = [r for r in result["evidence"] if r["recipe"] == recipe]
        show_table(
            columns,
            [
                [f"  {r['knob']}", r["value"], number_text(r["fps"]), ratio_text(r["ratio"]), "chosen" if r["chosen"] else "",
                 r["promise"]]
                for r in rows if r["state"] == "measured"
            ],
        )  # fmt: skip
        for r in rows:
            if r["state"] == "skipped":
                print(f"  not measured: {r['knob']} {r['value']}: {r['why']}")
        print(f"  {gain_text(found['gain'])}" + (f": {', '.join(found['turned'])}" if found["turned"] else "") + "\n")
    print(
        f"{result['rounds']} rounds of {result['seconds']:.2g} s a turn, 95% intervals over rounds; {result['notes']['replay']}"
    )
    if "file" in result:
        print(f"kept in {result['file']}: `auto` and `fast` use it from now on; `dqnitro tune --forget` takes it back")
    else:
        print("nothing was kept")
