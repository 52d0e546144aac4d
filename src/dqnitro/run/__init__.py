"""Runners: who does what where. A runner turns a config into an agent and the ticks of its run.

The session, the lab and the benchmarks call `make_run` and know nothing of what is behind it. Every runner keeps the
contract of `dqnitro.agent`: the ticks are endless, between two of them the agent is at rest and can be saved with
`get_state`, and a fresh agent takes a saved state with `set_state` before its first tick. `agent.close()` ends whatever
was started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dqnitro.agent import Agent, Tick
from dqnitro.config import Config

Run = tuple[Agent, Iterator[Tick]]


def _inline(config: Config) -> Run:
    """Everything in this process, one after the other: what the others are compared with."""
    from dqnitro.run.inline import loop, make_agent

    agent = make_agent(config)
    return agent, loop(agent)


def _processes(config: Config) -> Run:
    """Play in a process of its own, ahead of training by at most the slack."""
    from dqnitro.run.processes import make

    return make(config)


def _device(config: Config) -> Run:
    """Games, replay and learner on one GPU."""
    from dqnitro.run.gpu.device import make

    return make(config)


def _hybrid(config: Config) -> Run:
    """Games on the CPU's cores, replay and learner on the GPU."""
    from dqnitro.run.gpu.hybrid import make

    return make(config)


def _cluster(config: Config) -> Run:
    """Play on the nodes of a Ray cluster, ahead of training by at most the slack."""
    from dqnitro.run.cluster import make

    return make(config)


# Each entry imports what it needs itself: choosing one runner must not cost the imports of all.
RUNNERS: dict[str, Callable[[Config], Run]] = {
    "inline": _inline,
    "processes": _processes,
    "device": _device,
    "hybrid": _hybrid,
    "cluster": _cluster,
}


def make_run(config: Config) -> Run:
    """The agent of a config, ready for its first step, and its ticks; nothing is played before the first tick is asked
    for.
    """
    if config.gpus > 1:
        from dqnitro.run.gpu.replicas import make

        return make(config)
    return RUNNERS[config.runner](config)
