"""How soon a lost player plays again: `python -m chaos.replacements --times 20 --out FILE`.

A run with three players on three Ray nodes of this machine. Players are killed and stopped in turn, and what is
measured is the time from that until another process has the player's games where they were and was told to go on. At
the end the run is compared, bit for bit, with the inline loop with the same ages.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
import time
from typing import Any

import psutil

from chaos.harness import COLUMNS, spread
from chaos.ray_driver import config_of
from chaos.ray_session import SMALL, TESTS, head_node
from dqnitro.cluster.connect import ADDRESS, import_ray
from dqnitro.lab.store import header, save
from dqnitro.run.cluster import ray_hosts, ticks
from dqnitro.run.cluster.actors import RayHosts
from dqnitro.run.cluster.crew import Crew
from dqnitro.run.inline import make_agent
from support.cluster_reference import inline_with_the_same_ages, same

KINDS = {"killed": psutil.Process.kill, "stopped": psutil.Process.suspend}
GOAL_S = 10.0
GIVE_UP_S = 600.0  # ticks are endless
PROTOCOL = (
    "Three Ray nodes of one CPU each on this machine, one run with three players; a player is killed (SIGKILL) or "
    "stopped (SIGSTOP), in turn, after some steps of undisturbed play. Measured: the wall clock from then until "
    "another process has the player's games where they were and was told to go on. ready: whether a process was "
    "waiting for it."
)


class Loaded:
    """So many processes that do nothing but use a core."""

    def __init__(self, n: int) -> None:
        self._all = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]

    def end(self) -> None:
        for p in self._all:
            p.kill()
            p.wait()


def measured(times: int, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Accidents of each kind, in turn."""
    rng, config = random.Random(seed), config_of(0, seed, 3)
    hosts = ray_hosts(config)
    assert isinstance(hosts, RayHosts)
    crew = Crew(config, hosts)
    agent = make_agent(config, crew)
    it, found = ticks(agent, crew), {kind: list[dict[str, Any]]() for kind in KINDS}
    try:
        for _ in range(times):
            for kind, strike in KINDS.items():
                until = agent.clock.steps + rng.randint(400, 1200)
                while agent.clock.steps < until:
                    next(it)
                processes = hosts.processes()
                playing = [pid for pid, players in processes.items() if players]
                fact = {"ready": len(playing) < len(processes), "load": round(os.getloadavg()[0], 1)}
                before, began = crew.replaced, time.monotonic()
                strike(psutil.Process(rng.choice(playing)))
                while crew.replaced == before and time.monotonic() < began + GIVE_UP_S:
                    next(it)
                found[kind].append({"s": round(time.monotonic() - began, 2), **fact})
                print(f"{kind}: {found[kind][-1]}", file=sys.stderr, flush=True)
        config = config.replace(max_steps=agent.clock.steps)
        same(agent, inline_with_the_same_ages(config))
    finally:
        agent.close()
    return found


def summed(found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """A row for each kind of accident, as `make chaos` has them. A run that differs is an error before this."""
    rows = []
    for kind, facts in found.items():
        seconds = [f["s"] for f in facts]
        late = sum(s > GOAL_S for s in seconds)
        rows.append(
            {"kind": f"{kind} player", "what": "until another process plays for it", "faults": len(seconds)}
            | dict.fromkeys(COLUMNS, 0)
            | {"seconds": sum(seconds), "over_the_goal": late, "measured_s": {kind: spread(seconds)}}
        )
    total = {name: sum(r[name] for r in rows) for name in ("faults", *COLUMNS, "seconds", "over_the_goal")}
    return {"rows": rows, "total": {"kind": "all", **total}, "failures": []}


def main() -> int:
    p = argparse.ArgumentParser("chaos.replacements", description=__doc__)
    p.add_argument("--times", type=int, default=20, help="of each kind")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--load", type=int, default=0, help="processes that use a core each meanwhile")
    p.add_argument("--out", type=pathlib.Path)
    args = p.parse_args()
    os.environ |= {
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", ADDRESS: "auto",
        "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
    }  # fmt: skip
    import_ray("ray")
    load = Loaded(args.load)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        cluster = head_node(pathlib.Path(folder))
        try:
            for _ in range(2):
                cluster.add_node(**SMALL)
            os.environ["RAY_ADDRESS"] = cluster.address
            found = measured(args.times, args.seed)
        finally:
            cluster.shutdown()
            load.end()
    result = summed(found)
    for row in result["rows"]:
        print(f"{row['kind']}: {row['measured_s']}, over {GOAL_S:.0f} s: {row['over_the_goal']} of {row['faults']}")
    if args.out:
        words = {"command": shlex.join(["python", "-m", "chaos.replacements", *sys.argv[1:]])}
        facts = header("chaos", "corridor", protocol=PROTOCOL, seed=args.seed, busy_processes=args.load)
        save(args.out, facts | words | result | {"accidents": found, "goal_s": GOAL_S})
    return int(bool(result["total"]["over_the_goal"]))


if __name__ == "__main__":
    sys.exit(main())
