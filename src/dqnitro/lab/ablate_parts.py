"""A measurement whose rounds are shared out over machines, so that it can go on: parts that are whole stay.

STATE/ablate.json   the words of the command, the number of parts, and the rounds of each
      part-1.json   what one machine has measured, beside the log of its process
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from dqnitro.common.files import write_json
from dqnitro.errors import ConfigError
from dqnitro.lab.race import FEWEST_ROUNDS
from dqnitro.lab.store import load

FILE = "ablate.json"


class Parts(NamedTuple):
    """How a measurement is shared out."""

    words: tuple[str, ...]  # of its command, except where it runs and where its result goes
    number: int
    rounds: int  # of each part

    def paths(self, state: pathlib.Path) -> list[pathlib.Path]:
        return [(state / f"part-{i + 1}.json").resolve() for i in range(self.number)]


def begin(state: pathlib.Path, words: Sequence[str], machines: int, rounds: int, named: bool = True) -> Parts:
    """As it was shared out the first time, if that was with the same words. With others it is measured again from the
    beginning, and so is a measurement that is complete, if its folder is not `named` but the usual one.
    """
    before = _begun(state / FILE)
    if before is not None and before.words == tuple(words) and (named or missing(before.paths(state))):
        return before
    number = max(1, min(machines, rounds // FEWEST_ROUNDS))
    new = Parts(tuple(words), number, -(-rounds // number))
    state.mkdir(parents=True, exist_ok=True)
    for path in new.paths(state):
        path.unlink(missing_ok=True)
    write_json(state / FILE, new._asdict())
    return new


def _begun(path: pathlib.Path) -> Parts | None:
    try:
        data = json.loads(path.read_bytes())
        return Parts(tuple(str(word) for word in data["words"]), int(data["number"]), int(data["rounds"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def missing(paths: Sequence[pathlib.Path]) -> list[int]:
    """Which parts are to be measured; those that were cut short are."""
    return [i for i, path in enumerate(paths) if not _is_whole(path)]


def _is_whole(path: pathlib.Path) -> bool:
    try:
        return not load(path).get("interrupted")
    except ConfigError:
        return False
