"""What others published about Atari games, with sources: numbers to compare with, never mixed without their protocol.

`reference.json` has the scores of random play and of a human tester; `dopamine.json` and `cleanba.json` have scores of
agents. `docs/make_published.py` writes them from copies of the repositories that they name.
"""

from __future__ import annotations

import functools
import itertools
import json
import pathlib
from dataclasses import dataclass
from typing import Any

FOLDER = pathlib.Path(__file__).parent
FAMILIES = ("dopamine", "cleanba")
RULES = {
    "sticky_actions": "sticky actions", "lives_told": "lives told", "noop_max": "no-op starts",
    "fire_reset": "FIRE at the start",
}  # fmt: skip


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Agent:
    """One published agent."""

    name: str
    family: str  # who published it
    source: dict[str, str]  # repository, path, commit
    protocol: dict[str, Any]
    scores: dict[int, dict[str, list[float]]]  # by million frames, by game: a value per seed, or the mean alone
    curve_millions: list[int]
    curves: dict[str, list[float]]  # by game, mean over seeds
    minutes: dict[str, float]  # by game, where they were published

    def at(self, millions: float, game: str) -> float | None:
        """The mean over seeds at the published point nearest to this many million frames (None: more than half as many
        again, or fewer than two thirds).
        """
        near = min(self.scores, key=lambda m: abs(m - millions))
        found = self.scores[near].get(game) if 2 / 3 <= millions / near <= 1.5 else None
        return sum(found) / len(found) if found else None

    def on_curve(self, millions: float, game: str) -> float | None:
        """The mean over seeds at this many million frames, between the points of the thinned curve."""
        values = self.curves.get(game)
        if not values or not self.curve_millions[0] <= millions <= self.curve_millions[len(values) - 1]:
            return None
        points = list(zip(self.curve_millions, values, strict=False))
        for (m0, v0), (m1, v1) in itertools.pairwise(points):
            if m0 <= millions <= m1:
                return v0 + (v1 - v0) * (millions - m0) / (m1 - m0)
        return values[-1]

    def last(self, game: str) -> float | None:
        """The mean over seeds at its end."""
        found = self.scores[max(self.scores)].get(game)
        return sum(found) / len(found) if found else None


@functools.cache
def agents() -> dict[str, Agent]:
    """All of them, by name."""
    out = {}
    for family in FAMILIES:
        data = _read(family)
        for name, a in data["agents"].items():
            scores = {
                int(m): {game: v if isinstance(v, list) else [v] for game, v in games.items()}
                for m, games in a["scores"].items()
            }
            out[name] = Agent(
                name, data["family"], a["source"], data["protocol"], scores, data.get("curve_millions", []),
                a.get("curves", {}), a.get("minutes", {}),
            )  # fmt: skip
    return out


def games() -> list[str]:
    """The 57 games of the literature."""
    return list(_read("reference")["games"])


def reference_source() -> dict[str, str]:
    return _read("reference")["source"]


def human_normalized(game: str, score: float) -> float | None:
    """0 for random play, 1 for a human tester; None for a game without such figures."""
    known = _read("reference")["games"].get(game)
    return None if known is None else (score - known["random"]) / (known["human"] - known["random"])


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """The rules in which two protocols differ, in words; a start with at most one no-op counts as one without."""

    def plain(rules: dict[str, Any], key: str) -> Any:
        return bool(rules.get(key, 0) > 1) if key == "noop_max" else rules.get(key)

    told = []
    for key, words in RULES.items():
        a, b = plain(ours, key), plain(theirs, key)
        if a != b:
            told.append(f"{words}: {_said(b)} there, {_said(a)} here")
    return told


def _said(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value:g}"
