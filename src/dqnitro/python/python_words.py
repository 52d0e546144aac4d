"""Errors in the words of Python: `run_dir=` where the command line says `--run-dir`."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from dqnitro.config import CHOICES, FIELDS
from dqnitro.errors import DQNitroError

# Options whose keyword in Python has another name, or none.
OTHER_NAMES = {"steps": "max_steps", "minutes": "max_minutes", "stop_at": "stop_at_score", "quiet": "progress"}
LISTS = ("without", "also")
OPTION = re.compile(r"(?<![\w-])--(?P<name>[a-z][a-z-]*[a-z])(?:[ =](?P<value>`?[\w./:-]*\w))?")

P = ParamSpec("P")
T = TypeVar("T")


def in_python(text: str) -> str:
    """A message with options of the command line as keyword arguments."""
    text = re.sub(r"add --trust \(in Python (trust=True[^)]*)\)", r"say \1", text)  # it says both
    return re.sub(r"`(resume\([^`]*\)|\w+=[^`]*)` the run", r"\1", OPTION.sub(_keyword, text))


def _keyword(found: re.Match[str]) -> str:
    name, value = found["name"].replace("-", "_"), found["value"]
    rest = "" if value is None else found[0][len("--") + len(found["name"]) :]
    if name == "resume":
        if value is None or re.fullmatch(r"[a-z]+", value):
            return f"resume(run_dir){rest}"
        return f'resume("{value}")' if "/" in value or "." in value else f"resume({value})"
    if name.startswith("no_") and name.removeprefix("no_") in FIELDS:
        return f"{name.removeprefix('no_')}=False{rest}"
    name = OTHER_NAMES.get(name, name)
    if value is None or not _is_value(name, value):
        return (
            f"{name}={rest}"
            if name not in FIELDS or not isinstance(FIELDS[name].default, bool)
            else f"{name}=True{rest}"
        )
    if name in LISTS:
        return f'{name}=["{value}"]'
    return f"{name}={value}" if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value) else f'{name}="{value}"'


def _is_value(name: str, word: str) -> bool:
    """Whether the word after an option is its value, not the next word of the sentence."""
    if name in LISTS:
        from dqnitro.ladder import RUNGS

        return word in RUNGS
    if name in CHOICES:
        return word in CHOICES[name]
    if name in FIELDS and isinstance(FIELDS[name].default, bool):
        return False
    return re.fullmatch(r"-?\d[\d.]*(e-?\d+)?|cpu|cuda(:\d+)?|auto|same", word) is not None


@contextlib.contextmanager
def speaking_python() -> Iterator[None]:
    """What a user's mistake raises in here speaks of keyword arguments."""
    try:
        yield
    except DQNitroError as e:
        e.args = (in_python(str(e)),)
        raise


def python_errors(function: Callable[P, T]) -> Callable[P, T]:
    """A decorator for functions that users call."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with speaking_python():
            return function(*args, **kwargs)

    return call
