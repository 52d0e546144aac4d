"""Command-line options from the Config's fields: one source for types, help and checks.

argparse instead of a larger library: bad input must give one line with the nearest names, and `--help` must answer in a
tenth of a second.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from dqnitro import own
from dqnitro.common.files import check_writable
from dqnitro.common.parsing import real, whole
from dqnitro.config import CHOICES, FIELDS, Config, Range, nearest, shown
from dqnitro.errors import ConfigError

# Shorter names for what is typed most often.
SHORT = {"max_minutes": "minutes", "max_steps": "steps", "stop_at_score": "stop-at"}
NOT_FLAGS = ("env_id", "wrappers")  # the positional argument; and what rungs set (--also, --without)
FIRST = ("max_minutes", "max_steps", "stop_at_score", "seed")  # stand among a command's own options
# The groups of settings in `--help-all`, by the first of each; they are those of config.py.
GROUPS = {
    "seed": "the game", "envs": "environments", "network": "network", "learning_rate": "learning",
    "first_fill_steps": "schedule", "replay": "replay", "runner": "speed",
    "max_steps": "when to stop, and what to store",
}  # fmt: skip
# What people type who know other trainers.
ELSEWHERE = {
    "--lr": ("--learning-rate",), "--alpha": ("--learning-rate",), "--gpu": ("--device cuda",),
    "--cuda": ("--device cuda",),
    "--cpu": ("--device cpu",), "--eps": ("--epsilon", "--epsilon-start", "--epsilon-end", "--epsilon-decay-steps"),
    "--epsilon": ("--epsilon-start", "--epsilon-end", "--epsilon-decay-steps"),
    "--exploration-fraction": ("--epsilon-decay-steps",), "--batch": ("--batch-size",), "--bs": ("--batch-size",),
    "--num-envs": ("--n-envs",), "--workers": ("--n-envs", "--env-threads"),
    "--threads": ("--torch-threads", "--env-threads"),
    "--timesteps": ("--steps",), "--total-timesteps": ("--steps",), "--frames": ("--steps",), "--time": ("--minutes",),
    "--buffer-size": ("--replay-capacity",), "--memory": ("--replay-capacity",),
    "--learning-starts": ("--first-fill-steps",),
    "--train-freq": ("--steps-per-update",), "--target-update": ("--target-sync-steps",), "--discount": ("--gamma",),
    "--output": ("--out", "--run-dir"), "--name": ("--run-dir",), "--dir": ("--run-dir",), "--continue": ("--resume",),
    "--load": ("--resume",), "--per": ("--prioritized",), "--ddqn": ("--double",), "--c51": ("--categorical",),
    "--verbose": ("--log-every",), "--silent": ("--quiet",), "--jsonl": ("--json-lines",),
    "--episodes": ("--games", "--eval-games"),
}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """argparse with one-line errors and no guessing of abbreviated names."""

    def __init__(self, command: str, usage: str, description: str) -> None:
        super().__init__(
            prog=f"dqnitro {command}", usage=f"dqnitro {command} {usage}", description=description, allow_abbrev=False,
            formatter_class=_Formatter, add_help=False,
        )  # fmt: skip
        self.add_argument("-h", "--help", action="help", help="show this help and exit")
        self._settings: list[argparse._ArgumentGroup] = []

    def add_settings(self, heading: str) -> argparse._ArgumentGroup:
        """A group of options that only `--help-all` shows."""
        if not self._settings:
            self.add_argument("--help-all", action=_HelpAll, help="show the settings of the run, too, and exit")
        self._settings.append(self.add_argument_group(heading))
        return self._settings[-1]

    def format_help(self, everything: bool = False) -> str:
        shown = self._action_groups
        if self._settings and not everything:
            self._action_groups = [g for g in shown if g not in self._settings]
            n = sum(len(g._group_actions) for g in self._settings)
            self.epilog = f"{n} settings of the run, such as --learning-rate and --n-envs: `{self.prog} --help-all`"
        elif self._settings:
            self.epilog = (
                "The recipe decides the settings; `dqnitro env --recipe NAME --settings` shows those of a recipe here."
            )
        try:
            return super().format_help()
        finally:
            self._action_groups = shown

    def error(self, message: str) -> NoReturn:
        # "argument --minutes/--max-minutes: must be ..." becomes "--minutes must be ..."
        if found := re.match(r"argument (-[^:/ ]*)[^: ]*: (must|expected) ", message):
            message = f"{found[1]}{':' * (found[2] == 'expected')} {message[found.start(2) :]}"
        if "; hint: " in message:
            raise ConfigError(message)
        raise ConfigError(message, f"`{self.prog} --help` lists the options")

    def parse(self, args: Sequence[str]) -> argparse.Namespace:
        """Like parse_args, but the error about an unknown option names the nearest ones."""
        parsed, unknown = self.parse_known_args(list(args))
        for word in unknown:
            if word.startswith("-"):
                raise ConfigError(f"unknown option {word.split('=')[0]}", self._similar(word.split("=")[0]))
            raise ConfigError(f"unexpected argument {word!r}", f"usage: {self.usage}")
        return parsed

    def _similar(self, word: str) -> str:
        """A hint: what it is called here, or the names nearest to it, or where all are listed."""
        known = [o for a in self._actions for o in a.option_strings if o.startswith("--")]
        if called := [o for o in ELSEWHERE.get(word, ()) if o.split()[0] in known]:
            return f"did you mean {', '.join(called)}?"
        if len(known) > 20 and not difflib.get_close_matches(word, known, n=1, cutoff=0.5):
            return f"`{self.prog} --help{'-all' if self._settings else ''}` lists the options"
        return nearest(word, known, "options")


class _HelpAll(argparse.Action):
    """Prints all of a command's help."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str = "") -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        print(parser.format_help(everything=True), end="")
        raise SystemExit(0)


