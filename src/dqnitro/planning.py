"""From what was asked for (a game, a recipe, rungs, settings) to a whole config, for commands and Python."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqnitro import recipes
from dqnitro.config import MOST_PLAYERS, Config
from dqnitro.envs import atari_game, env_kind
from dqnitro.ladder import fitted
from dqnitro.learn import fixed_order, own_pieces, transforms
from dqnitro.recipes.players import ENVS_EACH, chunk_for
from dqnitro.requirements import check_runner

# About how long an update takes on a core, for planning with minutes. Small networks: results/cartpole-90s.json. The
# Nature network lies between 3 ms (results/pong-2-cores.json) and 25 ms (the textbook in results/ladder-2-cores.json).
UPDATE_S = {"vector": 0.001, "image": 0.01}

SAME_RATE = {"learning_rate_end": 0.0, "learning_rate_decay_steps": 0}
FEW_STEPS = 20_000  # with a budget of no more of them, a vector environment gets an update for every step


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
    changes = with_own_rate(with_own_head(for_ranks(wish)))
    plan = recipes.plan(wish.recipe, wish.env_id, changes.get("device"), changes.get("runner"))
    config = plan.config(without, also)
    chooses = wish.recipe == "auto" and atari_game(wish.env_id) is None
    fill = small_fill(config, changes) if chooses else {}
    shared = for_players(config, changes) if wish.recipe == "auto" else {}
    config = config.replace(**{**fill, **shared, **divisible(config, changes)})
    budget = budget_steps(config)
    if chooses:
        config = budgeted(config, wish.changes, budget)
    config, climbed = transforms.fit_for_ranks(config, plan.climbed(without, also), also)
    config, rungs, left_out = fixed_order.fitted(config, climbed, also)
    config, rungs, why = fitted(config, rungs)
    config, rungs = own_pieces.fitted(config, rungs)
    fixed_order.check(config)
    check_runner(config)
    own_pieces.check_runner(config)
    return Planned(config, rungs, tuple(text for text in (left_out, why, never_learns(config, budget)) if text))


def for_ranks(wish: Wish) -> Mapping[str, Any]:
    """The changes of a wish; with several GPUs and no runner given, that which keeps everything on them if it can."""
    if wish.changes.get("gpus", 1) == 1 or "runner" in wish.changes:
        return wish.changes
    from dqnitro.requirements import needs_cuda_console

    config = Config(env_id=atari_game(wish.env_id) or wish.env_id)
    on_cpu = wish.changes.get("device") == "cpu"
    device = on_cpu or (atari_game(wish.env_id) is not None and needs_cuda_console(config) is None)
    return {**wish.changes, "runner": "device" if device else "hybrid"}


def with_own_head(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where the user asks for a head or a target, what the recipe has in its place makes way."""
    out: dict[str, Any] = {}
    if changes.get("double") or changes.get("categorical"):
        out["munchausen"] = False
    if changes.get("categorical") or changes.get("implicit_quantiles"):
        out["quantiles"] = 0
    return {**out, **changes}


def with_own_rate(changes: Mapping[str, Any], varied: Collection[str] = ()) -> Mapping[str, Any]:
    """Where the user gives the learning rate or an optimiser, or varies it, the rate does not fall unless that is given
    as well.
    """
    given = {*changes, *varied}
    if given & {"learning_rate", "optimizer"} and not given & SAME_RATE.keys():
        return {**SAME_RATE, **changes}
    return changes


def divisible(config: Config, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """With a recipe's own environments and batch rounded up to what several GPUs can share."""
    gpus = changes.get("gpus", 1)
    sizes = {name: getattr(config, name) for name in ("n_envs", "batch_size")}
    return {name: -(-n // gpus) * gpus for name, n in sizes.items()} | dict(changes) if gpus > 1 else changes


def for_players(config: Config, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """What `auto` chooses for players on a cluster: environments that can be divided among them, chunks that are long
    enough for what Ray costs, and a slack of one chunk, so that playing and learning overlap.
    """
    if changes.get("runner") != "cluster":
        return {}
    from dqnitro.run.build import resolve_device

    most = min(MOST_PLAYERS, max(1, changes.get("players", 1), changes.get("most_players", 0)))
    n_envs = changes.get("n_envs", most * max(-(-config.n_envs // most), ENVS_EACH))
    config = config.replace(**{**changes, "n_envs": n_envs, "slack_steps": 0})
    chunk = changes.get("chunk_vector_steps") or chunk_for(config, resolve_device(config.device) == "cpu")
    return {"n_envs": n_envs, "chunk_vector_steps": chunk, "slack_steps": n_envs * chunk}


def budgeted(config: Config, given: Mapping[str, Any], budget: float) -> Config:
    """A run of `budget` steps fills its replay and explores in a part of them, unless the user says otherwise. With few
    steps it learns more from each, where an update is cheap.
    """
    most = int(min(budget, 10**12))
    fitting: dict[str, Any] = {
        "first_fill_steps": min(config.first_fill_steps, max(config.batch_size, most // 20)),
        "epsilon_decay_steps": min(config.epsilon_decay_steps, most // 2),
        "learning_rate_decay_steps": min(config.learning_rate_decay_steps, max(1, most)),
    }
    if env_kind(config.env_id, config.images) == "vector":
        fitting["steps_per_update"] = min(config.steps_per_update, max(1.0, most / FEW_STEPS))
    return config.replace(**{name: value for name, value in fitting.items() if name not in given})


def small_fill(config: Config, given: Mapping[str, Any]) -> dict[str, Any]:
    """A batch that fits into the first fill that the user asks for."""
    fill = given.get("first_fill_steps")
    if "batch_size" in given or not isinstance(fill, int) or not 0 < fill < config.batch_size:
        return {}
    return {"batch_size": fill}


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
