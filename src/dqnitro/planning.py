"""From what was asked for (a game, a recipe, rungs, settings) to a whole config, for commands and Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.ladder import fitted
from dqnitro.requirements import check_runner


@dataclass(frozen=True)
class Wish:
    """What somebody asks for: everything else comes from the recipe."""

    env_id: str
    recipe: str = "auto"
    without: Sequence[str] = ()
    also: Sequence[str] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)  # settings by their names in Config


@dataclass(frozen=True)
class Planned:
    """A config that can run here, the rungs that it climbed, and what the user should know before it starts."""

    config: Config
    rungs: tuple[str, ...]
    notes: tuple[str, ...] = ()


def planned(wish: Wish) -> Planned:
    """The config that was asked for; ConfigError if it cannot run here."""
    without, also = tuple(wish.without), tuple(wish.also)
    plan = recipes.plan(wish.recipe, wish.env_id, wish.changes.get("device"))
    config = plan.config(without, also).replace(**wish.changes)
    config, rungs, why = fitted(config, plan.climbed(without, also))
    check_runner(config)
    return Planned(config, rungs, (why,) if why else ())
