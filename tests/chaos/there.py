"""Faults on a Ray cluster that is there: `python -m chaos --only cluster --address auto --minutes 30`.

The session is that of `ray_session`, with runs of two kinds in turn: one run with players on the nodes, and whole runs
of several seeds. It strikes the processes of these runs alone, which it knows by where their driver says that they are
(players) or by their seeds (whole runs): a task on the node looks whether a process is what it should be, and then
kills or stops it. Nodes are struck only with `--strike-nodes`, and never the head, nor the one that this is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

from chaos.harness import Outcome, Patience, family
from chaos.ray_session import CPU_S, IDLE_SHARE, Session
from dqnitro.cluster.connect import ADDRESS, LOCAL, connect
from dqnitro.cluster.nodes import Node, alive
from dqnitro.errors import ConfigError

GAME = "CartPole-v1"  # every node can play it
IDLE_S = 180.0  # without a step: a hang. What the nodes do meanwhile cannot be seen from here
GONE_S = 60.0  # for processes to end after their run
ASK_S = 60.0  # for an answer of a node
LOSSES, WITHIN_S = 2, 130.0  # of one whole run: a third so soon would count as a run that always fails
ON_PLAYERS = {"kill a player": 12, "stop a player": 6, "kill the driver": 1, "stop the driver": 2,
              "interrupt the driver": 1}  # fmt: skip
ON_SEEDS = {"kill a whole run": 6, "kill its worker": 4, "stop a whole run": 2, "kill the driver": 1,
            "stop the driver": 1, "interrupt the driver": 1}  # fmt: skip
ON_NODES = {"kill a node": 2, "cut a node off": 2, "stop a node": 2}
SEEDS = 3  # whole runs at a time
SMALL = [
    "--recipe", "baseline", "--hidden-units", "16", "--batch-size", "8", "--first-fill-steps", "100",
    "--torch-threads", "1", "--env-threads", "1", "--replay-capacity", "600", "--target-sync-steps", "50",
    "--n-envs", "2", "--stop-at", "1e9", "--checkpoint-every-s", "2", "--no-video",
]  # fmt: skip


class There(Session):
    """The same session on nodes that are not ours."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rng, self.folder = args, random.Random(str(args.seed)), args.folder
        self.out = Outcome(faults=0)
        self.gaps = self.out.seconds
        self.runs = self.drivers = self.refusals = self.told = 0
        self.named = args.only.split(",") if args.only else []
        self.driver: subprocess.Popen[bytes] | None = None
        self.patience = Patience(lambda: family(os.getpid())[1:], IDLE_S, CPU_S, IDLE_SHARE)
        self.there = connect(args.address)
        self.ray = self.there.ray
        self.end = time.monotonic() + 60 * args.minutes
        self.seen: set[tuple[str, int]] = set()  # all players that there were
        self.seeds: set[int] = set()  # of all whole runs that there were
        self.losses: dict[int, list[float]] = {}  # of each
        self.struck: set[str] = set()  # nodes that are gone because of us

    def tell(self) -> None:
        """What is going to happen."""
        nodes = alive(self.there)
        say(f"cluster {self.args.address}: {len(nodes)} nodes ({', '.join(n.name for n in nodes)})")
        say(
            f"for {self.args.minutes:g} minutes this kills, stops and interrupts, again and again, processes of its "
            f"own runs of {GAME}: their players and whole runs on the nodes, and their driver here"
        )
        if not self.args.strike_nodes:
            say("no node is struck (--strike-nodes would), and no process of anybody else")
            return
        doomed = ", ".join(f"{n.name} ({n.id[:8]})" for n in self._nodes()) or "none, for there is no other"
        say(f"AND NODES, WITH ALL THAT RUNS THERE, of others, too: {doomed}. They do not come back by themselves.")
        say("it begins in 10 s; Ctrl-C now prevents it")
        time.sleep(10)

    # -- the driver

    @property
    def of_seeds(self) -> bool:
        """Every other run is several whole ones."""
        return self.runs % 2 == 0

    @property
    def words(self) -> list[str]:
        return [*super().words, GAME]

    @property
    def first_seed(self) -> int:
        """No other run has it: whole runs are known by it."""
        return 1_000_000_000 + self.args.seed % 1_000_000 * 1000 + self.runs * SEEDS

    def train(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "dqnitro", "train", *words]

    def start(self) -> None:
        self.drivers, self.told = self.drivers + 1, 0
        words = [sys.executable, "-m", "chaos.ray_driver", str(self.run), *self.words]
        if self.of_seeds:
            first = self.first_seed
            self.seeds |= set(range(first, first + SEEDS))
            begun = (self.run / "seeds.json").is_file()
            new = [GAME, *SMALL, "--seed", str(first), "--seeds", str(SEEDS), "--steps", str(self.args.seed_steps)]
            words = self.train(*(["--resume", str(self.run)] if begun else [*new, "--run-dir", str(self.run)]))
            words += ["--on", self.args.address, "--quiet", "--no-video"]
        environ = {**os.environ, ADDRESS: self.args.address}
        with (self.folder / f"driver-{self.drivers}.log").open("wb") as log:
            self.driver = subprocess.Popen(words, env=environ, stdout=log, stderr=subprocess.STDOUT)

    def progress(self) -> int:
        times = [0]
        for path in self.run.glob("s*/metrics.jsonl") if self.of_seeds else [self.run / "metrics.jsonl"]:
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime_ns)
        return max(times)

    # -- faults

    @property
    def enough(self) -> bool:
        return time.monotonic() > self.end or self.out.faults >= self.args.faults

    def strike(self) -> str:
        if self.named:
            name = self.named[0]
        else:
            faults = (ON_SEEDS if self.of_seeds else ON_PLAYERS) | (ON_NODES if self.args.strike_nodes else {})
            name = self.rng.choices(list(faults), list(faults.values()))[0]
        done = False
        with contextlib.suppress(self.ray.exceptions.RayError, ProcessLookupError):
            if "driver" in name:
                done = self._stop(name)
            elif "node" in name:
                done = self._node(name)
            elif "player" in name:
                done = not self.of_seeds and self._player(name)
            else:
                done = self.of_seeds and self._whole_run(name)
        if not done:
            return ""
        self.out.faults += 1
        self.named = self.named[1:]
        say(f"{self.out.faults}: {name}")
        return name

    def _player(self, name: str) -> bool:
        known = self._players()
        if not known:
            return False
        node, pid = self.rng.choice(known)
        number = signal.SIGKILL if name.startswith("kill") else signal.SIGSTOP
        return bool(self._on(node, striking(), pid, "ray::PlayerHost", int(number)))

    def _players(self) -> list[tuple[str, int]]:
        """Where the driver says that they are."""
        with contextlib.suppress(OSError, ValueError):
            found = [(node, pid) for node, pid in json.loads((self.folder / "players.json").read_text())]
            self.seen |= set(found)
            up = {n.id for n in alive(self.there)}
            return [where for where in found if where[0] in up]
        return []

    def _whole_run(self, name: str) -> bool:
        now = time.monotonic()
        found = [
            (node.id, pid, worker, seed)
            for node in alive(self.there)
            for pid, worker, seed in self._on(node.id, listing(), sorted(self.seeds), 0)
            if len([t for t in self.losses.get(seed, []) if now - t < WITHIN_S]) < LOSSES
        ]
        if not found:
            return False
        node, pid, worker, seed = self.rng.choice(found)
        if name == "stop a whole run":
            return bool(self._on(node, pausing(), pid, "dqnitro.cli.one_seed", self.rng.uniform(0.5, 5.0)))
        self.losses.setdefault(seed, []).append(now)
        which, what = (worker, "ray::RunHost") if name == "kill its worker" else (pid, "dqnitro.cli.one_seed")
        return bool(self._on(node, striking(), which, what, int(signal.SIGKILL)))

    def _nodes(self) -> list[Node]:
        """Those that may be struck: not the head, not this one, and never the last that could play."""
        mine = self.ray.get_runtime_context().get_node_id()
        heads = {n["NodeID"] for n in self.ray.nodes() if "node:__internal_head__" in n["Resources"]}
        nodes = [n for n in alive(self.there) if n.cpus >= 1]
        others = [n for n in nodes if n.id not in heads | {mine}]
        return others if len(nodes) > 1 and len(nodes) * MOST_ON_EACH > SEEDS else []

    def _node(self, name: str) -> bool:
        nodes = self._nodes()
        if not nodes:
            return False
        node = self.rng.choice(nodes)
        self.struck.add(node.id)
        with contextlib.suppress(self.ray.exceptions.RayError):  # who kills its own raylet does not answer
            self._on(node.id, felling(), name.split()[0], self.rng.uniform(1.0, 30.0))
        return True

    def _on(self, node: str, work: Any, *args: Any) -> Any:
        """What a task on a node returns."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(node, soft=False)
        task = self.ray.remote(num_cpus=0, max_retries=0)(work).options(scheduling_strategy=where)
        return self.ray.get(task.remote(*args), timeout=ASK_S)

    # -- the end

    def _same(self, log: str) -> bool:
        if not self.of_seeds:
            return super()._same(log)
        from safetensors.numpy import load_file

        for seed in range(self.first_seed, self.first_seed + SEEDS):
            alone = self.folder / f"alone-{seed}"
            words = self.train(GAME, *SMALL, "--seed", str(seed), "--steps", str(self.args.seed_steps), "--quiet")
            subprocess.run([*words, "--run-dir", str(alone)], check=True, stdout=subprocess.DEVNULL)
            a, b = (load_file(p / "model.safetensors") for p in (alone, self.run / f"s{seed}"))
            if a.keys() != b.keys() or any((a[k] != b[k]).any() for k in a):
                return False
        return True

    def count_left(self) -> None:
        """Processes of our runs that are still on nodes that can be asked."""
        end = time.monotonic() + GONE_S
        while (left := self._left()) and time.monotonic() < end:
            time.sleep(1.0)
        for node, pid, words in left:
            self.out.count("orphans", f"on node {node[:8]}: process {pid}: {words}")

    def _left(self) -> list[tuple[str, int, str]]:
        self._players()
        left = []
        for node in alive(self.there):
            with contextlib.suppress(self.ray.exceptions.RayError):
                mine = [pid for n, pid in self.seen if n == node.id]
                runs = self._on(node.id, listing(), sorted(self.seeds), 0)
                left += [(node.id, pid, f"seed {seed}") for pid, _, seed in runs]
                left += [(node.id, p, "player") for p in mine if self._on(node.id, striking(), p, "ray::PlayerHost", 0)]
        return left

    def close(self) -> None:
        if self.driver is not None and self.driver.poll() is None:
            self.driver.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.driver.wait(60)
            self.driver.kill()


MOST_ON_EACH = 16  # players of a CPU; whole runs wait for one


def say(text: str) -> None:
    print(f"chaos: {text}", file=sys.stderr, flush=True)


# Tasks for nodes that have DQNitro but not this file: functions within functions travel by value.


def striking() -> Any:
    def strike(pid: int, what: str, number: int) -> bool:
        """Send a signal to a process if it is what it should be, and not stopped; 0 only looks."""
        import psutil

        try:
            p = psutil.Process(pid)
            if what not in " ".join(p.cmdline()) or p.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                return False
            if number:
                p.send_signal(number)
        except psutil.Error:
            return False
        return True

    return strike


def pausing() -> Any:
    def pause(pid: int, what: str, seconds: float) -> bool:
        import time

        import psutil

        try:
            p = psutil.Process(pid)
            if what not in " ".join(p.cmdline()):
                return False
            p.suspend()
            time.sleep(seconds)
            p.resume()
        except psutil.Error:
            return False
        return True

    return pause


def listing() -> Any:
    def whole_runs(seeds: list[int], _: int) -> list[tuple[int, int, int]]:
        """Process, worker and seed of each of our whole runs on this node."""
        import psutil

        found = []
        for p in psutil.process_iter(["cmdline", "ppid"]):
            line = p.info["cmdline"] or []
            if "dqnitro.cli.one_seed" in line and p.status() != psutil.STATUS_ZOMBIE:
                seed = int(line[line.index("dqnitro.cli.one_seed") + 2])
                found += [(p.pid, p.info["ppid"], seed)] if seed in seeds else []
        return found

    return whole_runs


def felling() -> Any:
    def fell(how: str, seconds: float) -> bool:
        """Kill this node with all its processes, or cut it off (only its raylet is killed), or stop it for a while."""
        import os
        import time

        import psutil

        raylet = psutil.Process(os.getppid())
        if "raylet" not in raylet.name():
            return False
        if how == "stop":
            raylet.suspend()
            time.sleep(seconds)
            raylet.resume()
            return True
        for p in raylet.children(recursive=True) if how == "kill" else []:
            if p.pid != os.getpid():
                p.kill()
        raylet.kill()
        return True

    return fell


def check(args: Any) -> None:
    """Before anything starts; ConfigError for what does not go together."""
    if args.address == LOCAL:
        raise ConfigError("--address ray would start a cluster", "leave it out, or give auto or ray://HOST:PORT")
    if not 0 < args.minutes < 1e5:
        raise ConfigError("--address needs --minutes above 0", "--minutes 30")
