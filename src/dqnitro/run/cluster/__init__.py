"""`cluster`: play on the nodes of a Ray cluster, train here. See docs/cluster.md.

The learner is this process: it owns replay, learner, clock and checkpoints and runs the same ticks as the inline loop,
owed updates and all, so the ratio of steps to updates is the config's whatever the speed of anybody. `player` is a
player, `chunk` what it brings back, `hosts` and `actors` where it lives, `crew` the learner's end of all players.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from dqnitro.agent import Tick
from dqnitro.cluster.connect import Cluster, chosen_address, connect
from dqnitro.cluster.nodes import alive, check_nodes, check_work, free_cpus
from dqnitro.config import Config, numbers_of_players
from dqnitro.errors import ConfigError
from dqnitro.requirements import cannot_play
from dqnitro.run.cluster.actors import RayHosts
from dqnitro.run.cluster.crew import Crew
from dqnitro.run.cluster.hosts import Hosts
from dqnitro.run.inline import InlineAgent, learn_owed, make_agent, remember

MOST_ON_A_CPU = 16  # players
FREED_S = 15.0  # for CPUs to become free


def ray_hosts(config: Config) -> Hosts:
    """The cluster that `--on` named, or one on this machine; its CPUs divided among the players, one each at most.

    Where the number of players may change, it is the smallest that has to find room.
    """
    cluster = connect(chosen_address())
    try:
        nodes, fewest = alive(cluster), numbers_of_players(config)[0]
        cpus_each([n.cpus for n in nodes], fewest)
        each = free_cpus_each(cluster, fewest)
        players = [n for n in nodes if n.cpus]
        check_nodes(cluster, players)
        check_work(cluster, players, cannot_play, config)
    except BaseException:
        cluster.close()
        raise
    return RayHosts(cluster, each)


def free_cpus_each(cluster: Cluster, players: int) -> float:
    """The same share of what nobody uses. Players of a run that has just died give theirs back within seconds."""
    end = time.monotonic() + FREED_S
    while True:
        try:
            return cpus_each(free_cpus(cluster, alive(cluster)), players, "free CPUs")
        except ConfigError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def cpus_each(cpus: Sequence[float], players: int, what: str = "CPUs") -> float:
    """The largest share of a CPU (1, 1/2, 1/3, ...) with which all players find room on nodes with these CPUs."""
    for sharing in range(1, MOST_ON_A_CPU + 1):
        if sum(int(n * sharing) for n in cpus) >= players:
            return int(10_000 / sharing) / 10_000  # what Ray counts in
    raise ConfigError(
        f"{players} players need more {what} than the {sum(cpus):g} of the cluster, even with {MOST_ON_A_CPU} on each",
        "use fewer --players, add nodes, or wait until others have finished",
    )


def make(config: Config) -> tuple[InlineAgent, Iterator[Tick]]:
    """Start the players and build the learner around them."""
    crew = Crew(config, ray_hosts(config))
    agent = make_agent(config, crew)
    return agent, ticks(agent, crew)


def ticks(a: InlineAgent, crew: Crew) -> Iterator[Tick]:
    """The loop of the learner. Phase `act` is handing the weights over, `env` is waiting for the players."""
    clock, phases = a.clock, a.phases
    while True:
        phases.begin()
        epsilon = clock.epsilon()
        crew.permit(a.learner, epsilon)
        phases.end("act")
        loss, diverged = learn_owed(a)
        actions, step = crew.take()
        phases.end("env")
        remember(a, actions, step)
        if diverged:
            raise diverged
        yield Tick(clock.steps, clock.updates, epsilon, loss, step.ends)
