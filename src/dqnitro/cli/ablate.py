"""`dqnitro ablate`."""

from __future__ import annotations

import argparse
import pathlib
import sys
from functools import partial
from typing import Any

from dqnitro.cli.terminal import tables as t
from dqnitro.cli.terminal.flags import Parser, note
from dqnitro.cli.terminal.following import follow
from dqnitro.cli.terminal.launching import Job, Place, add_on_flag, place, state_folder
from dqnitro.cli.terminal.wording import turns_text
from dqnitro.errors import ConfigError
from dqnitro.report.formatting import plural
from dqnitro.seeds.launcher import last_words

DESCRIPTION = """\
Leave one thing out at a time and measure what it was worth. All variants take turns in one process.

Examples
  dqnitro ablate                          recipe fast, without each of its rungs
  dqnitro ablate auto --game breakout
  dqnitro ablate cost                     where the CPU time goes: without sampling, optimiser, loss,
                                          episodic life, clipping, resizing
  dqnitro ablate cost --recipe fast --rounds 20
  dqnitro ablate --rounds 40 --on auto    rounds shared out over the nodes of a Ray cluster
  dqnitro ablate --json --out results/ablate.json

A ratio under 1x means slower without it: it pays. The agents of `cost` do not learn properly; only their speed counts.
Exit codes: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM (complete rounds are kept).
"""


def make_parser() -> Parser:
    p = Parser("ablate", "[RECIPE|cost] [options]", DESCRIPTION)
    p.add_argument("what", nargs="?", default="fast", help="a recipe (auto or fast), or cost (default: fast)")
    p.add_argument("--game", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--recipe", default="baseline", help="with cost: the recipe to take apart (default: baseline)")
    add_on_flag(p, "share the rounds out over the nodes, each with all its contenders,")
    p.add_argument(
        "--state", metavar="DIR",
        help="with --on: where the nodes leave their parts; the same command measures those that are missing there "
        "(default: ablate)",
    )  # fmt: skip
    t.add_race_flags(p)
    return p


def main(argv: list[str]) -> int:
    args = make_parser().parse(argv)
    from dqnitro.lab import ablate as lab

    if args.on is not None:
        result = _on_nodes(args, argv)
        return t.finish(result, pathlib.Path(args.out) if args.out else None, args.json, show)
    t.say_where(args, args.recipe if args.what == "cost" else args.what)
    with t.Reports(f"ablate {args.what}", args) as progress:
        options = t.race_options(args, progress)
        if args.what == "cost":
            result = lab.cost(args.game, args.recipe, **options)
        else:
            result = lab.ablate(args.game, args.what, **options)
    return t.finish(result, pathlib.Path(args.out) if args.out else None, args.json, show)


def _on_nodes(args: argparse.Namespace, argv: list[str]) -> dict[str, Any]:
    """Whole rounds on every node: all contenders take turns there, so ratios never compare two machines. Parts that are
    there from the same command are not measured again.
    """
    from dqnitro.cluster.nodes import Need, alive
    from dqnitro.lab.ablate import merged
    from dqnitro.lab.ablate_parts import FILE, begin, missing
    from dqnitro.lab.store import default_path, load
    from dqnitro.seeds.allocation import PROCESS_BYTES
    from dqnitro.session import EXIT_CODES

    state = state_folder(args.state) or default_path("ablate", args.game, pathlib.Path("ablate")).parent
    with place(args.on) as here:
        assert here.cluster is not None
        nodes = [n for n in alive(here.cluster) if n.cpus >= 1]
        words = without(argv, ("--on", "--out", "--state"), ("--json",))
        asked = begin(state, words, len(nodes), args.rounds, named=args.state is not None)
        common = [*without(words, ("--rounds",), ()), "--rounds", str(asked.rounds)]
        parts = asked.paths(state)
        jobs = {i: _job(common, parts[i], state, i) for i in missing(parts)}
        for i in jobs:
            parts[i].unlink(missing_ok=True)
        cpus = int(min((node.cpus for node in nodes), default=1))
        gpus = 1 if nodes and all(node.gpus for node in nodes) else 0
        note(
            f"{plural(len(nodes), 'node')}, {plural(asked.number, 'part')} of {plural(asked.rounds, 'round')}, "
            f"{len(jobs)} to measure, {cpus} CPUs each -> {state}"
        )
        at = here if jobs else Place(None)  # nothing to do needs no node
        team = at.team(jobs, asked.number, cpus, Need(cpus, gpus, PROCESS_BYTES), state / FILE)
        stopped, _ = follow(team, lambda ended: None, lambda i: f"part {i + 1}", "part")
    done = [load(part) for part in parts if part.is_file()]
    if not done and stopped:
        raise SystemExit(EXIT_CODES[stopped])
    if not done:
        why = next((w for part in parts if (w := last_words(part.with_suffix(".log")))), "no part came back")
        raise ConfigError(f"no node completed its rounds ({why})", f"the parts' logs are in {state}")
    if left := missing(parts):
        note(f"not done: {len(left)} of {plural(asked.number, 'part')}; the same command goes on")
    return merged(done) | ({"interrupted": stopped} if stopped else {})


def _job(common: list[str], part: pathlib.Path, state: pathlib.Path, i: int) -> Job:
    return Job(partial(command, common, part), part.with_suffix(".log"), state, f"part {i + 1}", part)


def command(common: list[str], part: pathlib.Path) -> list[str]:
    return [sys.executable, "-m", "dqnitro", "ablate", *common, "--quiet", "--out", str(part)]


def without(argv: list[str], options: tuple[str, ...], flags: tuple[str, ...]) -> list[str]:
    """The words of a command line without these options (and their values) and flags."""
    out, skip = [], False
    for word in argv:
        if skip or word in flags or word.split("=")[0] in options:
            skip = not skip and word in options
            continue
        out.append(word)
    return out


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
    print(f"{turns_text(result)}; {result['notes']['replay']}")
