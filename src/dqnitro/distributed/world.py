"""Which rank this process is, and how the ranks find each other: torchrun's environment variables.

`dqnitro train --gpus N` starts its processes with the same variables, so there is one way in.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dqnitro.errors import ConfigError

OURS = "DQNITRO_RANKS"  # set in processes that `--gpus N` started
TORCHRUN = "TORCHELASTIC_RUN_ID"
SHARE_A_GPU = "DQNITRO_SHARE_A_GPU"  # several ranks on one GPU, over gloo and without CUDA graphs: for measurements
START_S = 1800.0  # until all ranks are there: some compile for minutes
TOGETHER = "use `dqnitro train --gpus N` on one machine, or torchrun on every machine"


@dataclass(frozen=True)
class Place:
    """Where a process stands among the ranks."""

    rank: int
    size: int
    local_rank: int = 0  # on this machine
    local_size: int = 1
    restarts: int = 0  # how often torchrun has started this run again
    launched: bool = False  # by `--gpus N`, which speaks for the ranks when one is lost

    @property
    def speaks(self) -> bool:
        return self.rank == 0


def place(environment: Mapping[str, str] | None = None) -> Place | None:
    """The place of this process; None if it is not a rank. ConfigError if the variables disagree."""
    env = os.environ if environment is None else environment
    if OURS not in env and TORCHRUN not in env:  # a cluster's scheduler may set RANK for reasons of its own
        return None
    size, local_size = _number(env, "WORLD_SIZE"), _number(env, "LOCAL_WORLD_SIZE")
    rank, local_rank = _number(env, "RANK"), _number(env, "LOCAL_RANK")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not env.get(name):
            raise ConfigError(f"{name} is not set, but this process is a rank", TOGETHER)
    if not rank < size:
        raise ConfigError(f"RANK is {rank}, but WORLD_SIZE is {size}", TOGETHER)
    if not local_rank < local_size:
        raise ConfigError(f"LOCAL_RANK is {local_rank}, but LOCAL_WORLD_SIZE is {local_size}", TOGETHER)
    if local_size > size or local_rank > rank:
        raise ConfigError(
            f"rank {rank} of {size} cannot be number {local_rank} of {local_size} on its machine", TOGETHER
        )
    restarts = _number(env, "TORCHELASTIC_RESTART_COUNT") if env.get("TORCHELASTIC_RESTART_COUNT") else 0
    return Place(rank, size, local_rank, local_size, restarts, OURS in env)


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"{name} must be a whole number, got {text[:40]!r}", TOGETHER)
    return int(text)


def checked_size(asked: int | None, here: Place) -> int:
    """How many ranks there are; ConfigError if `--gpus` asked for another number."""
    if asked is not None and asked != here.size:
        raise ConfigError(
            f"--gpus {asked}, but torchrun started {here.size} ranks", "leave --gpus out: torchrun decides the number"
        )
    return here.size


def device_of(here: Place, name: str) -> str:
    """The device of a rank: the CPU, or the GPU with the number of the rank on its machine."""
    if name == "cpu":
        return "cpu"
    return "cuda:0" if os.environ.get(SHARE_A_GPU) else f"cuda:{here.local_rank}"


_current: Place | None = None
_watch: Any = None


def current() -> Place | None:
    """The place of this process in a group that has been joined."""
    return _current


def under_way() -> None:
    """The run has made a tick: from now on a rank that says nothing for seconds is lost."""
    from dqnitro.distributed.watch import PATIENCE_S

    if _watch is not None:
        _watch.patience_s = PATIENCE_S


@contextlib.contextmanager
def joined(here: Place, cuda: bool) -> Iterator[None]:
    """Meet the other ranks. Numbers of the host go over gloo; what is on a GPU goes over NCCL."""
    global _current, _watch
    # Imported here, or else while the group is there: its functions have the group of that moment as a default, which
    # would keep the group and its threads, and Python aborts where such a thread frees a tensor while Python ends.
    import torch.distributed.nn

    from dqnitro.distributed.watch import Watch

    dist: Any = torch.distributed

    backend = "cpu:gloo,cuda:nccl" if cuda and not os.environ.get(SHARE_A_GPU) else "gloo"
    try:
        patience = datetime.timedelta(seconds=START_S)
        store = next(dist.rendezvous("env://", here.rank, here.size, timeout=patience))[0]
        own = dist.PrefixStore("run", store)
        dist.init_process_group(backend, store=own, rank=here.rank, world_size=here.size, timeout=patience)
    except (RuntimeError, ValueError) as e:
        raise ConfigError(f"rank {here.rank} of {here.size} cannot meet the others ({e})", TOGETHER) from e
    _current, _watch = here, Watch(here, dist.PrefixStore("watch", store.clone()))
    _watch.start()
    try:
        yield
    finally:
        _watch.close()
        _current = _watch = None
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()
