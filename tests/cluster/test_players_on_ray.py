"""The runner `cluster` on a real cluster: players are killed, stopped, cut off, and nothing changes."""

import time

import psutil
import pytest

from dqnitro.cluster.connect import ADDRESS
from dqnitro.run import make_run
from dqnitro.run.cluster import actors
from support import fakes_envs
from support.cluster_reference import CORRIDOR, inline_with_the_same_ages, same

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
