"""The runner `cluster` on a real cluster: players are killed, stopped, cut off, and nothing changes."""

import os
import time

import psutil
import pytest

from dqnitro.callback import Callback
from dqnitro.cli.train import recorded_changes
from dqnitro.cluster.connect import ADDRESS
from dqnitro.run import make_run
from dqnitro.run.cluster import actors, crew
from dqnitro.session import train
from support import fakes_envs
from support.cluster_reference import CORRIDOR, inline_by_the_log, inline_with_the_same_ages, log_of, same

fakes_envs.register()
REPLACED_S = 10.0  # promised
GIVE_UP_S = 120.0  # ticks are endless: a test that waits in vain for a loss must end


def players_of(cluster) -> list[psutil.Process]:
    """The processes of all players on the nodes of this cluster; another test may have a cluster of its own."""
    nodes = {n.all_processes["raylet"][0].process.pid for n in cluster.list_all_nodes()}
    named = [p for p in psutil.process_iter(["cmdline", "ppid"]) if p.info["ppid"] in nodes]
    return [p for p in named if (p.info["cmdline"] or [""])[0].startswith("ray::PlayerHost")]


def none_is_left(cluster) -> bool:
    end = time.monotonic() + 20
    while players_of(cluster) and time.monotonic() < end:
        time.sleep(0.1)
    return not players_of(cluster)


class Run:
    """A run that is struck while it goes on."""

    def __init__(self, config, made: list) -> None:
        self.config = config
        self.agent, self.ticks = make_run(config)
        self.hosts, self.took = made[-1], []

    def playing(self) -> list[psutil.Process]:
        """The processes that play for somebody, as the learner knows them: others may be about to end."""
        return [psutil.Process(pid) for pid, players in self.hosts.processes().items() if players]

    def on_until(self, steps: int) -> None:
        while self.agent.clock.steps < steps:
            next(self.ticks)

    def strike(self, accident) -> None:
        before, began = self.agent.envs.replaced, time.monotonic()
        accident()
        while self.agent.envs.replaced == before and time.monotonic() < began + GIVE_UP_S:
            next(self.ticks)
        self.took.append(time.monotonic() - began)
        assert self.agent.envs.replaced > before, f"{accident.__name__} was not noticed"

    def spare_is_ready(self) -> None:
        end = time.monotonic() + GIVE_UP_S
        while time.monotonic() < end and all(self.hosts.processes().values()):
            self.hosts.prepare(self.agent.envs.orders[0])
            time.sleep(0.1)

    def end(self) -> None:
        print(f"seconds until replaced: {', '.join(f'{t:.1f}' for t in self.took)}")
        self.on_until(self.config.max_steps)
        same(self.agent, inline_with_the_same_ages(self.config))
        self.agent.close()
        assert all(t < REPLACED_S for t in self.took), self.took


@pytest.fixture
def made(monkeypatch):
    """All hosts that runs make, on the cluster of this machine."""
    made, real = [], actors.RayHosts

    def make(*args):
        made.append(real(*args))
        return made[-1]

    monkeypatch.setenv(ADDRESS, "auto")
    monkeypatch.setattr("dqnitro.run.cluster.RayHosts", make)
    return made


def test_a_player_that_is_stopped_is_replaced_and_changes_nothing(ray_cluster, made):
    """The short form of the next test: one node and one player, with a process that waits for its loss."""
    run = Run(CORRIDOR.replace(players=1, slack_steps=12), made)
    run.on_until(60)
    run.spare_is_ready()
    run.strike(lambda: run.playing()[0].suspend())
    run.end()
    assert none_is_left(ray_cluster)


def test_players_that_are_killed_stopped_and_cut_off_change_nothing(three_nodes, made):
    run = Run(CORRIDOR.replace(players=4, slack_steps=12, max_steps=400), made)
    assert len({p.ppid() for p in run.playing()}) > 1  # on several nodes
    head = three_nodes.head_node.all_processes["raylet"][0].process.pid

    def kill() -> None:
        run.playing()[0].kill()

    def stop() -> None:
        run.playing()[0].suspend()

    def cut_off() -> None:
        next(p.parent() for p in run.playing() if p.ppid() != head).kill()

    for accident, steps in ((kill, 80), (stop, 160), (cut_off, 240)):
        run.on_until(steps)
        run.strike(accident)
    run.end()
    assert none_is_left(three_nodes)


@pytest.fixture
def one_node(request):
    """The head alone, with one CPU; a test may add nodes."""
    if not os.environ.get("DQNITRO_TEST_CLUSTER"):
        pytest.skip("nodes that come and go take minutes: make test-cluster")
    cluster = request.getfixturevalue("ray_cluster")
    alone(cluster)
    yield cluster
    alone(cluster)


def alone(cluster) -> None:
    import ray

    for node in list(cluster.worker_nodes):
        cluster.remove_node(node, allow_graceful=False)
    end = time.monotonic() + GIVE_UP_S
    while sum(n["Alive"] for n in ray.nodes()) > 1 and time.monotonic() < end:
        time.sleep(0.1)


def test_the_run_is_the_same_on_one_two_and_four_nodes(one_node, made):
    """With one, two and four players each: where they live is all that differs."""
    for nodes in (1, 2, 4):
        while len(one_node.list_all_nodes()) < nodes:
            one_node.add_node(num_cpus=1, object_store_memory=100 << 20)
        for players in (1, 2, 4):
            run = Run(CORRIDOR.replace(players=players, slack_steps=12), made)
            assert len({p.ppid() for p in run.playing()}) == min(nodes, players), (nodes, players)
            run.end()
            assert none_is_left(one_node)


class NodesComeAndGo(Callback):
    """A node joins and, when its player has played for a while, is lost; then the run ends."""

    def __init__(self, cluster) -> None:
        self.cluster, self.node, self.seen = cluster, None, []
        self.until, self.end = 100, time.monotonic() + 3 * GIVE_UP_S

    def on_tick(self, run, tick) -> None:
        players = run.agent.envs.players
        if not self.seen or players != self.seen[-1]:
            self.seen.append(players)
            self.until = tick.steps + 100
        if tick.steps >= self.until:
            if self.seen == [1] and self.node is None:
                self.node = self.cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
            elif self.seen == [1, 2] and self.node is not None:
                self.cluster.remove_node(self.node, allow_graceful=False)
                self.node = None
            elif self.seen == [1, 2, 1] or time.monotonic() > self.end:
                run.stop()


def test_players_join_with_a_node_and_leave_with_it_and_the_log_repeats_the_run(one_node, made, tmp_path, monkeypatch):
    monkeypatch.setattr(crew, "PATIENCE_S", 3.0)
    config = CORRIDOR.replace(
        env_id="dqnitro_test/SlowOnRay-v0", players=1, most_players=4, chunk_vector_steps=8, slack_steps=32,
        steps_per_update=8.0, checkpoint_every_s=2.0, max_steps=0,
    )  # fmt: skip
    nodes, run = NodesComeAndGo(one_node), tmp_path / "r"
    result = train(config, run, callbacks=[nodes])
    assert nodes.seen == [1, 2, 1] == [x["players"] for x in log_of(run)], "and never four, nor again"
    whole = config.replace(max_steps=result.steps)
    same(result.agent, inline_by_the_log(whole, run))
    again = train(whole.replace(player_changes=recorded_changes(run)), tmp_path / "again")
    same(again.agent, result.agent)
    assert [(x["chunk"], x["players"]) for x in log_of(tmp_path / "again")] == [
        (x["chunk"], x["players"]) for x in log_of(run)
    ]
    assert none_is_left(one_node)
