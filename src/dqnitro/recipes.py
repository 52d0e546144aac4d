"""Named whole configs. `auto` chooses for this machine and says why.

from dqnitro import recipes
config = recipes.auto("pong")
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from dqnitro import tuned
from dqnitro.config import Config, nearest
from dqnitro.errors import ConfigError
from dqnitro.ladder import RUNGS, climb, in_force, rung

SEEN_SMALL = {"pong"}  # games that were learned with fewer pixels and a smaller network (results/)
SOLVED_AT = {"pong": 17.0}  # the notes' bar; Gymnasium ids bring their own in `spec.reward_threshold`


@dataclass(frozen=True)
class Plan:
    """A recipe before it is a config: where it starts, which rungs it climbs, and why."""

    name: str
    base: Config
    rungs: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)  # rung -> why it cannot run here
    tuned: str = ""  # what `dqnitro tune` found on this machine, in words; empty where it was not run
    under: tuple[
        str, ...
    ] = ()  # all that was wished for, in order: what a later rung took off is back without that one

    def config(self, without: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> Config:
        """The whole config; `without` and `also` change the list of rungs by name."""
        for name in (*without, *also):
            rung(name)
        for name in without:
            if name not in (*self.rungs, *self.under):
                raise ConfigError(
                    f"--without {name}: recipe {self.name} does not use it",
                    f"it uses {', '.join(self.rungs)}" if self.rungs else "it uses no rungs",
                )
        for name in also:
            if why := RUNGS[name].needs(self.base):
                raise ConfigError(f"--also {name}: {why}")
        return climb(self.base, self.climbed(without, also))

    def climbed(self, without: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The rungs in force: what `also` names takes off what cannot stand beside it."""
        return in_force(tuple(dict.fromkeys(n for n in (*(self.under or self.rungs), *also) if n not in without)))


def solved_at(env_id: str) -> float:
    """The score at which a game counts as solved; infinity where nobody said."""
    from dqnitro.envs import atari_game

    if game := atari_game(env_id):
        return SOLVED_AT.get(game, math.inf)
    from dqnitro.envs.generic import find_spec

    bar = find_spec(env_id).reward_threshold
    return math.inf if bar is None else float(bar)


def _base(env_id: str) -> Config:
    """The book's settings for images; a small quick start for vectors, on which they would take an hour."""
    from dqnitro.envs import atari_game, env_kind

    config = Config(env_id=atari_game(env_id) or env_id, stop_at_score=solved_at(env_id), replay="plain")
    if env_kind(env_id) == "vector":
        config = config.replace(
            clip_rewards=False, frame_stack=1, hidden_units=128, learning_rate=5e-4, batch_size=64, first_fill_steps=1_000,
            replay_capacity=50_000, epsilon_decay_steps=10_000, target_sync_steps=500, double=True, loss="huber", grad_clip=10.0,
        )  # fmt: skip
    return config


def _baseline(env_id: str) -> Plan:
    return Plan("baseline", _base(env_id))


def _plan_if_possible(name: str, base: Config, wanted: tuple[str, ...]) -> Plan:
    left_out = {n: why for n in wanted if (why := RUNGS[n].needs(base))}
    possible = tuple(n for n in wanted if n not in left_out)
    return Plan(name, base, in_force(possible), left_out, under=possible)


def _fast(env_id: str) -> Plan:
    """The baseline's run, but for rounding, as fast as one process gets it."""
    wanted = (
        "frame-replay", "console", "fused-adam", "channels-last", "bfloat16", "written-out", "distinct-patches", "one-pass-adam",
        "side-by-side",
    )  # fmt: skip
    return _plan_if_possible("fast", _base(env_id).replace(device="auto"), wanted)


def _auto(env_id: str) -> Plan:
    """What reaches the score soonest on this machine."""
    from dqnitro.envs import atari_game, env_kind

    base = _base(env_id).replace(device="auto")
    if env_kind(env_id) == "vector":
        # The network is so small that a pass costs less than handing it to a GPU or a compiler.
        return _plan_if_possible("auto", base.replace(device="cpu", torch_threads=1), ("frame-replay", "fused-adam"))
    small = ("small-frame", "small-network") if atari_game(env_id) in SEEN_SMALL else ()
    wanted = (
        "frame-replay", "console", "eight-envs", "four-steps-per-update", *small, "three-step", "double", "quick-rate",
        "fused-adam", "channels-last", "bfloat16", "distinct-patches", "one-pass-adam",
    )  # fmt: skip
    return _plan_if_possible("auto", base, wanted)


RECIPES = {"auto": _auto, "fast": _fast, "baseline": _baseline}


def plan(name: str, env_id: str) -> Plan:
    """The plan of a recipe for a game, with what `dqnitro tune` found on this machine."""
    made = untuned(name, env_id)
    found = tuned.find(name, env_id)
    if found is None:
        return made
    try:
        base = made.base.replace(**found.settings)
    except ConfigError:  # a file of another version: the recipe as it is can still run
        return made
    learning = tuple(n for n in made.rungs if RUNGS[n].promise == "learning")
    best = _plan_if_possible(name, base, (*found.rungs, *learning))
    left_out = {n: why for n, why in made.left_out.items() if n not in best.rungs} | found.dropped | best.left_out
    stale = "" if found.torch == _torch_version() else f"; measured with torch {found.torch}, run it again"
    return replace(best, left_out=left_out, tuned=f"{found.gain} ({found.date[:10]}{stale})")


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def untuned(name: str, env_id: str) -> Plan:
    """The plan of a recipe as it is before anybody tunes it."""
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe {name!r}", nearest(name, RECIPES, "recipes"))
    return RECIPES[name](env_id)


def auto(env_id: str) -> Config:
    """The fastest way to a good score on this machine."""
    return plan("auto", env_id).config()


def fast(env_id: str) -> Config:
    """The textbook DQN with every speed-up that leaves learning as it is."""
    return plan("fast", env_id).config()


def baseline(env_id: str) -> Config:
    """The textbook DQN."""
    return plan("baseline", env_id).config()
