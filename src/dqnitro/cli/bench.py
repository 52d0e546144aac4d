"""`dqnitro bench`."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable
from typing import Any

from dqnitro.cli.terminal.flags import Parser, amount, count, note, out_file
from dqnitro.cli.terminal.tables import LOG_EVERY_HELP, Reports, names_of, store_and_show
from dqnitro.config import nearest, shown
from dqnitro.errors import ConfigError

# Questions of the book and the notes, one small module each: dqnitro.lab.bench.<what>
MICRO = {
    "device": "forward pass on CPU and GPU over batch sizes: from which batch on does a GPU pay?",
    "compile": "eager, TorchScript and torch.compile: forward pass and update",
    "amp": "float32, bfloat16, and float16 with a gradient scaler: one update",
    "collect": "threads, processes and vectorised environments for collecting experience",
    "replay": "bytes per transition in every replay and in a naive list; additions and samples a second",
    "resize": "OpenCV, Pillow, torch and our own resize, with the difference to OpenCV's area method",
    "envs": "serial wrappers, gym Sync and Async, ale C++ and our console with 1, 4 and 8 environments",
    "copies": "NumPy to torch, and pageable, pinned and asynchronous copies to the GPU",
    "gpu": "console frames/s on a GPU over games and numbers of consoles, latency of a vector step, samples learned/s",
}
PEERS = {
    "learn": "samples learned a second at the textbook settings, against SB3 and a CleanRL-style loop",
    "console": "our console against ale-py's vector environment and EnvPool, with one thread and with two",
}

DESCRIPTION = """\
Measure on this machine: contenders take turns, results are ratios with 95% intervals and a verdict.

Examples
  dqnitro bench device                            is a GPU worth it here, and from which batch on?
  dqnitro bench envs --game breakout              which environment backend is fastest
  dqnitro bench collect --game CartPole-v1        also with Gymnasium environments, where it makes sense
  dqnitro bench compile --only eager,script       only contenders whose names contain these words
  dqnitro bench learn --rounds 8 --seconds 4
  dqnitro bench replay --out results/replay.json  keep the figures with machine, versions, commit and command
  dqnitro bench console --games pong,breakout --threads 1
  dqnitro bench gpu --games pong,breakout --machines 256,4096 --out results/gpu.json
  dqnitro bench gpu --only training --games pong,qbert --train-minutes 3     and the share of it that real runs reach
  dqnitro bench gpu --only '"16,384 machines, batch 512"'

What can be measured
{benches}

