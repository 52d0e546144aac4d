"""Time to solve: measured by runs that solved the game, or projected to rungs that leave learning unchanged.

`exact` and `close` rungs change how long a step takes, not how many steps are needed. So the steps of solved runs hold
for every row that learns in the same way, and dividing them by the speed of the row gives its time. A `learning` rung
needs its own runs.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dqnitro import ladder
from dqnitro.common.intervals import Interval, rate_interval
from dqnitro.config import Config
from dqnitro.errors import ConfigError, UserError

# Settings that decide when a run ends or what it writes, the seed (averaged over), and where the work is done.
NOT_LEARNING = (
    "seed", "max_steps", "max_minutes", "stop_at_score", "checkpoint_every_s", "log_every_s",
    "eval_every_steps", "games_per_eval", "eval_epsilon",
    "device", "replay_device", "torch_threads", "env_threads", "act_device",
)  # fmt: skip


@dataclass(frozen=True)
class Solved:
    """One run that reached the score."""

    source: str
    config: Config
    seconds: float
    steps: int
    machine: tuple[str, int, str | None]


@functools.cache
def _changed_by(promises: tuple[str, ...]) -> frozenset[str]:
    out: set[str] = set()
    for rung in ladder.RUNGS.values():
        if rung.promise in promises:
            base = Config(replay="plain") if rung.name == "frame-replay" else Config()
            changed = rung.apply(base)
            out |= {k for k, v in changed.to_dict().items() if v != base.to_dict()[k]}
    return frozenset(out)


def learning_key(config: Config) -> str:
    """The settings that decide how a config learns. Configs with equal keys need the same number of steps, up to
    chance.
    """
    speed_only = _changed_by(("exact", "close")) - _changed_by(("learning",))
    facts = {k: v for k, v in config.to_dict().items() if k not in NOT_LEARNING and k not in speed_only}
    return json.dumps(facts, sort_keys=True)


def config_key(config: Config) -> str:
    """The settings that decide how fast a config is and how it learns."""
    facts = {k: v for k, v in config.to_dict().items() if k not in NOT_LEARNING[:6]}
    facts["wrappers"] = sorted(facts["wrappers"])
    return json.dumps(facts, sort_keys=True)


def machine_of(facts: Mapping[str, Any]) -> tuple[str, int, str | None]:
    return str(facts.get("cpu")), int(facts.get("cores") or 0), facts.get("gpu")


def read_solved(path: pathlib.Path) -> Solved:
    """A solved run's folder, or a JSON file with the same facts (`config`, `machine`, `state`, `wall_s`, `steps`)."""
    if path.is_dir():
        from dqnitro.store.read_run import read_run

        run = read_run(path)
        config, machine, state, wall_s, steps = run.config, run.machine, run.state, run.wall_s, run.steps
    else:
        try:
            data = json.loads(path.read_bytes())
            config, machine, state = data["config"], data["machine"], data["state"]
            wall_s, steps = data["wall_s"], data["steps"]
        except OSError as e:
            raise ConfigError(f"--solved {path}: cannot be read ({e.strerror})", "give the folder of a run") from e
        except (ValueError, KeyError, TypeError) as e:
            raise ConfigError(f"--solved {path}: not the record of a run ({e})", "give the folder of a run") from e
    if state != "solved" or not wall_s or not steps:
        raise ConfigError(f"--solved {path}: this run ended as {state!r}", "give a run that solved the game")
    try:
        return Solved(str(path), Config.from_dict(config), float(wall_s), int(steps), machine_of(machine))
    except UserError as e:
        raise ConfigError(f"--solved {path}: {e}") from e


def add_times(rows: Sequence[dict[str, Any]], stands: Mapping[str, Any], solved: Sequence[Solved]) -> None:
    """Fill in `solve` of each row: measured if runs have its config and this machine, projected if they only learn
    alike.
    """
    if not solved:
        return
    from dqnitro.common.host import machine

    here = machine_of(machine())
    for row in rows:
        if row["state"] != "measured":
            continue
        config = stands[row["name"]].config
        own = [s for s in solved if config_key(s.config) == config_key(config) and s.machine == here]
        alike = [s for s in solved if learning_key(s.config) == learning_key(config)]
        if own:
            row["solve"] = _solve("measured", rate_interval([s.seconds for s in own]), own)
        elif alike:
            row["solve"] = _solve("projected", project([s.steps for s in alike], row["fps"]), alike)
    _add_gains(rows)


def project(steps: Sequence[int], fps: Interval) -> Interval:
    """Seconds for these steps at this speed; the interval takes both uncertainties at their worst."""
    need = rate_interval([float(s) for s in steps])
    return Interval(need.mean / fps.mean, need.low / fps.high, need.high / fps.low, need.n)


def _solve(how: str, seconds: Interval, runs: Sequence[Solved]) -> dict[str, Any]:
    return {
        "seconds": seconds, "how": how, "gain": None, "steps": rate_interval([float(s.steps) for s in runs]).mean,
        "source": ", ".join(s.source for s in runs),
    }  # fmt: skip


def _add_gains(rows: Sequence[dict[str, Any]]) -> None:
    base = next((r["solve"] for r in rows if r["name"] == "baseline"), None)
    for row in rows:
        if base and row["solve"]:
            row["solve"]["gain"] = row["solve"]["seconds"].mean / base["seconds"].mean
