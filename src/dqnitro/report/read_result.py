"""Reads the results that commands of the lab stored. Files of older versions are recognised by their shape.

Missing numbers leave gaps in a section; only a file that is not a result, or has a newer format, is an error.
"""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass
from typing import Any

from dqnitro.common.parsing import items, mapping, number, rows, text
from dqnitro.errors import ConfigError
from dqnitro.store.read_run import EVENTS, Metrics, Run, make_run, read_run, run_folders

FORMAT = 1  # the newest that lab/store.py writes

# Every kind that has a section of its own; any other result with a table of contenders is a benchmark.
KINDS = (
    "ladder", "solve", "sweep", "search", "ablate", "cost", "console", "profile", "tune", "compare", "exact", "record",
    "chaos", "trial", "atari", "peers", "beside",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One stored result."""

    path: pathlib.Path
    kind: str  # one of KINDS, or bench
    data: dict[str, Any]

    @property
    def what(self) -> str:
        return text(self.data.get("what"), self.kind)

    @property
    def game(self) -> str:
        return text(self.data.get("game"))

    @property
    def command(self) -> str:
        return text(self.data.get("command"))

    @property
    def commit(self) -> str:
        return text(self.data.get("commit"), "unknown")

    @property
    def date(self) -> str:
        return text(self.data.get("date"))

    @property
    def machine(self) -> dict[str, Any]:
        return mapping(self.data.get("machine"))

    @property
    def versions(self) -> dict[str, str]:
        return {str(k): str(v) for k, v in mapping(self.data.get("versions")).items()}


def read_sources(paths: list[pathlib.Path]) -> tuple[list[Run], list[Result]]:
    """Runs and results in the order given. A folder is a run or several seeds; a file is a result or a run's stored
    summary.
    """
    runs: list[Run] = []
    results: list[Result] = []
    for path in dict.fromkeys(paths):
        if path.is_file():
            data = _read(path)
            if data.get("what") is None and isinstance(data.get("config"), dict) and "state" in data:
                runs.append(_stored_run(path, data))
            else:
                results.append(Result(path, _kind(path, data), data))
        else:
            folders = run_folders(path)
            if not folders:
                raise ConfigError(f"{path} has no runs yet", "none of its seeds has started")
            runs += [read_run(folder) for folder in folders]
    return runs, results


def _read(path: pathlib.Path) -> dict[str, Any]:
    hint = "give a run's folder, or a JSON file that a command of the lab wrote"
    try:
        data = json.loads(path.read_bytes())
    except OSError as e:
        raise ConfigError(f"cannot read {path} ({e.strerror})", hint) from e
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{path} is not JSON", hint) from e
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is not a result", hint)
    version = data.get("format", 0)
    if number(version) is None or version > FORMAT:
        raise ConfigError(f"{path} has format {version!r}, this version reads formats up to {FORMAT}", "update DQNitro")
    return data


def _kind(path: pathlib.Path, data: dict[str, Any]) -> str:
    what = data.get("what")
    # `ablate cost` may name itself as a kind of its own or as an ablation.
    if what == "ablate" and data.get("recipe") == "cost":
        return "cost"
    if what == "console" and "table" in data:
        return "bench"
    if what in KINDS:
        return str(what)
    # Seeds that were trained until solved; `table` is how older versions show them.
    seeds = rows(data.get("runs"))
    if what is None and all("seed" in r for r in seeds) and any(r.get("ended") == "solved" for r in seeds):
        return "record"
    if isinstance(data.get("table"), dict):
        return "bench"
    if what is None and items(data.get("games")) and "frames" in data:
        return "exact"
    if what is None and any("wall_s_of_curve" in r for r in rows(data.get("runs"))):
        return "record"
    if what is None and isinstance(data.get("curve"), dict):
        return "trial"
    raise ConfigError(
        f"{path} is not a kind of result that this version knows "
        f"({'no kind is given' if what is None else f'kind {what!r}'})",
        f"known kinds: bench, {', '.join(KINDS)}",
    )


def _stored_run(path: pathlib.Path, data: dict[str, Any]) -> Run:
    """The summary of a run, stored without its folder: totals, but no curves."""
    columns = {event: {name: [] for name in names} for event, names in EVENTS.items()}
    empty = Metrics(columns["game"], columns["loss"], columns["progress"], {})
    words = text(data.get("command")).split()
    recipe = words[words.index("--recipe") + 1] if "--recipe" in words[:-1] else "auto" if words else "custom"
    return make_run(path, {"recipe": recipe, **data}, data, empty, None)
