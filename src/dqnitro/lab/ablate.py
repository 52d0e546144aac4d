"""`dqnitro ablate`: a recipe without one rung at a time; `ablate cost`: the baseline without one piece of work at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dqnitro import ladder
from dqnitro.common.intervals import rate_interval, ratio_interval
from dqnitro.config import Config
from dqnitro.envs.turns import groups_of
from dqnitro.errors import ConfigError, UserError
from dqnitro.lab.race import BUDGET, Budget, Change, Race, facts_of
from dqnitro.lab.store import header
from dqnitro.lab.where import lab_plan, where

WHOLE = "whole"


def _run(race: Race, budget: Budget) -> None:
    if WHOLE not in race.racers:
        raise ConfigError(f"the whole recipe cannot run: {race.skipped.get(WHOLE, 'unknown')}")
    race.run(budget.rounds, budget.seconds)
    if WHOLE not in race.rates:
        raise ConfigError(f"the whole recipe cannot run: {race.skipped[WHOLE]}")
    if not race.rounds:
        raise ConfigError("no round was completed", "give more --minutes")


def ablate(
    game: str, recipe: str = "fast", *, budget: Budget = BUDGET, changes: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """The recipe and the recipe without each of its rungs, taking turns."""
    plan = lab_plan(recipe, game, changes)
    if not plan.rungs:
        raise ConfigError(
            f"recipe {recipe} uses no rungs for {game}, so there is none to leave out", "try fast or auto"
        )
    with Race(budget.minutes, say) as race:
        race.expected = 1 + len(plan.rungs)
        race.build(WHOLE, plan.config().replace(**(changes or {})))
        for name in plan.rungs:
            try:
                race.build(name, plan.config(without=(name,)).replace(**(changes or {})))
            except UserError as e:
                race.skipped[name] = str(e)
        _run(race, budget)
        rows: list[dict[str, Any]] = [_row(race, WHOLE) | {"without": None, "promise": None}]
        rows += [_row(race, n) | {"without": n, "promise": ladder.RUNGS[n].promise} for n in plan.rungs]
        for name, why in plan.left_out.items():  # not part of the recipe on this machine
            rows.append({"without": name, "promise": ladder.RUNGS[name].promise, "state": "skipped", "why": why})
        result = header(
            "ablate", plan.base.env_id, rounds=race.rounds, seconds=race.seconds, minutes=budget.minutes, recipe=recipe
        )
        return result | {
            "rows": rows,
            "notes": facts_of(race) | {"where": where(changes, plan.config()).text},
            "interrupted": race.interrupted,
        }


def _row(race: Race, name: str) -> dict[str, Any]:
    if name not in race.racers:
        return {"state": "skipped", "why": race.skipped[name]}
    rates, racer = race.rates[name], race.racers[name]
    return {
        "state": "measured", "why": None, "fps": rate_interval(rates), "rates": rates, **racer.facts(),
        "ratio": ratio_interval(rates, race.rates[WHOLE]),
    }  # fmt: skip


# --- `ablate cost`: the question "where does the CPU time go?" of the notes


def no_sampling(agent: Any) -> None:
    """Learn from the same batch again and again."""
    draw, kept = agent.replay.sample, []

    def sample(batch_size: int, rng: np.random.Generator, beta: float) -> Any:
        if not kept:
            kept.append(draw(batch_size, rng, beta))
        return kept[0]

    agent.replay.sample = sample


def no_optimiser(agent: Any) -> None:
    """Loss and gradients, but the parameters never change."""
    agent.learner.optimizer.step = lambda: None
    agent.learner.optimizer.step_early = lambda: None  # only some optimisers have it


def no_loss(agent: Any) -> None:
    """Sample, but do nothing with the batch: no forward pass, no backward pass, no optimiser."""
    update, kept = agent.learner.update, []
    agent.learner.acts_in_pass = False  # otherwise its passes would still run, for the actions

    def skip(batch: Any) -> Any:
        if not kept:
            kept.append(update(batch))
        return kept[0]

    agent.learner.update = skip


def no_reshape(agent: Any) -> None:
    """Every second pixel, cropped, instead of an area average: the same shape, hardly any work."""
    from dqnitro.envs.wrappers import Warp

    (group,) = groups_of(agent.envs)  # the backend `wrappers` is never split into groups
    for env in group.engine.envs:
        while not isinstance(env, Warp):
            env = env.env
        setattr(env, "observation", _cut(env.size))  # noqa: B010 - a method is replaced on purpose


def _cut(size: int) -> Callable[[np.ndarray], np.ndarray]:
    def observation(screen: np.ndarray) -> np.ndarray:
        out = np.zeros((size, size), np.uint8)
        small = screen[::2, ::2][:size, :size]
        out[: small.shape[0], : small.shape[1]] = small
        return out

    return observation


def cost_variants(config: Config) -> dict[str, tuple[Config, Change | None, str]]:
    """Name of the work left out -> config, change of the agent, and a remark."""
    out: dict[str, tuple[Config, Change | None, str]] = {
        "sampling": (config, no_sampling, "the same batch every time"),
        "optimiser": (config, no_optimiser, "gradients, but no Adam step"),
        "loss": (config, no_loss, "no forward pass, backward pass or Adam step: nothing is learned"),
    }
    if config.episodic_life:
        out["episodic life"] = (config.replace(episodic_life=False), None, "losing a life does not end an episode")
    if config.clip_rewards:
        out["clipping"] = (config.replace(clip_rewards=False), None, "rewards as the game gives them")
    if config.episodic_life and config.clip_rewards:
        both = config.replace(episodic_life=False, clip_rewards=False)
        out["episodic life and clipping"] = (both, None, "both left out, as in the notes")
    return out


def cost_config(game: str, recipe: str, changes: dict[str, Any]) -> tuple[Config, str | None]:
    """The config to take apart, and why resizing cannot be left out (or None)."""
    from dqnitro.envs import env_kind

    config = lab_plan(recipe, game, changes).config()
    if env_kind(game) != "atari":
        return config.replace(clip_rewards=True).replace(**changes), f"{game} is not an Atari game: nothing is resized"
    # Off in the book's settings, on in the notes: it has to be on to be left out.
    config = config.replace(episodic_life=True).replace(**changes)
    return (
        config,
        None if config.envs == "wrappers" else f"--envs {config.envs} resizes the screen in compiled code",
    )


def cost(
    game: str, recipe: str = "baseline", *, budget: Budget = BUDGET, changes: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """The recipe without sampling, without the optimiser, ...: how much of a step's time each piece takes."""
    config, no_reshape_why = cost_config(game, recipe, changes or {})
    variants = cost_variants(config)
    with Race(budget.minutes, say) as race:
        race.expected = 1 + len(variants) + (no_reshape_why is None)
        race.build(WHOLE, config)
        for name, (changed, change, _) in variants.items():
            race.build(name, changed, change)
        notes = {name: note for name, (_, _, note) in variants.items()}
        notes["reshape"] = "every second pixel, cropped, instead of an area average"
        if no_reshape_why:
            race.skipped["reshape"] = no_reshape_why
        else:
            race.build("reshape", config, no_reshape)
        _run(race, budget)
        rows: list[dict[str, Any]] = [_row(race, WHOLE) | {"without": None, "note": f"the whole recipe {recipe}"}]
        rows += [_cost_row(race, name, notes[name]) for name in notes]
        result = header(
            "cost", config.env_id, rounds=race.rounds, seconds=race.seconds, minutes=budget.minutes, recipe=recipe
        )
        return result | {
            "rows": rows,
            "notes": facts_of(race) | {"where": where(changes, config).text},
            "interrupted": race.interrupted,
        }


