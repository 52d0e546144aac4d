"""Nodes join and leave while whole runs are under way: how many run at a time, and what is said; with a Ray that does
what it is told.
"""

import argparse
import contextlib
import itertools
import pathlib
import signal
import time
import types

import pytest

from dqnitro.cli.seeds import _resumed
from dqnitro.cli.terminal.launching import Place
from dqnitro.cluster import nodes, team
from dqnitro.cluster.capacity import Capacity
from dqnitro.cluster.nodes import Need, Node
from dqnitro.cluster.team import RayTeam
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.seeds.folder import SeedsFolder
from dqnitro.storage.home import Home
from dqnitro.storage.host import Ended, order_of

NEED = Need(2, 0, 1 << 30)


class Actor:
    """A run; it has a node if there is room on one that it may use."""

    def __init__(self, ray, not_on):
        self.ray, self.not_on, self.where, self.over, self.told = ray, not_on, None, None, []
        self.node = types.SimpleNamespace(remote=lambda: (self, "placed"))
        self.run = types.SimpleNamespace(remote=lambda order: (self, "ended"))
        self.stop = types.SimpleNamespace(remote=self.told.append)
        ray.actors.append(self)

    def ready(self, what):
        if self.where is None and self.over is None:
            having_room = [n for n in self.ray.up if self.ray.free(n) >= NEED.cpus and n not in self.not_on]
            self.where = max(having_room, key=self.ray.free, default=None)
        return self.over is not None if what == "ended" else self.where is not None


class FakeRay:
    """Places actors on the nodes that are up."""

    class RayError(Exception):
        pass

    class RayActorError(RayError):
        pass

    def __init__(self, **cpus):
        self.up, self.actors, self.killed = dict(cpus), [], []
        self.exceptions = types.SimpleNamespace(RayError=self.RayError, RayActorError=self.RayActorError)

    def nodes(self):
        offered = {n: {"CPU": c, "memory": 64.0 * 2**30} for n, c in self.up.items()}
        return [{"Alive": True, "NodeID": n, "NodeManagerHostname": n, "Resources": r} for n, r in offered.items()]

    def free(self, name):
        return self.up[name] - NEED.cpus * sum(a.where == name and a.over is None for a in self.actors)

    def remote(self, **options):
        def host(label_selector=None):
            barred = (label_selector or {}).get("ray.io/node-id", "!in()")
            names = barred.removeprefix("!in(").removesuffix(")").split(",")
            return types.SimpleNamespace(remote=lambda: Actor(self, names), options=host)

        return lambda kind: host()

    def wait(self, refs, timeout):
        return [(a, what) for a, what in refs if a.ready(what)], []

    def get(self, ref):
        actor, what = ref
        if what == "placed":
            return actor.where
        if actor.over == "lost":
            raise self.RayActorError
        return actor.over

    def kill(self, actor):
        if actor.over is None:
            actor.over = "killed"
            self.killed.append(actor)

    def under_way(self):
        return [a for a in self.actors if a.where and a.over is None]

    def leave(self, name):
        del self.up[name]
        for actor in self.under_way():
            actor.over = "lost" if actor.where == name else None


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(team, "LOOK_S", 0.0)
    monkeypatch.setattr(team, "NO_NODE_S", 0.0)


def team_on(ray, runs, at_once=0, why_not=lambda node: ""):
    cluster, said, here = types.SimpleNamespace(ray=ray), [], pathlib.Path(".")
    capacity = Capacity(cluster, NEED, nodes.alive(cluster), why_not, said.append)

    def order(seed):
        return order_of(["python", str(seed)], here / "log", here, {})

    made = RayTeam(cluster, NEED, order, range(1, runs + 1), at_once, said.append, capacity=capacity)
    settle(made)
    return made, said


def settle(made):
    for _ in range(5):
        made.poll()


def until(made, true):
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it never happened"
        made.poll()
        time.sleep(0.005)


def test_a_node_joins_and_more_runs_start():
    ray = FakeRay(a=4)
    made, said = team_on(ray, 9)
    assert len(made.running) == 2 and len(made.waiting) == 7
    ray.up["b"] = 7
    until(made, lambda: len(made.running) == 5)
    settle(made)
    assert len(made.waiting) == 4 and made.peak == 5 and not said and not ray.killed


