"""The small benchmarks run, measure everybody they name, and say of this machine what the figures say."""

from __future__ import annotations

import importlib
import json
import pathlib

import numpy as np
import psutil
import pytest

from dqnitro.cli.bench import MICRO
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import ConfigError
from dqnitro.lab.bench import amp, collect, compile, copies, device, resize
from dqnitro.lab.bench import envs as bench_envs
from dqnitro.lab.bench import replay as bench_replay
from dqnitro.lab.bench.contest import Options

QUICK = Options(game="CartPole-v1", rounds=2, seconds=0.002)


def row(rate: float, ratio: float = 1.0, low: float | None = None, high: float | None = None, **extra):
    return {"rate": rate, "ratio": ratio, "low": low or ratio, "high": high or ratio, "rounds": 5, "to": "", **extra}


def check(result: dict, unit: str) -> dict:
    """What every result must have; the rows are returned."""
    json.dumps(result)
    assert result["unit"] == unit and result["title"] and result["verdict"]
    assert result["table"].keys() == result["rates"].keys()
    assert not result["table"].keys() & result["skipped"].keys()
    assert all(len(r) == 2 and min(r) > 0 for r in result["rates"].values())
    for name, entry in result["table"].items():
        assert entry["to"] in result["table"], name
        assert entry["low"] <= entry["ratio"] <= entry["high"]
        assert all(key in entry for key in result["columns"]), name
    return result["table"]


def test_there_is_a_module_for_every_name():
    for what in MICRO:
        assert callable(importlib.import_module(f"dqnitro.lab.bench.{what}").bench)


def test_the_document_names_every_benchmark():
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "bench.md").read_text()
    assert [what for what in MICRO if f"\n**`{what}`**:" not in page] == []


def test_device():
    result = device.bench(QUICK)
    rows = check(result, "observations/s")
    assert len(rows) + len(result["skipped"]) == 3 * len(device.BATCHES)
    one = rows["CPU, batch 1"]
    assert one["ms"] == pytest.approx(1000 / one["rate"])
    for why in result["skipped"].values():
        assert "sees no CUDA device" in why


def test_device_verdict_follows_the_figures():
    table = {f"CPU, batch {b}": row(100.0 * b**0.5, batch=b) for b in (1, 32)}
    assert "10" not in device.verdict(table) and "5.7x" in device.verdict(table)
    table["GPU with copies, batch 1"] = row(50.0, 0.5, batch=1)
    table["GPU with copies, batch 32"] = row(9e3, 9.0, 8.0, 10.0, batch=32)
    assert "pays from batch 32 on" in device.verdict(table) and "9.00x [8.00, 10.00]" in device.verdict(table)
    table["GPU with copies, batch 32"] = row(300.0, 1.1, 0.9, 1.3, batch=32)
    assert "never pays" in device.verdict(table)


def test_amp():
    result = amp.bench(QUICK)
    rows = check(result, "samples/s")
    assert len(rows) + len(result["skipped"]) == 4 * len(amp.BATCHES)
    assert set(result["skipped"]) <= {"float16 and scaler, batch 256"}
    assert rows["float32, batch 32"]["error"] == 0.0
    # 8 bits of mantissa against 11: the error must be seen, and float16's must be the smaller one
    assert rows["bfloat16 autocast, batch 32"]["error"] > rows["float16 and scaler, batch 32"]["error"] > 0.0


def test_amp_verdict_follows_the_figures():
    table = {
        "float32, batch 32": row(10, batch=32, error=0.0),
        "bfloat16 rung, batch 32": row(15, 1.5, 1.4, 1.6, batch=32, error=1e-3),
    }
    assert amp.verdict(table).startswith("Use bfloat16 rung: 1.50x [1.40, 1.60]")
    table["bfloat16 rung, batch 32"] = row(10.5, 1.05, 0.9, 1.2, batch=32, error=1e-3)
    assert amp.verdict(table).startswith("Stay with float32")


def test_compile_without_the_slow_compiler():
    result = compile.bench(Options("CartPole-v1", 2, 0.002, only=("script",)))
    rows = check(result, "samples/s")
    assert set(rows) == {
        f"{way}, {what}"
        for way in ("eager", "TorchScript")
        for what in ("forward, batch 1", "forward, batch 32", "update, batch 32")
    }
    assert all(r["start_s"] > 0 for r in rows.values())


