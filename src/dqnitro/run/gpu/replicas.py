"""One learner on several GPUs: every rank runs `device` or `hybrid` on its share, rank 0 leads.

Rank 0 has the session, the folder and the terminal. What it is asked for it tells the others as orders: make a tick,
save, load, end. So the ranks do the same things in the same order, whatever ends the run. Gradients and counts go
between them inside the tick (`averaging`, `DeviceAgent.count_steps`); all ranks hold the same weights and the same
clock.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from dqnitro.agent import Phases, State, Tick
from dqnitro.clock import Clock
from dqnitro.common.files import storage_error
from dqnitro.common.host import usable_cores
from dqnitro.common.signals import Signals
from dqnitro.config import Config
from dqnitro.distributed import world
from dqnitro.distributed.messages import Messages
from dqnitro.distributed.ranks import GroupRanks, Ranks
from dqnitro.envs.base import GameEnd
from dqnitro.errors import CheckpointError, ConfigError, DivergedError, RankLost, RanksDiffer, StorageError, UserError
from dqnitro.run.gpu import device as device_runner
from dqnitro.run.gpu.agent import GpuAgent, chances_of
from dqnitro.run.gpu.device import SpecOnly
from dqnitro.run.gpu.share import config_of
from dqnitro.store import checkpoint, shards

TICK, SAVE, LOAD, END = "tick", "save", "load", "end"
Made = tuple[GpuAgent, Callable[[], Iterator[Tick]]]


def build(config: Config, ranks: Ranks, device: torch.device) -> Made:
    """This rank's agent, before anything is exchanged; and what starts its ticks, on all ranks together."""
    share, first = config_of(config), ranks.rank * (config.n_envs // config.gpus)
    if config.runner == "hybrid":
        from dqnitro.envs.turns import make_env_groups
        from dqnitro.run.gpu import hybrid

        half = hybrid.HybridAgent(share, make_env_groups(share, first), device, ranks)
        return half, lambda: hybrid.started(half)
    if device.type == "cuda":
        whole = device_runner.make_agent(share, device, ranks)
    else:
        from dqnitro.run.gpu.host_envs import HostEnvs

        share = device_runner.fitting(share)
        whole = device_runner.DeviceAgent(share, device, HostEnvs(share, first), ranks)
    return whole, lambda: device_runner.started(whole)


def meet(config: Config) -> tuple[Rank, Iterator[Tick]]:
    """This process's rank and its ticks. What one rank cannot do is an error on all of them."""
    here = world.current()
    if here is None or here.size != config.gpus:
        raise ConfigError(f"gpus {config.gpus}: this process is not one of {config.gpus} ranks", world.TOGETHER)
    device = torch.device(world.device_of(here, config.device))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(config.torch_threads or max(1, usable_cores() // here.local_size))
    messages, ranks = Messages(), GroupRanks()
    made, problem = None, ""
    try:
        made = build(config, ranks, device)
    except UserError as e:
        problem = str(e)
    for rank, said in enumerate(messages.gather(problem)):
        if said:
            if made is not None:
                made[0].close()
            raise ConfigError(said if rank == here.rank else f"rank {rank}: {said}")
    assert made is not None
    agent, start = made
    return Rank(agent, messages), start()


def make(config: Config) -> tuple[Leader, Iterator[Tick]]:
    """The run as rank 0 leads it."""
    rank, ticks = meet(config)
    leader = Leader(config, rank)
    return leader, leader.ticks(ticks)


class Rank:
    """One rank: its agent, and what it does when it is told to."""

    def __init__(self, agent: GpuAgent, messages: Messages) -> None:
        self.agent, self.messages = agent, messages
        self.number, self.size = messages.rank, messages.size

    def tick(self, ticks: Iterator[Tick], caught: str | None) -> tuple[Tick, list[str]]:
        """A tick with the games of all ranks, and the signals that ranks have caught."""
        tick = next(ticks)
        said = self.messages.gather([[list(end) for end in tick.ends], caught])
        n = self.agent.config.n_envs
        ends = tuple(
            GameEnd(int(env) + rank * n, float(score), int(steps))
            for rank, (games, _) in enumerate(said)
            for env, score, steps in games
        )
        return tick._replace(ends=ends), [signal for _, signal in said if signal]

    def save(self, tmp: pathlib.Path) -> dict[str, Any]:
        """Write this rank's files; what the manifest has to know of them, or why it was not possible."""
        try:
            arrays, record = self.agent.get_state()
            files = checkpoint.write_files(tmp, shards.named(arrays, self.number)) if self.number else {}
            return {"files": files, "record": _own(record), "weights": digest(arrays[shards.LEARNER])}
        except Exception as e:
            problem = storage_error(e, tmp.parent)
            return {"error": str(problem or f"{type(e).__name__}: {e}"), "storage": problem is not None}

    def load(self, run: pathlib.Path) -> shards.Loaded:
        loaded = shards.load(run, self.number, self.size)
        self.take(loaded)
        return loaded

    def take(self, loaded: shards.Loaded) -> None:
        agent = self.agent
        agent.set_state(loaded.arrays, loaded.record)
        if loaded.ranks != self.size:  # dealt out again: nobody had these random numbers before
            fresh = chances_of(agent.config.seed, agent.device, self.number, deal=agent.clock.steps)
            for name, chance in agent.chances.items():
                chance.set_state(fresh[name].get_state())


def digest(arrays: Mapping[str, Any]) -> str:
    """A checksum of weights and optimiser."""
    whole = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        whole.update(f"{name} ".encode() + np.ascontiguousarray(np.asarray(array)).tobytes())
    return whole.hexdigest()


def _own(record: Mapping[str, Any]) -> dict[str, Any]:
    """What of a record is a rank's own: the groups at play, with `hybrid`."""
    return {name: record[name] for name in ("parts",) if name in record}


class Leader:
    """Rank 0, as the session sees it: an `Agent` with all environments and the whole batch."""

    def __init__(self, config: Config, rank: Rank) -> None:
        self.config, self._rank = config, rank
        self._tell = rank.messages.tell
        self._closed = False
        spec = rank.agent.envs.spec
        self.envs = SpecOnly(type(spec)(**{**vars(spec), "n_envs": config.n_envs}))
        self._weights, self._own = "", {}  # of the state that is being saved

    @property
    def clock(self) -> Clock:
        return self._rank.agent.clock

    @property
    def phases(self) -> Phases:
        return self._rank.agent.phases

    @property
    def replay(self) -> Any:
        return self._rank.agent.replay

    @property
    def learner(self) -> Any:
        return self._rank.agent.learner

    def ticks(self, own: Iterator[Tick]) -> Iterator[Tick]:
        while True:
            self._tell([TICK, ""])
            tick, caught = self._rank.tick(own, None)
            world.under_way()
            if caught:
                Signals.heard(caught[0])
            yield tick

    def get_state(self) -> State:
        arrays, record = self._rank.agent.get_state()
        self._weights, self._own = digest(arrays[shards.LEARNER]), _own(record)
        return dict(shards.named(arrays, 0)), {**record, "ranks": self._rank.size}

    def save_others(self, tmp: pathlib.Path) -> Any:
        """The other ranks write into the folder of a checkpoint while this one does; see `checkpoint.Others`."""
        self._tell([SAVE, str(tmp.resolve())])

        def finish() -> tuple[dict[str, Any], dict[str, Any]]:
            said = self._rank.messages.gather(None)[1:]
            for rank, answer in enumerate(said, 1):
                if error := answer.get("error"):
                    kind = StorageError if answer["storage"] else CheckpointError
                    raise kind(f"rank {rank} could not save: {error}")
                if answer["weights"] != self._weights:
                    raise RanksDiffer(f"rank {rank} of {self._rank.size} has other weights than rank 0")
            files = {name: facts for answer in said for name, facts in answer["files"].items()}
            return files, {"shards": [self._own, *(answer["record"] for answer in said)]}

        return finish

    def load(self, run: pathlib.Path) -> int:
        """All ranks go on from the newest checkpoint of a run; how many ranks had saved it."""
        self._tell([LOAD, str(run.resolve())])
        problem, loaded = _tried(self._rank, run)
        for rank, said in enumerate(self._rank.messages.gather(problem)):
            if said:
                raise CheckpointError(said if rank == 0 else f"rank {rank}: {said}")
        assert loaded is not None
        return loaded.ranks

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        raise AssertionError("the ranks read their own shares: use load")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(RankLost):
                self._tell([END, ""])
            self._rank.agent.close()


def _tried(rank: Rank, run: pathlib.Path) -> tuple[str, shards.Loaded | None]:
    try:
        return "", rank.load(run)
    except UserError as e:
        return str(e), None
    except (LookupError, ValueError, RuntimeError, TypeError, AttributeError, ArithmeticError, AssertionError) as e:
        return f"{run}: the checkpoint does not fit its config ({type(e).__name__}: {e})", None


def follow(config: Config) -> None:
    """A rank other than 0: do what rank 0 says until it says that this is the end."""
    with Signals().installed() as signals:
        with signals.starting():
            rank, ticks = meet(config)
        try:
            while True:
                order, path = rank.messages.tell()
                if order == TICK:
                    try:
                        rank.tick(ticks, signals.caught)
                        world.under_way()
                    except DivergedError:  # rank 0 has met it as well, and will want it saved
                        continue
                elif order == SAVE:
                    rank.messages.gather(rank.save(pathlib.Path(path)))
                elif order == LOAD:
                    rank.messages.gather(_tried(rank, pathlib.Path(path))[0])
                else:
                    return
        finally:
            rank.agent.close()