Exit codes: 0 measured, 1 unexpected failure, 2 bad input, 130 Ctrl-C.
""".format(benches="\n".join(f"  {name:<8} {what}" for name, what in (MICRO | PEERS).items()))


def main(argv: list[str]) -> int:
    p = Parser("bench", "WHAT [options]", DESCRIPTION)
    p.add_argument("what", help="what to measure (the list is above)")
    p.add_argument("--game", default="pong", help="Atari game or Gymnasium id (default: pong)")
    p.add_argument("--games", metavar="A,B", help="console, gpu: these games (default: twelve; gpu: twenty)")
    p.add_argument("--machines", metavar="N,M", help="gpu: numbers of consoles (default: 256 to 131,072)")
    p.add_argument(
        "--train-minutes", type=amount(), default=0.0, metavar="M",
        help="gpu: after measuring training, train that long with the same settings and compare (default: 0, do not)",
    )  # fmt: skip
    p.add_argument("--device", metavar="D", help="learn: cpu or cuda (default: the GPU if torch can use one)")
    p.add_argument("--threads", default="1,2", metavar="N,M", help="console: numbers of threads (default: 1,2)")
    p.add_argument(
        "--only", metavar="A,B",
        help='only contenders whose name contains one of these words (1,024 is one word, "a, b" too)',
    )  # fmt: skip
    p.add_argument("--rounds", type=count(), metavar="N", help="rounds (default: 5; learn and console: 6)")
    p.add_argument(
        "--seconds", type=amount(0.001), metavar="S", help="seconds per turn (default: 0.5; learn and console: 3)"
    )
    p.add_argument("--out", type=out_file, metavar="FILE", help="write the result as JSON")
    p.add_argument("--quiet", action="store_true", help="do not report progress")
    p.add_argument("--log-every", type=amount(0.001), metavar="S", help=LOG_EVERY_HELP)
    p.add_argument("--json", action="store_true", help="print the result as JSON")
    args = p.parse(argv)
    known = MICRO | PEERS
    if args.what not in known:
        raise ConfigError(f"unknown benchmark {args.what!r}", nearest(args.what, known, "benchmarks"))
    if args.only and args.what in PEERS:
        raise ConfigError(f"bench {args.what} does not take --only", f"these do: {', '.join(MICRO)}")
    if args.train_minutes and args.what != "gpu":
        raise ConfigError(f"bench {args.what} does not take --train-minutes", "only bench gpu does")
    if args.machines and args.what != "gpu":
        raise ConfigError(f"bench {args.what} does not take --machines", "only bench gpu does")
    args.rounds = args.rounds if args.rounds is not None else (5 if args.what in MICRO else 6)
    args.seconds = args.seconds if args.seconds is not None else (0.5 if args.what in MICRO else 3.0)
    if args.what == "learn":
        from dqnitro.lab.where import where

        note(where(_device(args)).text)
    with Reports(f"bench {args.what}", args) as args.progress:
        result = measure(args)
    store_and_show(result, pathlib.Path(args.out) if args.out else None, args.json, _print)
    return 0


def measure(args: Any) -> dict[str, Any]:
    """The result with machine, versions, commit and command."""
    from dqnitro.lab.store import header

    found = BENCHES[args.what](args) if args.what in PEERS else micro(args)
    return header(args.what, args.game, rounds=args.rounds, seconds=args.seconds) | found


def micro(args: Any) -> dict[str, Any]:
    """Run a small benchmark by its module."""
    from dqnitro.lab.bench.contest import Options

    only = tuple(names_of(args.only) or ())
    options = Options(args.game, args.rounds, args.seconds, only, args.progress.say)
    if args.what == "gpu":
        return bench_gpu(args, options)
    return importlib.import_module(f"dqnitro.lab.bench.{args.what}").bench(options)


def _device(args: Any) -> dict[str, Any]:
    return {} if args.device is None else {"device": args.device}


def bench_learn(args: Any) -> dict[str, Any]:
    from dqnitro.lab.bench import peers
    from dqnitro.lab.interleave import compare, interleave, threads_put_back
    from dqnitro.lab.where import lab_plan, where

    changes = _device(args)
    here = where(changes)
    device, threads = here.settings["device"], here.settings.get("torch_threads", 0)

    def ours(recipe: str) -> Callable[[float], float]:
        return peers.ours(lab_plan(recipe, args.game, changes).config().replace(**changes))

    def peer(make: Callable[[str, str], Callable[[float], float]]) -> Callable[[float], float]:
        with threads_put_back(threads):
            rate = make(args.game, device)

        def in_threads(seconds: float) -> float:
            with threads_put_back(threads):
                return rate(seconds)

        return in_threads

    contenders: dict[str, Callable[[float], float]] = {"baseline": ours("baseline")}
    skipped = {}
    for name, make in (
        ("Stable-Baselines3", lambda: peer(peers.stable_baselines3)),
        ("CleanRL-style loop", lambda: peer(peers.single_file_loop)),
        ("fast", lambda: ours("fast")),
    ):
        try:
            contenders[name] = make()
        except ConfigError as e:
            skipped[name] = str(e)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for r, name, rate in interleave(contenders, args.rounds, args.seconds):
        rates[name].append(rate)
        args.progress.say(f"round {r + 1} of {args.rounds}: {name} {rate:,.0f} samples/s")
    return {
        "unit": "samples learned/s",
        "to": "baseline",
        "rates": rates,
        "table": compare(rates, "baseline"),
        "skipped": skipped,
        "notes": {"where": here.text},
    }


def numbers(option: str, text: str) -> list[int]:
    """1,2,4 as numbers over 0."""
    try:
        found = [int(t) for t in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or max(found) > 2**20:
        raise ConfigError(f"{option} must be numbers like 1,2, each at most {2**20:,}, got {shown(text)}")
    return found


def atari(name: str) -> str:
    """The game that a name in --games means."""
    from dqnitro.envs import atari_game

    if (game := atari_game(name)) is None:
        raise ConfigError(f"--games {shown(name)}: not an Atari game", "`dqnitro games` lists them")
    return game


def bench_gpu(args: Any, options: Any) -> dict[str, Any]:
    from dqnitro.lab.bench import gpu as bench

    wanted = [g.strip() for g in args.games.split(",")] if args.games else bench.TWENTY
    games = [atari(g) for g in wanted]
    counts = numbers("--machines", args.machines) if args.machines else bench.MACHINES
    trained = games if args.games else ["pong"]
    training = {"train_minutes": args.train_minutes}
    return bench.bench(options, games, counts, training=training, trained=trained)


def bench_console(args: Any) -> dict[str, Any]:
    from dqnitro.lab.bench import console as bench

    games = [atari(g.strip()) for g in args.games.split(",")] if args.games else bench.GAMES
    threads = numbers("--threads", args.threads)
    return bench.bench_console(games, threads, args.seconds, args.rounds, progress=args.progress.say)


BENCHES = {"learn": bench_learn, "console": bench_console}


def _print(result: dict[str, Any]) -> None:
    if "geomean" in result:
        from dqnitro.lab.bench.console import table as markdown

        print(markdown(result))
        return
    from dqnitro.cli.terminal.bench_table import print_bench

    print_bench(result)
