"""What a config needs of the machine. Each function returns the reason why it cannot run here, or None if it can."""

from __future__ import annotations

from collections.abc import Callable

from dqnitro import own
from dqnitro.common.host import cpu_flags, usable_cores
from dqnitro.config import Config
from dqnitro.errors import ConfigError

MOST_TOGETHER = 8  # updates whose samples the GPU runners draw at once
MOST_ATOMS = 128  # or quantiles for each action: the square of that in one program of `own-kernels`
MOST_IN_A_PASS = 160_000  # observations, with 12,800 activations each


def first_reason(*needs: Callable[[Config], str | None]) -> Callable[[Config], str | None]:
    return lambda c: next((why for need in needs if (why := need(c))), None)


def atari_only(c: Config) -> str | None:
    from dqnitro.envs import env_kind

    return None if env_kind(c.env_id) == "atari" else f"{c.env_id} is not an Atari game"


def needs_console(c: Config) -> str | None:
    import importlib.util

    if importlib.util.find_spec("dqnitro.atari") is None:
        return "this version does not include the console"
    return atari_only(c)


def cannot_play(c: Config) -> str | None:
    """Why this machine cannot play the environments of a config: a ROM or a compiler that is missing."""
    from dqnitro.envs import env_kind

    try:
        if env_kind(c.env_id, c.images) != "atari":
            return None
    except ConfigError:  # an environment of the user's own, which a player registers itself
        return None
    try:
        from ale_py import roms

        path = roms.get_rom_path(c.env_id)
        if path is None or not path.is_file():
            return f"the ROM of {c.env_id} is missing"
        if c.envs == "console":
            import numba  # noqa: F401 - it compiles the console
    except FileNotFoundError:  # some versions of ale-py look for it themselves
        return f"the ROM of {c.env_id} is missing"
    except Exception as e:
        return f"{c.env_id} cannot be played ({type(e).__name__}: {e})"
    return None


def needs_images(c: Config) -> str | None:
    from dqnitro.envs import env_kind

    if env_kind(c.env_id, c.images) == "vector":
        return "there is no convolution in the network of a vector environment"
    return None


def needs_grey_frames(c: Config) -> str | None:
    """Square grey frames, as Atari's: what the GPU's replay and the kernels of our own hold."""
    from dqnitro.envs import env_kind

    if c.images == "full" and env_kind(c.env_id, c.images) == "image":
        return f"it takes square grey images only, and {c.env_id} has images full; inline and processes take all"
    return None


def needs_two_cores(c: Config) -> str | None:
    return None if usable_cores() > 1 else "there is only one core, so acting and learning cannot overlap"


def needs_posix(c: Config) -> str | None:
    """Signals that can be blocked and pipes that pass files on: Linux and macOS have them, Windows does not."""
    import os
    import signal

    has = hasattr(signal, "pthread_sigmask") and hasattr(os, "register_at_fork")
    return None if has else "its processes need signals and pipes of Linux or macOS"


def on_gpu(c: Config) -> bool:
    import torch

    return c.device.startswith("cuda") or (c.device == "auto" and torch.cuda.is_available())


def needs_gpu(c: Config) -> str | None:
    import torch

    if not torch.cuda.is_available():
        return "torch finds no GPU on this machine"
    return None if on_gpu(c) else f"the learner runs on {c.device}, not on a GPU"


def needs_ring(c: Config) -> str | None:
    """The replay of the GPU runners (replay/gpu_ring.py)."""
    if c.runner in ("device", "hybrid"):
        return None
    return f"it needs the GPU replay of the runners device and hybrid; this run uses {c.runner}"


def needs_triton(c: Config) -> str | None:
    import importlib.util

    if importlib.util.find_spec("triton"):
        return None
    return "Triton, which comes with torch for NVIDIA GPUs, is not installed"


