"""`bench gpu`: how fast a GPU plays and learns. Console frames a second over games and numbers of consoles, the latency
of a vector step, samples learned a second, and (gpu_training.py) both at once.

Consoles are scattered over their games before they are measured, and games end and begin meanwhile. Everything is timed
by the GPU's own clock, between two events around many launches, and counted where it happens: a console that is between
two games plays no frame of a game and counts none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dqnitro import recipes
from dqnitro.common.intervals import mean_interval, rate_interval
from dqnitro.config import Config, nearest
from dqnitro.errors import ConfigError
from dqnitro.lab.bench import gpu_training
from dqnitro.lab.bench.console import GAMES
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, Rate, gpu
from dqnitro.lab.bench.gpu_work import UNIT, Games, Timed, clocked, fill, random_step, scatter
from dqnitro.requirements import MOST_TOGETHER

TWENTY = (*GAMES, "alien", "asteroids", "atlantis", "bowling", "demon_attack", "gopher", "hero", "road_runner")
MACHINES = (256, 1024, 8192, 32768, 131072)
BATCHES = (512, 2048)
HOW = {"eager": (), "compiled": ("compile",), "own kernels": ("own-kernels",)}  # and the wrappers of it
# What else than values the last layers may predict, with dueling heads and three steps.
HEADS: dict[str, dict[str, Any]] = {
    "": {},
    "51 atoms": {"categorical": True, "dueling": True, "n_step": 3},
    "64 quantiles": {"quantiles": 64, "dueling": True, "n_step": 3},
}
KINDS = (
    *((double, how, "") for how in HOW for double in (False, True)),
    *((True, how, head) for head in HEADS if head for how in ("eager", "own kernels")),
)
STEPS_TOGETHER = 16  # vector steps of one call that is timed
GEOMEAN = "geometric mean"
COLUMNS = {
    "ms": "ms per vector step, update or graph", "interval": "95% interval of the rate",
    "games_per_s": "games ended/s", "share_resetting": "share of consoles between two games",
    "train_rate": "mean rate of a real run", "to_train": "rate / real run",
}  # fmt: skip


# ---- the console


def make_machines(game: str, n: int, device: torch.device) -> Any:
    """CannotRun if there is no GPU that can do it, or not enough memory."""
    from dqnitro.atari.cuda.build import CudaUnavailable
    from dqnitro.run.gpu.cuda_envs import CudaEnvs

    try:
        return CudaEnvs(Config(env_id=game, n_envs=n, first_fill_steps=32, replay_capacity=16 * n), device)
    except (CudaUnavailable, torch.OutOfMemoryError) as e:
        raise CannotRun(str(e).split(" hint:")[0].splitlines()[0]) from None


def console_rate(machines: Any, n: int, frames_per_step: int, device: torch.device, took: list[float]) -> Timed:
    """Random play in the steady state: games end and begin meanwhile. Only consoles that play count frames."""
    counted, games = torch.zeros((), dtype=torch.int64, device=device), Games(n, device)
    scatter(machines, n, device)

    def some_steps() -> None:
        for _ in range(STEPS_TOGETHER):
            playing = machines.resetting == 0
            counted.add_(playing.sum())
            random_step(machines, n, device)
            games.count((machines.ended() & playing).sum(), machines.resetting)

    return Timed(clocked(some_steps, lambda: frames_per_step * float(counted), device, took), games)


def console_name(game: str, n: int) -> str:
    return f"console, {game}, {n:,} machines"


def bench_machines(
    o: Options,
    game: str,
    counts: Sequence[int],
    device: Callable[[], str],
    to: str,
    make: Callable[..., Any] = make_machines,
) -> dict[str, Any]:
    """One game with these numbers of consoles."""
    took: dict[str, list[float]] = {console_name(game, n): [] for n in counts}
    games: dict[str, Games] = {}
    with Contest(o, "", UNIT, to) as contest:
        for n in counts:
            name = console_name(game, n)

            def rate(n: int = n, name: str = name) -> Rate:
                where = torch.device(device())
                machines = make(game, n, where)
                contest.closing.callback(_close, machines)
                timed = console_rate(machines, n, Config().frame_skip, where, took[name])
                games[name] = timed.games
                return timed.rate

            contest.add_rate(name, rate, console_name(game, counts[0]), machines=n, game=game)
        result = contest.run(lambda table: "")
    for name, row in result["table"].items():
        each = mean_interval(took[name]).mean
        row["ms"] = 1000.0 * each / STEPS_TOGETHER
        row |= games[name].columns(STEPS_TOGETHER, each)
    return result


def _close(machines: Any) -> None:
    with contextlib.suppress(AttributeError):
        machines.close()


# ---- the learner


class NoGames:
    """Stands in for the environments of an agent that only learns."""

    def __init__(self, config: Config, n_actions: int, device: torch.device) -> None:
        shape = (config.n_envs, config.frame_stack, config.screen_size, config.screen_size)
        self.n_actions = n_actions
        self.obs = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.actions = torch.zeros(config.n_envs, dtype=torch.int64, device=device)
        self.resetting = torch.zeros(config.n_envs, dtype=torch.int32, device=device)


def learner_config(batch: int, double: bool, how: str, head: str = "") -> Config:
    """The Nature network of 2015, one output layer and one-step returns unless the head says so, with `auto`'s ring."""
    wrappers = ("no-grad", "fused-adam", "channels-last", "bfloat16", *HOW[how])
    base = Config(env_id="pong", runner="device", replay="frames").replace(**recipes.ON_GPU)
    # The updates owed after one vector step are drawn together. Twenty rings of this size fit on most GPUs, and
    # none into a cache.
    base = base.replace(steps_per_update=base.n_envs / MOST_TOGETHER, replay_capacity=100_000)
    plain = base.replace(batch_size=batch, double=double, dueling=False, n_step=1, wrappers=wrappers)
    return plain.replace(**HEADS[head])


