"""Results as the lab's commands write them, made up by hand: one of every kind. No number here was measured."""

from __future__ import annotations

import json
import math
import pathlib
import random
from typing import Any

SHARE = {"act": 0.08, "env": 0.2, "sample": 0.1, "learn": 0.55, "store": 0.04, "loop": 0.03}


def span(mean: float, width: float = 0.03, n: int = 6) -> dict[str, Any]:
    return {"mean": mean, "low": mean * (1 - width), "high": mean * (1 + width), "n": n}


def head(what: str, command: str, **facts: Any) -> dict[str, Any]:
    return {
        "what": what, "format": 1, "game": "pong", "date": "2026-01-31T12:00:00+00:00", "rounds": 6, "seconds": 2.0,
        "machine": {"cpu": "A CPU of 2 cores", "cores": 2, "memory_gib": 7.8, "os": "Linux 6.1", "gpu": None},
        "versions": {"python": "3.11.9", "dqnitro": "0.1.0", "torch": "2.9.1"}, "commit": "0123456789ab",
        "command": command, **facts,
    }  # fmt: skip


# name, promise, steps a second, samples a step
CLIMB = (
    ("baseline", "baseline", 30.0, 32.0), ("gradients-everywhere", "exact", 27.0, 32.0),
    ("frame-replay", "exact", 33.0, 32.0),
    ("console", "exact", 41.0, 32.0), ("fused-adam", "close", 43.5, 32.0), ("channels-last", "close", 55.0, 32.0),
    ("bfloat16", "close", 101.0, 32.0), ("eight-envs", "learning", 128.0, 32.0),
    ("two-steps-per-update", "learning", 236.0, 16.0), ("small-network", "learning", 611.0, 16.0),
)  # fmt: skip
SKIPPED = (
    ("cuda-graph", "close", "no CUDA device here"),
    ("play-on-another-gpu", "learning", "needs two GPUs, this machine has none"),
)


def ladder() -> dict[str, Any]:
    rows, climbed, below = [], [], None
    for i, (name, promise, fps, samples) in enumerate(CLIMB):
        aside = name == "gradients-everywhere"
        if name != "baseline" and not aside:
            climbed.append(name)
        on = "baseline" if aside else below
        learn = SHARE["learn"] * (1 - 0.06 * i)
        rows.append({
            "name": name, "promise": promise, "climbed": [name] if aside else list(climbed), "on": on, "aside": aside,
            "frames_per_step": 4,
            "what": f"What {name} does, in a sentence. And one more sentence to see how two of them look.",
            "hurts": "" if name == "baseline" else "Where there is nothing to gain.",
            "notes_say": "1.4 times the frames a second" if i % 2 else None, "state": "measured", "why": None,
            "fps": span(fps), "gain": None if on is None else span(fps / next(f for n, _, f, _ in CLIMB if n == on)),
            "total": span(fps / 30), "frames_per_s": 4 * fps, "updates_per_s": fps * samples / 32,
            "samples_per_step": samples, "equal_ratio": samples == 32, "rates": [fps] * 6,
            "share": {**SHARE, "learn": learn, "env": 1 - learn - 0.25},
            "solve": {"seconds": span(1e6 / fps, 0.2), "how": "projected", "gain": 30 / fps, "steps": 1e6,
                      "source": "runs/pong-1"}
            if promise != "learning" else None,
        })  # fmt: skip
        if not aside:
            below = name
    rows += [
        {"name": n, "promise": p, "climbed": climbed, "on": below, "what": f"What {n} does.", "hurts": "Without a GPU.",
         "notes_say": None, "state": "skipped", "why": why, "solve": None}
        for n, p, why in SKIPPED
    ]  # fmt: skip
    return head(
        "ladder",
        "dqnitro ladder pong --minutes 9",
        to="baseline",
        minutes=9.0,
        rows=rows,
        notes={"replay": "a small replay", "measuring_share": 0.0003},
        interrupted=None,
    )


