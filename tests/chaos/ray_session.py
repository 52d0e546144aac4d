"""A cluster on this machine, runs whose players live there, and faults until so many were made and the run has ended.

`python -m chaos.ray_session FOLDER --seed N --faults N` prints one line of JSON, an `Outcome`. The campaign starts it
as a process of its own, because a process that has used Ray can neither fork nor be sure of its threads. Whether a run
hangs is judged by what its processes do, not by the clock: on a busy machine the start of a driver takes minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from typing import Any

import psutil

from chaos.harness import Outcome, Patience, be_the_reaper, family, has_ended
from dqnitro.errors import ConfigError

TESTS = pathlib.Path(__file__).resolve().parents[1]
MARK = "DQNITRO_CHAOS_SESSION"  # in the environment of every process that belongs to a session
SHARED = pathlib.Path("/dev/shm")
IDLE_S, CPU_S, IDLE_SHARE = 60.0, 300.0, 0.3  # without a step: a hang. Ray's own processes are never quite idle
GONE_S = 30.0  # idle, after the end of a session: an orphan
RECOVERED_S, RASH = 1.0, 0.3  # a step is at most so old; the share of faults that do not wait for that
TRIES = 3  # at starting a node
REFUSALS = 5  # in a row: a checkpoint that cannot be resumed. One may be a node that died while it was asked
SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20}
HEALTH = {
    "health_check_initial_delay_ms": 2000, "health_check_period_ms": 1000, "health_check_timeout_ms": 4000,
    "health_check_failure_threshold": 3, "enable_worker_prestart": False,
}  # fmt: skip
FAULTS = {"kill a player": 12, "stop a player": 6, "kill a node": 1, "cut a node off": 1, "kill the driver": 1,
          "stop the driver": 2, "interrupt the driver": 1}  # fmt: skip
NO_RAY = 3  # exit code
RAYS_OWN = ("raylet/raylet", "gcs_server", "dashboard", "runtime_env", "log_monitor.py", "monitor.py")
CODES = {0, 4, 130, 143, -signal.SIGKILL}  # promised ends of a driver; 4: too many losses in a row, saved
TOLD_AGAIN = {-signal.SIGINT, -signal.SIGTERM}  # a second signal ends it at once (docs/resuming.md)


class NoRay(Exception):
    """Ray cannot start a node on this machine."""


def head_node(folder: pathlib.Path) -> Any:
    """A cluster of one node. Ray gives up on it after 30 s, which a very busy machine may need."""
    from ray.cluster_utils import Cluster

    head, why = {**SMALL, "include_dashboard": False, "_system_config": HEALTH, "temp_dir": str(folder)}, ""
    for _ in range(TRIES):
        before = set(family(os.getpid()))
        try:
            return Cluster(initialize_head=True, head_node_args=head)
        except Exception as e:
            why = f"{type(e).__name__}: {e}"
            for p in set(family(os.getpid())) - before:
                with contextlib.suppress(psutil.Error):
                    p.kill()
    raise NoRay(why)


def joined(cluster: Any) -> list[Any]:
    """Another machine joins: its node, or none, because on a busy machine Ray may give up on starting it."""
    for _ in range(TRIES):
        with contextlib.suppress(Exception):
            return [cluster.add_node(**SMALL)]
    return []


def raylet_of(node: Any) -> int:
    """The process that all processes of a node descend from."""
    return node.all_processes["raylet"][0].process.pid


def strike_node(raylet: int, cut_off: bool) -> None:
    """Killed: all its processes at once. Cut off: only the raylet, so that players live on for a moment."""
    process = psutil.Process(raylet)
    for p in [*([] if cut_off else process.children(recursive=True)), process]:
        with contextlib.suppress(psutil.Error):
            p.kill()


class Session:
    """The cluster, the driver of a run, and what is done to them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rng, self.folder = args, random.Random(str(args.seed)), args.folder
        self.out = Outcome(faults=0)
        self.gaps = self.out.seconds  # the longest time without progress after each fault, by kind
        self.runs = self.drivers = self.refusals = self.told = 0
        self.named = args.only.split(",") if args.only else []  # the faults to make, in their order
        self.driver: subprocess.Popen[bytes] | None = None
        self.patience = Patience(lambda: family(os.getpid())[1:], IDLE_S, CPU_S, IDLE_SHARE)
        self.cluster = head_node(self.folder / "ray")
        self.nodes: list[Any] = []
        for _ in range(args.nodes - 1):
            self._join()

    # -- the driver

    @property
    def run(self) -> pathlib.Path:
        return self.folder / f"run-{self.runs}"

    @property
    def words(self) -> list[str]:
        """Steps, seed and players of the run."""
        return [str(self.args.steps), str(self.args.seed % 1000 + self.runs), str(self.args.players)]

    def start(self) -> None:
        self.drivers, self.told = self.drivers + 1, 0
        words = [sys.executable, "-m", "chaos.ray_driver", str(self.run), *self.words]
        environ = {**os.environ, "RAY_ADDRESS": self.cluster.address, "DQNITRO_CLUSTER": "auto"}
        with (self.folder / f"driver-{self.drivers}.log").open("wb") as log:
            self.driver = subprocess.Popen(words, env=environ, stdout=log, stderr=subprocess.STDOUT)

    def log(self) -> str:
        return (self.folder / f"driver-{self.drivers}.log").read_text(errors="replace")

    def progress(self) -> int:
        """Grows whenever the learner has taken steps; a new file after a resume counts, too."""
        with contextlib.suppress(OSError):
            return (self.run / "metrics.jsonl").stat().st_mtime_ns
        return 0

    # -- faults

    def players(self) -> list[psutil.Process]:
        raylets = {raylet_of(n) for n in [self.cluster.head_node, *self.nodes]}
        found = [p for p in psutil.process_iter(["cmdline", "ppid"]) if p.info["ppid"] in raylets]
        named = [p for p in found if (p.info["cmdline"] or [""])[0].startswith("ray::PlayerHost")]
        return [p for p in named if p.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)]

    @property
    def enough(self) -> bool:
        return self.out.faults >= self.args.faults

    def strike(self) -> str:
        """One fault; its name, or nothing if there was nobody to strike."""
        name = self.named[0] if self.named else self.rng.choices(list(FAULTS), list(FAULTS.values()))[0]
        with contextlib.suppress(psutil.Error):
            done = self._player(name) if "player" in name else self._node(name) if "node" in name else self._stop(name)
            if done:
                self.out.faults += 1
                self.named = self.named[1:]
                return name
        return ""

    def _player(self, name: str) -> bool:
        players = self.players()
        if not players:
            return False
        player = self.rng.choice(players)
        player.kill() if name.startswith("kill") else player.suspend()
        return True

    def _node(self, name: str) -> bool:
        if not self.nodes:
            return False
        node = self.nodes.pop(self.rng.randrange(len(self.nodes)))
        strike_node(raylet_of(node), cut_off=name.startswith("cut"))
        self.cluster.remove_node(node, allow_graceful=False)
        self._join()
        return True

    def _join(self) -> None:
        self.nodes += joined(self.cluster)

    def _stop(self, name: str) -> bool:
        assert self.driver is not None
        if name == "stop the driver":
            self.driver.send_signal(signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.5, 5.0))
            self.driver.send_signal(signal.SIGCONT)
        elif name == "kill the driver":
            self.driver.kill()
        else:
            self.driver.send_signal(self.rng.choice([signal.SIGINT, signal.SIGTERM]))
            self.told += 1
        return True

    # -- the session

    def play(self) -> None:
        """Runs on the same cluster, one after the other, until there were enough faults."""
        while not self.enough and not any(self.out.bad.values()) and self.runs < 2 * self.args.faults:
            self.runs += 1
            self._play_one()
            print(f"run {self.runs}: {self.out.faults} faults, {self.out.bad}", file=sys.stderr, flush=True)

    def _play_one(self) -> None:
        """Faults until the run has reached its end; a driver that ended before is started again."""
        self.start()
        self.patience.begin_again()
        last, changed, struck = self.progress(), time.monotonic(), ""
        due, rash = self._next()
        while True:
            time.sleep(0.02)
            now, seen = time.monotonic(), self.progress()
            if seen != last:
                if struck:
                    self.gaps[struck][-1] = max(self.gaps[struck][-1], now - changed)
                last, changed = seen, now
                self.patience.begin_again()
                self.refusals = 0
            if self.patience.over():
                self.out.count("hangs", f"no step after {struck}: {self.log()[-400:]}")
                return
            if self.driver is not None and self.driver.poll() is not None:
                if self._ended(self.driver.returncode):
                    return
                self.start()
                struck = ""
                due, rash = self._next()
            elif now > due and seen and not self.enough and (rash or now - changed < RECOVERED_S):
                if struck := self.strike():
                    self.gaps.setdefault(struck, []).append(0.0)
                due, rash = self._next()

    def _next(self) -> tuple[float, bool]:
        """When the next fault is due, and whether it comes even if the run has not recovered from the last one."""
        return time.monotonic() + 0.5 + self.rng.expovariate(1 / self.args.every_s), self.rng.random() < RASH

    def _ended(self, code: int) -> bool:
        """Is the run at its end? Whatever the driver did that is not promised is counted."""
        log = self.log()
        if "Traceback (most recent call last)" in log:
            self.out.count("tracebacks", log[-600:])
        if code == 2:
            self.refusals += 1
            if self.refusals >= REFUSALS:
                self.out.count("lost", log[-400:])
            return self.refusals >= REFUSALS
        if code not in CODES and not (self.told > 1 and code in TOLD_AGAIN):
            self.out.count("crashes", f"exit code {code}: {log[-400:]}")
            return True
        if code != 0:
            return False
        if not self._same(log):
            self.out.count("different", f"run {self.runs} after {self.gaps}")
        return True

    def _same(self, log: str) -> bool:
        """Did the run end as the one that nothing happened to?"""
        return json.loads(log.strip().splitlines()[-1])["digest"] == expected(*self.words)

    def close(self) -> None:
        if self.driver is not None and self.driver.poll() is None:
            self.driver.kill()
        self.cluster.shutdown()


