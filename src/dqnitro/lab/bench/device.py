"""`bench device`: from which batch size on is a GPU worth its copies? A forward pass on the CPU and on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dqnitro.lab.bench.contest import Contest, Options, Step, gpu, say_ratio
from dqnitro.lab.bench.workload import forward_step, game_spec, observations
from dqnitro.learn.networks import build_network

BATCHES = (1, 8, 32, 128, 512)


def bench(o: Options) -> dict[str, Any]:
    """Two GPU rows per batch: with the data already on the GPU, and as in training (observations in, actions out)."""
    config, spec = game_spec(o.game)
    network = build_network(config, spec)

    def there(device: str, batch: int) -> Step:
        obs = torch.from_numpy(observations(spec, batch)).to(device)
        return forward_step(build_network(config, spec).to(device), obs)

    def there_and_back(batch: int) -> Step:
        on_gpu, host = build_network(config, spec).to(gpu()), observations(spec, batch)

        def step() -> float:
            with torch.no_grad():
                on_gpu(torch.from_numpy(host).to("cuda")).squeeze(-1).argmax(1).cpu()  # .cpu() waits for the GPU
            return float(batch)

        return step

    title = f"forward pass of the {o.game} network ({sum(p.numel() for p in network.parameters()):,} parameters)"
    with Contest(o, title, "observations/s", "the CPU at the same batch", {"ms": "ms per pass"}) as contest:
        for batch in BATCHES:
            cpu = f"CPU, batch {batch}"
            contest.add(cpu, lambda b=batch: there("cpu", b), cpu, batch=batch)
            contest.add(f"GPU, batch {batch}", lambda b=batch: there(gpu(), b), cpu, batch=batch)
            contest.add(f"GPU with copies, batch {batch}", lambda b=batch: there_and_back(b), cpu, batch=batch)
        result = contest.run(verdict)
    for row in result["table"].values():
        row["ms"] = 1000.0 * row["batch"] / row["rate"]
    return result


def verdict(table: Mapping[str, dict[str, Any]]) -> str:
    cpu = {r["batch"]: r["rate"] for n, r in table.items() if n.startswith("CPU")}
    small, large = min(cpu), max(cpu, key=lambda b: cpu[b])
    gain = cpu[large] / cpu[small]
    copies = {r["batch"]: r for n, r in table.items() if n.startswith("GPU with")}
    if not copies:
        if gain <= 1.0:
            return f"No GPU here; the CPU evaluates most observations a second one by one ({cpu[small]:,.0f} a second)."
        return (
            f"No GPU here; on the CPU a batch of {large} evaluates {gain:.1f}x as many observations a second as "
            f"a batch of {small}, so choose the actions of several environments in one pass."
        )
    wins = [b for b, row in sorted(copies.items()) if row["low"] > 1.0]
    if not wins:
        return "The GPU never pays for its copies here: play and train on the CPU."
    best = max(copies, key=lambda b: copies[b]["ratio"])
    start = (
        f"The GPU pays from batch {wins[0]} on, copies included (batch {best}: {say_ratio(copies[best], 'the CPU')})"
    )
    if wins[0] > small:
        return f"{start}; smaller batches are faster on the CPU, so with few environments act there."
    return f"{start}: play and train on it."