def sweep() -> dict[str, Any]:
    rng, curves = random.Random(3), []
    for value in (1, 2, 4, 8):
        for seed in (1, 2, 3):
            shift = rng.gauss(0, 20)
            points = [
                {"wall_s": 2.0 * t, "steps": 100 * t * value, "updates": 50 * t, "games": 3 * t,
                 "score": 500 / (1 + math.exp((60 + 10 * value + shift - t) / 9)) + rng.gauss(0, 4)}
                for t in range(1, 121)
            ]  # fmt: skip
            curves.append({"value": value, "seed": seed, "points": points})
    rows = [
        {"value": v, "fps": span(300.0 * v**0.7), "score": span(480 - 30 * v, 0.1, 3),
         "samples_per_step": 32, "state": "measured", "why": None}
        for v in (1, 2, 4, 8)
    ]  # fmt: skip
    rows.append(
        {"value": 16, "fps": None, "score": None, "samples_per_step": None, "state": "skipped", "why": "out of time"}
    )
    facts = {"setting": "n_envs", "values": [1, 2, 4, 8, 16], "seeds": [1, 2, 3], "curves": curves, "rows": rows}
    return {**head("sweep", "dqnitro sweep envs 1 2 4 8 16"), **facts, "game": "CartPole-v1"}


def search() -> dict[str, Any]:
    rows = [
        {
            "trial": i + 1, "settings": {"learning_rate": rate, "n_step": n}, "points": points, "state": state,
            "why": why, "steps": 100_000, "wall_s": 12.5, "looks": 8, "scores": {"pong 1": 3.5, "breakout 1": None},
        }
        for i, (rate, n, points, state, why) in enumerate(
            [
                (1e-4, 3, 0.8, "measured", None), (2e-4, 3, 0.3, "measured", None),
                (5e-3, 1, None, "stopped early", None), (0.5, 1, None, "skipped", "the loss diverged"),
            ]
        )
    ]  # fmt: skip
    facts = {
        "games": ["pong", "breakout"], "recipe": "auto", "seeds": [1], "trials": 4, "unit": "human-normalised score",
        "space": {"learning_rate": "1e-05..1", "n_step": "1,3"}, "own": {"learning_rate": 2e-4, "n_step": 3},
        "rows": rows, "game": "pong,breakout",
    }  # fmt: skip
    return {**head("search", "dqnitro sweep learning-rate=1e-5..1 n-step=1,3 --game pong,breakout"), **facts}


def solve() -> dict[str, Any]:
    def row(name: str, minutes: float | None, fps: float) -> dict[str, Any]:
        spread = minutes and {"median": minutes, "low": 0.9 * minutes, "high": 1.2 * minutes, "n": 3}
        return {
            "name": name, "rungs": [], "how": "whole" if name == "auto" else "steps at its own rate",
            "fps": span(fps), "delta_fps": fps / 300 - 1, "runs": [], "solved": 3 if minutes else 0, "of": 3,
            "minutes": spread, "delta_minutes": minutes and minutes / 40 - 1,
            "notes": {"fps": 229, "of": 229, "minutes": 52.2, "delta_fps": 0.0, "delta_minutes": 0.0},
        }  # fmt: skip

    rows = [row("baseline", 40.0, 300.0), row("three-envs", None, 500.0), row("auto", 0.25, 60_000.0)]
    curves = [
        {"value": r["name"], "seed": s, "points": [
            {"wall_s": 10.0 * t, "steps": 3000 * t, "score": -21 + min(38, t * (s + 1) / 3)} for t in range(1, 60)
        ]}
        for r in rows for s in (1, 2, 3)
    ]  # fmt: skip
    return {**head("solve", "dqnitro ladder --solve"), "seeds": [1, 2, 3], "rows": rows, "curves": curves}