def test_torchscript_learns_the_same():
    import torch

    from dqnitro.lab.bench.workload import game_spec, make_batch
    from dqnitro.learn.learner import Learner

    config, spec = game_spec("CartPole-v1")
    batch = make_batch(spec, 32, "cpu")
    learned = []
    for script in (False, True):
        learner = Learner(config, spec, "cpu")
        first = [p.clone() for p in learner.online.parameters()]
        own = list(learner.online.parameters())
        if script:
            learner.online, learner.target = (
                compile.traced(n, batch.obs_tm1) for n in (learner.online, learner.target)
            )
        for _ in range(3):
            learner.update(batch)
        assert not any(torch.equal(a, b) for a, b in zip(first, own, strict=True)), "nothing was learned"
        learned.append(own)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*learned, strict=True))


def test_compile_verdict_follows_the_figures():
    table = {
        "eager, update": row(10, work="update"), "torch.compile, update": row(20, 2.0, 1.9, 2.1, work="update"),
        "eager, forward": row(10, work="forward"), "TorchScript, forward": row(11, 1.1, 0.9, 1.3, work="forward"),
    }  # fmt: skip
    assert (
        compile.verdict(table)
        == "update: torch.compile 2.00x [1.90, 2.10] eager; forward: nothing is measurably faster than eager."
    )


def test_collect_leaves_no_process_behind():
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    result = collect.bench(QUICK)
    rows = check(result, "steps/s")
    for kind in ("one environment", "threads", "processes", "gym Async", "vectorised in NumPy"):
        assert any(kind in name for name in rows), kind
    assert all("is not an Atari game" in why for why in result["skipped"].values()) and len(result["skipped"]) == 2
    left = [
        p
        for p in psutil.Process().children(recursive=True)
        if p.pid not in before and "tracker" not in " ".join(p.cmdline())
    ]
    assert left == []


def test_collected_chunks_hold_what_was_played():
    from dqnitro import recipes
    from dqnitro.envs import make_envs

    config = recipes.baseline("CartPole-v1")
    envs, twin = make_envs(config), make_envs(config)
    envs.reset()
    twin.reset()
    chunk = collect.collect(envs, np.random.default_rng(3), ticks=60)
    for t in range(60):
        twin.send(chunk.action[t])
        step = twin.recv()
        np.testing.assert_array_equal(chunk.obs[t], step.obs_t)
        np.testing.assert_array_equal(chunk.ended[t], step.terminated | step.truncated)
    assert 0 < chunk.ended.sum() == 60 - chunk.steps  # the tick after an end resets and is no step


def test_envs():
    result = bench_envs.bench(QUICK)
    rows = check(result, "steps/s")
    assert len(rows) == 3 * len(bench_envs.COUNTS) and len(result["skipped"]) == 2 * len(bench_envs.COUNTS)
    assert "gym Async" in " ".join(rows)


def test_envs_verdict_follows_the_figures():
    table = {
        "serial wrappers, 8": row(100, n_envs=8, part="wrappers", to="serial wrappers, 8"),
        "gym Async, 8": row(50, 0.5, 0.4, 0.6, n_envs=8, part="gym-async"),
        "native console, 1": row(200, 2.0, n_envs=1, part="console"),
        "native console, 8": row(300, 3.0, 2.9, 3.1, n_envs=8, part="console"),
    }  # fmt: skip
    said = bench_envs.verdict(table)
    assert (
        "--envs console --n-envs 8): 300 steps/s, 3.00x [2.90, 3.10] the serial wrappers and 1.5x itself with 1" in said
    )
    assert said.endswith("a process per environment (gym Async) only costs here.")


SPEC = EnvSpec(1, 4, (4, 84, 84), np.dtype(np.uint8), 4, 4, True)


def test_replay(monkeypatch):
    monkeypatch.setattr(bench_replay, "MOST", 300)
    monkeypatch.setattr(bench_replay, "in_fresh_process", bench_replay.measure)  # the next test starts real ones
    result = bench_replay.bench(Options("CartPole-v1", 2, 0.002, only=("frames",)))
    rows = check(result, "transitions/GiB")
    assert result["transitions"] == 300
    assert set(rows) == {bench_replay.NAIVE, "frames", "frames, prioritised"}
    assert all(r["adds_per_s"] > 0 and r["samples_per_s"] > 0 for r in rows.values())