def learner_rate(config: Config, device: torch.device, n_actions: int = 6) -> Rate:
    """Whole updates of the device runner: draw, gather, loss, backward, optimiser; on a GPU several in one graph."""
    from dqnitro.run.gpu.device import DeviceAgent

    nobody: Any = NoGames(config, n_actions, device)
    agent = DeviceAgent(config, device, nobody)
    fill(agent.ring, n_actions)
    agent.groups[0].filled.copy_(agent.ring.filled)
    together, learned = MOST_TOGETHER if device.type == "cuda" else 1, 0.0

    start: Callable[[], None] = functools.partial(agent.learn, together)
    if device.type == "cuda":
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # compiles, and the optimiser makes its state
                start()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            start()
        start = graph.replay

    def work() -> None:
        nonlocal learned
        start()
        # This use of `agent` keeps it alive: a graph does not keep the tensors that it reads.
        learned += together * agent.config.batch_size

    return clocked(work, lambda: learned, device, [])


def learner_name(batch: int, double: bool, how: str, head: str = "") -> str:
    what = ", ".join(name for name in ("double DQN" if double else "DQN", head) if name)
    return f"learner, batch {batch}, {what}, {how}"


def bench_learner(
    o: Options, device: Callable[[], str], to: str, make: Callable[..., Config] = learner_config
) -> dict[str, Any]:
    with Contest(o, "", UNIT, to) as contest:
        for batch in BATCHES:
            for kind in KINDS:
                name = learner_name(batch, *kind)

                def rate(batch: int = batch, kind: tuple[bool, str, str] = kind) -> Rate:
                    try:
                        return learner_rate(make(batch, *kind), torch.device(device()))
                    except torch.OutOfMemoryError:
                        raise CannotRun("not enough GPU memory") from None
                    except ConfigError as e:
                        raise CannotRun(str(e).split("; hint:")[0]) from None

                contest.add_rate(name, rate, learner_name(batch, False, "eager"), batch=batch)
        result = contest.run(lambda table: "")
    for row in result["table"].values():
        row["ms"] = 1000.0 * row["batch"] / row["rate"]
    return result


# ---- all of it