def needs_nature_network(c: Config) -> str | None:
    """The shapes that the kernels of `own-kernels` are written for."""
    supported = {
        "network": ("nature",),
        "loss": ("mse", "huber"),
        "optimizer": ("adam",),
        "screen_size": (84,),
        "frame_stack": (4,),
        "hidden_units": (64, 128, 256, 512, 1024),
        "implicit_quantiles": (0,),
        "noisy_sigma": (0.0,),
        "grad_clip": (0.0,),
    }
    if max(c.n_envs, MOST_TOGETHER * c.batch_size) > MOST_IN_A_PASS:
        return f"it indexes activations with 32 bits, enough for {MOST_IN_A_PASS:,} observations per pass"
    wrong = [f"{name} {getattr(c, name)}" for name, values in supported.items() if getattr(c, name) not in values]
    for name, used in (("atoms", c.categorical), ("quantiles", c.quantiles > 0)):
        if used and getattr(c, name) > MOST_ATOMS:
            wrong.append(f"{name} {getattr(c, name)} (at most {MOST_ATOMS})")
    return f"its kernels are written for the Nature network, not for {', '.join(wrong)}" if wrong else None


def needs_no_draws(c: Config) -> str | None:
    """Passes that are functions of the observation alone."""
    wanting = [f"{name} {getattr(c, name):g}" for name in ("implicit_quantiles", "noisy_sigma") if getattr(c, name)]
    return f"its passes draw no random numbers, which {' and '.join(wanting)} would want" if wanting else None


def own_kernels_need(c: Config) -> str | None:
    """Why the settings of a config, without its other transforms, rule out the transform `own-kernels`."""
    return first_reason(needs_ring, needs_nature_network, needs_triton)(c)


def gpu_replay_needs(c: Config) -> str | None:
    """Why the settings of a config, whatever its replay, rule out the transform `gpu-replay`."""
    if c.runner in ("device", "hybrid"):
        return f"the runner {c.runner} has its own replay on the GPU"
    if c.prioritized:
        return "priorities are kept on the host, which would have to wait for every update"
    if c.replay_device != "auto" and (c.replay_device == "cpu") == on_gpu(c):
        return f"the replay has to be where the learner is, and replay_device is {c.replay_device}"
    return needs_no_draws(c)


def needs_vectors(c: Config) -> str | None:
    from dqnitro.envs import env_kind

    return None if env_kind(c.env_id, c.images) == "vector" else "its passes are those of a network for vectors"


def few_calls_need(c: Config) -> str | None:
    """The update that the rung `few-calls` is written for, and where it runs."""
    plain = {
        "dueling": False, "categorical": False, "quantiles": 0, "implicit_quantiles": 0, "noisy_sigma": 0.0,
        "munchausen": False, "optimizer": "adam", "act_device": "same",
    }  # fmt: skip
    wrong = [f"{name} {getattr(c, name)}" for name, value in plain.items() if getattr(c, name) != value]
    if c.loss not in ("mse", "huber"):
        wrong.append(f"loss {c.loss}")
    if own.is_own("network", c.network):
        wrong.append(f"network {c.network}")
    if wrong:
        return f"its update is written for values of one network and Adam, not for {', '.join(wrong)}"
    return "the learner runs on a GPU" if on_gpu(c) else None


def needs_host_loop(c: Config) -> str | None:
    """A runner in which the host launches every kernel; elsewhere the rung has no effect."""
    if c.runner in ("device", "hybrid"):
        return f"the runner {c.runner} records its own CUDA graphs"
    return None


def needs_cuda_console(c: Config) -> str | None:
    """The console's CUDA kernels, and a GPU that is new enough for them."""
    import importlib.util

    from dqnitro.atari.cuda import build

    try:
        build.require()
    except build.CudaUnavailable as error:
        return str(error)
    if importlib.util.find_spec("numba_cuda") is None:
        return f"{build.NEEDS_NUMBA_CUDA}, which is not installed. {build.INSTALL}"
    return None


def runner_needs(runner: str, c: Config) -> str | None:
    """Why this config cannot run with this runner, or None."""
    needs = {
        "hybrid": (needs_images, needs_grey_frames, needs_gpu),
        "device": (atari_only, needs_gpu, needs_cuda_console),
        "processes": (needs_posix, needs_two_cores),
        "cluster": (needs_posix,),
    }
    return first_reason(*needs.get(runner, ()))(c)


