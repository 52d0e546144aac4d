"""`dqnitro sweep`."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dqnitro.cli import one_seed
from dqnitro.cli.terminal.flags import Parser, add_config_flags, config_changes, count, note
from dqnitro.cli.terminal.following import follow, last_line
from dqnitro.cli.terminal.launching import Job, Place, add_on_flag, place, state_at
from dqnitro.cli.terminal.tables import Reports, add_result_flags, finish, number_text, say_where, show_table
from dqnitro.common.files import check_writable
from dqnitro.errors import ConfigError
from dqnitro.report.formatting import plural
from dqnitro.seeds.folder import FILE as SEEDS
from dqnitro.seeds.folder import MOST_SEEDS, seed_range
from dqnitro.storage.home import Home

if TYPE_CHECKING:
    from dqnitro.lab.sweep_runs import Asked

DESCRIPTION = """\
Train with several values of one setting, several seeds each: speed, score, and curves over wall clock and steps.

Examples
  dqnitro sweep envs 1 2 4 8 --minutes 5                    number of environments, 5 minutes per run
  dqnitro sweep steps --steps 200_000 --seeds 3             steps per update: 1, 2, 4, 8, 16, as in the notes
  dqnitro sweep batch 32 64 128 --recipe fast --minutes 10
  dqnitro sweep stack 2 4 --game breakout --minutes 10
  dqnitro sweep learning-rate 1e-4 5e-4 --game CartPole-v1 --steps 20_000
  dqnitro sweep batch 32 64 --minutes 10 --on auto          runs spread over a Ray cluster (docs/cluster.md)
  dqnitro sweep double --game CartPole-v1 --minutes 0.5     on and off; also names, as in `sweep network`

Several settings at once, with Optuna (pip install 'dqnitro[optuna]'): values with commas, or a range
  dqnitro sweep learning-rate=1e-5..1e-3 n-step=1,3,5 --game pong,breakout --recipe auto --minutes 2 --trials 30
  dqnitro sweep learning-rate=1e-5..1e-3 n-step=1,3,5 --steps 2e6 --trials 60 --at-once 8 --on auto
The first trial is the recipe as it is; trials that fall behind are stopped early; the same command goes on where it
stopped. Points are the mean of human-normalised scores (of one game without a human score: its score).

