"""The ladder: rungs with promises, and how one climbs them.

`exact`: the same run, faster (parameters bit for bit equal). `close`: the same but for rounding. `learning`: learning itself
changes, so the score is shown beside the speed.

    for place in path(recipes.baseline("pong"), full_climb(recipes.baseline("pong"))):
        print(place.name, place.why or place.climbed)
"""

from __future__ import annotations

from dataclasses import dataclass

from dqnitro.config import Config, nearest
from dqnitro.errors import ConfigError
from dqnitro.ladder.rung import Promise, Rung
from dqnitro.ladder.rungs import RUNGS
from dqnitro.requirements import own_kernels_need

__all__ = [
    "RUNGS",
    "Place",
    "Promise",
    "Rung",
    "climb",
    "default_climb",
    "fitted",
    "full_climb",
    "in_force",
    "path",
    "rung",
]


def rung(name: str) -> Rung:
    """A rung by name; ConfigError with the names there are."""
    if name not in RUNGS:
        raise ConfigError(f"unknown rung {name!r}", nearest(name, RUNGS, "rungs"))
    return RUNGS[name]


def _conflict(a: str, b: str) -> bool:
    return b in rung(a).replaces or a in rung(b).replaces


def in_force(names: tuple[str, ...]) -> tuple[str, ...]:
    """What stays of these rungs, climbed in this order: a later one takes off those that cannot stand beside it."""
    out: list[str] = []
    for name in names:
        out = [n for n in out if n != name and not _conflict(n, name)]
        out.append(name)
    return tuple(out)


def climb(config: Config, names: tuple[str, ...]) -> Config:
    """Apply what is in force of these rungs, in order."""
    for name in in_force(names):
        config = rung(name).apply(config)
    return config


def fitted(config: Config, names: tuple[str, ...] = ()) -> tuple[Config, tuple[str, ...], str | None]:
    """The config, its rungs, and why `own-kernels` is not among them, if a setting is none that it was written for.

    Rungs are chosen before settings are changed one by one. `compile` is what it has replaced.
    """
    why = own_kernels_need(config) if "own-kernels" in config.wrappers else None
    if why is None:
        return config, names, None
    wrappers, names = (tuple("compile" if n == "own-kernels" else n for n in x) for x in (config.wrappers, names))
    return config.replace(wrappers=wrappers), names, why


@dataclass(frozen=True)
class Place:
    """One rung at its place in a climb."""

    name: str
    climbed: tuple[str, ...]  # what is in force there, this rung with it
    config: Config  # where `why` is given: the config before it
    why: str | None  # why it cannot run here, or None


def path(base: Config, names: tuple[str, ...]) -> tuple[Place, ...]:
    """The whole climb from `base`: what would run at every rung, or why it cannot.

    A rung that cannot run is passed over. One that stands aside is measured on top of what was climbed before it and is not
    there any more for the next one.
    """
    places: list[Place] = []
    kept: tuple[str, ...] = ()
    for name in names:
        climbed = in_force((*kept, name))
        config = climb(base, climbed[:-1])  # without what it takes off
        why = rung(name).needs(config)
        if why is None and rung(name).apply(config) == config:
            why = "it would change nothing: the settings below it are already so"
        config = climb(base, kept if why else climbed)
        places.append(Place(name, kept if why else climbed, config, why))
        if why is None and not rung(name).aside:
            kept = climbed
    return tuple(places)


def _runnable_first(base: Config, names: tuple[str, ...]) -> tuple[str, ...]:
    """The order of the climb, with what cannot run here at the end: a table without holes, and nothing left out."""
    blocked = {p.name for p in path(base, names) if p.why}
    return (*(n for n in names if n not in blocked), *(n for n in names if n in blocked))


def default_climb(base: Config) -> tuple[str, ...]:
    """Every rung that leaves learning as it is (`exact`, `close`)."""
    return _runnable_first(base, tuple(r.name for r in RUNGS.values() if r.promise != "learning"))


def full_climb(base: Config) -> tuple[str, ...]:
    """Every rung there is."""
    return _runnable_first(base, tuple(RUNGS))
