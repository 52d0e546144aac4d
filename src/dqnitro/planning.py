"""From what was asked for (a game, a recipe, rungs, settings) to a whole config, for commands and Python."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.envs import atari_game, env_kind
from dqnitro.ladder import fitted
from dqnitro.learn import fixed_order, own_pieces
from dqnitro.requirements import check_runner

# About how long an update takes on a core, for planning with minutes. Small networks: results/cartpole-90s.json. The
# Nature network lies between 3 ms (results/pong-2-cores.json) and 25 ms (the textbook in results/ladder-2-cores.json).
UPDATE_S = {"vector": 0.001, "image": 0.01}


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
    budget = budget_steps(config)
    if wish.recipe == "auto" and atari_game(wish.env_id) is None:
        config = budgeted(config, wish.changes, budget)
    config, rungs, left_out = fixed_order.fitted(config, plan.climbed(without, also), also)
    config, rungs, why = fitted(config, rungs)
    config, rungs = own_pieces.fitted(config, rungs)
    fixed_order.check(config)
    check_runner(config)
    own_pieces.check_runner(config)
    return Planned(config, rungs, tuple(text for text in (left_out, why, never_learns(config, budget)) if text))


def budgeted(config: Config, given: Mapping[str, Any], budget: float) -> Config:
    """A run of `budget` steps fills its replay and explores in a part of them, unless the user says otherwise."""
    most = int(min(budget, 10**12))
    fitting = {
        "first_fill_steps": min(config.first_fill_steps, max(config.batch_size, most // 20)),
        "epsilon_decay_steps": min(config.epsilon_decay_steps, most // 2),
    }
    return config.replace(**{name: value for name, value in fitting.items() if name not in given})


def budget_steps(config: Config) -> float:
    """About how many steps a run may make; infinity without a limit."""
    steps = config.max_steps or math.inf
    if not config.max_minutes or atari_game(config.env_id) is not None:
        return steps
    from dqnitro.envs.look import step_seconds

    per_update = UPDATE_S["vector" if config.network == "board" else env_kind(config.env_id, config.images)]
    each = step_seconds(config.env_id) + per_update / config.steps_per_update
    return min(steps, 60.0 * config.max_minutes / each)


def never_learns(config: Config, budget: float) -> str | None:
    """What to tell a user whose run ends before its first update; None if it does not."""
    if budget > config.first_fill_steps:
        return None
    if config.max_steps and config.max_steps <= config.first_fill_steps:
        end = f"it ends after {config.max_steps:,} steps"
    else:
        end = f"{config.max_minutes:g} minutes are enough for about {int(budget):,} steps"
    return (
        f"this run will not learn: {end}, and the first update comes after {config.first_fill_steps:,} "
        "(first_fill_steps)"
    )
