"""`dqnitro env`."""

from __future__ import annotations

import json
import sys
from typing import Any

from dqnitro.cli.terminal.flags import Parser, show_config

DESCRIPTION = """\
Show this machine, the versions, and what a recipe would choose here and why: the runner, the rungs, what is left out.

Examples
  dqnitro env                                what `auto` would do with Pong
  dqnitro env breakout --recipe fast
  dqnitro env --settings                     every setting with its value, unit and meaning
  dqnitro env --json
"""


def main(argv: list[str]) -> int:
    p = Parser("env", "[GAME] [options]", DESCRIPTION)
    p.add_argument("game", nargs="?", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--recipe", default="auto", help="auto, fast, baseline, classic, strong (default: auto)")
    p.add_argument("--settings", action="store_true", help="show every setting of the recipe")
    p.add_argument("--json", action="store_true", help="print as JSON")
    args = p.parse(argv)
    from dqnitro import recipes
    from dqnitro.ladder import RUNGS

    plan = recipes.plan(args.recipe, args.game)
    config = plan.config()
    import torch  # noqa: F401 - machine() gets the GPU from it

    from dqnitro.common.host import commit, machine, versions

    facts: dict[str, Any] = {
        "machine": machine(), "versions": versions(), "commit": commit(), "game": config.env_id, "recipe": args.recipe,
        "uses": {n: RUNGS[n].what for n in plan.rungs}, "left_out": plan.left_out, "tuned": plan.tuned or None,
        "runner": config.runner, "why": plan.why or None, "settings": recipes.own_settings(plan),
        "config": config.to_dict(),
    }  # fmt: skip
    if args.json:
        json.dump(facts, sys.stdout, indent=1)
        print()
        return 0
    m = facts["machine"]
    print(f"machine   {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['os']}")
    print(f"GPU       {m['gpu'] or 'none that torch can use'}")
    print(f"versions  {', '.join(f'{k} {v}' for k, v in facts['versions'].items())}")
    print(f"commit    {facts['commit']}")
    print(f"\n{args.recipe} for {config.env_id}" + (f", tuned on this machine: {plan.tuned}:" if plan.tuned else ":"))
    print(f"  runner {config.runner:<15} {plan.why}".rstrip())
    if facts["settings"]:
        print(f"  with                  {', '.join(f'{k} {v}' for k, v in facts['settings'].items())}")
    for name, what in facts["uses"].items():
        print(f"  {name:<22} {what} [{RUNGS[name].promise}]")
    for name, why in plan.left_out.items():
        print(f"  not {name:<18} {why}")
    if not plan.tuned and args.recipe != "baseline":
        print("  not tuned: `dqnitro tune` measures what is fastest here")
    if not plan.rungs:
        print("  no rungs: the textbook settings")
    if args.settings:
        print()
        for flag, value, text in show_config(config):
            print(f"  {flag:<24} {value:<12} {text}")
    return 0