def bench(
    o: Options, games: Sequence[str] = TWENTY, counts: Sequence[int] = MACHINES, device: Callable[[], str] = gpu,
    make: Callable[..., Any] = make_machines, config: Callable[..., Config] = learner_config,
    training: Mapping[str, Any] | None = None, trained: Sequence[str] = ("pong",),
) -> dict[str, Any]:  # fmt: skip
    """One job after the other: consoles of all games at once would not fit into memory. `trained`: for training."""
    to = "the fewest consoles of the same game or of training, or the eager learner at the same batch"
    counts = sorted(set(counts))
    jobs: list[tuple[list[str], Callable[[Options], dict[str, Any]]]] = []
    for k, game in enumerate(games):
        # One game shows the effect of the number of consoles; the others are measured with the largest number only.
        mine = counts if k == 0 else counts[-1:]
        names = [console_name(game, n) for n in mine]
        jobs.append((names, lambda opts, g=game, c=mine: bench_machines(opts, g, c, device, to, make)))
    names = [learner_name(b, *kind) for b in BATCHES for kind in KINDS]
    jobs.append((names, lambda opts: bench_learner(opts, device, to, config)))
    for game in trained:
        names = [gpu_training.training_name(game, *size) for size in gpu_training.SIZES]
        jobs.append((names, lambda opts, g=game: gpu_training.bench_training(opts, g, device, to, **training or {})))
    whole: dict[str, Any] = {"rates": {}, "table": {}, "skipped": {}}
    for opts, job in _chosen(o, jobs):
        part = job(opts)
        for key in whole:
            whole[key] |= part[key]
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    if len(games) > 1:
        _add_geomean(whole, games, counts[-1])
    for name, row in whole["table"].items():
        i = rate_interval(whole["rates"][name])
        row["rate_low"], row["rate_high"] = i.low, i.high
        row["interval"] = f"{i.low:,.0f} to {i.high:,.0f}" if i.n > 1 else "one round"
    title = "the console and the learner on a GPU" + (
        f" ({torch.cuda.get_device_name()})" if torch.cuda.is_available() else ""
    )
    return {"title": title, "unit": UNIT, "to": to, "columns": COLUMNS, "verdict": verdict(whole["table"]), **whole}


def _chosen(o: Options, jobs: Sequence[tuple[list[str], Any]]) -> list[tuple[Options, Any]]:
    """Each job with the words of `--only` that match its contenders; jobs without a match are left out."""
    every = [n for names, _ in jobs for n in names]
    for word in o.only:
        if not any(word.lower() in n.lower() for n in every):
            raise ConfigError(f"--only {word}: no contender has that name", nearest(word, every, "contenders"))
    out = []
    for names, job in jobs:
        only = tuple(w for w in o.only if any(w.lower() in n.lower() for n in names))
        if only or not o.only:
            out.append((dataclasses.replace(o, only=only), job))
    return out


def _add_geomean(whole: dict[str, Any], games: Sequence[str], n: int) -> None:
    """Round by round over the games, so that it has an interval like the others."""
    rates = [whole["rates"][name] for g in games if (name := console_name(g, n)) in whole["rates"]]
    if len(rates) < 2:
        return
    name = f"console, {GEOMEAN} of {len(rates)} games, {n:,} machines"
    mean = [math.exp(sum(map(math.log, r)) / len(r)) for r in zip(*rates, strict=True)]
    whole["rates"][name] = mean
    row = {"rate": sum(mean) / len(mean), "ratio": 1.0, "low": 1.0, "high": 1.0, "rounds": len(mean), "to": name}
    whole["table"][name] = row | {"ms": None, "machines": n, "game": GEOMEAN}


def verdict(table: Mapping[str, Mapping[str, Any]]) -> str:
    """The best figure of each kind, one sentence each."""
    played = {n: r for n, r in table.items() if "machines" in r and r["game"] != GEOMEAN}
    said = []
    if played:
        best = max(played.values(), key=lambda r: r["rate"])
        quick = min(played.values(), key=lambda r: r["ms"])
        said.append(f"{best['rate']:,.0f} console frames/s of {best['game']} with {best['machines']:,} consoles.")
        said.append(f"{quick['machines']:,} consoles of {quick['game']} take {quick['ms']:.1f} ms for a vector step.")
    said += [
        f"{r['rate']:,.0f} frames/s over the games ({n.split(', ')[1]})."
        for n, r in table.items()
        if r.get("game") == GEOMEAN
    ]
    for batch in dict.fromkeys(r["batch"] for r in table.values() if "batch" in r):
        name, row = max(((n, r) for n, r in table.items() if r.get("batch") == batch), key=lambda nr: nr[1]["rate"])
        said.append(f"{row['rate']:,.0f} samples learned/s at batch {batch} ({name.split(', ', 2)[2]}).")
    if trained := [(n, r) for n, r in table.items() if "training" in r]:
        name, row = max(trained, key=lambda nr: nr[1]["rate"])
        said.append(
            f"{row['rate']:,.0f} console frames/s while learning {gpu_training.SAMPLES_A_STEP:g} samples a step "
            f"({name.split(', ', 2)[2]})."
        )
    return " ".join(said) or "Nothing could be measured here."