@pytest.mark.parametrize(("name", "payload"), [(bench_replay.NAIVE, 2 * 4 * 4 * 84 * 84), ("frames", 84 * 84)])
def test_resident_memory_is_what_the_transitions_take(name, payload):
    """In a fresh process, for 800 Atari transitions: at least the pixels, and little more."""
    found = bench_replay.in_fresh_process(name, SPEC, 800, 0.01)
    assert payload * 0.97 < found["bytes"] < payload * 1.25 + 1_000


def test_all_replays_of_the_benchmark_store_the_same():
    spec = EnvSpec(1, 4, (4, 6, 6), np.dtype(np.uint8), 4, 4, True)
    pictures, goes_on = {}, None
    for name, make in bench_replay.contenders().items():
        if "prioritised" in name:  # draws differently
            continue
        replay, _ = bench_replay.fill(make, spec, 700)  # over a game's end
        got = replay.sample(256, np.random.default_rng(5), 1.0)
        obs, following = (got[0], got[3]) if isinstance(got, list) else (got.batch.obs_tm1, got.batch.obs_t)
        scale = 255.0 if name == bench_replay.NAIVE else 1.0
        pictures[name] = np.stack([obs.numpy(), following.numpy()]).astype(np.float64) * scale
        if name == "plain":
            goes_on = got.batch.discount_t.numpy() > 0
    assert 0 < goes_on.sum() < 256, "a game's last transition must be among them"
    for name, other in pictures.items():
        np.testing.assert_allclose(other[0], pictures["plain"][0], atol=1e-4, err_msg=name)
        # After a game's end nothing asks for the picture, and `frames` keeps none.
        np.testing.assert_allclose(other[1][goes_on], pictures["plain"][1][goes_on], atol=1e-4, err_msg=name)


def test_replay_verdict_follows_the_figures():
    table = {
        bench_replay.NAIVE: row(1, bytes=1000.0, samples_per_s=10.0),
        "frames": row(20, 20.0, bytes=50.0, samples_per_s=40.0),
    }  # fmt: skip
    said = bench_replay.verdict(table)
    assert (
        "Use frames: 50 bytes per transition against 1,000" in said
        and "20.0x as many" in said
        and "4.0x its samples" in said
    )


def test_resize_finds_our_pixels_equal_and_others_not():
    rows = check(resize.bench(Options("pong", 2, 0.002)), "pictures/s")
    assert rows[resize.OURS]["max_difference"] == 0
    assert rows["OpenCV nearest"]["max_difference"] > rows["OpenCV nearest"]["mean_difference"] > 0
    with pytest.raises(ConfigError, match="needs an Atari game"):
        resize.bench(QUICK)


def test_resize_verdict_names_the_fastest_equal_one_and_a_faster_wrong_one():
    table = {
        "OpenCV area": row(10, max_difference=0), "OpenCV nearest": row(90, 9.0, max_difference=120),
        resize.OURS: row(70, 7.0, max_difference=0),
    }  # fmt: skip
    said = resize.verdict(table)
    assert said.startswith(f"Fastest with the same pixels: {resize.OURS}, 7.00x") and "off by up to 120 of 255" in said


def test_copies():
    result = copies.bench(QUICK)
    rows = check(result, "observations/s")
    assert rows["from_numpy, shared"]["gb_per_s"] is None, "nothing is copied there"
    assert len(rows) + len(result["skipped"]) == 13


def test_copies_verdict_speaks_of_the_gpu_only_where_there_is_one():
    table = {copies.NAIVE: row(32e3), "np.stack, then from_numpy": row(64e4, 20.0)}
    assert "1,000 microseconds" in copies.verdict(table) and "GPU" not in copies.verdict(table)
    table |= {"to GPU, pinned": row(1, 2.0), "update, pinned copy beside it": row(1, 1.04)}
    said = copies.verdict(table)
    assert (
        "pinned memory is copied at 2.00x [2.00, 2.00] the speed of pageable memory" in said and "run at 1.04x" in said
    )
