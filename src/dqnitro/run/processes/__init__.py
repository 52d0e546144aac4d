"""`processes`: play in one process, train in another. See docs/processes.md.

The trainer is this process: it owns replay, learner, clock and checkpoints and runs the same ticks as the inline loop,
owed updates and all, so the ratio of steps to updates is the config's whatever the speed of either side.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dqnitro.agent import Tick
from dqnitro.common.host import usable_cores
from dqnitro.config import Config
from dqnitro.run.build import resolve_device
from dqnitro.run.inline import InlineAgent, learn_owed, make_agent, remember
from dqnitro.run.processes.player import unpack_rng
from dqnitro.run.processes.remote import RemotePlayer

MOST_PLAYER_THREADS = 4  # more of them wait for each other in a pass over a few observations


def slack_ticks(config: Config) -> int:
    """The slack in whole vector steps."""
    return config.slack_steps // config.n_envs


def thread_budget(config: Config, cores: int, torch_threads: int, on_gpu: bool) -> tuple[int, int]:
    """Threads of (trainer, player). `torch_threads` is what torch would use by itself.

    With slack 0 acting and learning never overlap: both get what the inline run has, and with it its very sums.
    Otherwise the cores are divided: two processes with a spinning thread per core each are 20 times slower than with
    half the threads.
    """
    if slack_ticks(config) == 0:
        same = config.torch_threads or torch_threads
        return same, same
    trainer = config.torch_threads or min(torch_threads, 1 if on_gpu else max(1, (cores + 1) // 2))
    return trainer, max(1, min(torch_threads, cores - trainer, MOST_PLAYER_THREADS))


def make(config: Config) -> tuple[InlineAgent, Iterator[Tick]]:
    """Start the player and build the trainer around it."""
    device = resolve_device(config.device)
    before, cores = torch.get_num_threads(), usable_cores()
    for_trainer, for_player = thread_budget(config, cores, before, device.startswith("cuda"))
    played = config
    if slack_ticks(config) and not config.env_threads:
        played = config.replace(env_threads=max(1, cores - for_trainer))
    torch.set_num_threads(for_trainer)
    player = RemotePlayer(played, slack_ticks(config), for_player, lambda: torch.set_num_threads(before))
    agent = make_agent(config, player)
    try:
        player.connect(agent.learner)
    except BaseException:
        player.close()
        raise
    return agent, ticks(agent, player)


def ticks(a: InlineAgent, player: RemotePlayer) -> Iterator[Tick]:
    """The loop of the trainer. Phase `act` is handing the weights over, `env` is waiting for the player."""
    clock, phases = a.clock, a.phases
    while True:
        phases.begin()
        epsilon = clock.epsilon()
        player.permit(a.learner)
        phases.end("act")
        loss, diverged = learn_owed(a)
        actions, step, report = player.take()
        phases.end("env")
        remember(a, actions, step)
        # The trainer's copy of the generator: what a checkpoint stores, and equal to the inline run's.
        a.rng_act.bit_generator.state = unpack_rng(report.rng)
        if diverged:
            raise diverged
        yield Tick(clock.steps, clock.updates, epsilon, loss, step.ends)
