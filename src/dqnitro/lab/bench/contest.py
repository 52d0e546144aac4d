"""A contest: contenders are built and take turns in rounds; the result is a table with a verdict for this machine.

A contender that cannot run here stays in the result with the reason. Every row names its reference: another row,
measured in the same rounds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dqnitro.errors import ConfigError
from dqnitro.lab.interleave import compare, interleave, timed_rate

Step = Callable[[], float]  # does some work and returns its amount
Rate = Callable[[float], float]  # works for about this many seconds and returns the amount per second


class CannotRun(Exception):
    """A contender cannot run here; the message says why."""


@dataclass(frozen=True)
class Options:
    """The options of every benchmark."""

    game: str = "pong"
    rounds: int = 5
    seconds: float = 0.5  # of one contender in one round
    only: tuple[str, ...] = ()  # contenders whose name contains one of these words; empty: all
    progress: Callable[[str], None] = lambda text: None


@dataclass
class Contest:
    """Collects contenders, then `run` measures them. Use it in a `with` statement,
    which closes what contenders opened.
    """

    options: Options
    title: str
    unit: str
    to: str  # in words, for the heading; each row names its own
    columns: dict[str, str] = field(default_factory=dict)  # further columns of the table: key -> heading
    skipped: dict[str, str] = field(default_factory=dict)
    closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _makers: dict[str, Callable[[], Rate]] = field(default_factory=dict)
    _versus: dict[str, str] = field(default_factory=dict)
    _extra: dict[str, dict[str, Any]] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.close()

    def add(self, name: str, make: Callable[[], Step], versus: str, warm_up: int = 2, **extra: Any) -> None:
        """A contender by its step. The first steps touch fresh memory, so some run before anything is timed."""

        def make_rate() -> Rate:
            step = make()
            for _ in range(warm_up):
                step()
            return lambda seconds: timed_rate(step, seconds)

        self.add_rate(name, make_rate, versus, **extra)

    def add_rate(self, name: str, make: Callable[[], Rate], versus: str, **extra: Any) -> None:
        """A contender that times itself; `run` builds it. References (`versus` is its own name) run whatever `only`
        says.
        """
        self._names.append(name)
        wanted = self.options.only
        if wanted and name != versus and not any(word.lower() in name.lower() for word in wanted):
            return
        self._makers[name], self._versus[name], self._extra[name] = make, versus, extra

    def _build(self) -> dict[str, Rate]:
        """What can run here; the rest is in `skipped` with the reason."""
        rates = {}
        for k, (name, make) in enumerate(self._makers.items()):
            self.options.progress(f"preparing {k + 1} of {len(self._makers)}: {name}")
            try:
                rates[name] = make()
            except CannotRun as e:
                self.skipped[name] = str(e)
            except ImportError as e:
                self.skipped[name] = f"not installed here ({e})"
        return rates

    def extra(self, name: str) -> dict[str, Any]:
        """The further columns of a row; a contender may fill them while it runs."""
        return self._extra[name]

    def run(self, verdict: Callable[[Mapping[str, dict[str, Any]]], str]) -> dict[str, Any]:
        """Measure all contenders in turns; the result lacks what the command adds (machine, date, ...)."""
        o = self.options
        for word in o.only:
            if not any(word.lower() in name.lower() for name in self._names):
                raise ConfigError(f"--only {word}: no contender has that name", f"contenders: {', '.join(self._names)}")
        contenders = self._build()
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for r, name, rate in interleave(contenders, o.rounds, o.seconds):
            rates[name].append(rate)
            o.progress(f"round {r + 1} of {o.rounds}: {name} {rate:,.0f} {self.unit}")
        table = {}
        for name in rates:
            versus = self._versus[name] if self._versus[name] in rates else name
            table[name] = compare(rates, versus)[name] | {"to": versus} | self._extra[name]
        said = verdict(table) if table else "Nothing could be measured here."
        if o.rounds < 3:
            said += f" ({o.rounds} round{'s' if o.rounds > 1 else ''}: too few to tell a difference from noise.)"
        return {
            "title": self.title, "unit": self.unit, "to": self.to, "rates": rates, "table": table,
            "columns": self.columns, "skipped": self.skipped, "verdict": said,
        }  # fmt: skip


def fastest(table: Mapping[str, dict[str, Any]], names: list[str] | None = None) -> str:
    """The name with the highest rate."""
    among = [n for n in table if names is None or n in names]
    return max(among, key=lambda n: table[n]["rate"])


def sure(row: Mapping[str, Any]) -> bool:
    """Does the interval of the ratio exclude 1? One round has no interval and is never sure."""
    return row.get("rounds", 2) > 1 and (row["low"] > 1.0 or row["high"] < 1.0)


def ratio_text(row: Mapping[str, Any]) -> str:
    """Two decimals where they matter: a ratio of thousands has none. One round has no interval."""
    digits = 2 if row["ratio"] < 20 else 1 if row["ratio"] < 100 else 0
    mean, low, high = (f"{v:,.{digits}f}" for v in (row["ratio"], row["low"], row["high"]))
    return f"{mean}x [{low}, {high}]" if row.get("rounds", 2) > 1 else f"{mean}x"


def say_ratio(row: Mapping[str, Any], to: str) -> str:
    """`1.42x [1.38, 1.45] the serial wrappers`, with a remark if it may be 1 (a single round is remarked on once)."""
    noise = row.get("rounds", 2) > 1 and not sure(row)
    return f"{ratio_text(row)} {to}" + (" (which may be noise)" if noise else "")


def gpu() -> str:
    """torch's name for the GPU; CannotRun with the reason if there is none."""
    import torch

    if not torch.cuda.is_available():
        raise CannotRun(f"this torch ({torch.__version__}) sees no CUDA device")
    return "cuda"
