"""Named whole configs. `auto` chooses for this machine and says why.

from dqnitro import recipes
config = recipes.auto("pong")
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dqnitro.config import Config, nearest
from dqnitro.errors import ConfigError
from dqnitro.ladder import RUNGS, climb, in_force, rung
from dqnitro.recipes import tuned
from dqnitro.recipes.settings import (
    CLASSIC,
    CLASSIC_ON_DEVICE,
    CLASSIC_ON_GPU,
    CLASSIC_ON_SMALL_DEVICE,
    FEW_CORES_RUNGS,
    GPU_RUNNERS,
    IDLE_FRAMES,
    LARGE_GPU_GIB,
    LARGE_IMAGES,
    LARGE_LAYER_RUNGS,
    MANY_CORES,
    NOT_ATARI,
    ON_DEVICE,
    ON_GPU,
    ON_GPU_RUNGS,
    OTHER_RUNGS,
    SEEN_SMALL,
    SMALL_GPU_REPLAY,
    SMALL_ON_CPU,
    SMALL_RUNGS,
    SOLVED_AT,
    STRONG,
    STRONG_ON_DEVICE,
    STRONG_RUNGS,
    UNSEEN_ON_CPU,
    UNSEEN_ON_GPU,
    VECTOR_RUNGS,
    VECTORS,
)

if TYPE_CHECKING:
    from dqnitro.envs.look import EnvLook


@dataclass(frozen=True)
class Here:
    """The properties of a machine that decide which runner `auto` chooses."""

    cores: int
    gpu: str | None = None  # name of the GPU
    no_console: str | None = None  # why the console cannot run on that GPU, or None if it can
    gpu_gib: float = math.inf  # its memory
    runner: str | None = None  # one of GPU_RUNNERS that the user asks for


def this_machine() -> Here:
    import torch

    from dqnitro.common.host import usable_cores
    from dqnitro.requirements import needs_cuda_console

    if not torch.cuda.is_available():
        return Here(usable_cores())
    gpu = torch.cuda.get_device_properties(0)
    return Here(usable_cores(), gpu.name, needs_cuda_console(Config()), gpu.total_memory / 2**30)


@dataclass(frozen=True)
class Plan:
    """A recipe before it becomes a config: its base config, its rungs, and the reasons for them."""

    name: str
    base: Config
    rungs: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)  # rung -> why it cannot run here
    tuned: str = ""  # what `dqnitro tune` found on this machine, in words; empty if it was not run
    why: str = ""  # why this runner, in words
    # All rungs that can run, in order, with those that a later rung replaces: without that one they come back.
    under: tuple[str, ...] = ()

    def config(self, without: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> Config:
        """The whole config, without the rungs in `without` and with those in `also`."""
        for name in (*without, *also):
            rung(name)
        for name in without:
            if name not in (*self.rungs, *self.climbed(tuple(n for n in without if n != name))):
                raise ConfigError(
                    f"--without {name}: recipe {self.name} does not use it",
                    f"it uses {', '.join(self.rungs)}" if self.rungs else "it uses no rungs",
                )
        for name in also:
            if why := RUNGS[name].needs(self.base):
                raise ConfigError(f"--also {name}: {why}")
        return climb(self.base, self.climbed(without, also))

    def climbed(self, without: tuple[str, ...] = (), also: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The rungs in force. Rungs named in `also` replace those that they conflict with."""
        named = tuple(dict.fromkeys(also))
        wanted = (*(n for n in self.under or self.rungs if n not in named), *named)
        return in_force(tuple(n for n in wanted if n not in without))


def solved_at(env_id: str) -> float:
    """The score at which a game counts as solved; infinity if none is known."""
    from dqnitro.envs import atari_game

    if game := atari_game(env_id):
        return SOLVED_AT.get(game, math.inf)
    from dqnitro.envs.generic import find_spec

    bar = find_spec(env_id).reward_threshold
    return math.inf if bar is None else float(bar)


def _base(env_id: str) -> Config:
    """Lapan's settings for Atari games. For others, with which they would take an hour, smaller and faster ones."""
    from dqnitro.envs import atari_game, env_look

    game = atari_game(env_id)
    config = Config(env_id=game or env_id, stop_at_score=solved_at(env_id), replay="plain")
    if game is not None:
        return config
    look = env_look(env_id)
    config = config.replace(images="full", **NOT_ATARI, **paced(look))
    if look.kind == "vector":
        return config.replace(frame_stack=1)
    config = config.replace(frame_stack=4 if look.single else 1)
    return config.replace(network="board") if look.small else config.replace(**LARGE_IMAGES)


def paced(look: EnvLook) -> dict[str, Any]:
    """First fill, exploration and replay of an environment that is not Atari, from the length of its games."""
    length = min(max(look.length, 50), 5_000)
    times = 1 if look.kind == "vector" or look.small else 3  # a network for large images has more to find out
    return {
        "first_fill_steps": min(max(2 * length, 500), 3_000) * times,
        "epsilon_decay_steps": min(max(20 * length, 2_000), 30_000) * times,
        "replay_capacity": min(max(100 * length, 20_000), 100_000),
    }