class _SetPlayers(argparse.Action):
    """--players 4 keeps that number, --players 2..8 lets it change: what a resumed run did about it counts no more."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        namespace.players, most = values
        for name, value in (("most_players", most), ("player_changes", "")):
            if getattr(namespace, name, None) is None:
                setattr(namespace, name, value)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)


def flag_name(field: str) -> str:
    return "--" + SHORT.get(field, field).replace("_", "-")


@dataclasses.dataclass(frozen=True)
class Number:
    """The type of an option that is a number: whole or not, and in a range. (The range of a setting is in `Config`.)"""

    whole: bool
    low: float = -math.inf
    high: float = math.inf

    def __call__(self, text: str) -> Any:
        value = whole(text) if self.whole else real(text)
        if value is None:
            raise argparse.ArgumentTypeError(f"expected a {'whole ' * self.whole}number, got {shown(text)}")
        if what := Range(self.low, self.high).wrong(value):
            raise argparse.ArgumentTypeError(what)
        return value


@dataclasses.dataclass(frozen=True)
class Players(Number):
    """`4` is (4, 0): they stay as many; `2..8` is the fewest and the most."""

    def __call__(self, text: str) -> tuple[int, int]:
        first, dots, last = text.partition("..")
        least, most = whole(first), whole(last) if dots else 0
        if least is None or most is None:
            raise argparse.ArgumentTypeError(f"expected a whole number, or two such as 2..8, got {shown(text)}")
        if dots and most < max(1, least):
            raise argparse.ArgumentTypeError(f"must name the fewest first, got {shown(text)}; hint: --players 2..8")
        return least, most


def count(low: int = 1, high: int = 10**9) -> Number:
    """A whole number in a range."""
    return Number(True, low, high)


def amount(low: float = 0.0, high: float = 1e9) -> Number:
    """A finite number in a range."""
    return Number(False, low, high)


def out_file(text: str) -> str:
    """The type of an option that names a file to write: noticed at once, not after minutes of measuring."""
    try:
        check_writable(pathlib.Path(text))
    except ConfigError as e:
        raise argparse.ArgumentTypeError(f"must name a file that can be written: {e}") from e
    return text


def add_config_flags(parser: Parser, leave_out: Sequence[str] = ()) -> None:
    """One option per Config field. Defaults come from the recipe, so absent options stay absent."""
    names = [n for n in FIELDS if n not in NOT_FLAGS and n not in leave_out]
    for name in names:
        if name in FIRST:
            _add_flag(parser, name)
    heading, group = "", None
    for name in FIELDS:
        heading, group = (GROUPS[name], None) if name in GROUPS else (heading, group)
        if name in names and name not in FIRST:
            if group is None:
                group = parser.add_settings(f"settings: {heading} (in brackets: recipe baseline)")
            _add_flag(group, name)


def _add_flag(group: argparse._ActionsContainer, name: str) -> None:
    default, text = FIELDS[name].default, FIELDS[name].metadata["help"]
    kw: dict[str, Any] = {"dest": name, "default": None, "help": text}
    if isinstance(default, bool):
        kw["action"] = argparse.BooleanOptionalAction
    elif name == "players":
        kw |= {"type": Players(True), "action": _SetPlayers, "metavar": "N|N..M"}
    elif isinstance(default, int | float):
        kw |= {"type": Number(isinstance(default, int)), "metavar": "N" if isinstance(default, int) else "X"}
    else:
        choices = CHOICES.get(name)
        if choices and name in own.KINDS:  # Config checks them: module:function may be given, too
            kw["metavar"] = "{" + ",".join((*choices, "module:function")) + "}"
        else:
            kw |= {"choices": choices, "metavar": None if choices else name.upper()}
    if name not in FIRST:
        kw["help"] = f"{text} [{value_text(default)}]".replace("%", "%%")
    flags = [flag_name(name)]
    if name in SHORT:
        flags.append("--" + name.replace("_", "-"))
    group.add_argument(*flags, **kw)


def value_text(value: Any) -> str:
    """A setting's value as people write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(value)
    return "none" if value == math.inf else f"{value:,}" if isinstance(value, int) else str(value)


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