def test_a_node_leaves_and_nothing_is_ended_for_it():
    ray = FakeRay(a=4, b=4)
    made, said = team_on(ray, 9)
    assert len(made.running) == 4
    ray.leave("b")
    settle(made)
    assert len(made.running) == 2 and len(made._open()) == 4 and len(made.waiting) == 5
    assert not ray.killed and len([s for s in said if "it goes on from its last checkpoint" in s]) == 2
    for actor in ray.under_way():
        actor.over = Ended(0)
    settle(made)
    assert len(made.running) == 2 and len(made.waiting) == 5, "those that were lost come first"
    for actor in ray.under_way():
        actor.over = Ended(0)
    settle(made)
    assert len(made.running) == 2 and len(made.waiting) == 3 and not ray.killed


@pytest.mark.parametrize(("at_once", "before", "after"), [(1, 1, 1), (3, 2, 3), (9, 2, 4), (0, 2, 4)])
def test_at_once_is_an_upper_bound(at_once, before, after):
    ray = FakeRay(a=4)
    made, _ = team_on(ray, 9, at_once)
    assert len(made.running) == before
    ray.up["b"] = 4
    until(made, lambda: len(made.running) == after)
    settle(made)
    assert len(made._open()) == after


def test_that_no_node_can_take_a_run_is_said_once(monkeypatch):
    ray = FakeRay(a=2)
    made, said = team_on(ray, 3)
    monkeypatch.setattr(team, "NO_NODE_S", 1e9)
    ray.leave("a")
    ray.up["small"] = 1
    settle(made)
    assert len(said) == 1 and "it goes on" in said.pop(), "it may come back"
    monkeypatch.setattr(team, "NO_NODE_S", 0.0)
    settle(made)
    assert said == [
        "seed 1 and 2 more: no node of the cluster can take a run, which needs 2 CPUs and 1.0 GiB; waiting until one "
        "that can joins"
    ]
    ray.up["b"] = 2
    until(made, lambda: made.running == [1])
    settle(made)
    assert len(said) == 1 and made.waiting == [2, 3]
    ray.leave("b")
    settle(made)
    assert said[2:] == said[:1] and "it goes on" in said[1], "and once more when it is so again"


def test_nothing_is_said_of_nodes_that_are_only_busy():
    ray = FakeRay(a=2)
    others = Actor(ray, [])
    assert others.ready("placed")
    made, said = team_on(ray, 2)
    assert not made.running and not said
    others.over = Ended(0)
    settle(made)
    assert made.running == [1] and not said


def test_a_node_that_joins_and_cannot_do_the_work_gets_none_and_is_named_once():
    ray = FakeRay(a=4)
    asked = []
    made, said = team_on(ray, 9, why_not=lambda node: asked.append(node.name) or "node old has torch 1.0, here it is 2")
    ray.up |= {"old": 8, "tiny": 1}
    until(made, lambda: said)
    ray.actors[0].over = Ended(0)
    settle(made)
    assert said == ["node old has torch 1.0, here it is 2: it joined, but gets no runs"] and asked == ["old"]
    assert len(made.running) == 2 and {a.where for a in ray.under_way()} == {"a"}


def test_a_run_that_waits_gets_a_new_node_once_that_has_been_asked():
    ray, answers = FakeRay(a=2), []

    def why_not(node):
        while not answers:
            time.sleep(0.001)
        return answers[0]

    made, said = team_on(ray, 1, why_not=why_not)
    ray.leave("a")
    settle(made)
    ray.up["b"] = 2
    settle(made)
    assert not made.running and len(ray.actors) == 1, "Ray must not place it before the node is asked"
    answers.append("")
    until(made, lambda: made.running == [1])
    assert ray.under_way()[0].where == "b" and said[0].startswith("seed 1: node a or its worker was lost")


def test_a_run_that_was_kept_from_a_node_may_have_it_once_that_has_been_asked():
    ray, answers = FakeRay(a=2), []

    def why_not(node):
        while not answers:
            time.sleep(0.001)
        return answers[0]

    made, _ = team_on(ray, 2, why_not=why_not)
    ray.actors[0].over = Ended(0)
    others = Actor(ray, [])
    assert others.ready("placed")
    ray.up["b"] = 2
    settle(made)
    assert not made.running and made._under_way()[0].kept_from == {"b"}
    answers.append("")
    until(made, lambda: made.running == [2])
    assert ray.under_way()[-1].where == "b"