def paced_vectors(look: EnvLook) -> dict[str, Any]:
    """What `auto` changes of that where observations are vectors: exploration for long enough that an agent often comes
    to the end of its games, then a rate that falls, and a target that is as old as a game is long.

    The replay forgets exploration soon: three-step returns hold its random actions, so an agent of LunarLander that
    remembers them believes that landing fails, and hovers. With 20,000 steps agents of CartPole forget how games end.
    """
    length = min(max(look.length, 50), 5_000)
    return {
        "replay_capacity": min(max(100 * length, 10_000), 50_000),
        "target_sync_steps": min(max(length, 200), 1_000),
        "epsilon_decay_steps": min(max(30 * length, 3_000), 50_000),
        "learning_rate_decay_steps": min(max(200 * length, 40_000), 400_000),
    }


def own_settings(plan: Plan) -> dict[str, Any]:
    """The settings of a recipe that differ from the baseline, not counting those of its rungs."""
    mine, book = plan.base.to_dict(), _base(plan.base.env_id).to_dict()
    return {k: v for k, v in mine.items() if v != book[k] and k not in ("device", "runner")}


def _baseline(env_id: str) -> Plan:
    return Plan("baseline", _base(env_id))


def _plan_if_possible(name: str, base: Config, wanted: tuple[str, ...]) -> Plan:
    left_out = {n: why for n in wanted if (why := RUNGS[n].needs(base))}
    possible = tuple(n for n in wanted if n not in left_out)
    return Plan(name, base, in_force(possible), left_out, under=possible)


def _quick() -> tuple[str, ...]:
    """Rungs that leave learning unchanged and pay off in one process."""
    return (
        "frame-replay", "console", "fused-adam", "channels-last", "bfloat16", "written-out", "distinct-patches",
        *(*FEW_CORES_RUNGS, *LARGE_LAYER_RUNGS) * few_cores(),
    )  # fmt: skip


def _fast(env_id: str) -> Plan:
    """The baseline's run up to rounding, as fast as one process can make it."""
    return _plan_if_possible("fast", _base(env_id).replace(device="auto"), _quick())


def classic_plan(env_id: str, here: Here | None = None) -> Plan:
    """DQN as published, with 8 samples per step, as fast as this machine (or the described one) allows."""
    from dqnitro.envs import env_kind

    if env_kind(env_id) != "atari":
        raise ConfigError(f"recipe classic is for Atari games; {env_id} is not one", "use --recipe baseline")
    base = _base(env_id).replace(device="auto", **CLASSIC)
    here = here or this_machine()
    runner, why = choose_runner(here)
    if runner == "inline":
        return replace(_plan_if_possible("classic", base, _quick()), why=why)
    more = CLASSIC_ON_GPU
    if runner == "device":
        more = CLASSIC_ON_DEVICE if here.gpu_gib >= LARGE_GPU_GIB else CLASSIC_ON_SMALL_DEVICE
    base = base.replace(device="cuda", runner=runner, **more)
    return replace(_plan_if_possible("classic", base, ON_GPU_RUNGS), why=why)


def _strong(env_id: str, here: Here | None = None) -> Plan:
    """The strongest agent that this package has, whatever it costs per step."""
    from dqnitro.envs import env_kind

    if env_kind(env_id) != "atari":
        raise ConfigError(f"recipe strong is for Atari games; {env_id} is not one", "use --recipe auto")
    base = _base(env_id).replace(device="auto", replay="frames", **STRONG)
    runner, why = choose_runner(here or this_machine())
    if runner != "inline":
        base = base.replace(device="cuda", runner=runner, **STRONG_ON_DEVICE if runner == "device" else {})
    return replace(_plan_if_possible("strong", base, STRONG_RUNGS), why=why)


def few_cores() -> bool:
    """Whether threads that share every product of a batch of 32 would wait for each other more than they help."""
    from dqnitro.common.host import usable_cores

    return 2 <= usable_cores() < 4  # measured with two


def choose_runner(here: Here) -> tuple[str, str]:
    """The runner that `auto` uses for Atari games on such a machine, and why."""
    if here.gpu is None:
        return "inline", "there is no GPU that torch can use, so one process plays and learns"
    if here.runner in GPU_RUNNERS:
        return here.runner, f"runner {here.runner} was asked for"
    cores = f"{here.cores} core{'s' if here.cores > 1 else ''}"
    if here.cores >= MANY_CORES:
        return "hybrid", f"{cores} play {ON_GPU['n_envs']} consoles while the {here.gpu} learns"
    if here.no_console is None:
        return "device", f"{cores} cannot keep the {here.gpu} busy, so it runs the games as well"
    return "inline", f"{cores} cannot keep the {here.gpu} busy, and it cannot run the games: {here.no_console}"


