"""`bench amp`: does mixed precision pay? An update in float32, bfloat16, and float16 with a gradient scaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dqnitro.config import Config
from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, Step, fastest, say_ratio, sure
from dqnitro.lab.bench.workload import game_spec, make_batch, settle, update_step
from dqnitro.ladder import RUNGS
from dqnitro.learn.learner import Learner

BATCHES = (32, 256)


def autocast_step(learner: Learner, batch: Batch, dtype: torch.dtype) -> Step:
    """An update as tutorials write it: the loss under autocast, and for float16 a scaler around backward and step.

    The rung `bfloat16` does more (the target network kept in bfloat16, the scale of the pixels folded into the
    weights): the difference between the two rows shows its effect.
    """
    kind = learner.device.type
    scaler = torch.amp.GradScaler(kind, enabled=dtype == torch.float16)
    optimizer, chance = learner.optimizer, torch.Generator(learner.device)

    def step() -> float:
        with torch.autocast(kind, dtype=dtype):
            draws = learner.wants.draw(len(batch.reward_t), learner.device, chance)
            loss, _ = learner.loss(learner.online, learner.target, batch, draws)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        settle(kind)
        return float(batch.reward_t.shape[0])

    return step


def value_error(config: Config, spec: EnvSpec, device: str, batch: Batch, dtype: torch.dtype) -> float:
    """The largest difference of a value from float32, before anything was learned."""
    network = Learner(config, spec, device).online
    with torch.no_grad():
        exact = network(batch.obs_tm1)
        with torch.autocast(torch.device(device).type, dtype=dtype):
            rough = network(batch.obs_tm1)
    return float((rough.float() - exact).abs().max())


def bench(o: Options) -> dict[str, Any]:
    """Each precision at a small and a large batch, on the GPU if there is one."""
    config, spec = game_spec(o.game)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = config.replace(device=device)
    title = f"one update of the {o.game} network on the {'GPU' if device == 'cuda' else 'CPU'}"
    columns = {"ms": "ms per update", "error": "largest error of a value"}

    def with_autocast(size: int, dtype: torch.dtype) -> Step:
        slow = RUNGS["float16"].needs(config) if dtype == torch.float16 else None
        if slow and size > min(BATCHES):  # it would take seconds per update to show what the smaller batch showed
            raise CannotRun(f"{slow}: see the smaller batch")
        return autocast_step(Learner(config, spec, device), make_batch(spec, size, device), dtype)

    def ours(size: int, *wrappers: str) -> Step:
        wrapped = config.replace(wrappers=(*config.wrappers, *wrappers))
        return update_step(Learner(wrapped, spec, device), make_batch(spec, size, device))

    with Contest(o, title, "samples/s", "float32 at the same batch", columns) as contest:
        for size in BATCHES:
            probe = make_batch(spec, size, device)
            errors = {d: value_error(config, spec, device, probe, d) for d in (torch.bfloat16, torch.float16)}
            b16, f16 = errors[torch.bfloat16], errors[torch.float16]
            ref = f"float32, batch {size}"
            contest.add(ref, lambda s=size: ours(s), ref, batch=size, error=0.0)
            contest.add(
                f"bfloat16 autocast, batch {size}",
                lambda s=size: with_autocast(s, torch.bfloat16),
                ref,
                batch=size,
                error=b16,
            )
            contest.add(f"bfloat16 rung, batch {size}", lambda s=size: ours(s, "bfloat16"), ref, batch=size, error=b16)
            contest.add(
                f"float16 and scaler, batch {size}",
                lambda s=size: with_autocast(s, torch.float16),
                ref,
                batch=size,
                error=f16,
            )
        result = contest.run(verdict)
    for row in result["table"].values():
        row["ms"] = 1000.0 * row["batch"] / row["rate"]
    return result


def verdict(table: Mapping[str, dict[str, Any]]) -> str:
    size = min(row["batch"] for row in table.values())
    at_size = [n for n, row in table.items() if row["batch"] == size]
    best = fastest(table, at_size)
    if best.startswith("float32") or not sure(table[best]):
        return f"Stay with float32 here: at batch {size} nothing is measurably faster."
    kind = best.split(",")[0]
    return (
        f"Use {kind}: {say_ratio(table[best], 'float32')} at batch {size}; its values are off by "
        f"{table[best]['error']:.1g} at most."
    )
