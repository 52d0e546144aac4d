"""The runner `cluster` on a real cluster of three nodes: players are killed, stopped, cut off, and nothing changes."""

import time

import psutil

import fakes_envs
from cluster_reference import CORRIDOR, inline_with_the_same_ages, same
from dqnitro.cluster.connect import ADDRESS
from dqnitro.run import make_run

fakes_envs.register()


def players_of(cluster) -> list[psutil.Process]:
    """The processes of all players on the nodes of this cluster; another test may have a cluster of its own."""
    nodes = {n.all_processes["raylet"][0].process.pid for n in cluster.list_all_nodes()}
    named = [p for p in psutil.process_iter(["cmdline", "ppid"]) if p.info["ppid"] in nodes]
    return [p for p in named if (p.info["cmdline"] or [""])[0].startswith("ray::RayPlayer")]


def test_players_that_are_killed_stopped_and_cut_off_change_nothing(three_nodes, monkeypatch, capsys):
    monkeypatch.setenv(ADDRESS, "auto")

    def players() -> list[psutil.Process]:
        return players_of(three_nodes)

    config = CORRIDOR.replace(players=4, slack_steps=12, max_steps=400)
    agent, ticks = make_run(config)
    assert len(players()) == 4 and len({p.parent().pid for p in players()}) > 1  # on several nodes
    head = three_nodes.head_node.all_processes["raylet"][0].process.pid

    def kill() -> None:
        players()[0].kill()

    def stop() -> None:
        players()[0].suspend()

    def cut_off() -> None:
        next(p.parent() for p in players() if p.parent().pid != head).kill()

    took = []
    for accident, steps in ((kill, 80), (stop, 160), (cut_off, 240)):
        while agent.clock.steps < steps:
            next(ticks)
        before = agent.envs.replaced
        accident()
        began = time.monotonic()
        while agent.envs.replaced == before:
            next(ticks)
        took.append(time.monotonic() - began)
    while next(ticks).steps < config.max_steps:
        pass
    print(f"seconds until replaced: {', '.join(f'{t:.1f}' for t in took)}")
    same(agent, inline_with_the_same_ages(config))
    agent.close()
    assert agent.envs.replaced >= 3
    for _ in range(100):
        if not players():
            break
        time.sleep(0.1)
    assert not players()
