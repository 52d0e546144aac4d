"""The ladder: rungs with promises, and functions to climb them.

`exact`: the same run, faster (parameters equal bit for bit). `close`: the same up to rounding. `learning`: learning
itself changes, so the score is shown beside the speed.

    for place in path(recipes.baseline("pong"), full_climb(recipes.baseline("pong"))):
        print(place.name, place.why or place.climbed)
"""

from __future__ import annotations

from dataclasses import dataclass

from dqnitro.config import Config, nearest
from dqnitro.errors import ConfigError
from dqnitro.ladder.rung import Promise, Rung
from dqnitro.ladder.rungs import RUNGS
from dqnitro.requirements import needs_no_draws

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
    """A rung by name; an unknown name is a ConfigError with similar names."""
    if name not in RUNGS:
        raise ConfigError(f"unknown rung {name!r}", nearest(name, RUNGS, "rungs"))
    return RUNGS[name]


def _conflict(a: str, b: str) -> bool:
    return b in rung(a).replaces or a in rung(b).replaces


def in_force(names: tuple[str, ...]) -> tuple[str, ...]:
    """The rungs that remain when these are climbed in order: a later one replaces those that conflict with it."""
    out: list[str] = []
    for name in names:
        out = [n for n in out if n != name and not _conflict(n, name)]
        out.append(name)
    return tuple(out)


def climb(config: Config, names: tuple[str, ...]) -> Config:
    """Apply those of these rungs that are in force, in order."""
    for name in in_force(names):
        config = rung(name).apply(config)
    return config


def fitted(config: Config, names: tuple[str, ...] = ()) -> tuple[Config, tuple[str, ...], str | None]:
    """Replace a transform that does not support a setting of this config by the one that it names instead; leave out
    those whose passes cannot draw the random numbers that its network wants.

    Returns the config, the rungs, and what was replaced or left out and why (None if nothing was). Settings given one
    by one are applied after the rungs were chosen, so a rung can turn out not to fit.
    """
    from dqnitro.learn.transforms import first_unfit  # it imports torch

    if why := needs_no_draws(config):
        from dqnitro.learn.transforms import TRANSFORMS

        out = [n for n in config.wrappers if n in TRANSFORMS and TRANSFORMS[n].needs is needs_no_draws]
        if out:
            wrappers, names = (tuple(n for n in x if n not in out) for x in (config.wrappers, names))
            config, names, more = fitted(config.replace(wrappers=wrappers), names)
            told = f"leaving out {', '.join(out)}: {why.replace('its passes', 'passes there')}"
            return config, names, f"{told}; {more}" if more else told
    unfit = first_unfit(config)
    if unfit is None or not unfit[0].instead:
        return config, names, None
    transform, why = unfit
    wrappers, names = (
        tuple(transform.instead if n == transform.name else n for n in x) for x in (config.wrappers, names)
    )
    return config.replace(wrappers=wrappers), names, f"using {transform.instead} instead of {transform.name}: {why}"


@dataclass(frozen=True)
class Place:
    """One rung and its position in a climb."""

    name: str
    climbed: tuple[str, ...]  # the rungs in force, including this one
    config: Config  # with this rung, or without it if it cannot run
    why: str | None  # why it cannot run here, or None


def path(base: Config, names: tuple[str, ...]) -> tuple[Place, ...]:
    """The whole climb from `base`: what would run at every rung, or why it cannot.

    A rung that cannot run is skipped. A rung with `detour` is measured on top of those before it, then removed again.
    """
    places: list[Place] = []
    kept: tuple[str, ...] = ()
    for name in names:
        climbed = in_force((*kept, name))
        config = climb(base, climbed[:-1])  # without the rungs that it replaces
        why = rung(name).needs(config)
        if why is None and rung(name).apply(config) == config:
            why = "it would change nothing: the config already has these settings"
        config = climb(base, kept if why else climbed)
        places.append(Place(name, kept if why else climbed, config, why))
        if why is None and not rung(name).detour:
            kept = climbed
    return tuple(places)


def _runnable_first(base: Config, names: tuple[str, ...]) -> tuple[str, ...]:
    """The same order, but with the rungs that cannot run here at the end, so that they do not interrupt the table."""
    blocked = {p.name for p in path(base, names) if p.why}
    return (*(n for n in names if n not in blocked), *(n for n in names if n in blocked))


def default_climb(base: Config) -> tuple[str, ...]:
    """Every rung that leaves learning unchanged (`exact`, `close`)."""
    return _runnable_first(base, tuple(r.name for r in RUNGS.values() if r.promise != "learning"))


def full_climb(base: Config) -> tuple[str, ...]:
    """Every rung."""
    return _runnable_first(base, tuple(RUNGS))
