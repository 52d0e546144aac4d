"""`make chaos`: faults of all kinds against the real program, counted in one table.

    python -m chaos                                  the long form: 2,000 faults or more
    python -m chaos --short                          some 300 faults; what `make test` runs
    python -m chaos --only save,player --seed 2      some kinds, with other random numbers
    python -m chaos --only drift --drift-minutes 60  two hours that look for what grows
    python -m chaos --only cluster                   100 faults in players, nodes and drivers on Ray: most of an hour
    python -m chaos --only cluster --address auto --minutes 30      the same kind on a cluster that is there
    python -m chaos --repeat "damaged file/1/37"     one fault again, with everything that is known of it

A fault that costs something is named below the table, with the word that repeats it. Run it in tests/, or with tests/
on PYTHONPATH. Exit codes: 0 nothing was lost, 1 something was.
"""

from __future__ import annotations

import os

# Children are forked, and neither OpenMP's threads nor a GPU survive that.
os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

import argparse
import json
import pathlib
import random
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

from chaos import apart, damage, drift, gpu_models, gpu_runners, inputs, live, on_ray, saves
from chaos.harness import COLUMNS, Kind, Outcome, World, be_the_reaper, count_orphans, spread
from dqnitro.common.files import write_json
from dqnitro.lab.store import header, save

gpu_models.register()
KINDS: list[Kind] = [
    *live.KINDS, *apart.KINDS, *gpu_runners.KINDS, *damage.KINDS, *saves.KINDS, *inputs.KINDS, *drift.KINDS,
    *on_ray.KINDS,
]  # fmt: skip
MOST_TRIES = 3  # for each fault of a kind that may come too late
PROTOCOL = (
    "Every fault is made in a forked or a new process, with a random generator seeded by kind, seed and number. "
    "Counted are: checkpoints or files lost; runs that differ, bit for bit, from the run that nothing happened to; "
    "Python tracebacks; ends by a signal or an exit code that is not promised; processes that idled for 60 s or worked "
    "for 120 s where a tenth is usual; and processes that were left. A fault that came after the end of its run is not "
    "counted, and another is made in its place."
)


def one(world: World, kind: Kind, seed: int, i: int) -> Outcome:
    """Fault number i of a kind."""
    try:
        out = kind.fault(world, random.Random(f"{kind.name}/{seed}/{i}"), i)
    except Exception:  # nothing that was found before may be lost with it
        out = Outcome(faults=0)
        out.count("crashes", f"of the campaign itself: {traceback.format_exc()}")
    count_orphans(out)
    return out


Say = Callable[[str], None]
Keep = Callable[[Any], None]


def campaign(world: World, kinds: list[tuple[Kind, int]], seed: int, say: Say, keep: Keep) -> dict[str, Any]:
    """All faults; a row per kind, and those that cost something in words."""
    rows: list[dict[str, Any]] = []
    failures: list[dict[str, str]] = []
    result = summed(rows, failures)
    for kind, n in kinds:
        begin, bad, made, i = time.monotonic(), dict.fromkeys(COLUMNS, 0), 0, -1
        measured: dict[str, list[float]] = {}
        row: dict[str, Any] = {}
        while made < n and i + 1 < (1 if kind.once else MOST_TRIES * n):
            i += 1
            out = one(world, kind, seed, i)
            made += out.faults
            for column, count in out.bad.items():
                bad[column] += count
            for name, seconds in out.seconds.items():
                measured.setdefault(name, []).extend(seconds)
            for note in out.notes:
                failures.append({"repeat": f"{kind.name}/{seed}/{i}", "what": note})
                say(f"{kind.name}/{seed}/{i}: {note}")
            row = {"kind": kind.name, "what": kind.what, "faults": made, **bad}
            row |= {"seconds": round(time.monotonic() - begin, 1)}
            row |= {"measured_s": {name: spread(values) for name, values in measured.items()}} if measured else {}
            if kind.apart:
                keep(summed([*rows, row], failures))  # each is many faults, and takes minutes
            if (made % 50 == 0 or kind.apart) and out.faults and not kind.once:
                say(f"{kind.name}: {made} of {n}")
        rows.append(row)
        say(row_text(rows[-1]))
        keep(result := summed(rows, failures))
    return result


def summed(rows: list[dict[str, Any]], failures: list[dict[str, str]]) -> dict[str, Any]:
    total = {name: sum(r[name] for r in rows) for name in ("faults", *COLUMNS, "seconds")}
    return {"rows": rows, "total": {"kind": "all", **total}, "failures": failures}


def shared_out(kinds: list[tuple[Kind, int]], jobs: int) -> list[list[tuple[Kind, int]]]:
    """The kinds for each of so many processes: the longest first, each to the one that has least to do."""
    loads = [(0.0, k, list[tuple[Kind, int]]()) for k in range(jobs)]
    for kind, n in sorted(kinds, key=lambda pair: -pair[0].seconds * pair[1]):
        load, k, mine = min(loads, key=lambda x: x[:2])
        mine.append((kind, n))
        loads[k] = (load + kind.seconds * n, k, mine)
    return [mine for _, _, mine in loads if mine]


