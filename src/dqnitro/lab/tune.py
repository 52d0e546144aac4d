"""`dqnitro tune`: finds the fastest variant of a recipe on this machine that keeps learning unchanged.

First every change (a `Knob`) is measured alone against the recipe as it is. Then the changes that were faster beyond
doubt are combined and measured again: the best of many is partly luck, so only the second measurement decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dqnitro import recipes
from dqnitro.common.host import usable_cores
from dqnitro.common.intervals import Interval, rate_interval, ratio_interval
from dqnitro.config import Config
from dqnitro.envs.turns import count_groups
from dqnitro.errors import ConfigError, UserError
from dqnitro.lab.race import Budget, Race, facts_of
from dqnitro.lab.store import header
from dqnitro.ladder import RUNGS, climb, in_force
from dqnitro.learn.transforms import chosen
from dqnitro.recipes import tuned
from dqnitro.requirements import runner_needs

START = "as it is"
TOGETHER = "together"
# The first only costs time; the second saves three quarters of the memory, whatever its speed.
NEVER = ("gradients-everywhere", "frame-replay")
FEWEST_ROUNDS = 4  # with fewer, an interval is too wide to decide anything
BUDGET = Budget(minutes=10.0, rounds=8)
# Between `close` and `learning`: the same updates are owed at the same steps, but the random numbers come from the GPU.
ALIKE = "alike"
FEWEST_ON_GPU = 64  # environments; with fewer a GPU emulates many times slower than a core, after a minute of compiling


@dataclass(frozen=True)
class Knob:
    """One change of the recipe."""

    knob: str
    value: str
    promise: str
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.knob}: {self.value}"


@dataclass(frozen=True)
class Choice:
    """A recipe before it becomes a config: what stays fixed, and what may be chosen."""

    base: Config
    learning: tuple[str, ...]
    rungs: tuple[str, ...]
    settings: dict[str, Any]

    def config(self) -> Config:
        return climb(self.base.replace(**self.settings), (*self.rungs, *self.learning))

    def turn(self, knob: Knob) -> Choice:
        """With one change applied. Rungs stay in the order of the ladder."""
        kept = in_force((*(n for n in self.rungs if n not in knob.drop), *knob.add))
        rungs = tuple(n for n in RUNGS if n in kept)
        return Choice(self.base, self.learning, rungs, self.settings | knob.settings)


def choice_of(recipe: str, game: str, changes: dict[str, Any]) -> Choice:
    """The recipe without any earlier tuning."""
    plan = recipes.untuned(recipe, game)
    learning = tuple(n for n in plan.rungs if RUNGS[n].promise == "learning")
    speed = tuple(n for n in plan.rungs if RUNGS[n].promise != "learning")
    return Choice(plan.base.replace(**changes), learning, speed, {})


def knobs_of(choice: Choice) -> tuple[list[Knob], dict[str, str]]:
    """Every change that this machine allows, those that build quickly first, and why others are impossible."""
    config, rungs, why_not = choice.config(), [], {}
    for name, rung in RUNGS.items():
        if rung.promise == "learning" or name in NEVER:
            continue
        if name in choice.rungs:
            rungs.append(Knob("rung", f"without {name}", rung.promise, drop=(name,)))
        elif why := rung.needs(config):
            why_not[f"rung: with {name}"] = why
        elif choice.turn(Knob("rung", "", "", add=(name,))).config() != config:
            rungs.append(Knob("rung", f"with {name}", rung.promise, add=(name,)))
    runners, no_runner = _runner_knobs(config)
    return [*_thread_knobs(config), *rungs, *runners, *_learning_knobs(config)], why_not | no_runner


def _thread_knobs(config: Config) -> list[Knob]:
    """Threads of torch and of the console."""
    import torch

    cores, now = usable_cores(), config.torch_threads or torch.get_num_threads()
    out = [Knob("torch threads", str(n), "close", settings={"torch_threads": n}) for n in _counts(cores) if n != now]
    if config.envs in ("ale", "console") and config.n_envs > 1:
        most = min(cores, config.n_envs)
        out += [Knob("console threads", str(n), "exact", settings={"env_threads": n}) for n in _counts(most)]
    return out


def _runner_knobs(config: Config) -> tuple[list[Knob], dict[str, str]]:
    """Other runners: processes with slack 0 (bit for bit the same run) and those of a GPU; one group of environments
    for hybrid.
    """
    if config.act_device != "same":
        return [], {}
    out, why_not = [], {}
    if config.runner == "hybrid" and count_groups(config) > 1:
        out.append(Knob("environment groups", "1", ALIKE, settings={"env_parts": 1}))
    if config.runner == "inline" and usable_cores() > 1:
        out.append(Knob("runner", "processes, slack 0", "exact", settings={"runner": "processes", "slack_steps": 0}))
    for runner in ("inline", "hybrid", "device"):
        why = runner_needs(runner, config)
        if why is None and runner == "device" and config.n_envs < FEWEST_ON_GPU:
            why = f"{config.n_envs} environments are too few to emulate on a GPU; it takes {FEWEST_ON_GPU} or more"
        if why:
            why_not[f"runner: {runner}"] = why
        elif runner != config.runner and (runner != "inline" or config.runner != "processes"):
            # own-kernels reads the GPU ring, which inline does not have; compile is the next best there.
            swap = runner == "inline" and any(t.reads_ring for t in chosen(config.wrappers))
            drop, add = (("own-kernels",), ("compile",)) if swap else ((), ())
            out.append(Knob("runner", runner, ALIKE, settings={"runner": runner}, drop=drop, add=add))
    return out, why_not


def _counts(most: int) -> list[int]:
    """1, 2, 4, ... and all."""
    return sorted({*(2**k for k in range(10) if 2**k <= most), most})


def _learning_knobs(config: Config) -> list[Knob]:
    """Measured for comparison, never chosen: they change what is learned."""
    more: list[tuple[str, str, dict[str, Any]]] = [
        ("environments", str(2 * config.n_envs), {"n_envs": 2 * config.n_envs}),
        ("steps per update", f"{2 * config.steps_per_update:g}", {"steps_per_update": 2 * config.steps_per_update}),
        ("batch", str(2 * config.batch_size), {"batch_size": 2 * config.batch_size}),
    ]
    return [Knob(knob, value, "learning", settings=settings) for knob, value, settings in more]


def _config(choice: Choice, knob: Knob) -> Config:
    if knob.promise == "learning":  # applied last, over rungs that set the same field
        return choice.config().replace(**knob.settings)
    return choice.turn(knob).config()


def measure_knobs(race: Race, choice: Choice, knobs: Sequence[Knob], budget: Budget) -> list[dict[str, Any]]:
    """One row per change, compared with the recipe as it is."""
    race.expected = 1 + len(knobs)
    if race.build(START, choice.config()) is None:
        raise ConfigError(f"the recipe cannot run: {race.skipped[START]}")
    for knob in knobs:
        try:
            race.build(knob.name, _config(choice, knob))
        except UserError as e:
            race.skipped[knob.name] = str(e)
    race.run(budget.rounds, budget.seconds, fewest=FEWEST_ROUNDS)
    if START not in race.rates:
        raise ConfigError(f"the recipe cannot run: {race.skipped[START]}")
    return [_evidence(race, knob) for knob in knobs]


def _evidence(race: Race, knob: Knob) -> dict[str, Any]:
    row = {"knob": knob.knob, "value": knob.value, "promise": knob.promise, "chosen": False, "fps": None, "ratio": None}
    if knob.name not in race.racers:
        return row | {"state": "skipped", "why": race.skipped[knob.name]}
    rates = race.rates[knob.name]
    ratio = ratio_interval(rates, race.rates[START])
    return row | {"state": "measured", "why": None, "fps": rate_interval(rates), "ratio": ratio}


def is_faster(ratio: Interval | None) -> bool:
    """Beyond doubt: the whole interval is above 1, over enough rounds."""
    return ratio is not None and ratio.n >= FEWEST_ROUNDS and ratio.low > 1.0


def winners(rows: Sequence[dict[str, Any]], knobs: Sequence[Knob]) -> list[Knob]:
    """Changes that keep learning unchanged and are faster beyond doubt; only the fastest value of each setting."""
    good = [(k, r) for k, r in zip(knobs, rows, strict=True) if k.promise != "learning" and is_faster(r["ratio"])]
    good.sort(key=lambda kr: -kr[1]["ratio"].mean)
    taken: list[Knob] = []
    for knob, _ in good:
        mine = set(knob.settings)
        clash = any(mine & set(t.settings) for t in taken) or any(_conflict(knob, t) for t in taken)
        if not clash:
            taken.append(knob)
    return taken


def _conflict(a: Knob, b: Knob) -> bool:
    """Do two rungs exclude each other? Then the one that was faster alone is kept."""
    return bool(a.add and b.add) and len(in_force((*a.add, *b.add))) < len(a.add) + len(b.add)


def confirm(race: Race, choice: Choice, taken: Sequence[Knob], budget: Budget) -> tuple[list[Knob], Interval | None]:
    """Measure the winners together, and the best of them alone; keep the better if it is still faster, or nothing."""
    if not taken:
        return [], None
    options: dict[str, list[Knob]] = {TOGETHER: list(taken)}
    if len(taken) > 1:
        options[taken[0].name] = [taken[0]]
    race.expected = 1 + len(options)
    race.build(START, choice.config())
    for name, knobs in options.items():
        all_turned = choice
        for knob in knobs:
            all_turned = all_turned.turn(knob)
        race.build(name, all_turned.config())
    if START in race.racers:
        race.run(budget.rounds, budget.seconds, fewest=FEWEST_ROUNDS)
    if START not in race.rates:
        return [], None
    ratios = {n: ratio_interval(race.rates[n], race.rates[START]) for n in options if n in race.racers}
    best = max(ratios, key=lambda n: ratios[n].mean, default=None)
    if best is None or not is_faster(ratios[best]):
        return [], ratios.get(TOGETHER)
    return options[best], ratios[best]


def tune_recipe(
    game: str, recipe: str, budget: Budget, changes: dict[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """One recipe: the choice, the evidence, and the gain."""
    choice = choice_of(recipe, game, changes)
    knobs, why_not = knobs_of(choice)
    if recipe not in tuned.ALIKE_FOR:
        knobs = [k for k in knobs if k.promise != ALIKE]
    with Race(0.0, say) as race:  # the first start on a machine compiles for minutes: do it before the clock runs
        race.build(START, choice.config())
        load = race.load
    with Race(budget.minutes * 0.7, say) as race:
        race.load = load  # later the load is our own
        rows = measure_knobs(race, choice, knobs, budget)
        notes, start = facts_of(race), rate_interval(race.rates[START])
        interrupted, turn_s, done = race.interrupted, race.seconds, race.rounds
    kept: list[Knob] = []
    gain = None
    taken = winners(rows, knobs)
    if taken and not interrupted:
        say(f"measuring together: {', '.join(k.name for k in taken)}")
        with Race(budget.minutes * 0.3, say) as race:
            kept, gain = confirm(race, choice, taken, budget)
            interrupted = race.interrupted
    for row, knob in zip(rows, knobs, strict=True):
        row["recipe"], row["chosen"] = recipe, knob in kept
    final = choice
    for knob in kept:
        final = final.turn(knob)
    unchanged = {
        "recipe": recipe, "knob": START, "value": "", "promise": "", "state": "measured", "why": None, "fps": start,
        "ratio": None, "chosen": not kept,
    }  # fmt: skip
    evidence = [unchanged, *rows]
    evidence += [_blocked(recipe, name, why) for name, why in why_not.items()]
    return {
        "recipe": recipe, "chosen": final.settings, "rungs": list(final.rungs), "gain": gain if kept else None,
        "turned": [k.name for k in kept], "dropped": _dropped(choice, final, rows, knobs), "evidence": evidence,
        "rounds": done, "seconds": turn_s, "notes": notes, "interrupted": interrupted,
    }  # fmt: skip


def _blocked(recipe: str, name: str, why: str) -> dict[str, Any]:
    knob, value = name.split(": ", 1)
    promise = ALIKE if knob == "runner" else RUNGS[value.removeprefix("with ")].promise
    return {"recipe": recipe, "knob": knob, "value": value, "promise": promise,
            "state": "skipped", "why": why, "fps": None, "ratio": None, "chosen": False}  # fmt: skip


def _dropped(before: Choice, after: Choice, rows: Sequence[dict[str, Any]], knobs: Sequence[Knob]) -> dict[str, str]:
    """Rungs of the recipe that are no longer used here, with the figure that says why."""
    out = {}
    for name in before.rungs:
        if name not in after.rungs:
            row = next((r for r, k in zip(rows, knobs, strict=True) if name in k.drop and r["ratio"]), None)
            out[name] = (
                f"`dqnitro tune`: {row['ratio'].mean:.2f}x as fast without it" if row else "`dqnitro tune`: replaced"
            )
    return out


def tune(
    game: str, names: Sequence[str] = tuned.RECIPES, *, budget: Budget = BUDGET, changes: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None, write: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Tune recipes one after the other and store the choice; returns the result in the format of lab/store.py."""
    import torch

    for name in names:
        if name not in tuned.RECIPES:
            raise ConfigError(f"recipe {name!r} cannot be tuned", f"these can: {', '.join(tuned.RECIPES)}")
    found: list[dict[str, Any]] = []
    each = replace(budget, minutes=budget.minutes / len(names))
    for name in names:
        say(f"recipe {name}")
        found.append(tune_recipe(game, name, each, changes or {}, say))
        if found[-1]["interrupted"]:
            break
    first = found[0]
    result = header("tune", game, rounds=first["rounds"], seconds=first["seconds"], minutes=budget.minutes)
    result |= {"chosen": first["chosen"], "rungs": first["rungs"], "notes": first["notes"]}
    result["evidence"] = [row for f in found for row in f["evidence"]]
    result["recipes"] = {
        f["recipe"]: {k: f[k] for k in ("chosen", "rungs", "gain", "turned", "dropped")} for f in found
    }
    result["interrupted"] = found[-1]["interrupted"]
    if write and not result["interrupted"]:
        for f in found:
            entry = {
                "rungs": f["rungs"], "settings": f["chosen"], "dropped": f["dropped"], "date": result["date"],
                "torch": str(torch.__version__), "gain": gain_text(f["gain"]), "evidence": f["evidence"],
                "machine": result["machine"], "versions": result["versions"], "commit": result["commit"],
            }  # fmt: skip
            result["file"] = str(tuned.remember(f["recipe"], game, entry))
    return result


def gain_text(gain: Interval | None) -> str:
    if gain is None:
        return "no change beats the recipe as it is"
    return f"{gain.mean:.2f}x [{gain.low:.2f}, {gain.high:.2f}] the speed of the recipe as it is"
