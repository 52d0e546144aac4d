"""Names for the user's own pieces (environments, networks, losses, optimisers, replays), for configs to hold.

A function or class that another process can import is called `module:function`; a run with it resumes anywhere. One
that is registered has the name it was given. Anything else (a lambda, a local function, an object) gets a name that
only this process knows: to resume, pass it again.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from dqnitro.errors import ConfigError, user_line

KINDS = ("network", "loss", "optimizer", "replay")  # settings that also take a piece of the user's own
LOCAL = "own:"  # begins the name of a piece that cannot be imported

_table: dict[tuple[str, str], Any] = {}  # (kind, name) -> what was registered or passed in this process

_known: set[tuple[str, str]] = set()  # (kind, name) that the user of this process has named, not a file

T = TypeVar("T")


def register(kind: str, name: str) -> Callable[[T], T]:
    """A decorator: `@register("network", "tiny")` makes `network="tiny"` mean the function or class below it."""
    if kind not in KINDS:
        raise ConfigError(f"nothing of kind {kind!r} can be registered", f"the kinds are {', '.join(KINDS)}")
    if not name or ":" in name:
        raise ConfigError(f"{name!r} cannot be a name of a {kind}", "choose one without a colon")

    def add(piece: T) -> T:
        _table[kind, name] = piece
        return piece

    return add


def name_of(kind: str, piece: Any) -> str:
    """The name by which a config holds this piece; `find` is the inverse."""
    for (its_kind, name), known in _table.items():
        if its_kind == kind and known is piece:
            return name
    module, path = getattr(piece, "__module__", None), getattr(piece, "__qualname__", None)
    if module and path and _look_up(sys.modules.get(module), path) is piece:
        know(kind, f"{module}:{path}")
        return f"{module}:{path}"
    label = path or getattr(type(piece), "__name__", kind)
    name, count = f"{LOCAL}{label.rpartition('.')[2].strip('<>')}", 2
    while (kind, name) in _table:
        name, count = f"{name.partition('#')[0]}#{count}", count + 1
    _table[kind, name] = piece
    return name


def know(kind: str, name: str) -> None:
    """The user of this process has named this piece, so that running it is their wish."""
    _known.add((kind, name))


def is_known(kind: str, name: str) -> bool:
    return (kind, name) in _known


def names(kind: str) -> list[str]:
    """The registered names of a kind."""
    return [name for k, name in _table if k == kind and not name.startswith(LOCAL)]


def is_own(kind: str, name: str) -> bool:
    """Whether a setting's value means a piece of the user's own."""
    return ":" in name or (kind, name) in _table


def find(kind: str, name: str) -> Any:
    """The piece of this name; ConfigError if it cannot be found."""
    if (kind, name) in _table:
        return _table[kind, name]
    if name.startswith(LOCAL):
        raise ConfigError(
            f"the {kind} {name.removeprefix(LOCAL)!r} was an object of another Python process",
            f"pass it again, as in resume(run_dir, {kind}=...)",
        )
    if ":" not in name:
        raise ConfigError(f"no {kind} is registered as {name!r}", "import the module that registers it first")
    module, _, path = name.partition(":")
    piece = _look_up(import_module(module, name), path)
    if piece is None:
        here = "the script that defines it must resume the run" if module == "__main__" else "is the name right?"
        raise ConfigError(f"module {module} has no {path!r}", here)
    return piece


def made(kind: str, name: str, *arguments: Any, **named: Any) -> Any:
    """What the piece of this name returns for these arguments; ConfigError if it cannot be called with them."""
    piece = find(kind, name)
    if not callable(piece):
        raise ConfigError(f"{kind} {name} is a {type(piece).__name__}, not a function or class", "is the name right?")
    try:
        return piece(*arguments, **named)
    except ConfigError:
        raise
    except Exception as e:  # whatever the user's code raises
        raise ConfigError(f"{kind} {name} raised an exception: {user_line(e)}{type(e).__name__}: {e}") from e


def import_module(module: str, wanted: str) -> Any:
    """Import a user's module; the current folder counts. ConfigError if there is none of that name."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(f"{wanted!r} does not name a module before the colon", "as in my_module:MyEnv-v0")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name is None or not (module + ".").startswith(e.name + "."):
            raise  # the user's module exists but one of its imports is missing: they need the traceback
        raise ConfigError(
            f"no module named {module!r} for {wanted!r}", "it must be in the current folder or on PYTHONPATH"
        ) from e


def _look_up(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part, None)
    return module


def put(kind: str, name: str, piece: Any) -> None:
    """Say what a name means in this process."""
    _table[kind, name] = piece


def get_table() -> dict[tuple[str, str], Any]:
    """All that this process knows, for another process of the same run."""
    return dict(_table)


def set_table(table: dict[tuple[str, str], Any]) -> None:
    _table.update(table)
