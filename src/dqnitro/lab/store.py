"""Results as JSON files that stay readable: each names its kind, its format and the machine it was measured on.

An interval is {"mean", "low", "high", "n"} (95%). Files from before formats were numbered read as format 0.
"""

from __future__ import annotations

import datetime
import json
import pathlib
from typing import Any

from dqnitro.errors import ConfigError

FORMAT = 1


def header(what: str, game: str, **facts: Any) -> dict[str, Any]:
    """The first fields of every result: kind, format, game, date, machine, versions, commit and command."""
    from dqnitro.common.host import provenance

    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"what": what, "format": FORMAT, "game": game, "date": now, **facts, **provenance()}


def kept(path: pathlib.Path) -> dict[str, Any] | None:
    """What a command wrote for its continuation; None if it has not begun, ConfigError if the file is damaged."""
    if not path.is_file():
        if path.parent.is_dir() and any(not p.name.startswith(".") for p in path.parent.iterdir()):
            raise ConfigError(f"{path.parent} is not empty and has no {path.name}", "give a new folder with --state")
        return None
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{path} is damaged ({e})", "delete it, or give another --state") from e
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is damaged ({type(found).__name__}, expected an object)", "delete it")
    return found


def default_path(what: str, game: str, folder: pathlib.Path) -> pathlib.Path:
    """ladders/pong-20260131-120000.json, with a number appended if that is taken."""
    from dqnitro.common.files import file_stem

    stamp, name = datetime.datetime.now().strftime("%Y%m%d-%H%M%S"), file_stem(game)
    stem = f"{name}-{stamp}" if folder.name.startswith(what) else f"{what}-{name}-{stamp}"
    path, k = folder / f"{stem}.json", 2
    while path.exists():
        path, k = folder / f"{stem}-{k}.json", k + 1
    return path


def save(path: pathlib.Path, result: dict[str, Any]) -> None:
    """Atomic: a reader sees the old file or the new one."""
    from dqnitro.common.files import plain, write_json

    if path.is_dir():
        raise ConfigError(f"--out {path} is a folder", f"name a file: --out {path / 'result.json'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, plain(result))
    except OSError as e:
        raise ConfigError(f"cannot write {path} ({e.strerror})", "give another place with --out") from e


def load(path: pathlib.Path) -> dict[str, Any]:
    """A stored result; ConfigError if the file is not a result, or comes from a newer version."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as e:
        raise ConfigError(f"cannot read {path} ({e.strerror})", "give the JSON file that a command wrote") from e
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{path} is not JSON ({e})", "give the JSON file that a command wrote") from e
    if not isinstance(data, dict) or not isinstance(data.get("what"), str):
        raise ConfigError(
            f"{path} is not a result: the key `what` is missing", "give the JSON file that a command wrote"
        )
    number = data.get("format", 0)
    if not isinstance(number, int) or number > FORMAT:
        raise ConfigError(
            f"{path} has format {number}, this version reads formats up to {FORMAT}", "update DQNitro to read this file"
        )
    return data


def kind(path: pathlib.Path) -> str:
    """The kind of a stored result: ladder, sweep, ablate, ..."""
    return str(load(path)["what"])
