"""Named whole configs. `auto` chooses for this machine and says why.

from dqnitro import recipes
config = recipes.auto("pong")
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dqnitro import tuned
from dqnitro.config import Config, nearest
from dqnitro.errors import ConfigError
from dqnitro.ladder import RUNGS, climb, in_force, rung

if TYPE_CHECKING:
    from dqnitro.envs.look import EnvLook

SEEN_SMALL = {"pong"}  # games known to be learned with fewer pixels and a smaller network (results/)
SMALL_RUNGS = ("small-frame", "small-network")
OTHER_RUNGS = ("eight-envs", "three-step")
# Settings of `auto` for those games on a CPU; they replace OTHER_RUNGS (results/pong-auto-2-cores.json).
SMALL_ON_CPU: dict[str, Any] = {"n_envs": 16, "n_step": 5, "replay_capacity": 50_000}
# Lapan's book calls Pong solved at this mean score; Gymnasium environments declare their own `spec.reward_threshold`.
SOLVED_AT = {"pong": 17.0}

# All settings of `auto` for Atari games on a machine with a GPU.
ON_GPU: dict[str, Any] = {
    "n_envs": 64,
    "batch_size": 256,
    "steps_per_update": 12.8,
    "n_step": 5,
    "double": True,
    "dueling": True,
    "loss": "huber",
    "learning_rate": 5e-4,
    "adam_epsilon": 1.5e-4,
    "target_sync_steps": 4_096,
    "first_fill_steps": 10_000,
    "replay_capacity": 100_000,
    "epsilon_decay_steps": 100_000,
    "epsilon_end": 0.01,
}
# ON_GPU was measured on Pong alone (results/pong-h200.json). With half its learning rate Name This Game stood still and
# fell, Battle Zone and Phoenix got worse after some minutes (results/atari5-auto-h200-trial.json). Other games have
# calmer settings: a lower rate, targets that stay longer, and a replay of all that is recent. With them Name This Game
# learns and nothing fell back in 4.8 minutes; Q*bert and Double Dunk learn more slowly
# (results/atari5-calm-h200-trial.json).
UNSEEN_ON_GPU: dict[str, Any] = {
    "learning_rate": 1e-4,
    "steps_per_update": 16.0,
    "n_step": 3,
    "target_sync_steps": 8_000,
    "first_fill_steps": 20_000,
    "replay_capacity": 1_000_000,
    "epsilon_decay_steps": 250_000,
}
SMALL_GPU_REPLAY = 400_000  # transitions on a GPU with less than LARGE_GPU_GIB: 2.8 GiB instead of 7
# In games other than Pong half a minute without a reward is idling: an agent that does not serve, or has found nothing.
IDLE_FRAMES = 1_800
# Overrides when the GPU also runs the emulator: emulating many environments costs no more than a few.
ON_DEVICE: dict[str, Any] = {"n_envs": 256}
# The DQN of 2015, for comparing scores: its replay ratio (8 samples per step) and the settings of Dopamine's published
# curve of DQN with Adam and the squared loss, in steps of four frames.
CLASSIC: dict[str, Any] = {
    "n_envs": 8,
    "batch_size": 32,
    "steps_per_update": 4.0,
    "loss": "mse",
    "learning_rate": 6.25e-5,
    "adam_epsilon": 1.5e-4,
    "target_sync_steps": 8_000,
    "first_fill_steps": 20_000,
    "replay_capacity": 1_000_000,
    "epsilon_decay_steps": 250_000,
    "epsilon_end": 0.01,
    "sticky_actions": 0.25,
    "noop_max": 0,
    "fire_reset": False,
}
CLASSIC_ON_GPU: dict[str, Any] = {"n_envs": 64}
# When the GPU also runs the emulator: it plays 16,384 consoles in little more time than 4,096, so the batch is 16 times
# as large. Exploration and target period count as many updates as published (results/breakout-200m-h200.json).
CLASSIC_ON_DEVICE: dict[str, Any] = {
    "n_envs": 16_384,
    "batch_size": 512,
    "steps_per_update": 64.0,
    "learning_rate": 2.5e-4,
    "target_sync_steps": 131_072,
    "first_fill_steps": 262_144,
    "replay_capacity": 2_097_152,
    "epsilon_decay_steps": 4_000_000,
}
LARGE_GPU_GIB = 32.0  # CLASSIC_ON_DEVICE keeps some 15 GiB of frames and consoles, and updates need room as well
CLASSIC_ON_SMALL_DEVICE: dict[str, Any] = {
    "n_envs": 1024,
    "batch_size": 128,
    "steps_per_update": 16.0,
    "learning_rate": 1.25e-4,
}
# The strongest agent: the settings of "Beyond The Rainbow" (Clark et al. 2024) with quantiles in place of its implicit
# ones, LayerNorm in place of spectral normalisation, and exploration that fits runs of minutes. 4 samples per step. Not
# tuned here yet.
STRONG: dict[str, Any] = {
    "n_envs": 64,
    "batch_size": 256,
    "steps_per_update": 64.0,
    "network": "impala",
    "impala_width": 2,
    "impala_norm": "layer",
    "quantiles": 64,
    "munchausen": True,
    "dueling": True,
    "prioritized": True,
    "priority_alpha": 0.2,
    "priority_beta": 0.2,
    "priority_beta_steps": 50_000_000,
    "n_step": 3,
    "gamma": 0.997,
    "learning_rate": 1e-4,
    "adam_epsilon": 2e-5,
    "grad_clip": 10.0,
    "target_sync_steps": 32_000,
    "first_fill_steps": 80_000,
    "replay_capacity": 1_000_000,
    "epsilon_decay_steps": 500_000,
    "epsilon_end": 0.01,
    "sticky_actions": 0.25,
}
STRONG_ON_DEVICE: dict[str, Any] = {"n_envs": 256}
STRONG_RUNGS = ("frame-replay", "console", "fused-adam", "channels-last", "bfloat16", "compile")
ON_GPU_RUNGS = ("frame-replay", "console", "fused-adam", "channels-last", "bfloat16", "compile", "own-kernels")
FEW_CORES_RUNGS = ("one-pass-adam", "side-by-side", "one-pass-acting")
LARGE_LAYER_RUNGS = ("split-network",)  # with few cores and the hidden layer of the Nature network
GPU_RUNNERS = ("device", "hybrid")
VECTOR_RUNGS = ("frame-replay", "fused-adam", "few-calls")  # for environments that are vectors or boards
MANY_CORES = 8  # with at least this many cores the CPU can keep up with the GPU learner, so use the hybrid runner


# Settings for environments that are not Atari: small networks, which learn in seconds, and rewards of any size.
NOT_ATARI: dict[str, Any] = {
    "clip_rewards": False,
    "hidden_units": 128,
    "learning_rate": 5e-4,
    "batch_size": 64,
    "target_sync_steps": 500,
    "double": True,
    "loss": "huber",
    "grad_clip": 10.0,
}
# What `auto` changes of these where observations are vectors: one pass acts for eight environments, and large batches
# keep an agent good once it is (LOG.md, CartPole and LunarLander).
VECTORS: dict[str, Any] = {
    "n_envs": 8,
    "batch_size": 128,
    "steps_per_update": 4.0,
    "n_step": 3,
    "learning_rate": 1e-3,
    "epsilon_end": 0.01,
}
# ... and what those with large images have of Atari's.
LARGE_IMAGES: dict[str, Any] = {
    "hidden_units": 512, "learning_rate": 1e-4, "batch_size": 32, "target_sync_steps": 1_000,
}  # fmt: skip


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
    """What `auto` changes of that where observations are vectors: a longer memory, and a target that is as old as a
    game is long.
    """
    length = min(max(look.length, 50), 5_000)
    return {
        "replay_capacity": min(max(200 * length, 20_000), 200_000),
        "target_sync_steps": min(max(length, 200), 1_000),
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
    wanted = (
        "frame-replay", "console", *(SMALL_RUNGS if small else OTHER_RUNGS), "four-steps-per-update", "double",
        "quick-rate", "fused-adam", "channels-last", "bfloat16", "distinct-patches", *FEW_CORES_RUNGS * few_cores(),
    )  # fmt: skip
    if atari_game(env_id) is None:
        return _plan_if_possible("auto", base, wanted)
    if not small:
        base = base.replace(idle_frames=IDLE_FRAMES)
    here = here or this_machine()
    runner, why = choose_runner(here)
    if runner == "inline":
        return replace(_plan_if_possible("auto", base.replace(**SMALL_ON_CPU) if small else base, wanted), why=why)
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
