"""Bad command lines and bad configs, generated from the settings' own types and ranges.

`faults(seed, n)` gives n of them, each a name and a function that raises AssertionError unless the input is refused as
promised: one line on stderr, exit code 2, no traceback, nothing written. `config_faults` are the same for Python.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import math
import os
import pathlib
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dqnitro.cli import COMMANDS, main
from dqnitro.cli.terminal.flags import Number, Parser, flag_name, out_file
from dqnitro.common.parsing import real, whole
from dqnitro.config import CHOICES, FIELDS, RANGES, Config, Range
from dqnitro.errors import ConfigError

Fault = tuple[str, Callable[[], None]]

# What a command needs before its options are looked at. Nothing here is ever trained: the option is refused first.
WORDS = {"train": ["CartPole-v1", "--recipe", "baseline"], "play": ["nowhere"], "report": ["nowhere"],
         "compare": ["nowhere", "nowhere"], "bench": ["device"], "sweep": ["batch", "32", "--game", "CartPole-v1"],
         "ladder": ["CartPole-v1"], "profile": ["CartPole-v1"],
         "ablate": ["cost", "--game", "CartPole-v1"]}  # fmt: skip
NOT_NUMBERS = ["", " ", "two", "nan", "-nan", "1,5", "0x10", "1e", "--", "1 2", "1__0", "∞", "1e3.5", "None", "true"]
NO_FILES = ["/", "/dev/null", "/dev/full", "/proc/none/x", "/etc/passwd/x", "x" * 300, "y/" * 3000 + "z", "a\0b", ""]


class _Captured(Exception):
    """Ends a command when its parser is complete."""


def parser_of(command: str) -> Parser:
    """The parser that a command builds."""
    found: list[Parser] = []

    def capture(self: Parser, args: Any) -> Any:
        found.append(self)
        raise _Captured

    usual = Parser.parse
    Parser.parse = capture  # type: ignore[method-assign]
    try:
        with contextlib.suppress(_Captured):
            importlib.import_module(f"dqnitro.cli.{command}").main([])
    finally:
        Parser.parse = usual  # type: ignore[method-assign]
    return found[0]


def range_of(action: argparse.Action) -> Range:
    """The values of an option that is a number: a setting's are in its table, others belong to the option."""
    assert isinstance(action.type, Number)
    if action.dest in RANGES and flag_name(action.dest) in action.option_strings and action.type.low == -math.inf:
        return RANGES[action.dest]
    return Range(action.type.low, action.type.high)


def outside(values: Range, is_whole: bool) -> st.SearchStrategy[str]:
    """Numbers that are not in a range, as text."""

    def is_bad(text: str) -> bool:
        value = whole(text) if is_whole else real(text)
        return value is None or bool(values.wrong(value))

    low, high = values.low, values.high
    texts = [str(low - 1), f"{low - 1e-6}", str(low), str(high), "inf", "-inf", "1e400", "-1e400", "9" * 5000, "-1"]
    if math.isfinite(high):
        texts += [str(high + 1), f"{high * 1.001 + 1}", f"{high:.0f}0"]
    drawn = st.one_of(
        st.sampled_from(texts),
        st.integers(-(10**30), 10**30).map(str),
        st.floats(allow_nan=False).map(repr),
        st.floats(0.01, 0.99).map(lambda x: repr(max(low, 0) + x)),  # cut, it would be allowed
        st.text(max_size=6),
    )
    return drawn.filter(is_bad) | st.sampled_from(NOT_NUMBERS)


def words_outside(choices: Iterable[str]) -> st.SearchStrategy[str]:
    known = set(choices)
    near = [changed for w in sorted(known) for changed in (w + "s", w[:-1], w.upper(), " " + w, "-" + w)]
    return (st.sampled_from(near) | st.text(max_size=8)).filter(lambda w: w not in known and not w.startswith("--"))


