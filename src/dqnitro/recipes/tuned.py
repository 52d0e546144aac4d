"""What `dqnitro tune` found on this machine: a small user file that the recipes `auto` and `fast` read.

It can only choose among rungs and settings that leave learning unchanged. Everything else in it (another machine, an
unknown rung, damage) is ignored: a file that nobody looks at must never decide what a run learns.
"""

from __future__ import annotations

import json
import os
import pathlib
from dataclasses import dataclass, field
from typing import Any

from dqnitro.common.host import cpu_name, usable_cores
from dqnitro.config import FIELDS
from dqnitro.errors import ConfigError
from dqnitro.ladder import RUNGS

FORMAT = 1
RECIPES = ("auto", "fast")  # those that read this file
ALIKE_FOR = ("auto",)  # may draw other random numbers; `fast` is the baseline's run up to rounding
# Settings that may be chosen; runner processes only with slack 0.
SETTINGS = ("torch_threads", "env_threads", "env_parts", "runner", "slack_steps")


@dataclass(frozen=True)
class Tuned:
    """The choice for one recipe and one kind of game on this machine."""

    rungs: tuple[str, ...]  # exact and close ones only
    settings: dict[str, Any]
    date: str
    torch: str  # the version it was measured with
    dropped: dict[str, str] = field(default_factory=dict)  # rung of the recipe -> why it is not used here
    gain: str = ""  # in words


def path() -> pathlib.Path:
    """Where the file is: $DQNITRO_TUNED, or dqnitro/tuned.json in the user's configuration folder."""
    if given := os.environ.get("DQNITRO_TUNED"):
        return pathlib.Path(given)
    home = os.environ.get("XDG_CONFIG_HOME") or pathlib.Path.home() / ".config"
    return pathlib.Path(home) / "dqnitro" / "tuned.json"


def machine_key() -> str:
    """What a measurement is valid for: CPU, number of usable cores, GPU."""
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no GPU"
    return f"{cpu_name()}, {usable_cores()} cores, {gpu}"


def _entry_key(recipe: str, env_id: str) -> str:
    from dqnitro.envs import env_kind

    return f"{recipe}/{env_kind(env_id)}"


def _read() -> dict[str, Any]:
    """The entries of all machines; empty if there is no usable file."""
    try:
        data = json.loads(path().read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("machines"), dict):
        return {}
    return {k: v for k, v in data["machines"].items() if isinstance(v, dict)}


def _write(machines: dict[str, Any]) -> None:
    from dqnitro.common.files import plain, write_json

    file = path()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, plain({"format": FORMAT, "machines": machines}))
    except OSError as e:
        raise ConfigError(f"cannot write {file} ({e.strerror})", "set DQNITRO_TUNED to another path") from e


def find(recipe: str, env_id: str) -> Tuned | None:
    """The choice for this recipe, kind of game and machine, or None if there is no valid one."""
    machines = _read() if recipe in RECIPES else {}
    if not machines:
        return None
    entry = machines.get(machine_key(), {}).get(_entry_key(recipe, env_id))
    if not isinstance(entry, dict):
        return None
    try:
        rungs = tuple(n for n in entry["rungs"] if n in RUNGS and RUNGS[n].promise != "learning")
        settings = {k: v for k, v in entry["settings"].items() if k in SETTINGS and k in FIELDS}
        dropped = {str(k): str(v) for k, v in entry["dropped"].items()}
        found = Tuned(rungs, settings, str(entry["date"]), str(entry["torch"]), dropped, str(entry["gain"]))
    except (KeyError, TypeError, AttributeError):
        return None
    if settings.get("slack_steps", 0) != 0 or (settings.get("runner") == "processes" and "slack_steps" not in settings):
        return None  # acting that runs ahead changes learning
    if settings.get("runner") in ("hybrid", "device") and recipe not in ALIKE_FOR:
        return None
    return found


def remember(recipe: str, env_id: str, entry: dict[str, Any]) -> pathlib.Path:
    """Store a choice with its evidence; other recipes, games and machines keep theirs."""
    machines = _read()
    machines.setdefault(machine_key(), {})[_entry_key(recipe, env_id)] = entry
    _write(machines)
    return path()


def forget() -> list[str]:
    """Delete the entries of this machine and return their names."""
    machines = _read()
    gone = sorted(machines.pop(machine_key(), {}))
    if gone:
        _write(machines)
    return gone
