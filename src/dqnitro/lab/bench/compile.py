"""`bench compile`: what do TorchScript and torch.compile gain over eager PyTorch, and what does compiling cost?"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, Step, fastest, say_ratio, sure
from dqnitro.lab.bench.workload import forward_step, game_spec, make_batch, observations, update_step
from dqnitro.ladder import RUNGS
from dqnitro.learn.learner import Learner
from dqnitro.learn.networks import build_network

EAGER, SCRIPT, COMPILE = "eager", "TorchScript", "torch.compile"
BATCH = 32


def traced(network: nn.Module, obs: torch.Tensor) -> nn.Module:
    """TorchScript by tracing; the parameters stay the same tensors. Newer PyTorch warns that it is no longer
    developed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Any = torch.jit.trace(network, (obs,), check_trace=False)
    return made


def check(way: str, config: Config) -> None:
    """CannotRun with the reason that the ladder would give."""
    names = {SCRIPT: "torchscript", COMPILE: "compile"}
    if way in names and (why := RUNGS[names[way]].needs(config)):
        raise CannotRun(why)


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """An empty cache folder for torch, so that start-up includes compiling."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="dqnitro-compile-", ignore_cleanup_errors=True) as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before


def forward_of(way: str, config: Config, spec: EnvSpec, device: str, batch: int) -> Step:
    check(way, config)
    network = build_network(config, spec).to(device)
    obs = torch.from_numpy(observations(spec, batch)).to(device)
    if way == SCRIPT:
        return forward_step(traced(network, obs), obs)
    if way == COMPILE:
        return forward_step(torch.compile(network, dynamic=False), obs)
    return forward_step(network, obs)


def update_of(way: str, config: Config, spec: EnvSpec, device: str, batch: int) -> Step:
    check(way, config)
    if way == COMPILE:
        config = config.replace(wrappers=(*config.wrappers, "compile"))
    learner, data = Learner(config, spec, device), make_batch(spec, batch, device)
    if way == SCRIPT:
        learner.online, learner.target = (traced(n, data.obs_tm1) for n in (learner.online, learner.target))
    return update_step(learner, data)


def bench(o: Options) -> dict[str, Any]:
    """A forward pass for one observation and for a batch, and a whole update: each eager, scripted and compiled."""
    config, spec = game_spec(o.game)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = config.replace(device=device)
    work: dict[str, tuple[Callable[..., Step], int]] = {
        "forward, batch 1": (forward_of, 1),
        f"forward, batch {BATCH}": (forward_of, BATCH),
        f"update, batch {BATCH}": (update_of, BATCH),
    }

    def timed(name: str, make: Callable[[], Step]) -> Callable[[], Step]:
        def start() -> Step:
            begin = time.perf_counter()
            step = make()
            for _ in range(3):  # TorchScript compiles in its second call, torch.compile in its first
                step()
            starts[name] = time.perf_counter() - begin
            return step

        return start

    starts: dict[str, float] = {}
    columns = {"ms": "ms per call", "start_s": "start-up s", "breaks_even_calls": "calls to break even"}
    title = f"the {o.game} network, eager and compiled, on the {'GPU' if device == 'cuda' else 'CPU'}"
    with Contest(o, title, "samples/s", "eager for the same work", columns) as contest:
        contest.closing.enter_context(empty_cache())
        for what, (make, batch) in work.items():
            ref = f"{EAGER}, {what}"
            for way in (EAGER, SCRIPT, COMPILE):
                name = f"{way}, {what}"
                build = timed(name, lambda m=make, w=way, b=batch: m(w, config, spec, device, b))
                contest.add(name, build, ref, batch=batch, work=what)
        result = contest.run(verdict)
    for name, row in result["table"].items():
        row["ms"] = 1000.0 * row["batch"] / row["rate"]
        row["start_s"] = starts[name]
    for row in result["table"].values():
        ref = result["table"][row["to"]]
        saved_s = (ref["ms"] - row["ms"]) / 1000.0
        extra_s = max(0.0, row["start_s"] - ref["start_s"])
        row["breaks_even_calls"] = round(extra_s / saved_s) if saved_s > 0 and row["low"] > 1.0 else None
    return result


def verdict(table: Mapping[str, dict[str, Any]]) -> str:
    parts = []
    for what in dict.fromkeys(row["work"] for row in table.values()):
        names = [n for n, row in table.items() if row["work"] == what]
        best = fastest(table, names)
        if best.startswith(EAGER) or not sure(table[best]):
            parts.append(f"{what}: nothing is measurably faster than eager")
        else:
            parts.append(f"{what}: {best.split(',')[0]} {say_ratio(table[best], 'eager')}")
    return "; ".join(parts) + "."