def atari() -> dict[str, Any]:
    def in_all(value: float) -> dict[str, Any]:
        spread = {"value": value, "seeds": span(value), "games": span(value, 0.5)}
        return {"n": 2, "median": spread, "iqm": spread, "mean": value, "above_human": 1, "atari5": None}

    source = {"repository": "somebody/agents", "path": "data/GAME.json", "commit": "a" * 40}
    rows = [
        {
            "game": game, "training": span(mean), "fresh": span(1.1 * mean), "human_normalized": mean / 30,
            "frames": 12.5e6, "minutes": 10.0, "frames_per_s": 20_000.0,
            "published": {n: {"at": 0.8 * mean, "end": 3 * mean} for n in ("DQN", "Rainbow", "IQN Impala")},
            "runs": [{"seed": s, "state": "minutes", "why": None, "run_dir": f"/nowhere/{game}/s{s}"} for s in (1, 2)],
        }
        for game, mean in (("breakout", 60.0), ("qbert", 9_000.0))
    ]  # fmt: skip
    curves = [
        {"game": r["game"], "seed": s, "points": [
            {"wall_s": 10.0 * t, "steps": 3000 * t, "frames": 12_000 * t, "score": t * (s + 1) / 3} for t in range(60)
        ]}
        for r in rows for s in (1, 2)
    ]  # fmt: skip
    published = [
        {"agent": "DQN", "family": "Somebody", "millions": m, "in_all": in_all(0.4), "source": source,
         "differences": ["no-op starts: no there, yes here"]}
        for m in (10, 200)
    ]  # fmt: skip
    return {
        **head("atari", "dqnitro atari breakout,qbert --seeds 2"), "minutes": 10.0, "seeds": [1, 2], "rows": rows,
        "in_all": {"fresh": in_all(0.9), "training": in_all(0.8)}, "published": published, "curves": curves,
        "published_curves": {"breakout": {"DQN": [[2e6, 4e6, 200e6], [3.0, 9.0, 90.0]]}},
        "protocol": {"name": "machado", "sticky_actions": 0.25, "lives_told": False, "epsilon": 0.01, "backend": "ale"},
    }  # fmt: skip


def ablate() -> dict[str, Any]:
    left = (
        ("bfloat16", "close", 0.55),
        ("channels-last", "close", 0.81),
        ("console", "exact", 0.9),
        ("fused-adam", "close", 1.01),
    )
    rows = [{"without": None, "fps": span(100), "ratio": span(1, 0), "state": "measured", "why": None, "promise": None}]
    rows += [
        {"without": n, "fps": span(100 * r), "ratio": span(r), "state": "measured", "why": None, "promise": p}
        for n, p, r in left
    ]  # fmt: skip
    rows.append(
        {
            "without": "compile",
            "fps": None,
            "ratio": None,
            "state": "skipped",
            "why": "no C++ compiler",
            "promise": "close",
        }
    )
    return head("ablate", "dqnitro ablate fast", recipe="fast", rows=rows)


def cost() -> dict[str, Any]:
    left = (
        ("loss", 2.9),
        ("optimiser", 1.25),
        ("sampling", 1.1),
        ("episodic life", 1.0),
        ("clipping", 1.0),
        ("reshape", 1.06),
    )
    rows = [
        {"without": n, "fps": span(30 * r), "ratio": span(r), "saves_share": 1 - 1 / r,
         "note": f"everything but {n}", "state": "measured"}
        for n, r in left
    ]  # fmt: skip
    return head("cost", "dqnitro ablate cost", rows=rows)


def bench() -> dict[str, Any]:
    ratios = {"OpenCV area": 1.0, "OpenCV linear": 1.8, "Pillow": 0.31, "torch": 0.12}
    table = {
        n: {
            "rate": 12_000 * r,
            "ratio": r,
            "low": 0.97 * r,
            "high": 1.04 * r,
            "rounds": 6,
            "to": "OpenCV area",
            "off": d,
        }
        for (n, r), d in zip(ratios.items(), (0, 31, 4, 9), strict=True)
    }
    rates = {n: [12_000 * r] * 6 for n, r in ratios.items()}
    return head(
        "resize", "dqnitro bench resize", title="210x160 screens to 84x84", unit="frames/s", to="OpenCV area",
        rates=rates, table=table, columns={"off": "largest difference"}, skipped={"CUDA": "no CUDA device here"},
        verdict="OpenCV's linear is 1.8 times its area, and up to 31 grey levels off.",
    )  # fmt: skip


