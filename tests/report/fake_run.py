"""Run folders as training writes them, made up: a Pong-like curve, and every state a run can be in."""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
from typing import Any

from dqnitro.config import Config

FRAMES_PER_STEP = 4
SHARE = {"act": 0.11, "env": 0.27, "sample": 0.08, "learn": 0.49, "store": 0.03, "loop": 0.02}


def pong_config(**changes: Any) -> Config:
    settings: dict[str, Any] = {
        "n_envs": 8, "steps_per_update": 4.0, "n_step": 3, "double": True, "loss": "huber", "learning_rate": 2.5e-4,
        "envs": "console", "stop_at_score": 17.0, "wrappers": ("no-grad", "channels-last", "bfloat16", "compile"),
    }  # fmt: skip
    return Config().replace(**{**settings, **changes})


def write_head(path: pathlib.Path, config: dict[str, Any] | None = None, **changes: Any) -> None:
    path.mkdir(parents=True, exist_ok=True)
    head: dict[str, Any] = {
        "recipe": "auto",
        "rungs": ["frame-replay", "console", "eight-envs", "four-steps-per-update", "three-step", "double"],
        "config": pong_config().to_dict() if config is None else config, "started": "2026-01-31T12:00:00+00:00",
        "machine": {"cpu": "A CPU of 2 cores", "cores": 2, "memory_gib": 7.8, "os": "Linux 6.1", "gpu": None},
        "versions": {"python": "3.11.9", "dqnitro": "0.1.0", "torch": "2.9.1", "numpy": "2.3.4", "ale-py": "0.12.1"},
        "commit": "0123456789ab", "command": "dqnitro train pong --recipe auto",
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps({**head, **changes}))


def write_summary(path: pathlib.Path, state: str, **facts: Any) -> None:
    head = {"state": state, "pid": os.getpid(), "updated": "2026-01-31T12:20:00+00:00"}
    (path / "summary.json").write_text(json.dumps({**head, **facts}))


def metric_lines(n_games: int, seconds: float, seed: int = 1) -> list[str]:
    """Games, losses and progress in the order of time: flat, a steep rise, a plateau with a few lost games."""
    rng = random.Random(seed)
    game_steps = [int(rng.gauss(1600, 300) * (0.55 + 0.6 * _skill(i / n_games) + 0.25)) + 200 for i in range(n_games)]
    total = sum(game_steps)
    rows: list[tuple[float, dict[str, Any]]] = []
    steps, avg = 0, None
    scores: list[float] = []
    for length in game_steps:
        steps += length
        skill = _skill(steps / total)
        score = max(-21, min(21, round(rng.gauss(-20.6 + 40.5 * skill, 0.7 + 5.5 * skill * (1.15 - skill)))))
        if skill > 0.9 and rng.random() < 0.01:
            score = -3
        avg = score if avg is None else 0.98 * avg + 0.02 * score
        scores.append(score)
        wall = seconds * steps / total
        rows.append(
            (
                wall,
                {
                    "event": "game",
                    "wall_s": round(wall, 4),
                    "steps": steps,
                    "score": float(score),
                    "game_steps": length,
                    "avg_reward": avg,
                },
            )
        )
    smooth = None
    for k in range(n_games):
        at = (k + 1) / n_games
        value = 0.03 * math.exp(-3 * at) * math.exp(rng.gauss(0, 0.5)) + 0.002
        smooth = value if smooth is None else 0.98 * smooth + 0.02 * value
        rows.append(
            (
                seconds * at,
                {
                    "event": "loss",
                    "wall_s": round(seconds * at, 4),
                    "steps": int(total * at),
                    "updates": k * 100,
                    "loss": value,
                    "avg_loss": smooth,
                },
            )
        )
    for k in range(n_games):
        at = (k + 1) / n_games
        rate = total / seconds * (1 + 0.04 * rng.gauss(0, 1)) * (3 if at < 0.01 else 1)
        rows.append((seconds * at, {
            "event": "progress", "wall_s": seconds * at, "steps": int(total * at), "updates": int(total * at / 4),
            "games": k, "epsilon": max(0.02, 1 - int(total * at) / 100_000),
            "steps_per_s": rate, "frames_per_s": rate * FRAMES_PER_STEP, "updates_per_s": rate / 4,
            "mean_score": sum(scores[max(0, k - 99) : k + 1]) / len(scores[max(0, k - 99) : k + 1]),
            "last_score": scores[k], "loss": smooth, "share": SHARE,
        }))  # fmt: skip
    rows.sort(key=lambda r: r[0])
    return [json.dumps(row) for _, row in rows]


def _skill(at: float) -> float:
    return 1 / (1 + math.exp(-14 * (at - 0.48)))


def make_run(path: pathlib.Path, n_games: int = 400, seconds: float = 1_180.0, state: str = "solved") -> pathlib.Path:
    """A whole run that ended well, with its fresh games."""
    write_head(path)
    lines = metric_lines(n_games, seconds)
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    last = json.loads(lines[-1])
    rng = random.Random(7)
    scores = [float(max(-21, min(21, round(rng.gauss(19.2, 1.6))))) for _ in range(30)]
    mean = sum(scores) / len(scores)
    write_summary(
        path, state, ended=state, wall_s=seconds, startup_s=21.4, steps=last["steps"], updates=last["steps"] // 4,
        games=n_games, mean_score=17.04, steps_per_s=last["steps"] / seconds, frames_per_s=4 * last["steps"] / seconds,
        samples_per_s=1.0, bytes_per_transition=7_100.0, share=SHARE,
        evaluation={"scores": scores, "mean": mean, "low": mean - 0.6, "high": mean + 0.5},
    )  # fmt: skip
    return path