def expected(steps: str, seed: str, players: str, game: str = "") -> str:
    """The digest of the inline loop with the same ages: the run that nothing happened to."""
    from chaos.harness import digest
    from chaos.ray_driver import config_of
    from support.cluster_reference import inline_with_the_same_ages

    agent = inline_with_the_same_ages(config_of(int(steps), int(seed), int(players), game))

    class Result:
        pass

    result: Any = Result()
    result.agent = agent
    return digest(result)


def marked(mark: str) -> list[psutil.Process]:
    """Processes of this session, whoever their parent is now: its descendants, orphans included where it adopts them,
    and those with the mark, which a process that has changed its title may have overwritten.
    """
    found = [p for p in family(os.getpid())[1:] if not has_ended(p.pid)]
    for p in set(psutil.process_iter()) - set(found):
        with contextlib.suppress(psutil.Error, OSError):
            if p.pid != os.getpid() and p.environ().get(MARK) == mark and p.status() != psutil.STATUS_ZOMBIE:
                found.append(p)
    return found


def segments() -> set[str]:
    """Shared memory by name; folders are those of campaigns."""
    return {p.name for p in SHARED.iterdir() if p.is_file()} if SHARED.is_dir() else set()


def of_others(name: str) -> bool:
    """Is the segment used by a living process? After the end of a session none of its own is left."""
    for p in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if name in pathlib.Path(f"/proc/{p.pid}/maps").read_text():
                return True
            if any(name in os.readlink(fd) for fd in pathlib.Path(f"/proc/{p.pid}/fd").iterdir()):
                return True
    return False


