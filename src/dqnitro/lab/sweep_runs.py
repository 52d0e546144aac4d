"""A sweep whose runs have folders: each value is a folder of seeds, so that runs can be anywhere, and be resumed.

STATE/sweep.json   what was asked
      n_envs-4/    the runs of a value: `seeds.json`, `s1/`, `s2/`, ... as of `train --seeds`
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dqnitro.common.files import file_stem, write_json
from dqnitro.config import Config
from dqnitro.errors import ConfigError, UserError
from dqnitro.lab.store import kept
from dqnitro.lab.sweep import MOST_POINTS, base_of, turns, variant
from dqnitro.seeds.folder import SeedsFolder, is_seeds

FILE = "sweep.json"


class Asked(NamedTuple):
    """A sweep as it was asked for."""

    game: str
    setting: str
    values: tuple[Any, ...]
    recipe: str
    seeds: tuple[int, ...]
    changes: dict[str, Any]

    def kept(self) -> dict[str, Any]:
        """What must be the same when it goes on; values and seeds may be added."""
        return {"game": self.game, "setting": self.setting, "recipe": self.recipe, "changes": self.changes}


class Job(NamedTuple):
    """One run."""

    value: Any
    seed: int
    folder: SeedsFolder

    @property
    def run_dir(self) -> pathlib.Path:
        return self.folder.run_dir(self.seed)

    @property
    def files(self) -> tuple[pathlib.Path, pathlib.Path]:
        """All that its process writes."""
        return self.run_dir, self.folder.log(self.seed)


def default_state(asked: Asked) -> pathlib.Path:
    return pathlib.Path("sweeps") / file_stem(f"{asked.setting}-{asked.game}-{asked.recipe}")


def folder_of(state: pathlib.Path, setting: str, value: Any) -> pathlib.Path:
    """Of the runs of a value."""
    return state / file_stem(f"{setting}-{value}")


def open_folders(
    state: pathlib.Path, asked: Asked, share: Callable[[Config, int, int], Any], at_once: int
) -> tuple[dict[Any, SeedsFolder], dict[Any, str], Any]:
    """The folder of every value, made or read; why values cannot run; and how the place is shared among the runs."""
    file = state / FILE
    before = kept(file)
    if before is not None and before != json.loads(json.dumps(asked.kept())):
        raise ConfigError(f"{state} was begun with other options", "give another --state")
    base = base_of(asked.game, asked.recipe, asked.changes, asked.setting)
    configs, skipped = {}, {}
    for value in asked.values:
        try:
            configs[value] = variant(base, asked.setting, value, asked.seeds[0])
        except UserError as e:
            skipped[value] = str(e)
    if not configs:
        raise ConfigError(f"no value of {asked.setting} can run: {next(iter(skipped.values()))}")
    mine = share(next(iter(configs.values())), len(configs) * len(asked.seeds), at_once)
    state.mkdir(parents=True, exist_ok=True)
    write_json(file, asked.kept())
    threads = {"torch_threads": mine.torch_threads, "env_threads": mine.env_threads}
    folders = {}
    for value, config in configs.items():
        path = folder_of(state, asked.setting, value)
        if is_seeds(path):
            read = SeedsFolder.read(path)
            folders[value] = read.with_seeds(tuple(sorted({*read.seeds, *asked.seeds})))
        else:
            config = config.replace(**{k: getattr(config, k) or v for k, v in threads.items() if k != asked.setting})
            folders[value] = SeedsFolder.create(path, config, asked.seeds, asked.recipe, (), mine.at_once)
    return folders, skipped, mine


def jobs_of(asked: Asked, folders: Mapping[Any, SeedsFolder]) -> list[Job]:
    """The runs that are not done, values in turn."""
    every = [Job(v, s, folders[v]) for s, v in turns(asked.values, asked.seeds) if v in folders]
    return [j for j in every if not j.folder.is_done(j.seed)]


def read_runs(asked: Asked, folders: Mapping[Any, SeedsFolder]) -> dict[Any, dict[int, dict[str, Any]]]:
    """Every run that has ended, as `sweep.run_one` returns it."""
    return {
        v: {s: read_one(folders[v], s) for s in asked.seeds if folders[v].is_done(s)} if v in folders else {}
        for v in asked.values
    }


def read_one(folder: SeedsFolder, seed: int) -> dict[str, Any]:
    s = folder.summary(seed)
    points = points_of(folder.run_dir(seed))
    if s.get("state") == "diverged":
        return {"points": points, "why": str(s.get("why") or "the loss diverged"), "ended": "diverged"}
    steps, updates = int(s.get("steps") or 0), int(s.get("updates") or 0)
    last = {"wall_s": s.get("wall_s"), "steps": steps, "updates": updates, "games": s.get("games")}
    return {
        "points": [*(p for p in points if p["steps"] < steps), last | {"score": s.get("mean_score")}],
        "ended": s.get("state"), "why": None, "fps": s.get("steps_per_s"), "score": s.get("mean_score"),
        "samples_per_step": updates * folder.config.batch_size / max(1, steps),
    }  # fmt: skip


def points_of(run_dir: pathlib.Path) -> Sequence[dict[str, Any]]:
    """The curve of a run; lines that a crash took back are left out."""
    out: list[dict[str, Any]] = []
    path = run_dir / "metrics.jsonl"
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            e = json.loads(line)
        except ValueError:  # half a line of a run that was killed
            continue
        if isinstance(e, dict) and e.get("event") == "progress":
            names = ("wall_s", "steps", "updates", "games")
            while out and out[-1]["steps"] >= e["steps"]:
                out.pop()
            out.append({k: e.get(k) for k in names} | {"score": e.get("mean_score")})
    return out[:: len(out) // MOST_POINTS + 1]
