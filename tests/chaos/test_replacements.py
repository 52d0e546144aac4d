"""What `python -m chaos.replacements` strikes and waits for; processes of this machine stand for nodes and players."""

import contextlib
import os
import random
import subprocess
import sys
import types
from collections.abc import Collection, Iterator

import psutil
import pytest

from chaos.ray_session import raylet_of
from chaos.replacements import GOAL_S, ROWS, Accidents, summed

SLEEP = "print(flush=True); import time; time.sleep(600)"
NODE = f"import subprocess, sys; [subprocess.Popen([sys.executable, '-c', {SLEEP!r}]) for _ in range(2)]; {SLEEP}"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has no signals between processes: run it on Linux")


class FakeNodes:
    """Each is a process, its raylet, with two more below it. Those that are replaced stay as they are."""

    def __init__(self) -> None:
        self.all, self.replaced, self.begun = [], [], []
        self._join()
        self._join()

    def _join(self) -> None:
        raylet = subprocess.Popen([sys.executable, "-c", NODE], stdout=subprocess.PIPE)
        assert raylet.stdout is not None and all(raylet.stdout.readline() for _ in range(3))
        self.begun.append([raylet.pid, *(p.pid for p in psutil.Process(raylet.pid).children())])
        self.all.append(types.SimpleNamespace(all_processes={"raylet": [types.SimpleNamespace(process=raylet)]}))

    def replace(self, node) -> None:
        self.replaced.append(raylet_of(node))
        self.all.remove(node)
        self._join()


class FakeRun:
    """Two players share a process on the first node, one is alone on the second, one on the head. Whoever is lost plays
    in another process some steps later, one player at a time.
    """

    def __init__(self, nodes: FakeNodes) -> None:
        self.nodes, self.steps, self.moves = nodes, 0, 0
        (_, one, idle), (_, two, idle_too) = nodes.begun
        self.homes = {pid: psutil.Process(pid).ppid() for pid in (one, two, idle, idle_too)} | {os.getpid(): 0}
        self.seats = {0: one, 1: one, 2: two, 3: os.getpid()}

    def players_in(self, processes: Collection[int]) -> set[int]:
        return {player for player, pid in self.seats.items() if pid in processes}

    def processes(self) -> dict[int, set[int]]:
        return {pid: self.players_in([pid]) for pid in self.homes if not self._is_lost(pid)}

    def _is_lost(self, pid: int) -> bool:
        """Nobody plays in a process that is gone or stopped, or has lost its raylet."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            bad = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED, psutil.STATUS_DEAD)
            return bad or self.homes[pid] not in (0, process.ppid())
        return True

    def ticks(self) -> Iterator[types.SimpleNamespace]:
        while True:
            self.steps += 1
            lost = [player for player, pid in self.seats.items() if self._is_lost(pid)]
            if lost and self.steps % 10 == 0:
                self.seats[lost[0]], self.moves = os.getpid(), self.moves + 1
            yield types.SimpleNamespace(steps=self.steps)


@pytest.fixture
def run():
    nodes = FakeNodes()
    yield FakeRun(nodes)
    for pid in [pid for node in nodes.begun for pid in node]:
        with contextlib.suppress(psutil.Error):
            psutil.Process(pid).kill()


@pytest.mark.parametrize("kind", ["node killed", "node cut off"])
def test_a_node_with_players_is_struck_and_waited_for_until_all_of_them_play_elsewhere(run, kind):
    before = dict(run.seats)
    fact = Accidents(run, run, run.ticks(), run.nodes, random.Random(1)).happen(kind)
    raylet, *below = next(node for node in run.nodes.begun if node[0] in run.nodes.replaced)
    struck = [player for player, pid in before.items() if pid in below]
    assert fact["players"] == len(struck) == run.moves > 0 and fact["ready"] and 0 <= fact["s"] < GOAL_S
    assert not run.players_in(below) and len(run.nodes.replaced) == 1 and len(run.nodes.all) == 2
    gone = [not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in below]
    assert gone == [kind == "node killed"] * 2 and run.nodes.replaced == [raylet]


@pytest.mark.parametrize("kind", ["killed", "stopped"])
def test_all_players_of_a_process_that_is_struck_are_waited_for(run, kind):
    del run.seats[2], run.seats[3]  # so that it is the first process
    fact = Accidents(run, run, run.ticks(), run.nodes, random.Random(1)).happen(kind)
    assert fact["players"] == run.moves == 2 and fact["ready"] and not run.nodes.replaced
    assert set(run.seats.values()) == {os.getpid()}


def test_players_that_are_all_on_the_head_are_waited_for_before_a_node_is_struck(run):
    home, run.seats = run.seats[2], dict.fromkeys(run.seats, os.getpid())

    def spread():
        for tick in run.ticks():
            if tick.steps == 2000:
                run.seats[2] = home
            yield tick

    fact = Accidents(run, run, spread(), run.nodes, random.Random(1)).happen("node killed")
    assert fact["players"] == 1 and run.steps > 2000


def test_every_kind_of_accident_has_a_row_of_the_result():
    found = {kind: [{"s": 1.0}, {"s": 3.0}] for kind in ROWS} | {"node cut off": [{"s": 1.0}, {"s": GOAL_S + 1}]}
    result = summed(found)
    assert [r["kind"] for r in result["rows"]] == ["killed player", "stopped player", "killed node", "cut-off node"]
    assert [r["over_the_goal"] for r in result["rows"]] == [0, 0, 0, 1] and result["total"]["over_the_goal"] == 1
    assert result["rows"][0]["measured_s"] == {"killed": {"n": 2, "median": 2.0, "max": 3.0}}
    assert result["total"]["faults"] == 8
