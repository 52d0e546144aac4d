"""`dqnitro sweep`."""

from __future__ import annotations

import pathlib
from typing import Any

from dqnitro.cli.terminal.flags import Parser, add_config_flags, config_changes, count
from dqnitro.cli.terminal.tables import Reports, add_result_flags, finish, number_text, say_where, show_table
from dqnitro.common.files import check_writable
from dqnitro.errors import ConfigError
from dqnitro.seeds.folder import MOST_SEEDS, seed_range

DESCRIPTION = """\
Train with several values of one setting, several seeds each: speed, score, and curves over wall clock and steps.

Examples
  dqnitro sweep envs 1 2 4 8 --minutes 5                    number of environments, 5 minutes per run
  dqnitro sweep steps --steps 200_000 --seeds 3             steps per update: 1, 2, 4, 8, 16, as in the notes
  dqnitro sweep batch 32 64 128 --recipe fast --minutes 10
  dqnitro sweep stack 2 4 --game breakout --minutes 10
  dqnitro sweep learning-rate 1e-4 5e-4 --game CartPole-v1 --steps 20_000
  dqnitro sweep double --game CartPole-v1 --minutes 0.5     on and off; also names, as in `sweep network`

SETTING is envs, steps, batch, stack or any option of `dqnitro train`. Equal time favours fast settings, equal steps
favour settings that learn more from each step: the table and the file show both.
Exit codes: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM (complete runs are kept).
"""


def make_parser() -> Parser:
    p = Parser("sweep", "SETTING [VALUE ...] [options]", DESCRIPTION)
    p.add_argument("setting", help="envs, steps, batch, stack or any option of `dqnitro train`")
    p.add_argument(
        "values", nargs="*", metavar="VALUE", help="its values (default: those in the notes, or all choices)"
    )
    p.add_argument("--game", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--recipe", default="baseline", help="the recipe for all other settings (default: baseline)")
    p.add_argument("--seeds", type=count(1, MOST_SEEDS), default=3, metavar="N", help="seeds per value (default: 3)")
    add_result_flags(p, "write the result to this file (default: sweeps/SETTING-GAME-DATE.json)")
    add_config_flags(p)
    return p


def main(argv: list[str]) -> int:
    args = make_parser().parse(argv)
    from dqnitro.lab.store import default_path
    from dqnitro.lab.sweep import find_setting, parse_values, sweep

    setting = find_setting(args.setting, args.values)
    values = parse_values(setting, args.values)
    changes = config_changes(args)
    if setting in changes:
        raise ConfigError(f"{args.setting} is swept and also given as an option", "give only one of them")
    seeds = seed_range(changes.pop("seed", 1), args.seeds)
    out = pathlib.Path(args.out) if args.out else default_path(setting, args.game, pathlib.Path("sweeps"))
    check_writable(out)
    say_where(args)
    with Reports(f"sweep {args.setting}", args) as progress:
        result = sweep(
            args.game, setting, values, recipe=args.recipe, seeds=seeds, changes=changes,
            say=progress.say,
        )  # fmt: skip
    return finish(result, out, args.json, show)


def show(result: dict[str, Any]) -> None:
    from dqnitro.cli.terminal.wording import duration
    from dqnitro.lab.sweep import quarters

    columns = (
        (result["setting"], "left"),
        ("steps/s", "right"),
        ("samples/step", "right"),
        ("score at the end", "right"),
    )
    lines = []
    for r in result["rows"]:
        ratio = "-" if r["samples_per_step"] is None else f"{r['samples_per_step']:.1f}"
        lines.append([str(r["value"]), number_text(r["fps"]), ratio, number_text(r["score"])])
    show_table(columns, lines)
    for r in result["rows"]:
        if r["why"]:
            print(f"{result['setting']} {r['value']}: {r['why']}")
    for axis, words in (("wall_s", "wall clock"), ("steps", "steps")):
        places, table = quarters(result, axis)
        if not table:
            continue
        heads = [duration(x) if axis == "wall_s" else f"{x:,.0f} steps" for x in places]
        print(f"\nscore over {words} (mean of the last 100 games, over seeds)")
        show_table(
            ((result["setting"], "left"), *((h, "right") for h in heads)),
            [[str(v), *("-" if s is None else f"{s:.1f}" for s in scores)] for v, scores in table.items()],
        )
    print(f"\n{len(result['seeds'])} seeds per value, 95% intervals over seeds; recipe {result['recipe']}")
