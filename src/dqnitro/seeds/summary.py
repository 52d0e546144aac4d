"""Several seeds in a few numbers: medians, ranges and intervals, and the number of seeds behind each."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dqnitro.common.intervals import ANYTHING, Range, mean_interval
from dqnitro.common.signals import NUMBERS
from dqnitro.envs.names import possible_scores
from dqnitro.seeds.folder import SeedsFolder

KEPT = (
    "steps", "updates", "games", "wall_s", "startup_s", "mean_score", "steps_per_s", "frames_per_s", "samples_per_s",
    "evaluation",
)  # fmt: skip
NOT_NEGATIVE: Range = (0.0, math.inf)  # times, steps, speeds
STOPPED = tuple(code for n in NUMBERS for code in (128 + n, -n))  # exit codes: saved, or not yet started
TAIL_BYTES = 8192  # of metrics.jsonl: some lines


def spread(values: Sequence[float], of: int | None = None, within: Range = ANYTHING) -> dict[str, Any] | None:
    """Median, range, and the 95% interval of the mean, which lies `within` what is possible.

    `of` seeds were requested; those without a value count as slower than all others. So the median is known only if
    more than half have a value, and there is no interval of the fast ones alone, which would flatter.
    """
    if not values:
        return None
    of = len(values) if of is None else of
    whole = sorted(values) + [math.inf] * (of - len(values))
    median = statistics.median(whole)
    interval = mean_interval(list(values), within=within) if len(values) == of else None
    return {
        "median": median if math.isfinite(median) else None, "min": min(values), "max": max(values), "n": len(values),
        "of": of, "interval": interval._asdict() if interval else None,
    }  # fmt: skip


def seed_facts(folder: SeedsFolder, seed: int, code: int | None = None, why: str = "") -> dict[str, Any]:
    """One seed: its state, from its folder, and how its process ended."""
    s = folder.summary(seed)
    state = s.get("state", "waiting")
    if code in STOPPED:
        state = "stopped" if state == "running" else state
    elif code is not None and state in ("running", "waiting"):
        state = "failed"  # its process ended without writing a result
    out = {"seed": seed, "run_dir": str(folder.run_dir(seed)), "state": state, "exit_code": code, "why": why or None}
    return out | {k: s.get(k) for k in KEPT}


def all_facts(folder: SeedsFolder, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All of them together."""
    n = len(folder.seeds)
    solved = [r for r in runs if r["state"] == "solved"]
    scores = [r["mean_score"] for r in runs if r["mean_score"] is not None]
    speeds = [r["steps_per_s"] for r in runs if r["steps_per_s"]]
    fresh = [r["evaluation"]["mean"] for r in runs if r["evaluation"]]
    possible = possible_scores(folder.config.env_id)
    return {
        "env_id": folder.config.env_id, "recipe": folder.recipe, "run_dir": str(folder.path),
        "seeds": list(folder.seeds),
        "at_once": folder.at_once, "torch_threads": folder.config.torch_threads,
        "env_threads": folder.config.env_threads,
        "solved": len(solved), "score": spread(scores, within=possible), "fresh_score": spread(fresh, within=possible),
        "seconds_to_solve": spread([r["wall_s"] for r in solved], n, NOT_NEGATIVE),
        "steps_to_solve": spread([r["steps"] for r in solved], n, NOT_NEGATIVE),
        "steps_per_s": spread(speeds, within=NOT_NEGATIVE), "runs": list(runs),
    }  # fmt: skip


def last_progress(path: pathlib.Path) -> dict[str, Any]:
    """The newest line of progress in a metrics.jsonl that is being written; empty before the first one."""
    try:
        with path.open("rb") as f:
            f.seek(0, 2)
            f.seek(max(0, f.tell() - TAIL_BYTES))
            lines = f.read().split(b"\n")
    except OSError:
        return {}
    for line in reversed(lines):
        if b'"progress"' in line:
            try:
                found = json.loads(line)
            except ValueError:  # cut off by the start of the tail, or half written
                continue
            if isinstance(found, dict) and found.get("event") == "progress":
                return found
    return {}