def bad_option(action: argparse.Action) -> st.SearchStrategy[str] | None:
    """Texts that this option must refuse, or None: it takes any."""
    if isinstance(action.type, Number):
        return outside(range_of(action), action.type.whole)
    if action.type is out_file:
        return st.sampled_from(NO_FILES)
    return words_outside(action.choices) if action.choices else None


def bad_lines() -> st.SearchStrategy[list[str]]:
    """Whole command lines with one bad option."""
    kinds = []
    for command in COMMANDS:
        for action in parser_of(command)._actions:
            values = bad_option(action)
            if values is None or not action.option_strings:
                continue
            times = action.nargs if isinstance(action.nargs, int) else 1
            flags = st.sampled_from([o for o in action.option_strings if o.startswith("--")])
            one = st.lists(values, min_size=times, max_size=times)
            start = [command, *WORDS.get(command, [])]
            # "--n-envs=-1", because "-1" alone is an option to argparse
            kinds.append(
                st.tuples(flags, one).map(
                    lambda p, start=start: [*start, f"{p[0]}={p[1][0]}"] if len(p[1]) == 1 else [*start, p[0], *p[1]]
                )
            )
    return st.one_of(kinds)


def bad_values() -> st.SearchStrategy[tuple[str, Any]]:
    """A setting and a value, in Python, that it must refuse."""

    def of(name: str) -> st.SearchStrategy[Any]:
        default, wrong_types = FIELDS[name].default, [None, [], {}, 1j, Ellipsis, b"1", ()]
        if isinstance(default, bool):
            return st.sampled_from([*wrong_types[:-1], 0, 1, "true", 0.0])
        if isinstance(default, int | float):
            values = RANGES[name]
            numbers = st.integers() | st.sampled_from([values.low - 1, values.high + 1, 10**400, -(10**400)])
            if isinstance(default, float):
                numbers = numbers | st.floats()
            wrong = numbers.filter(lambda v: values.wrong(v) != "")
            return wrong | st.sampled_from([*wrong_types, True, "1", *([0.5] if isinstance(default, int) else [])])
        if name in CHOICES:
            return words_outside(CHOICES[name]) | st.sampled_from([*wrong_types, 1])
        if name == "wrappers":
            return st.sampled_from([None, "no-grad", [], 1, (1,), ("no-grad", None)])
        more = ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1e9"] if "device" in name else ["a\nb", "\0", "x" * 5000]
        return st.sampled_from([*wrong_types, 1, *more])

    return st.sampled_from(sorted(FIELDS)).flatmap(lambda n: st.tuples(st.just(n), of(n)))


def refused(argv: list[str]) -> None:
    """The promise about bad input."""
    out, err = io.StringIO(), io.StringIO()
    came_from = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(argv)
        finally:
            os.chdir(came_from)
        left = sorted(p.name for p in pathlib.Path(folder).iterdir())
    said = err.getvalue()
    assert code == 2, f"exit code {code}: {said}"
    *before, last = said.splitlines()  # the lab says first where it measures
    assert last.startswith(f"dqnitro {argv[0]}: ") and all(x.startswith("measuring on ") for x in before), said
    assert out.getvalue() == "" and left == [], (out.getvalue(), left)


def refused_in_python(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as found:
        Config().replace(**{name: value})
    said = str(found.value)
    assert "\n" not in said and name in said and len(said) < 500, said


def drawn(strategy: st.SearchStrategy[Any], seed: int, n: int) -> list[Any]:
    """n examples of a strategy; the same seed draws the same ones."""
    found: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=n, database=None, deadline=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found[:n]


def faults(seed: int, n: int) -> Iterator[Fault]:
    """Bad command lines."""
    for argv in drawn(bad_lines(), seed, n):
        yield shlex.join(argv)[:200], lambda argv=argv: refused(argv)


def config_faults(seed: int, n: int) -> Iterator[Fault]:
    """Bad settings from Python."""
    for name, value in drawn(bad_values(), seed, n):
        yield f"Config({name}={ascii(value)[:80]})", lambda name=name, value=value: refused_in_python(name, value)
