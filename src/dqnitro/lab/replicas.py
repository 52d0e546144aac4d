"""What averaging gradients over ranks costs, and what that predicts for 8 GPUs.

    python -m dqnitro.lab.replicas --ranks 2                      two processes on the CPU, over gloo
    python -m dqnitro.lab.replicas --ranks 1 --device cuda        one GPU over NCCL, inside CUDA graphs
    python -m dqnitro.lab.replicas --ranks 2 --device cuda        two ranks that share a GPU, over gloo, without graphs
    python -m dqnitro.lab.replicas predict FILE                   the model of `predicted`, from a stored measurement;
                                                                  of two ranks: what it says of them (`checked`)
    python -m dqnitro.lab.replicas predict LEARNER RATIOS         the model from the times of `bench gpu --only learner`
                                                                  and the ratios of updates with a mean to those alone

Updates alone and updates with a mean take turns, round by round, on all ranks at once; so do bare all-reduces of
several sizes. Wall clocks are of a machine with whatever else is on it: compare within a file. NCCL refuses two ranks
on one GPU, which is why they use gloo there.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from dqnitro.config import Config
from dqnitro.distributed import world
from dqnitro.lab.store import header, load, save

SIZES = (4 << 10, 256 << 10, 4 << 20, 7 << 20)  # bytes
ACTIONS = 6
NATURE_BYTES = 6_748_824  # of the Nature network's gradients with ACTIONS, in float32
# Of the model, not measured here: 8 GPUs of an HGX H200, by the makers' data sheets. Half of the bandwidth of NVLink in
# one direction is what large all-reduces usually reach.
ASSUMED = {"gpus": 8, "bytes_per_s": 225e9, "latency_s": 25e-6}
# Measured: a vector step of recipe `classic` on an H200, 16,384 consoles and 256 updates with a batch of 512 each, in
# the run of results/breakout-200m-h200.json. Play and updates hardly overlapped in it.
HIDDEN_SHARE = 0.95  # of all gradients are the hidden layer's
WHOLE = {"vector_step_s": 0.107, "updates": 256, "batch": 512}


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m dqnitro.lab.replicas")
    p.add_argument("predict", nargs="*", help="predict FILE or LEARNER RATIOS: the model from stored measurements")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--batch", type=int, default=32, help="transitions of each rank's share")
    p.add_argument("--own-kernels", action="store_true")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--updates", type=int, default=4, help="in each round, of each kind")
    p.add_argument("--out")
    args = p.parse_args(argv)
    if args.predict:
        if args.predict[0] != "predict" or len(args.predict) not in (2, 3):
            p.error("expected: predict FILE, or predict LEARNER RATIOS")
        print(json.dumps(_modelled(*(load(pathlib.Path(name)) for name in args.predict[1:])), indent=1))
        return 0
    if world.place() is None and args.ranks > 1:
        return _launch(args, list(sys.argv[1:] if argv is None else argv))
    here = world.place() or world.Place(0, 1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    with world.joined(here, args.device == "cuda"):
        result = measure(args, here)
    if here.speaks:
        result["command"] = " ".join(["python -m dqnitro.lab.replicas", *(sys.argv[1:] if argv is None else argv)])
        result["prediction"] = predicted(result) if args.device == "cuda" and ranks_alone(result) else None
        if args.out:
            save(pathlib.Path(args.out), result)
        print(json.dumps({k: result[k] for k in ("ranks", "device", "backend", "seconds", "ratio", "bytes")}, indent=1))
    return 0


def _modelled(found: dict[str, Any], ratios: dict[str, Any] | None = None) -> Any:
    if ratios is not None:
        return [predicted(measured) for measured in with_ratios(found, ratios)]
    return predicted(found) if found["ranks"] == 1 else checked(found)


def with_ratios(learner: dict[str, Any], ratios: dict[str, Any]) -> list[dict[str, Any]]:
    """What `predicted` takes, for each batch of `ratios` with one rank: a ratio holds on other days as well, so the
    time of an update alone may be one that was measured with more care.
    """
    found = []
    for name, ratio in ratios["ratios"].items():
        ranks, backend, batch = name.split(", ")
        if ranks != "1 rank":
            continue
        batch_of_a_rank = int(batch.removeprefix("batch "))
        alone = learner["table"][f"learner, batch {batch_of_a_rank}, DQN, own kernels"]["ms"] / 1e3
        found.append({
            "ranks": 1, "device": "cuda", "backend": backend.lower(), "own_kernels": True, "bytes": NATURE_BYTES,
            "batch_of_a_rank": batch_of_a_rank, "seconds": {"alone": alone, "averaged": alone * ratio["median"]},
        })  # fmt: skip
    return found


def ranks_alone(measured: dict[str, Any]) -> bool:
    """Whether the model can use a measurement: one rank over NCCL, inside a graph."""
    return measured["ranks"] == 1 and bool(measured["recorded"])


def _launch(args: argparse.Namespace, argv: list[str]) -> int:
    share = {world.SHARE_A_GPU: "1"} if args.device == "cuda" else {}
    common = {
        **os.environ, **share, "WORLD_SIZE": str(args.ranks), "LOCAL_WORLD_SIZE": str(args.ranks), world.OURS: "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    command = [sys.executable, "-m", "dqnitro.lab.replicas", *argv]
    ranks = [subprocess.Popen(command, env={**common, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(args.ranks)]
    return max(p.wait() for p in ranks)


def measure(args: argparse.Namespace, here: world.Place) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    from dqnitro.distributed.ranks import ALONE, GroupRanks

    device = torch.device(world.device_of(here, args.device))
    torch.set_num_threads(1)
    ranks = GroupRanks()
    alone, _ = update_of(args, device, ALONE)
    averaged, parameters = update_of(args, device, ranks)
    n_bytes = 4 * sum(p.numel() for p in parameters)
    work: dict[str, Callable[[], None]] = {"alone": alone, "averaged": averaged}
    for size in (*SIZES, n_bytes):
        x = torch.zeros(size // 4, device=device)
        work[f"all-reduce of {size} bytes"] = lambda x=x: dist.all_reduce(x) and None
    record = device.type == "cuda" and ranks.graphs
    runs = {name: _repeated(f, args.updates, device, record) for name, f in work.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, run in runs.items():
            dist.barrier()
            begun, used = time.perf_counter(), time.process_time()
            run()
            seconds[name].append((time.perf_counter() - begun) / args.updates)
            cpu[name].append((time.process_time() - used) / args.updates)
    ratios = [b / a for a, b in zip(seconds["alone"], seconds["averaged"], strict=True)]
    return header(
        "replicas", "pong", ranks=here.size, device=args.device, backend="nccl" if ranks.graphs else "gloo",
        recorded=record, batch_of_a_rank=args.batch, own_kernels=args.own_kernels, bytes=n_bytes, rounds=args.rounds,
        seconds={k: statistics.median(v) for k, v in seconds.items()}, all_seconds=seconds,
        cpu_seconds={k: statistics.median(v) for k, v in cpu.items()},
        ratio={"median": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)},
        **shown(seconds, here.size, f"{args.device}, {'nccl' if ranks.graphs else 'gloo'}"),
        note="medians over rounds that take turns; the machine may have had other work, so compare within this file",
    )  # fmt: skip


def shown(seconds: dict[str, list[float]], size: int, where: str) -> dict[str, Any]:
    """What a page shows of a measurement: how often a second, and how much that is of updates alone."""
    table = {}
    for name, of_name in seconds.items():
        ratios = [a / b for a, b in zip(seconds["alone"], of_name, strict=True)]
        table[name] = {
            "rate": 1 / statistics.median(of_name), "ratio": statistics.median(ratios), "low": min(ratios),
            "high": max(ratios), "rounds": len(of_name), "to": "alone",
        }  # fmt: skip
    return {
        "title": f"what averaging gradients costs ({size} rank{'s' * (size > 1)}, {where})", "unit": "a second",
        "to": "updates alone", "table": table, "columns": {},
        "verdict": f"An update with a mean over the ranks is {table['averaged']['ratio']:.2f}x as fast as one alone.",
    }  # fmt: skip


def update_of(args: argparse.Namespace, device: Any, ranks: Any) -> tuple[Callable[[], None], list[Any]]:
    """One update of the Nature network on random frames, and the parameters that it changes."""
    import numpy as np
    import torch

    from dqnitro.envs.base import EnvSpec
    from dqnitro.learn.learner import Learner
    from dqnitro.learn.ring_update import make_update
    from dqnitro.replay.gpu_ring import Ring

    wrappers = ("no-grad", "fused-adam") + ("bfloat16", "own-kernels") * args.own_kernels
    config = Config(env_id="pong", n_envs=8, batch_size=args.batch, wrappers=wrappers, runner="device")
    spec = EnvSpec(8, ACTIONS, (4, 84, 84), np.dtype(np.uint8), 4, 4, True)
    learner = Learner(config, spec, str(device))
    ring = Ring(64, 8, 84, 4, device, deep=True)
    ring.frames.random_(0, 256)
    ring.action.random_(0, ACTIONS)
    ring.valid.fill_(True)
    ring.age.fill_(9)
    ring.head.fill_(40)
    ring.filled.fill_(64)
    update = make_update(config, learner, ring, 1, ranks)
    t, env = torch.randint(8, 32, (args.batch,), device=device), torch.randint(0, 8, (args.batch,), device=device)

    def one() -> None:
        update.learn(t, env)

    return one, list(learner.online.parameters())


def _repeated(f: Callable[[], None], times: int, device: Any, record: bool) -> Callable[[], None]:
    """`times` calls, waited for; as one CUDA graph where that can be recorded."""
    import torch

    def all_of_them() -> None:
        for _ in range(times):
            f()

    if device.type != "cuda":
        all_of_them()
        return all_of_them
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        for _ in range(3):
            all_of_them()
    torch.cuda.synchronize(device)
    run: Callable[[], Any] = all_of_them
    if record:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            all_of_them()
        run = graph.replay

    def waited() -> None:
        run()
        torch.cuda.synchronize(device)

    return waited


def predicted(measured: dict[str, Any], assumed: dict[str, float] = ASSUMED) -> dict[str, Any]:
    """Efficiency of `assumed["gpus"]` GPUs that keep the batch of a rank: a prediction, not a measurement.

    An update alone takes a, the packing and the optimiser in pieces cost b - a more (both measured in one process over
    NCCL inside a graph). A ring all-reduce of n bytes over g GPUs takes latency + 2 (g - 1) / g n / bandwidth
    (assumed). `overlapped`: the hidden layer's share of it, which is sent first, is hidden behind the passes back
    through the convolutions, taken as half of an update; `not overlapped`: nothing is hidden. A whole run also plays,
    which costs nothing more on several GPUs.
    """
    alone, averaged, n = measured["seconds"]["alone"], measured["seconds"]["averaged"], measured["bytes"]
    if measured.get("own_kernels"):
        n //= 2  # the hidden layer's gradients, nearly all of them, are bfloat16
    g = assumed["gpus"]
    sent = assumed["latency_s"] + 2 * (g - 1) / g * n / assumed["bytes_per_s"]
    second = assumed["latency_s"]  # of the small rest, which nothing can hide
    more = {"not overlapped": sent + second, "overlapped": max(0.0, sent - alone / 2) + second}
    step, updates = WHOLE["vector_step_s"], WHOLE["updates"]
    run = {k: step / (step + updates * (averaged - alone + v)) for k, v in more.items()}
    return {
        "predicted": True, "gpus": g, "batch_of_a_rank": measured.get("batch_of_a_rank"),
        "update_alone_s": alone, "update_averaged_s": averaged,
        "all_reduce_s": sent + second, "measured_with": {k: measured.get(k) for k in ("ranks", "device", "backend")},
        "assumed": assumed, "efficiency_of_updates": {k: alone / (averaged + v) for k, v in more.items()},
        "efficiency_of_a_run": run if measured.get("batch_of_a_rank") == WHOLE["batch"] else None, "whole": WHOLE,
    }  # fmt: skip


def checked(measured: dict[str, Any]) -> dict[str, Any]:
    """The model where it can be checked: ranks that share a GPU, whose bare all-reduces were measured as well.

    Nothing is assumed here. The all-reduces are those of the nearest measured sizes: the hidden layer's gradients, in
    bfloat16 with own kernels, and the small rest. That both ranks share the GPU is in `alone`, too: they take turns.
    """
    seconds, n = measured["seconds"], measured["bytes"]
    hidden = n // 2 if measured.get("own_kernels") else n

    def sent(size: int) -> float:
        sizes = {int(name.split()[2]): s for name, s in seconds.items() if name.startswith("all-reduce of")}
        return sizes[min(sizes, key=lambda known: abs(known - size))]

    alone, large, small = seconds["alone"], sent(hidden), sent(n - int(HIDDEN_SHARE * n))
    return {
        "measured_s": seconds["averaged"], "ranks": measured["ranks"], "backend": measured["backend"],
        "predicted_s": {
            "not overlapped": alone + large + small, "overlapped": alone + max(0.0, large - alone / 2) + small,
        },
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