SETTING is envs, steps, batch, stack or any option of `dqnitro train`. Equal time favours fast settings, equal steps
favour settings that learn more from each step: the table and the file show both.
Exit codes: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM (complete runs are kept).
"""


def make_parser() -> Parser:
    p = Parser("sweep", "SETTING [VALUE ...] | SETTING=VALUES ... [options]", DESCRIPTION)
    p.add_argument("setting", help="envs, steps, batch, stack or any option of `dqnitro train`; or SETTING=VALUES")
    p.add_argument(
        "values", nargs="*", metavar="VALUE", help="its values (default: those in the notes, or all choices)"
    )
    p.add_argument(
        "--game", default="pong", help="Atari game or Gymnasium id; of a search several, with commas (default: pong)"
    )
    p.add_argument("--recipe", default="baseline", help="the recipe for all other settings (default: baseline)")
    p.add_argument(
        "--seeds", type=count(1, MOST_SEEDS), metavar="N", help="seeds per value (default: 3; of a search: 1)"
    )
    p.add_argument(
        "--trials", type=count(1, 10**6), default=20, metavar="N", help="of a search: trials in all (default: 20)"
    )
    add_on_flag(p, "train the runs")
    p.add_argument(
        "--state", metavar="PATH",
        help="a folder, or a URL (s3://...), with a folder for every run; of a search without --on and --at-once a "
        "file with its trials. The same command goes on (default with --on: sweeps/SETTING-GAME-..., of a search "
        "sweeps/search-...)",
    )  # fmt: skip
    p.add_argument(
        "--at-once", type=count(0, 1000), default=0, metavar="N",
        help="with --on or --state: runs at the same time (default: as many as fit); of a search: trials",
    )  # fmt: skip
    add_result_flags(p, "write the result to this file (default: sweeps/SETTING-GAME-DATE.json)")
    add_config_flags(p)
    return p


def main(argv: list[str]) -> int:
    args = make_parser().parse(argv)
    if "=" in args.setting:
        from dqnitro.cli.search import search_main

        return search_main(args)
    from dqnitro.lab.store import default_path
    from dqnitro.lab.sweep import find_setting, parse_values, sweep

    setting = find_setting(args.setting, args.values)
    values = parse_values(setting, args.values)
    changes = config_changes(args)
    if setting in changes:
        raise ConfigError(f"{args.setting} is swept and also given as an option", "give only one of them")
    seeds = seed_range(changes.pop("seed", 1), args.seeds or 3)
    out = pathlib.Path(args.out) if args.out else default_path(setting, args.game, pathlib.Path("sweeps"))
    check_writable(out)
    if args.on is not None or args.state is not None:
        from dqnitro.lab.sweep_runs import FILE, Asked, default_state

        asked = Asked(args.game, setting, values, args.recipe, tuple(seeds), changes)
        with state_at(args.state, default_state(asked), FILE) as (state, home):
            return finish(_with_folders(asked, state, args, home), out, args.json, show)
    say_where(args, args.recipe)
    with Reports(f"sweep {args.setting}", args) as progress:
        result = sweep(
            args.game, setting, values, recipe=args.recipe, seeds=seeds, changes=changes,
            say=progress.say,
        )  # fmt: skip
    return finish(result, out, args.json, show)


def _with_folders(asked: Asked, state: pathlib.Path, args: argparse.Namespace, home: Home) -> dict[str, Any]:
    """Every run is a process with a folder, here or on a cluster."""
    from dqnitro.lab.sweep import base_of, result_of
    from dqnitro.lab.sweep_runs import FILE, folder_of, jobs_of, open_folders, read_runs
    from dqnitro.seeds.allocation import least_need

    with place(args.on) as here:
        home.fetch(home.names(folder_of(state, asked.setting, value) for value in asked.values))
        folders, skipped, mine = open_folders(state, asked, here.share, args.at_once)
        home.keep(home.names([state / FILE, *(f.path / SEEDS for f in folders.values())]))
        todo = jobs_of(asked, folders)
        note(
            f"{plural(len(asked.values), 'value')} of {asked.setting}, {plural(len(asked.seeds), 'seed')} each: "
            f"{plural(len(todo), 'run')} to do, "
            f"{mine.at_once} at a time ({mine.why}) -> {home.url or state}"
        )

        def command(i: int) -> list[str]:
            job = todo[i]
            minutes = repr(float(job.folder.minutes_left(job.seed)))
            options = ("--minutes", minutes, "--eval-games", "0", "--no-video", "--trust")
            return one_seed.command(job.folder.path.resolve(), job.seed, *options)

        def name(i: int) -> str:
            return f"{asked.setting} {todo[i].value}, seed {todo[i].seed}"

        jobs = {
            i: Job(partial(command, i), j.folder.log(j.seed), j.run_dir, name(i)) for i, j in enumerate(todo)
        }  # fmt: skip
        need = least_need(todo[0].folder.config) if todo and args.on else None
        at = here if need else Place(None)  # nothing to do needs no node
        config = todo[0].folder.config if todo else None
        team = at.team(jobs, mine.at_once, mine.torch_threads, need, state / FILE, config, home, args.at_once)
        every = home.names(p for j in todo for p in j.files)
        with home.followed(every), Reports(f"sweep {args.setting}", args) as progress:

            def look(ended: Sequence[Any]) -> None:
                done = len(todo) - len(team.waiting) - len(team.running)
                progress.say(f"{done} of {plural(len(todo), 'run')} ended, {len(team.running)} under way")

            stopped, _ = follow(team, look, name)
    for i, member in team.members.items():
        words = last_line(member, todo[i].folder.log(todo[i].seed)) if member.code and not stopped else ""
        if words:
            note(f"{name(i)}: {words}")
    base = base_of(asked.game, asked.recipe, asked.changes, asked.setting)
    return result_of(base, asked.setting, asked.recipe, asked.seeds, read_runs(asked, folders), skipped, stopped)


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
    n = len(result["seeds"])
    over = ", 95% intervals over seeds" if n > 1 else ""
    print(f"\n{plural(n, 'seed')} per value{over}; recipe {result['recipe']}")
