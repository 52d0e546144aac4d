"""The rungs: named functions Config -> Config, each with a promise that a test keeps.

`exact`: the same run, faster (parameters bit for bit equal). `close`: the same but for rounding. `learning`: learning itself
changes, so the score is shown beside the speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dqnitro.config import Config, nearest
from dqnitro.errors import ConfigError
from dqnitro.machine import cpu_flags, usable_cores

Promise = Literal["exact", "close", "learning"]


@dataclass(frozen=True)
class Rung:
    """One speed-up as a value."""

    name: str
    promise: Promise
    apply: Callable[[Config], Config]
    what: str  # two sentences at most
    hurts: str  # when it does not pay
    needs: Callable[[Config], str | None] = lambda _: None  # why it cannot run here, or None


def _with_wrapper(name: str) -> Callable[[Config], Config]:
    def apply(c: Config) -> Config:
        return c if name in c.wrappers else c.replace(wrappers=(*c.wrappers, name))

    return apply


def _without_wrapper(name: str) -> Callable[[Config], Config]:
    return lambda c: c.replace(wrappers=tuple(w for w in c.wrappers if w != name))


def _setting(**changes: object) -> Callable[[Config], Config]:
    return lambda c: c.replace(**changes)


def _is_atari(c: Config) -> bool:
    from dqnitro.envs import env_kind

    return env_kind(c.env_id) == "atari"


def _atari_only(c: Config) -> str | None:
    return None if _is_atari(c) else f"{c.env_id} is not an Atari game"


def _needs_console(c: Config) -> str | None:
    import importlib.util

    if importlib.util.find_spec("dqnitro.atari") is None:
        return "the native console is not part of this version"
    return _atari_only(c)


def _needs_images(c: Config) -> str | None:
    from dqnitro.envs import env_kind

    return "there is no convolution in the network of a vector environment" if env_kind(c.env_id) == "vector" else None


def _on_gpu(c: Config) -> bool:
    import torch

    return c.device.startswith("cuda") or (c.device == "auto" and torch.cuda.is_available())


def _needs_bfloat16(c: Config) -> str | None:
    if _on_gpu(c):
        return None
    if not cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"}:
        return "this CPU has no bfloat16 instructions; oneDNN would emulate them slowly"
    return None


def _needs_compiler(c: Config) -> str | None:
    import shutil

    if _on_gpu(c):
        return None
    if not any(shutil.which(name) for name in ("g++", "c++", "clang++")):
        return "torch.compile on a CPU needs a C++ compiler (g++ or clang++)"
    return None


def _processes(c: Config) -> Config:
    # Two vector steps: one to overlap acting with learning, one so that neither side waits for the other's uneven steps. At
    # least 8 steps, because with one environment updates come in bursts (one every steps_per_update).
    return c.replace(runner="processes", slack_steps=max(8, 2 * c.n_envs))


def _needs_two_cores(c: Config) -> str | None:
    return None if usable_cores() > 1 else "there is one core: play and training can only take turns"


RUNGS: dict[str, Rung] = {
    r.name: r
    for r in (
        Rung(
            "gradients-everywhere", "exact", _without_wrapper("no-grad"),
            "Builds a graph in the target and acting passes, too. The notes' warning, kept as a rung below the baseline.",
            "Always: it only costs time and memory.",
        ),
        Rung(
            "frame-replay", "exact", _setting(replay="frames"),
            "Keeps every frame once, as bytes, in rings that are allocated before the first step.",
            "Never; for observations that are not stacked it saves less.",
        ),
        Rung(
            "ale-vector", "exact", _setting(envs="ale"),
            "Plays in ale-py's C++ vector environment: emulation and resizing outside Python, on threads.",
            "With one environment there is little to run side by side.", _atari_only,
        ),
        Rung(
            "console", "exact", _setting(envs="console"),
            "Plays in the native console: the Atari 2600 compiled from Python, exact to ALE, on threads.",
            "Its first start compiles; later ones load from a cache.", _needs_console,
        ),
        Rung(
            "fused-adam", "close", _with_wrapper("fused-adam"),
            "One kernel updates all parameters at once.",
            "Networks so small that nothing matters.",
        ),
        Rung(
            "channels-last", "close", _with_wrapper("channels-last"),
            "Stores images with channels innermost, the order convolution kernels want.",
            "Tiny batches, where reordering the input costs what it saves.", _needs_images,
        ),
        Rung(
            "bfloat16", "close", _with_wrapper("bfloat16"),
            "Convolutions and matrix products in bfloat16; parameters and optimiser stay float32.",
            "CPUs without bfloat16 instructions.", _needs_bfloat16,
        ),
        Rung(
            "compile", "close", _with_wrapper("compile"),
            "torch.compile fuses the forward and backward pass into a few kernels.",
            "Short runs: compiling takes tens of seconds before the first step.", _needs_compiler,
        ),
        Rung(
            "eight-envs", "learning", _setting(n_envs=8),
            "Plays eight games side by side: one network pass chooses eight actions, and experience is more varied.",
            "More games than cores bring nothing once the environments are no longer the bottleneck.",
        ),
        Rung(
            "processes", "learning", _processes,
            "Plays in one process and learns in another, through shared memory; play runs a few steps ahead. Steps per update stay what they "
            "are; only the weights that choose actions are older, by exactly the slack (with slack 0 the run would be exact).",
            "Environments that are no work, or a learner that already uses every core.", _needs_two_cores,
        ),
        Rung(
            "four-steps-per-update", "learning", _setting(steps_per_update=4.0),
            "Learns once every four steps, as the Nature paper did. The learner is the bottleneck, so this is nearly four times the speed.",
            "Every step teaches less; too few updates and the score rises later although steps fly by.",
        ),
        Rung(
            "two-steps-per-update", "learning", _setting(steps_per_update=2.0),
            "Learns once every two steps. The notes found two the best compromise: nearly twice the steps a second.",
            "Every step teaches less.",
        ),
        Rung(
            "small-frame", "learning", _setting(screen_size=42),
            "Observes 42x42 pixels instead of 84x84: a quarter of the pixels to convolve, copy and store.",
            "Games with small objects: what is two pixels wide on the console is half a pixel here.", _needs_images,
        ),
        Rung(
            "small-network", "learning", _setting(network="small", hidden_units=256),
            "The network of the 2013 paper: two convolutions instead of three, a third of the arithmetic.",
            "Games that need to see more than Pong does.", _needs_images,
        ),
        Rung(
            "three-step", "learning", _setting(n_step=3),
            "Looks three rewards ahead before bootstrapping, so that a point scored reaches earlier decisions sooner.",
            "Very random rewards.",
        ),
        Rung(
            "double", "learning", _setting(double=True),
            "The online network picks the next action and the target network values it: less over-estimation.",
            "Costs one more forward pass.",
        ),
    )
}  # fmt: skip


def rung(name: str) -> Rung:
    """A rung by name; ConfigError with the names there are."""
    if name not in RUNGS:
        raise ConfigError(f"unknown rung {name!r}", nearest(name, RUNGS, "rungs"))
    return RUNGS[name]


def climb(config: Config, names: tuple[str, ...]) -> Config:
    """Apply rungs in order."""
    for name in names:
        config = rung(name).apply(config)
    return config