def count_left(out: Outcome, before: set[str]) -> None:
    """Processes and shared memory that a session left behind, after those that are about to end have ended."""
    mark = os.environ[MARK]
    patience = Patience(lambda: marked(mark), GONE_S, CPU_S)
    patience.over()
    patience.begin_again()
    while (left := marked(mark)) and not patience.over():
        time.sleep(0.2)
    for p in left:
        with contextlib.suppress(psutil.Error):
            words = " ".join(p.cmdline())
            if not any(name in words for name in RAYS_OWN):  # of nodes that Ray could not start or end
                out.count("orphans", f"{p.status()}: {words[:120]}")
            p.kill()
    for name in sorted(segments() - before):
        if not of_others(name):
            out.count("lost", f"left in {SHARED}: {name}")


def main() -> int:
    p = argparse.ArgumentParser("chaos.ray_session", description=__doc__)
    p.add_argument("folder", type=pathlib.Path)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--faults", type=int, default=25)
    p.add_argument("--only", default="", help="the faults to make, in their order, instead of random ones")
    p.add_argument("--every-s", type=float, default=1.0, help="between two faults, besides the time of recovery")
    p.add_argument("--steps", type=int, help="of a run with players (default: 9,000; with --address 30,000)")
    p.add_argument("--nodes", type=int, default=3)
    p.add_argument("--players", type=int, default=3)
    p.add_argument("--address", default="", help="a cluster that is there, instead of one that is made for it")
    p.add_argument("--minutes", type=float, default=0.0, help="with --address: until no more faults are made")
    p.add_argument("--strike-nodes", action="store_true", help="with --address: nodes too, with all that runs there")
    p.add_argument("--seed-steps", type=int, default=20_000, help="with --address: of a whole run")
    args = p.parse_args()
    args.steps = args.steps or (30_000 if args.address else 9_000)
    if args.address:
        return aimed(args)
    os.environ |= {
        MARK: f"{args.seed}-{os.getpid()}", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
    }  # fmt: skip
    before, session = segments(), None
    be_the_reaper()
    try:
        session = Session(args)
        session.play()
    except NoRay as e:
        print(f"Ray cannot start a node on this machine ({e})", file=sys.stderr)
        return NO_RAY
    finally:
        if session is not None:
            session.close()
    assert session is not None
    count_left(session.out, before)
    print(json.dumps(asdict(session.out)))
    return 0


def aimed(args: argparse.Namespace) -> int:
    """A session on a cluster that is there."""
    from chaos import there

    try:
        there.check(args)
        os.environ[MARK] = f"{args.seed}-{os.getpid()}"
        session = there.There(args)
    except ConfigError as e:
        print(f"chaos: {e}", file=sys.stderr)
        return e.exit_code
    be_the_reaper()
    try:
        session.tell()
        session.play()
    except KeyboardInterrupt:
        return 130
    finally:
        session.close()
    session.count_left()
    print(json.dumps(asdict(session.out)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
