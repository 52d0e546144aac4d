"""`bench gpu`, whole training: console frames a second while a GPU plays,
stores and learns at the replay ratio of DQN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.intervals import mean_interval
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, Rate
from dqnitro.lab.bench.gpu_work import UNIT, clocked, fill

SAMPLES_A_STEP = recipes.CLASSIC["batch_size"] / recipes.CLASSIC["steps_per_update"]
SIZES = ((1024, 256), (4096, 512), (8192, 2048))  # consoles, batch
WARM_GRAPHS = 3


def training_config(machines: int, batch: int) -> Config:
    """Recipe `classic` with everything on the GPU."""
    plan = recipes.classic_plan("pong", recipes.Here(1, "a GPU"))
    return plan.config().replace(
        n_envs=machines, batch_size=batch, steps_per_update=batch / SAMPLES_A_STEP, first_fill_steps=32 * machines,
        # More than a hundred slots per console, whatever their number.
        replay_capacity=max(1_000_000, 128 * machines),
    )  # fmt: skip


def training_rate(config: Config, device: torch.device, took: list[float], make: Callable[[Config], Any]) -> Rate:
    """Whole graphs of the device runner, measured once it learns; the replay is filled with made-up experience."""
    agent, run = make(config.replace(device=str(device)))
    fill(agent.ring, agent.player.n_actions)
    while agent.clock.updates == 0:
        next(run)
    for _ in range(WARM_GRAPHS):
        next(run)
    return clocked(lambda: next(run), lambda: config.frame_skip * agent.clock.steps, device, took)


def training_name(machines: int, batch: int) -> str:
    return f"training, classic DQN, {machines:,} machines, batch {batch}"


def bench_training(
    o: Options, device: Callable[[], str], to: str, make: Callable[[Config], Any] | None = None,
    config: Callable[[int, int], Config] = training_config,
) -> dict[str, Any]:  # fmt: skip
    from dqnitro.errors import ConfigError
    from dqnitro.run.gpu import device as runner

    took: dict[str, list[float]] = {training_name(*size): [] for size in SIZES}
    with Contest(o, "", UNIT, to) as contest:
        for n, batch in SIZES:
            name = training_name(n, batch)

            def rate(n: int = n, batch: int = batch, name: str = name) -> Rate:
                try:
                    return training_rate(config(n, batch), torch.device(device()), took[name], make or runner.make)
                except ConfigError as e:
                    raise CannotRun(str(e).split("; hint:")[0]) from None

            contest.add_rate(name, rate, training_name(*SIZES[0]), training=n)
        result = contest.run(lambda table: "")
    for name, row in result["table"].items():
        row["ms"] = 1000.0 * mean_interval(took[name]).mean
    return result
