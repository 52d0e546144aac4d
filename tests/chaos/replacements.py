"""How soon a lost player plays again: `python -m chaos.replacements --times 20 --out FILE`.

A run with three players on three Ray nodes of this machine. Players are killed and stopped, and nodes killed and cut
off, in turn. What is measured is the time from that until other processes have the games of all players that were
struck where they were and were told to go on. At the end the run is compared, bit for bit, with the inline loop with
the same ages.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import psutil

from chaos.harness import COLUMNS, spread
from chaos.ray_driver import config_of
from chaos.ray_session import TESTS, head_node, joined, raylet_of, strike_node
from dqnitro.agent import Tick
from dqnitro.cluster.connect import ADDRESS, import_ray
from dqnitro.lab.store import header, save
from dqnitro.run.cluster import ray_hosts, ticks
from dqnitro.run.cluster.actors import RayHosts
from dqnitro.run.cluster.crew import Crew
from dqnitro.run.inline import make_agent
from support.cluster_reference import inline_with_the_same_ages, same

ON_PLAYERS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
ROWS = {
    "killed": "killed player",
    "stopped": "stopped player",
    "node killed": "killed node",
    "node cut off": "cut-off node",
}
NODES = 3
GOAL_S = 10.0
GIVE_UP_S = 600.0  # ticks are endless
PROTOCOL = (
    "Three Ray nodes of one CPU each on this machine, one run with three players. In turn, after some steps of "
    "undisturbed play, a player is killed (SIGKILL) or stopped (SIGSTOP), or a node that has a player and is not the "
    "head is killed (its raylet and all processes below it) or cut off (its raylet alone). Measured: the wall clock "
    "from then until other processes have the games of all players that were struck where they were and were told to "
    "go on; only then does another node join. players: how many were struck. ready: whether a process was waiting for "
    "them."
)


class Loaded:
    """So many processes that do nothing but use a core."""

    def __init__(self, n: int) -> None:
        self._all = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]

    def end(self) -> None:
        for p in self._all:
            p.kill()
            p.wait()


class Told(Crew):
    """Players whose places can be asked for."""

    def players_in(self, processes: Collection[int]) -> set[int]:
        return {place.order.player for place in self._places if place.handle.host.pid in processes}


class Nodes:
    """The nodes of a cluster but its head, which Ray cannot lose."""

    def __init__(self, cluster: Any) -> None:
        self._cluster, self.all = cluster, list[Any]()
        self._fill()

    def _fill(self) -> None:
        while len(self.all) < NODES - 1 and (node := joined(self._cluster)):
            self.all += node

    def replace(self, node: Any) -> None:
        self.all.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        self._fill()


class Accidents:
    """What happens to the players of a run and to their nodes, and how long that holds them up."""

    def __init__(self, crew: Any, hosts: Any, run: Iterator[Tick], nodes: Any, rng: random.Random) -> None:
        self._crew, self._hosts, self._run, self._nodes, self._rng = crew, hosts, run, nodes, rng

    def happen(self, kind: str) -> dict[str, Any]:
        """An accident after some steps of undisturbed play, and what there is to say of it."""
        self._play_on(self._rng.randint(400, 1200))
        if kind in ON_PLAYERS:
            player = self._rng.choice([pid for pid, players in self._hosts.processes().items() if players])
            return self._measured({player}, lambda: os.kill(player, ON_PLAYERS[kind]))
        node = self._node_that_plays()
        raylet = raylet_of(node)
        fact = self._measured(self._below(raylet), lambda: strike_node(raylet, cut_off=kind == "node cut off"))
        self._nodes.replace(node)
        return fact

    def _play_on(self, steps: int) -> None:
        begin = next(self._run).steps
        while next(self._run).steps < begin + steps:
            pass

    def _below(self, raylet: int) -> set[int]:
        """The run's processes on a node."""
        return {pid for pid in self._hosts.processes() if _parent(pid) == raylet}

    def _node_that_plays(self) -> Any:
        """After the loss of a node players may all be on the head for a while."""
        end = time.monotonic() + GIVE_UP_S
        while time.monotonic() < end:
            if found := [n for n in self._nodes.all if self._crew.players_in(self._below(raylet_of(n)))]:
                return self._rng.choice(found)
            next(self._run)
        raise RuntimeError(f"for {GIVE_UP_S:.0f} s only the head had players")

    def _measured(self, struck: set[int], strike: Callable[[], None]) -> dict[str, Any]:
        waiting = [pid for pid, players in self._hosts.processes().items() if not players and pid not in struck]
        fact = {"players": len(self._crew.players_in(struck)), "ready": bool(waiting)}
        fact |= {"load": round(os.getloadavg()[0], 1)}
        began = time.monotonic()
        strike()
        while self._crew.players_in(struck) and time.monotonic() < began + GIVE_UP_S:
            next(self._run)
        return {"s": round(time.monotonic() - began, 2), **fact}


def _parent(pid: int) -> int:
    with contextlib.suppress(psutil.Error):  # it has just ended
        return psutil.Process(pid).ppid()
    return 0


def measured(times: int, seed: int, nodes: Nodes) -> dict[str, list[dict[str, Any]]]:
    """Accidents of each kind, in turn."""
    config = config_of(0, seed, NODES)
    hosts = ray_hosts(config)
    assert isinstance(hosts, RayHosts)
    crew = Told(config, hosts)
    agent = make_agent(config, crew)
    accidents = Accidents(crew, hosts, ticks(agent, crew), nodes, random.Random(seed))
    found = {kind: list[dict[str, Any]]() for kind in ROWS}
    try:
        for _ in range(times):
            for kind in ROWS:
                found[kind].append(accidents.happen(kind))
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
        whom = "it" if kind in ON_PLAYERS else "its players"
        rows.append(
            {"kind": ROWS[kind], "what": f"until another process plays for {whom}", "faults": len(seconds)}
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
            nodes = Nodes(cluster)
            os.environ["RAY_ADDRESS"] = cluster.address
            found = measured(args.times, args.seed, nodes)
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