def profile() -> dict[str, Any]:
    def node(name: str, share: float, *children: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "seconds": 4 * share, "share": share, "calls": 200, "children": list(children)}

    learning = node("learning", 0.6, node("loss", 0.2), node("backward", 0.3), node("optimiser", 0.1))
    tree = node("step", 1.0, node("environment", 0.25), node("acting", 0.1), learning)
    top = [{"op": f"aten::op_{k}", "self_s": 1 / k, "share": 0.25 / k, "calls": 400 * k} for k in range(1, 9)]
    advice = [{"text": f"part {k} takes 30%: try bfloat16", "buys_at_most": 1.43} for k in range(6)]
    return head(
        "profile", "dqnitro profile pong --steps 200", tree=tree, top=top, advice=advice, trace="profile/trace.json"
    )


def tune() -> dict[str, Any]:
    tried = (
        ("as it is", "", 80, True, ""), ("torch_threads", 2, 120, True, "close"),
        ("rung", "with bfloat16", 190, True, "close"),
        ("env_threads", 2, 79, False, "exact"), ("rung", "with console", None, False, "exact"),
    )  # fmt: skip
    evidence = [
        {"recipe": recipe, "knob": k, "value": v, "fps": span(f) if f else None,
         "ratio": span(f / 80) if f and f != 80 else None,
         "chosen": c, "promise": p, "state": "measured" if f else "skipped", "why": None if f else "no compiler here"}
        for recipe in ("auto", "fast") for k, v, f, c, p in tried
    ]  # fmt: skip
    found = {
        "chosen": {"torch_threads": 2},
        "rungs": ["bfloat16"],
        "gain": span(2.4),
        "turned": ["torch_threads"],
        "dropped": {},
    }
    return head(
        "tune",
        "dqnitro tune",
        chosen={"torch_threads": 2},
        rungs=["bfloat16"],
        evidence=evidence,
        recipes={"auto": found, "fast": found},
    )


def compare() -> dict[str, Any]:
    runs = [
        {"name": "pong-a", "scores": span(18.1, 0.05, 100), "fps": span(120)},
        {"name": "pong-b", "scores": span(16.2, 0.06, 100), "fps": span(118)},
    ]
    return head(
        "compare",
        "dqnitro compare runs/a runs/b",
        runs=runs,
        verdict="a scores higher",
        sentences=["a scores higher", "the speeds do not differ"],
        p_value=0.003,
        difference=span(1.9, 0.3, 100),
    )


def console() -> dict[str, Any]:
    """As `bench console` wrote it before results had a format."""
    rows = [
        {"game": g, "threads": t, "rates": {"AtariVec": 6000.0, "AtariVectorEnv": 3000.0},
         "ratios": {"AtariVectorEnv": span(2 + k / 10)}, "faster_peer": "AtariVectorEnv"}
        for t in (1, 2) for k, g in enumerate(("pong", "breakout", "seaquest"))
    ]  # fmt: skip
    old = head(
        "console", "dqnitro bench console", unit="steps per second", rows=rows, geomean={"1": span(2.1), "2": span(2.1)}
    )
    return {k: v for k, v in old.items() if k not in ("format", "game", "date")}


def exact() -> dict[str, Any]:
    games = [
        {"game": g, "frames": 300, "games_started": 2, "rewards": 5, "difference": "", "equal": True}
        for g in ("alien", "pong")
    ]
    games.append({**games[0], "game": "zaxxon", "equal": False, "difference": "screen at frame 17"})
    return {
        "frames": 300,
        "seed": 1,
        "different": 1,
        "games": games,
        "commit": "0123456789ab",
        "command": "dqnitro games --check",
    }


