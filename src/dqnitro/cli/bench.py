"""`dqnitro bench`."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from dqnitro.cli.flags import Parser, note
from dqnitro.errors import ConfigError

DESCRIPTION = """\
Measure on this machine: contenders take turns in one process, results are ratios with 95% intervals.

Examples
  dqnitro bench learn                             our baseline and fast recipes against SB3 and a CleanRL-style loop
  dqnitro bench learn --rounds 8 --seconds 4
  dqnitro bench learn --out results/learn.json    keep the figures with machine, versions, commit and command
  dqnitro bench console                           the native console against ale-py's vector environment and EnvPool
  dqnitro bench console --games pong,breakout --threads 1

What can be measured
  console  environment steps a second at the default options, with one thread and with two
  learn    samples learned a second at the textbook settings (batch 32, one update a step), environment included
"""


def main(argv: list[str]) -> int:
    p = Parser("bench", "WHAT [options]", DESCRIPTION)
    p.add_argument("what", help="what to measure: " + ", ".join(BENCHES))
    p.add_argument("--game", default="pong", help="Atari game (default: pong)")
    p.add_argument("--games", metavar="A,B", help="console: these games (default: twelve)")
    p.add_argument("--threads", default="1,2", metavar="N,M", help="console: numbers of threads (default: 1,2)")
    p.add_argument(
        "--rounds", type=int, default=6, metavar="N", help="rounds in which all take their turn (default: 6)"
    )
    p.add_argument("--seconds", type=float, default=3.0, metavar="S", help="seconds a turn (default: 3)")
    p.add_argument("--out", metavar="FILE", help="write the result as JSON")
    p.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    args = p.parse(argv)
    if args.what not in BENCHES:
        raise ConfigError(f"unknown benchmark {args.what!r}", f"there are {', '.join(BENCHES)}")
    if args.rounds < 1 or args.seconds <= 0:
        raise ConfigError("--rounds must be at least 1 and --seconds over 0")
    from dqnitro.machine import provenance

    result = BENCHES[args.what](args)
    result |= {"what": args.what, "rounds": args.rounds, "seconds": args.seconds, **provenance()}
    if args.out:
        pathlib.Path(args.out).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(args.out).write_text(json.dumps(result, indent=1) + "\n")
    if args.json:
        json.dump(result, sys.stdout, indent=1)
        print()
    else:
        _print(result)
    return 0


def bench_learn(args: Any) -> dict[str, Any]:
    from dqnitro import recipes
    from dqnitro.lab import peers
    from dqnitro.lab.measure import compare, interleave

    contenders: dict[str, Callable[[float], float]] = {"baseline": peers.ours(recipes.baseline(args.game))}
    skipped = {}
    for name, make in (
        ("Stable-Baselines3", lambda: peers.stable_baselines3(args.game)),
        ("CleanRL-style loop", lambda: peers.single_file_loop(args.game)),
        ("fast", lambda: peers.ours(recipes.fast(args.game))),
    ):
        try:
            contenders[name] = make()
        except ConfigError as e:
            skipped[name] = str(e)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for r, name, rate in interleave(contenders, args.rounds, args.seconds):
        rates[name].append(rate)
        note(f"round {r + 1} of {args.rounds}: {name} {rate:,.0f} samples/s")
    return {
        "unit": "samples learned/s",
        "to": "baseline",
        "rates": rates,
        "table": compare(rates, "baseline"),
        "skipped": skipped,
    }


def bench_console(args: Any) -> dict[str, Any]:
    from dqnitro.lab import bench_console as bench

    games = [g.strip() for g in args.games.split(",")] if args.games else bench.GAMES
    try:
        threads = [int(t) for t in args.threads.split(",")]
    except ValueError:
        raise ConfigError(f"--threads must be numbers like 1,2, got {args.threads!r}") from None
    return bench.bench_console(games, threads, args.seconds, args.rounds, progress=note)


BENCHES = {"learn": bench_learn, "console": bench_console}


def _print(result: dict[str, Any]) -> None:
    if "geomean" in result:
        from dqnitro.lab.bench_console import table as markdown

        print(markdown(result))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("contender")
    table.add_column(result["unit"], justify="right")
    table.add_column(f"ratio to {result['to']} (95% interval)", justify="right")
    for name, row in sorted(result["table"].items(), key=lambda kv: -kv[1]["rate"]):
        table.add_row(
            name,
            f"{row['rate']:,.0f}",
            f"{row['ratio']:.2f}x [{row['low']:.2f}, {row['high']:.2f}] (n={row['rounds']})",
        )
    Console().print(table)
    for name, why in result["skipped"].items():
        print(f"not measured: {name}: {why}")