def _cost_row(race: Race, name: str, note: str) -> dict[str, Any]:
    row: dict[str, Any] = _row(race, name) | {"without": name, "note": note}
    if row["state"] == "measured":
        # Of a step's time: what is left out takes 1 - (time without it) / (time with it).
        row["saves_share"] = 1.0 - 1.0 / row["ratio"].mean
    return row


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result out of those of several machines. A ratio is of two rates of the same round, hence of one machine; so
    rounds of many machines can stand together, and rates alone mean little.
    """
    first = parts[0]
    kept = {r["without"]: [_named(p["rows"], r["without"]) for p in parts] for r in first["rows"]}
    whole = [rate for row in kept[None] for rate in row["rates"]]
    rows = []
    for rows_of_one in kept.values():
        bad = [r for r in rows_of_one if r is None or r["state"] != "measured"]
        if bad:
            why = bad[0]["why"] if bad[0] else "not on all nodes"
            rows.append({**rows_of_one[0], "state": "skipped", "why": why})
            continue
        rates = [rate for r in rows_of_one for rate in r["rates"]]
        row = {**rows_of_one[0], "rates": rates, "fps": rate_interval(rates), "ratio": ratio_interval(rates, whole)}
        if "saves_share" in row:
            row["saves_share"] = 1.0 - 1.0 / row["ratio"].mean
        rows.append(row)
    names = ("game", "minutes", "recipe")
    result = header(first["what"], rounds=len(whole), seconds=first["seconds"], **{n: first[n] for n in names})
    notes = first["notes"] | {"machines": [p["machine"] for p in parts]}
    return result | {
        "rows": rows,
        "notes": notes,
        "interrupted": next(filter(None, (p["interrupted"] for p in parts)), None),
    }


def _named(rows: Sequence[dict[str, Any]], without: str | None) -> Any:
    return next((r for r in rows if r["without"] == without), None)


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Where the time goes, in one sentence."""
    shown = [r for r in rows if r["without"] and r["state"] == "measured" and r["ratio"].low > 1.0]
    if not shown:
        return "nothing that was left out made a difference beyond noise"
    shown.sort(key=lambda r: -r["saves_share"])
    parts = [f"{r['without']} {r['saves_share']:.0%}" for r in shown]
    return f"share of a step's time: {', '.join(parts)} (saved by leaving it out; the rest is within the noise)"
