"""Command-line options from the Config's fields: one source for types, help and checks.

argparse instead of a larger library: bad input must give one line with the nearest names, and `--help` must answer in a
tenth of a second.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from dqnitro.config import CHOICES, FIELDS, Config, nearest
from dqnitro.errors import ConfigError

# Shorter names for what is typed most often.
SHORT = {"max_minutes": "minutes", "max_steps": "steps", "stop_at_score": "stop-at"}
NOT_FLAGS = ("env_id", "wrappers")  # the positional argument; and what rungs set (--also, --without)


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors and no guessing of abbreviated names."""

    def __init__(self, command: str, usage: str, description: str) -> None:
        super().__init__(
            prog=f"dqnitro {command}", usage=f"dqnitro {command} {usage}", description=description, allow_abbrev=False,
            formatter_class=_Formatter, add_help=False,
        )  # fmt: skip
        self.add_argument("-h", "--help", action="help", help="show this help and exit")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, f"`{self.prog} --help` lists the options")

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        """Like parse_args, but the error about an unknown option names the nearest ones."""
        parsed, unknown = self.parse_known_args(list(args))
        for word in unknown:
            if word.startswith("-"):
                known = [o for a in self._actions for o in a.option_strings if o.startswith("--")]
                raise ConfigError(f"unknown option {word.split('=')[0]}", nearest(word.split("=")[0], known, "options"))
            raise ConfigError(f"unexpected argument {word!r}", f"usage: {self.usage}")
        return parsed


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)


def flag_name(field: str) -> str:
    return "--" + SHORT.get(field, field).replace("_", "-")


def _number(kind: type) -> Any:
    def convert(text: str) -> Any:
        try:
            # 1e6 and 1_000_000 are how people write step counts.
            return int(text) if kind is int and "." not in text and "e" not in text.lower() else kind(float(text))
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"expected a number, got {text!r}") from None

    return convert


def add_config_flags(parser: Parser, leave_out: Sequence[str] = ()) -> None:
    """One option per Config field. Defaults come from the recipe, so absent options stay absent."""
    group = parser.add_argument_group(
        "settings of the run (defaults come from the recipe; `dqnitro env --recipe NAME --settings` shows them)"
    )
    for name, field in FIELDS.items():
        if name in NOT_FLAGS or name in leave_out:
            continue
        kw: dict[str, Any] = {"dest": name, "default": None, "help": field.metadata["help"]}
        default = field.default
        if isinstance(default, bool):
            kw["action"] = argparse.BooleanOptionalAction
        elif isinstance(default, int | float):
            kw |= {"type": _number(type(default)), "metavar": "N" if isinstance(default, int) else "X"}
        else:
            kw |= {"choices": CHOICES.get(name), "metavar": None if name in CHOICES else name.upper()}
        flags = [flag_name(name)]
        if name in SHORT:
            flags.append("--" + name.replace("_", "-"))
        group.add_argument(*flags, **kw)


def config_changes(parsed: argparse.Namespace) -> dict[str, Any]:
    """The fields that were given on the command line."""
    return {n: v for n in FIELDS if n not in NOT_FLAGS and (v := getattr(parsed, n, None)) is not None}


def show_config(config: Config) -> list[tuple[str, str, str]]:
    """(flag, value, help) of every field, for `dqnitro env` and the docs."""
    rows = []
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        text = ", ".join(value) if isinstance(value, tuple) else ("none" if value == math.inf else str(value))
        rows.append((flag_name(f.name) if f.name not in NOT_FLAGS else f.name, text, f.metadata["help"]))
    return rows


def note(text: str) -> None:
    """A message for the user, on stderr: stdout is for data."""
    print(text, file=sys.stderr, flush=True)