def enough_gpus(c: Config, here: int) -> str | None:
    """`here`: how many of the ranks run on this machine."""
    import os

    import torch

    there = torch.cuda.device_count()
    if there >= here or os.environ.get("DQNITRO_SHARE_A_GPU"):
        return None
    return f"{here} GPUs are needed here, and torch finds {there}"


def ranks_need(c: Config) -> str | None:
    """Why this config cannot run on several GPUs here, or with device cpu in several processes."""
    import os

    here = int(os.environ.get("LOCAL_WORLD_SIZE") or c.gpus)
    if c.device != "cpu":
        return runner_needs(c.runner, c) or enough_gpus(c, here)
    return first_reason(needs_posix, needs_images, needs_grey_frames)(c)


def check_runner(c: Config) -> None:
    """Refuse a runner where it cannot run, before anything is built."""
    if c.gpus > 1:
        if why := ranks_need(c):
            raise ConfigError(f"gpus {c.gpus}: {why}", "give --gpus a smaller number, or --device cpu to try it out")
        return
    why = runner_needs(c.runner, c) if c.runner in ("device", "hybrid") else None
    if why is None and c.runner in ("processes", "cluster"):  # with one core `processes` gains nothing, but it runs
        why = needs_posix(c)
    if why:
        raise ConfigError(f"runner {c.runner}: {why}", "leave it out; recipe auto chooses one that runs here")


def needs_two_gpus(c: Config) -> str | None:
    import torch

    if why := needs_gpu(c):
        return why
    return None if torch.cuda.device_count() > 1 else "it needs two GPUs, and there is one here"


def _older_than(capability: tuple[int, int]) -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_capability() < capability


def needs_bfloat16(c: Config) -> str | None:
    if on_gpu(c):
        return "this GPU has no bfloat16 arithmetic; torch would emulate it slowly" if _older_than((8, 0)) else None
    if not cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"}:
        return "this CPU has no bfloat16 instructions; oneDNN would emulate them slowly"
    return None


def needs_cpu(c: Config) -> str | None:
    return "the learner runs on a GPU" if on_gpu(c) else None


def needs_cpu_bfloat16(c: Config) -> str | None:
    return needs_cpu(c) or needs_bfloat16(c)


def needs_own_acting(c: Config) -> str | None:
    """A loop that learns and acts with the same network; elsewhere the rung has no effect."""
    if c.runner != "inline":
        return f"the runner {c.runner} chooses actions elsewhere"
    return None if c.act_device == "same" else f"actions are chosen on {c.act_device} with a copy of the network"


def needs_stack_of_four(c: Config) -> str | None:
    if c.frame_stack != 4:
        return f"it only supports stacks of four frames; this run stacks {c.frame_stack}"
    return needs_grey_frames(c)


def needs_float16(c: Config) -> str | None:
    if on_gpu(c):
        return None
    if not cpu_flags() & {"avx512_fp16", "amx_fp16", "asimdhp"}:
        return "this CPU has no float16 arithmetic; converting every product back and forth is many times slower"
    return None


def needs_compiler(c: Config) -> str | None:
    import shutil

    if on_gpu(c):
        if _older_than((7, 0)):
            return "torch.compile needs a GPU of compute capability 7.0 or newer"
        found = any(shutil.which(name) for name in ("gcc", "cc", "clang"))
        return None if found else "torch.compile on a GPU needs a C compiler (gcc or clang)"
    if not any(shutil.which(name) for name in ("g++", "c++", "clang++")):
        return "torch.compile on a CPU needs a C++ compiler (g++ or clang++)"
    return None


def needs_torchscript(c: Config) -> str | None:
    import sys

    if sys.version_info >= (3, 14):
        return "torch supports TorchScript only up to Python 3.13"
    return None


def needs_python_resize(c: Config) -> str | None:
    """The compiled backends, ale and console, downscale by area only."""
    if c.envs in ("ale", "console"):
        return f"envs {c.envs} downscales by area only; wrappers, gym-sync and gym-async have other methods"
    return None


def needs_pillow(c: Config) -> str | None:
    import importlib.util

    return "Pillow is not installed" if importlib.util.find_spec("PIL") is None else None