def _auto(env_id: str, here: Here | None = None) -> Plan:
    """The fastest way to a good score on this machine (or on the described one)."""
    from dqnitro.envs import atari_game, env_kind, env_look

    base = _base(env_id).replace(device="auto")
    if atari_game(env_id) is None and (base.network == "board" or env_kind(env_id) == "vector"):
        # The network is so small that a pass costs less than launching it on a GPU or compiling it.
        base = base.replace(device="cpu", torch_threads=1)
        if base.network != "board":
            base = base.replace(**VECTORS, **paced_vectors(env_look(env_id)))
        plan = _plan_if_possible("auto", base, VECTOR_RUNGS)
        return replace(
            plan, why="a pass of such a small network costs less than sending it to a GPU or to another process"
        )
    small = atari_game(env_id) in SEEN_SMALL
    unseen_atari = atari_game(env_id) is not None and not small
    few = (*FEW_CORES_RUNGS, *LARGE_LAYER_RUNGS * (not small)) if few_cores() else ()
    wanted = (
        "frame-replay", "console", *(SMALL_RUNGS if small else OTHER_RUNGS), "four-steps-per-update",
        *(() if unseen_atari else ("double",)),
        "quick-rate", "fused-adam", "channels-last", "bfloat16", "distinct-patches", *few,
    )  # fmt: skip
    if atari_game(env_id) is None:
        return _plan_if_possible("auto", base, wanted)
    if not small:
        base = base.replace(idle_frames=IDLE_FRAMES)
    here = here or this_machine()
    runner, why = choose_runner(here)
    if runner == "inline":
        base = base.replace(**SMALL_ON_CPU if small else UNSEEN_ON_CPU)
        return replace(_plan_if_possible("auto", base, wanted), why=why)
    unseen = {} if atari_game(env_id) == "pong" else UNSEEN_ON_GPU
    if unseen and here.gpu_gib < LARGE_GPU_GIB:
        unseen = unseen | {"replay_capacity": SMALL_GPU_REPLAY}
    base = base.replace(device="cuda", runner=runner, **ON_GPU | unseen | (ON_DEVICE if runner == "device" else {}))
    return replace(_plan_if_possible("auto", base, ON_GPU_RUNGS), why=why)


RECIPES: dict[str, Callable[[str], Plan]] = {
    "auto": _auto,
    "fast": _fast,
    "baseline": _baseline,
    "classic": classic_plan,
    "strong": _strong,
}


def plan(name: str, env_id: str, device: str | None = None, runner: str | None = None) -> Plan:
    """The plan of a recipe for a game, with what `dqnitro tune` found on this machine.

    `device` overrides where learning runs, `runner` who plays where. With `cpu` on a machine with a GPU, the recipes
    that look at the machine (`auto`, `classic`, `strong`) plan as if there were no GPU. With the runner `device` or
    `hybrid` they take the settings of that runner. In both cases what `tune` found is ignored: it was measured with
    the GPU and the runner that they would choose.
    """
    for_machine = {"auto": _auto, "classic": classic_plan, "strong": _strong}
    if name in for_machine and (device == "cpu" or runner in GPU_RUNNERS) and (here := this_machine()).gpu is not None:
        if device == "cpu":
            return for_machine[name](env_id, replace(here, gpu=None))
        if runner != choose_runner(here)[0]:
            return for_machine[name](env_id, replace(here, runner=runner))
    made = untuned(name, env_id)
    found = tuned.find(name, env_id)
    if found is None:
        return made
    try:
        base = made.base.replace(**found.settings)
    except ConfigError:  # written by another version: ignore it, the recipe itself can still run
        return made
    learning = tuple(n for n in made.rungs if RUNGS[n].promise == "learning")
    best = _plan_if_possible(name, base, (*found.rungs, *learning))
    left_out = {n: why for n, why in made.left_out.items() if n not in best.rungs} | found.dropped | best.left_out
    stale = "" if found.torch == _torch_version() else f"; measured with torch {found.torch}, run it again"
    why = made.why
    if why and base.runner != made.base.runner:
        why = f"measured by `dqnitro tune` (before: {why})"
    return replace(best, left_out=left_out, tuned=f"{found.gain} ({found.date[:10]}{stale})", why=why)


def _torch_version() -> str:
    import torch

    return str(torch.__version__)


def untuned(name: str, env_id: str) -> Plan:
    """The plan of a recipe, without what `dqnitro tune` found."""
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe {name!r}", nearest(name, RECIPES, "recipes"))
    return RECIPES[name](env_id)


def auto(env_id: str) -> Config:
    """The fastest way to a good score on this machine."""
    return plan("auto", env_id).config()


def fast(env_id: str) -> Config:
    """The textbook DQN with every speed-up that leaves learning unchanged."""
    return plan("fast", env_id).config()


def classic(env_id: str) -> Config:
    """The DQN of 2015 with 8 samples per step and the settings of published curves."""
    return plan("classic", env_id).config()


def baseline(env_id: str) -> Config:
    """The textbook DQN."""
    return plan("baseline", env_id).config()