def test_a_node_that_cannot_even_be_asked_is_not_counted():
    def why_not(node):
        raise OSError("no answer")

    ray = FakeRay(a=2)
    made, said = team_on(ray, 3, why_not=why_not)
    ray.up["b"] = 2
    until(made, lambda: said)
    assert said == ["node b cannot be asked (OSError: no answer): it joined, but gets no runs"]
    assert len(made.running) == 1


def test_a_team_that_stops_looks_at_no_nodes():
    ray = FakeRay(a=2)
    made, _ = team_on(ray, 3)
    made.stop(signal.SIGINT)
    ray.nodes = None
    settle(made)
    assert ray.under_way()[0].told == [signal.SIGINT] and not made.waiting


def test_a_lost_run_that_waits_for_room_is_stopped_as_well():
    ray = FakeRay(a=2)
    made, _ = team_on(ray, 2)
    ray.leave("a")
    settle(made)
    assert made._open() and not made._under_way() and not made.over
    made.stop(signal.SIGINT)
    assert made.over and made.members[1].code == 130 and not made.running


# ---- the launcher


def test_a_node_that_joins_is_asked_what_the_others_were_asked(tmp_path, monkeypatch):
    found, joined, made = [Node("a", "a", 4, 0, 8e9)], Node("b", "b", 4, 0, 8e9), []
    blind, bad = [], []

    def work(cluster, asked, why_not, config):
        if bad and asked == [joined]:
            raise ConfigError("node b: no ROM", "there is a hint")

    monkeypatch.setattr(nodes, "alive", lambda cluster: found)
    monkeypatch.setattr(nodes, "check_nodes", lambda cluster, asked, shared: blind if asked == [joined] else [])
    monkeypatch.setattr(nodes, "check_work", work)
    monkeypatch.setattr(team, "RayTeam", lambda *args: made.append(args))
    Place("cluster").team({}, 1, 1, NEED, tmp_path / "f", Config(env_id="CartPole-v1"))
    why_not = made[0][-1]._why_not
    assert why_not(joined) == ""
    blind.append(joined)
    assert why_not(joined) == f"node b does not see {tmp_path}"
    bad.append(True)
    assert why_not(joined) == "node b: no ROM"


CASES = {  # stored --at-once, --at-once now, nodes with two CPUs each -> at once, bound
    "larger": (0, None, 6, 6, 0),
    "smaller": (0, None, 1, 1, 0),
    "more than seeds": (0, None, 30, 9, 0),
    "bound of the first time": (4, None, 6, 4, 4),
    "bound given now": (4, 5, 6, 5, 5),
    "bound above the cluster": (4, None, 3, 3, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_a_resume_on_another_cluster_uses_what_that_one_carries(name, tmp_path, monkeypatch):
    most, given, n, at_once, bound = CASES[name]
    config = Config(env_id="CartPole-v1", torch_threads=2)
    made = SeedsFolder.create(tmp_path / "r", config, range(1, 10), "auto", (), 2, most)
    assert SeedsFolder.read(made.path) == made
    monkeypatch.setattr(nodes, "alive", lambda cluster: [Node(str(i), str(i), 2, 0, 8e9) for i in range(n)])
    args = argparse.Namespace(seeds=None, resume=str(made.path), at_once=given, trust=False)
    for _ in range(2):
        with contextlib.ExitStack() as held:
            folder, _, _ = _resumed(args, Place("cluster"), Home(), held)
        args.at_once = None
        assert (folder.at_once, folder.most) == (at_once, bound) and SeedsFolder.read(made.path) == folder
    with contextlib.ExitStack() as held:
        here, _, _ = _resumed(args, Place(None), Home(), held)
    assert here.at_once == (bound or at_once) and here.config == config


def test_every_name_of_a_node_may_stand_in_a_selector():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    import ray

    ids = ["".join(x) * 14 for x in itertools.product("a1", "0f", "b", "9")]
    host = ray.remote(num_cpus=1)(Actor)
    for k in (1, 2, 4):
        host.options(label_selector={team.NODE_ID: f"!in({','.join(ids[:k])})"})
