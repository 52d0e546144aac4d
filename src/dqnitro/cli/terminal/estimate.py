"""How long a run without a limit may take: an estimate from runs that solved the game with the same settings.

Known are the runs of the repository's own records (solved.json, made by docs/make_solved.py from results/) and the
earlier runs beside this one. Without such a run there is no estimate.
"""

from __future__ import annotations

import json
import math
import pathlib
import statistics
from typing import Any, NamedTuple

from dqnitro.common.parsing import mapping, number, read_object
from dqnitro.config import FIELDS, Config
from dqnitro.events import Snapshot

# These decide where and how fast a run computes, or when it ends, but not how many steps it needs.
NOT_LEARNING = frozenset({
    "seed", "env_threads", "env_parts", "replay", "replay_device", "runner", "slack_steps", "device", "act_device",
    "act_sync_updates", "torch_threads", "wrappers", "envs", "max_steps", "max_minutes", "checkpoint_every_s",
    "log_every_s", "eval_every_steps", "games_per_eval", "eval_epsilon",
})  # fmt: skip
MOST_RUNS = 200  # earlier runs that are looked at: a file each
RECORDS = pathlib.Path(__file__).with_name("solved.json")


class Estimate(NamedTuple):
    """The median number of steps to solve, and of how many runs."""

    steps: float
    runs: int

    def left_s(self, s: Snapshot) -> float | None:
        """Seconds left at the present speed; None once the run has taken longer than the others."""
        left = self.steps - s.steps
        return left / s.steps_per_s if left > 0 and s.steps_per_s > 0 else None


def learning_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide how many steps a run needs; absent ones have their defaults."""
    defaults = Config().to_dict()
    return {name: config.get(name, defaults[name]) for name in FIELDS if name not in NOT_LEARNING}


def estimate(config: Config, beside: pathlib.Path | None = None) -> Estimate | None:
    """From the records and from the runs in the folder `beside`."""
    if config.stop_at_score == math.inf:
        return None
    wanted = learning_settings(config.to_dict())
    records = json.loads(RECORDS.read_text())
    steps = [float(s) for r in records if learning_settings(r["config"]) == wanted for s in r["steps"]]
    steps += _earlier(wanted, beside) if beside is not None and beside.is_dir() else []
    return Estimate(statistics.median(steps), len(steps)) if steps else None


def _earlier(wanted: dict[str, Any], folder: pathlib.Path) -> list[float]:
    """Steps of the newest solved runs in a folder of runs."""
    found = []
    for path in sorted(folder.glob("*/summary.json"), key=lambda p: p.parent.name)[-MOST_RUNS:]:
        summary = read_object(path)
        steps = number(summary.get("steps"))
        if summary.get("state") == "solved" and steps:
            config = mapping(read_object(path.with_name("config.json")).get("config"))
            found += [steps] if learning_settings(config) == wanted else []
    return found
