"""`dqnitro profile`."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from dqnitro.cli.terminal.flags import Parser, add_config_flags, config_changes, note, out_file
from dqnitro.cli.terminal.progress import Progress
from dqnitro.cli.terminal.tables import store_and_show
from dqnitro.errors import ConfigError
from dqnitro.report.formatting import plural

DESCRIPTION = """\
Show where a step's time goes, what to try next, and the most it could gain. Writes a trace that Perfetto opens.

Examples
  dqnitro profile                                 Pong with the recipe `auto`
  dqnitro profile breakout --recipe baseline      the textbook DQN
  dqnitro profile CartPole-v1 --steps 500
  dqnitro profile pong --n-envs 16 --double       any setting, as for `dqnitro train`
  dqnitro profile pong --json --out profile.json

A few hundred steps run twice: timed (the tree and the shares), and under torch's profiler (the trace and the top
operations). Open the trace in https://ui.perfetto.dev or chrome://tracing.
Exit codes: 0 measured, 1 unexpected failure, 2 bad input, 130 Ctrl-C.
"""


def main(argv: list[str]) -> int:
    p = Parser("profile", "[GAME] [options]", DESCRIPTION)
    p.add_argument("game", nargs="?", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--recipe", default="auto", help="auto, fast, baseline, classic, strong (default: auto)")
    p.add_argument("--without", action="append", default=[], metavar="RUNG", help="leave a rung of the recipe out")
    p.add_argument("--also", action="append", default=[], metavar="RUNG", help="add a rung to the recipe")
    p.add_argument(
        "--trace",
        type=out_file,
        metavar="FILE",
        help="write the trace to this file (default: profile-GAME-RECIPE.json.gz)",
    )
    p.add_argument("--out", type=out_file, metavar="FILE", help="write the result as JSON")
    p.add_argument("--quiet", action="store_true", help="do not report progress")
    p.add_argument("--json", action="store_true", help="print the result as JSON")
    add_config_flags(p)
    args = p.parse(argv)
    steps = 200 if args.max_steps is None else args.max_steps
    if steps < 1:
        raise ConfigError(f"--steps must be at least 1, got {steps}")
    store_and_show(measure(args, steps), pathlib.Path(args.out) if args.out else None, args.json, show)
    return 0


def measure(args: Any, steps: int) -> dict[str, Any]:
    """The result with machine, versions, commit and command."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # before torch is imported: its profiler logs to stderr
    from dqnitro.common.files import file_stem
    from dqnitro.lab.where import lab_plan, where
    from dqnitro.ladder import fitted

    changes = {k: v for k, v in config_changes(args).items() if k != "max_steps"}
    config = lab_plan(args.recipe, args.game, changes).config(tuple(args.without), tuple(args.also)).replace(**changes)
    config = fitted(config)[0]
    note(where(changes, config).text)
    trace = pathlib.Path(args.trace or f"profile-{file_stem(config.env_id)}-{args.recipe}.json.gz")
    from dqnitro.lab.profile import profile
    from dqnitro.lab.store import header

    with Progress(
        f"{config.env_id}, recipe {args.recipe}: {steps} steps, twice", 2 * steps, quiet=args.quiet
    ) as progress:
        found = profile(config, steps, trace, say=progress)
    facts = header("profile", config.env_id, recipe=args.recipe, rounds=1, seconds=found["wall_s"])
    return facts | found | {"config": config.to_dict()}


def show(r: dict[str, Any]) -> None:
    from dqnitro.cli.terminal.bench_table import by_reason
    from dqnitro.lab.profile import tree_lines

    print(
        f"{r['game']}, recipe {r['recipe']}: {r['steps_per_s']:,.0f} steps/s, "
        f"{plural(r['updates'], 'update')} in {plural(r['steps'], 'step')}\n"
    )
    print("where a step's time goes")
    for line in tree_lines(r["tree"]):
        print(f"  {line}")
    print("\ntop operations (own time, under the profiler)")
    for op in r["top"]:
        print(f"  {op['op'][:44]:<44} {op['share']:7.1%} {1000 * op['self_s']:10,.1f} ms  {op['calls']:,} calls")
    print("\nwhat to try next")
    for a in r["advice"]:
        print(f"  {a['text']}")
    cannot = {name: why for a in r["advice"] for name, why in a["cannot"].items()}
    for line in by_reason("not here", cannot):
        print(f"  {line}")
    print(f"\ntrace  {r['trace']} (open it in https://ui.perfetto.dev)")
