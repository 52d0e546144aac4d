"""From what was asked for (a game, a recipe, rungs, settings) to a whole config, for commands and Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.envs import env_kind
from dqnitro.ladder import fitted
from dqnitro.learn import own_pieces
from dqnitro.requirements import UNORDERED, check_runner, on_gpu


@dataclass(frozen=True)
class Wish:
    """What the user asks for; everything else comes from the recipe."""

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
    plan = recipes.plan(wish.recipe, wish.env_id, wish.changes.get("device"), wish.changes.get("runner"))
    config = plan.config(without, also).replace(**wish.changes)
    if wish.recipe == "auto" and env_kind(wish.env_id) == "vector":
        config = budgeted(config, wish.changes)
    config, rungs, left_out = ordered(config, plan.climbed(without, also), also)
    config, rungs, why = fitted(config, rungs)
    config, rungs = own_pieces.fitted(config, rungs)
    check_runner(config)
    own_pieces.check_runner(config)
    return Planned(config, rungs, tuple(text for text in (left_out, why, never_learns(config)) if text))


def ordered(
    config: Config, rungs: tuple[str, ...], asked: Sequence[str] = ()
) -> tuple[Config, tuple[str, ...], str | None]:
    """Leave out the rungs of a recipe that cannot be deterministic on a GPU, where that is asked for.

    Those that were asked for by name stay, and are refused (`check_deterministic`).
    """
    out = {u.name for u in UNORDERED} & set(config.wrappers) - set(asked) if config.deterministic else set()
    if not out or not on_gpu(config):
        return config, rungs, None
    kept = tuple(name for name in config.wrappers if name not in out)
    text = f"deterministic: without {' and '.join(sorted(out))}, which repeat only up to rounding on a GPU"
    return config.replace(wrappers=kept), tuple(name for name in rungs if name not in out), text


def budgeted(config: Config, given: Mapping[str, Any]) -> Config:
    """A run of few steps fills its replay and explores in a part of them, unless the user says otherwise."""
    if not config.max_steps:
        return config
    changes: dict[str, int] = {}
    if "first_fill_steps" not in given:
        changes["first_fill_steps"] = min(config.first_fill_steps, max(config.batch_size, config.max_steps // 20))
    if "epsilon_decay_steps" not in given:
        changes["epsilon_decay_steps"] = min(config.epsilon_decay_steps, config.max_steps // 2)
    return config.replace(**changes)


def never_learns(config: Config) -> str | None:
    """What to tell a user whose run ends before its first update; None if it does not."""
    if not config.max_steps or config.max_steps > config.first_fill_steps:
        return None
    return (
        f"this run will not learn: it ends after {config.max_steps:,} steps, and the first update comes after "
        f"{config.first_fill_steps:,} (first_fill_steps)"
    )