def chaos() -> dict[str, Any]:
    counts = dict.fromkeys(("lost", "different", "tracebacks", "crashes", "hangs", "orphans"), 0)
    kinds = [{"kind": k, "what": f"a {k}", "faults": 100, **counts, "seconds": 9.0} for k in ("save", "kill -9")]
    kinds[1]["lost"] = 1
    return head(
        "chaos", "python -m chaos", rows=kinds, total={"faults": 200, **counts, "lost": 1}, protocol="in forks",
        failures=[{"repeat": "kill -9/1/7", "what": "lost: the checkpoint"}],
    )  # fmt: skip


def peers() -> dict[str, Any]:
    return head(
        "peers", "python examples/solve_beside_peers.py CartPole-v1", bar=475.0, games=100, max_steps=80_000,
        limit_cpu_s=90.0,
        rows=[
            {"contender": who, "seed": seed, "solved": solved, "steps": 70_000 + seed, "mean_score": 476.5,
             "cpu_s": cpu + seed, "wall_s": 2 * cpu}
            for who, cpu, solved, seeds in (("dqnitro", 20.0, True, 5), ("stable-baselines3", 89.0, False, 1))
            for seed in range(1, seeds + 1)
        ],
    )  # fmt: skip


def beside() -> dict[str, Any]:
    scores = {"dqnitro": 40.0, "stable-baselines3": 9.0}
    found = [
        {"contender": who, "game": game, "seed": 1, "steps": 300_000, "training_score": score,
         "fresh": {"score": score + 1, "low": score, "high": score + 2, "games": 30}}
        for game in ("breakout", "freeway") for who, score in scores.items()
    ]  # fmt: skip
    found[0]["random"] = {"score": 1.5, "low": 1.0, "high": 2.0, "games": 30}
    return head(
        "beside", "python examples/atari_beside_sb3.py breakout freeway", minutes=20.0, protocol="Fresh games.",
        rows=found, gains={"breakout": {"dqnitro": 39.5, "stable-baselines3": 8.5}},
    )  # fmt: skip


def trial() -> dict[str, Any]:
    return {
        "curve": {f"lr{k}": [[1000 * t, 100 * t, -21 + t / k] for t in range(1, 15)] for k in range(1, 9)},
        "solved": {},
    }


def record() -> dict[str, Any]:
    """Three seeds of Pong, as the files in results/ hold them."""
    curve = {f"seed {s}": [[1000 * t, 100 * t, -21 + 2.5 * t + s] for t in range(1, 16)] for s in (1, 2, 3)}
    runs = [
        {"name": f"seed {s}", "seed": s, "ended": "solved", "wall_s": 15.0 + s, "startup_s": 1.0, "steps": 15_000 + s,
         "games": 120, "mean_score": 17.1, "steps_per_s": 1000.0, "in_ale": {"games": 100, **span(19.0)},
         "config": {"stop_at_score": 17.0}, "wall_s_of_curve": list(range(1, 16))}
        for s in (1, 2, 3)
    ]  # fmt: skip
    return {
        "game": "pong", "unit": "mean score of the last 100 training games", "curve": curve, "runs": runs,
        "commit": "0123456789ab", "command": "dqnitro train pong --seed N (recipe auto)",
    }  # fmt: skip


ALL = {
    "ladder": ladder, "solve": solve, "sweep": sweep, "search": search, "ablate": ablate, "cost": cost, "bench": bench,
    "profile": profile, "tune": tune, "compare": compare, "console": console, "exact": exact, "record": record,
    "chaos": chaos, "trial": trial, "atari": atari, "peers": peers, "beside": beside,
}  # fmt: skip


def write(folder: pathlib.Path, *kinds: str) -> list[pathlib.Path]:
    """Files of these kinds, or of all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for kind in kinds or ALL:
        path = folder / f"{kind}.json"
        path.write_text(json.dumps(ALL[kind]()))
        out.append(path)
    return out
