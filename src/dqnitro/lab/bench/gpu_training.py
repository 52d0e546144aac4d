"""`bench gpu`, whole training: console frames a second while a GPU plays, stores and learns at the replay ratio of DQN.

It is to promise what a run keeps: consoles are scattered over their games, which end and begin while they are measured.
With `train_minutes` a real run with the same settings follows, and the table shows its mean rate and the ratio.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import torch

from dqnitro import recipes
from dqnitro.common.intervals import mean_interval
from dqnitro.config import Config
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, Rate
from dqnitro.lab.bench.gpu_work import UNIT, Games, Timed, clocked, fill, scatter

SAMPLES_A_STEP = recipes.CLASSIC["batch_size"] / recipes.CLASSIC["steps_per_update"]
SIZES = ((1024, 256), (4096, 512), (16384, 512), (16384, 2048))  # consoles, batch
WARM_GRAPHS = 3


def training_config(game: str, machines: int, batch: int) -> Config:
    """Recipe `classic` with everything on the GPU."""
    plan = recipes.classic_plan(game, recipes.Here(1, "a GPU"))
    return plan.config().replace(
        n_envs=machines, batch_size=batch, steps_per_update=batch / SAMPLES_A_STEP, first_fill_steps=32 * machines,
        # More than a hundred slots per console, whatever their number.
        replay_capacity=max(1_000_000, 128 * machines), target_sync_steps=8 * machines,
    )  # fmt: skip


def training_rate(config: Config, device: torch.device, took: list[float], make: Callable[[Config], Any]) -> Timed:
    """Whole graphs of the device runner, measured once it learns; the replay is filled with made-up experience."""
    agent, run = make(config.replace(device=str(device)))
    scatter(agent.player, config.n_envs, device)
    agent.age.fill_(agent.config.frame_stack)  # all consoles are in the middle of a game
    fill(agent.ring, agent.player.n_actions)
    while agent.clock.updates == 0:
        next(run)
    for _ in range(WARM_GRAPHS):
        next(run)
    games = Games(config.n_envs, device)

    def graph() -> None:
        games.count(len(next(run).ends), agent.player.resetting)

    return Timed(clocked(graph, lambda: config.frame_skip * agent.clock.steps, device, took), games)


def training_name(game: str, machines: int, batch: int) -> str:
    return f"training, classic DQN, {game}, {machines:,} machines, batch {batch}"


def real_rate(config: Config, minutes: float) -> float:
    """Mean frames/s of a run of some minutes, from its first step to its last."""
    from dqnitro.session import train

    return train(config.replace(max_minutes=minutes, stop_at_score=math.inf, checkpoint_every_s=0.0)).frames_per_s


def bench_training(
    o: Options, game: str, device: Callable[[], str], to: str, make: Callable[[Config], Any] | None = None,
    config: Callable[[str, int, int], Config] = training_config, train_minutes: float = 0.0,
    real: Callable[[Config, float], float] = real_rate,
) -> dict[str, Any]:  # fmt: skip
    """One game, all sizes."""
    result = _measure(o, game, device, to, make, config)
    for name, row in result["table"].items() if train_minutes else ():
        gc.collect()  # the agents that were measured make room
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        o.progress(f"training {name} for {train_minutes:g} minutes")
        size = next(size for size in SIZES if training_name(game, *size) == name)
        row["train_rate"] = real(config(game, *size), train_minutes)
        row["to_train"] = row["rate"] / row["train_rate"]
        row["train_minutes"] = train_minutes
    return result


def _measure(
    o: Options, game: str, device: Callable[[], str], to: str, make: Callable[[Config], Any] | None,
    config: Callable[[str, int, int], Config],
) -> dict[str, Any]:  # fmt: skip
    from dqnitro.errors import ConfigError
    from dqnitro.run.gpu import device as runner

    took: dict[str, list[float]] = {training_name(game, *size): [] for size in SIZES}
    games: dict[str, Games] = {}
    wanted = [size for size in SIZES if _asked(o, training_name(game, *size))]
    with Contest(o, "", UNIT, to) as contest:
        for n, batch in wanted:
            name = training_name(game, n, batch)

            def rate(n: int = n, batch: int = batch, name: str = name) -> Rate:
                try:
                    where = torch.device(device())
                    timed = training_rate(config(game, n, batch), where, took[name], make or runner.make)
                except ConfigError as e:
                    raise CannotRun(str(e).split("; hint:")[0]) from None
                games[name] = timed.games
                return timed.rate

            contest.add_rate(name, rate, training_name(game, *wanted[0]), training=n)
        result = contest.run(lambda table: "")
    for name, row in result["table"].items():
        each = mean_interval(took[name]).mean
        row["ms"] = 1000.0 * each
        row |= games[name].columns(1, each)
    return result


def _asked(o: Options, name: str) -> bool:
    """Sizes that nobody asked for are not built: each takes gigabytes."""
    return not o.only or any(word.lower() in name.lower() for word in o.only)