def side_by_side(
    root: pathlib.Path, kinds: list[tuple[Kind, int]], args: argparse.Namespace, say: Say, keep: Keep
) -> dict[str, Any]:
    """The same campaign in several processes, each with kinds of its own: less time on a machine with many cores."""
    world, parts = World(root), shared_out(kinds, args.jobs)
    pids = []
    for k, mine in enumerate(parts):
        if (pid := os.fork()) == 0:
            code = 1
            try:
                be_the_reaper()
                world.root = root / f"job-{k}"
                world.root.mkdir()
                tempfile.tempdir = str(world.root)
                part = root / f"job-{k}.json"
                campaign(world, mine, args.seed, say, lambda found, part=part: write_json(part, found))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        pids.append(pid)
    result, done = summed([], []), 0
    while pids:
        time.sleep(1)
        for pid in list(pids):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended and status:
                for other in pids:
                    if other != pid:
                        os.kill(other, signal.SIGKILL)
                sys.exit("chaos: a process of the campaign ended with an error (above)")
            if ended:
                pids.remove(pid)
        result = _together(root, [k.name for k, _ in kinds])
        if len(result["rows"]) > done:
            done = len(result["rows"])
            keep(result)
    return result


def _together(root: pathlib.Path, order: list[str]) -> dict[str, Any]:
    """What the processes have found so far."""
    found = [json.loads(path.read_text()) for path in sorted(root.glob("job-*.json"))]
    rows = sorted((r for f in found for r in f["rows"]), key=lambda r: order.index(r["kind"]))
    return summed(rows, [x for f in found for x in f["failures"]])


def row_text(row: dict[str, Any]) -> str:
    return (
        f"{row['kind']:<18} {row['faults']:>7,}"
        + "".join(f"{row[c]:>11}" for c in COLUMNS)
        + f"{row['seconds']:>9.0f} s"
    )


def table(result: dict[str, Any]) -> str:
    first = f"{'kind':<18} {'faults':>7}" + "".join(f"{c:>11}" for c in COLUMNS) + f"{'time':>11}"
    return "\n".join([first, *(row_text(r) for r in (*result["rows"], result["total"]))])


def chosen(args: argparse.Namespace) -> list[tuple[Kind, int]]:
    names = args.only.split(",") if args.only else [k.name for k in KINDS if not k.apart]
    if unknown := set(names) - {k.name for k in KINDS}:
        sys.exit(f"chaos: unknown kind {', '.join(unknown)}; hint: the kinds are {', '.join(k.name for k in KINDS)}")

    def number(kind: Kind) -> int:
        return args.faults or (kind.short if args.short else round(kind.long * args.times))

    return [(k, number(k)) for k in KINDS if k.name in names and number(k)]


def main() -> int:
    p = argparse.ArgumentParser("chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--short", action="store_true", help="some 300 faults")
    p.add_argument("--only", default="", help="kinds, separated by commas")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--faults", type=int, default=0, help="this many of each kind")
    p.add_argument("--times", type=float, default=1.0, help="so many times as many faults as the long form")
    p.add_argument("--jobs", type=int, default=1, help="processes that share the kinds out")
    p.add_argument("--drift-minutes", type=float, default=drift.MINUTES[0], help="of each of the two of kind drift")
    p.add_argument("--repeat", default="", metavar="KIND/SEED/NUMBER", help="one fault again")
    p.add_argument("--out", type=pathlib.Path, help="write the result as JSON")
    p.add_argument("--address", default="", help="auto or ray://HOST:PORT: aim kind cluster at that cluster")
    p.add_argument("--minutes", type=float, default=10.0, help="with --address: how long faults are made")
    p.add_argument("--strike-nodes", action="store_true", help="with --address: nodes too, with all that runs there")
    args = p.parse_args()
    if args.address and args.only != "cluster":
        p.error("--address is for --only cluster: the other kinds are made on this machine")
    drift.MINUTES[0] = args.drift_minutes
    # In main memory where there is such a folder: what is tested is the order of writes, not the disk.
    be_the_reaper()
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="chaos-", dir=place) as root:
        tempfile.tempdir = root
        if args.repeat:
            name, seed, number = args.repeat.rsplit("/", 2)
            kind = next(k for k in KINDS if k.name == name)
            out = one(World(pathlib.Path(root)), kind, int(seed), int(number))
            print(json.dumps({"bad": out.bad, "notes": out.notes}, indent=1))
            return int(any(out.bad.values()))

        kinds, place = chosen(args), pathlib.Path(root)
        protocol = " ".join([PROTOCOL, *(on_ray.PROTOCOL for kind, _ in kinds if kind in on_ray.KINDS)])
        if args.address:
            words = ["--address", args.address, "--minutes", str(args.minutes)]
            kinds, protocol = [(on_ray.aimed([*words, *["--strike-nodes"] * args.strike_nodes]), 1)], on_ray.THERE

        def say(text: str) -> None:
            print(text, file=sys.stderr, flush=True)

        def keep(result: dict[str, Any]) -> None:
            if args.out:
                words = {"command": shlex.join(["python", "-m", "chaos", *sys.argv[1:]])}
                save(args.out, header("chaos", "corridor", seed=args.seed, protocol=protocol) | words | result)

        if args.jobs > 1:
            result = side_by_side(place, kinds, args, say, keep)
        else:
            result = campaign(World(place), kinds, args.seed, say, keep)
    print(table(result))
    return int(any(result["total"][c] for c in COLUMNS))


if __name__ == "__main__":
    sys.exit(main())
