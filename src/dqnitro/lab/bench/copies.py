"""`bench copies`: what does it cost to move a batch from NumPy to torch, and from the host to the GPU?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec
from dqnitro.lab.bench.contest import Contest, Options, Step, gpu, say_ratio
from dqnitro.lab.bench.workload import game_spec, make_batch, observations
from dqnitro.learn.learner import Learner

BATCH = 32
REPEAT = 20  # calls between two readings of the clock: sharing memory takes less time than reading the clock
NAIVE, SHARED = "torch.tensor of a list", "from_numpy, shared"
PAGEABLE, BESIDE = "to GPU, pageable", "update, then pageable copy"


def on_cpu(spec: EnvSpec) -> dict[str, Callable[[], Step]]:
    """From NumPy to torch, on the host."""
    array = observations(spec, BATCH)
    rows = list(array)

    def repeated(convert: Callable[[], torch.Tensor], times: int = REPEAT) -> Callable[[], Step]:
        def step() -> float:
            for _ in range(times):
                convert()
            return float(BATCH * times)

        return lambda: step

    def naive() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that this is slow, which is the point here
            return torch.tensor(rows)

    ready = torch.empty((BATCH, *spec.obs_shape), dtype=torch.float32)
    return {
        NAIVE: repeated(naive, 1),
        "np.stack, then torch.tensor": repeated(lambda: torch.tensor(np.stack(rows))),
        "np.stack, then from_numpy": repeated(lambda: torch.from_numpy(np.stack(rows))),
        "torch.tensor of an array": repeated(lambda: torch.tensor(array)),
        SHARED: repeated(lambda: torch.from_numpy(array)),
        "from_numpy, to float32": repeated(lambda: torch.from_numpy(array).float()),
        "from_numpy into a ready float32": repeated(lambda: ready.copy_(torch.from_numpy(array))),
    }


def to_gpu(spec: EnvSpec) -> dict[str, Callable[[], Step]]:
    """From the host to the GPU, nothing else: each call waits until the data has arrived."""
    host = torch.from_numpy(observations(spec, BATCH))

    def make(source: Callable[[], torch.Tensor], non_blocking: bool) -> Step:
        device, data = gpu(), source()

        def step() -> float:
            for _ in range(REPEAT):
                data.to(device, non_blocking=non_blocking)
            torch.cuda.synchronize()
            return float(BATCH * REPEAT)

        return step

    def pinned_now() -> Step:
        device = gpu()

        def step() -> float:
            for _ in range(REPEAT):
                host.pin_memory().to(device, non_blocking=True)
            torch.cuda.synchronize()
            return float(BATCH * REPEAT)

        return step

    return {
        PAGEABLE: lambda: make(lambda: host, False),
        "to GPU, pinned": lambda: make(host.pin_memory, False),
        "to GPU, pinned and asynchronous": lambda: make(host.pin_memory, True),
        "to GPU, pinned on the way": pinned_now,
    }


def beside_updates(config: Config, spec: EnvSpec) -> dict[str, Callable[[], Step]]:
    """The change in the notes: the next batch is copied while the GPU still works on this one."""

    def make(pinned: bool) -> Step:
        device = gpu()
        learner, batch = Learner(config, spec, device), make_batch(spec, BATCH, device)
        host = [torch.from_numpy(observations(spec, BATCH, seed=s)) for s in (3, 4)]
        host = [h.pin_memory() for h in host] if pinned else host

        def step() -> float:
            nonlocal batch
            for _ in range(REPEAT):
                learner.update(batch)
                first, second = (h.to(device, non_blocking=pinned) for h in host)
                batch = batch._replace(obs_tm1=first, obs_t=second)
            torch.cuda.synchronize()
            return float(BATCH * REPEAT)

        return step

    return {BESIDE: lambda: make(False), "update, pinned copy beside it": lambda: make(True)}


def bench(o: Options) -> dict[str, Any]:
    config, spec = game_spec(o.game)
    megabytes = observations(spec, BATCH).nbytes / 1e6
    title = f"a batch of {BATCH} observations of {o.game} ({megabytes:.2f} MB) copied"
    columns = {"gb_per_s": "GB/s", "us": "microseconds per batch"}
    with Contest(o, title, "observations/s", "the first row of its kind", columns) as contest:
        groups = {NAIVE: on_cpu(spec), PAGEABLE: to_gpu(spec), BESIDE: beside_updates(config, spec)}
        for ref, group in groups.items():
            for name, make in group.items():
                contest.add(name, make, ref)
        result = contest.run(verdict)
    for name, row in result["table"].items():
        row["us"] = 1e6 * BATCH / row["rate"]
        moved = name != SHARED and row["to"] != BESIDE  # nothing is copied, or far more than a copy happens
        row["gb_per_s"] = megabytes / 1e3 * row["rate"] / BATCH if moved else None
    return result


def verdict(table: Mapping[str, dict[str, Any]]) -> str:
    stack, naive = table.get("np.stack, then from_numpy"), table[NAIVE]
    text = f"On the CPU {NAIVE} takes {1e6 * BATCH / naive['rate']:,.0f} microseconds per batch"
    if stack:
        text += f", np.stack and from_numpy are {say_ratio(stack, 'as fast')}"
    floats = table.get("from_numpy, to float32")
    if floats:
        text += f", and turning the bytes into floats takes {1e6 * BATCH / floats['rate']:,.0f}"
    pinned, beside = table.get("to GPU, pinned"), table.get("update, pinned copy beside it")
    if pinned and beside:
        text += (
            f"; to the GPU, pinned memory is copied at {say_ratio(pinned, 'the speed of pageable memory')}, and "
            f"updates beside such a copy run at {say_ratio(beside, 'the speed')}"
        )
    return text + "."
