"""What a config needs of the machine: small functions that say why something cannot run here, or None where it can."""

from __future__ import annotations

from collections.abc import Callable

from dqnitro.config import Config
from dqnitro.host import cpu_flags, usable_cores

MOST_TOGETHER = 8  # updates that the GPU runners draw together
MOST_IN_A_PASS = 160_000  # observations, of 12,800 activations each


def first_reason(*needs: Callable[[Config], str | None]) -> Callable[[Config], str | None]:
    return lambda c: next((why for need in needs if (why := need(c))), None)


def atari_only(c: Config) -> str | None:
    from dqnitro.envs import env_kind

    return None if env_kind(c.env_id) == "atari" else f"{c.env_id} is not an Atari game"


def needs_console(c: Config) -> str | None:
    import importlib.util

    if importlib.util.find_spec("dqnitro.atari") is None:
        return "the native console is not part of this version"
    return atari_only(c)


def needs_images(c: Config) -> str | None:
    from dqnitro.envs import env_kind

    return "there is no convolution in the network of a vector environment" if env_kind(c.env_id) == "vector" else None


def needs_two_cores(c: Config) -> str | None:
    return None if usable_cores() > 1 else "there is one core: play and training could only take turns"


def on_gpu(c: Config) -> bool:
    import torch

    return c.device.startswith("cuda") or (c.device == "auto" and torch.cuda.is_available())


def needs_gpu(c: Config) -> str | None:
    import torch

    if not torch.cuda.is_available():
        return "there is no GPU here that torch can use"
    return None if on_gpu(c) else f"the learner is on the {c.device}, not on a GPU"


def needs_ring(c: Config) -> str | None:
    """What reads the replay where the runners with graphs of their own keep it."""
    return (
        None
        if c.runner in ("device", "hybrid")
        else f"it reads the replay of the runners device and hybrid, not {c.runner}'s"
    )


def needs_triton(c: Config) -> str | None:
    import importlib.util

    return (
        None
        if importlib.util.find_spec("triton")
        else "Triton, which comes with torch for NVIDIA GPUs, is not installed"
    )


def needs_nature_network(c: Config) -> str | None:
    """What the kernels are written for."""
    there = {
        "network": (c.network, ("nature",)), "screen_size": (c.screen_size, (84,)), "frame_stack": (c.frame_stack, (4,)),
        "hidden_units": (c.hidden_units, (64, 128, 256, 512, 1024)), "categorical": (c.categorical, (False,)),
        "grad_clip": (c.grad_clip, (0.0,)),
    }  # fmt: skip
    if max(c.n_envs, MOST_TOGETHER * c.batch_size) > MOST_IN_A_PASS:
        return f"it numbers activations by 32 bits, enough for {MOST_IN_A_PASS:,} observations in a pass"
    wrong = [f"{name} {value}" for name, (value, known) in there.items() if value not in known]
    return f"its kernels are written for the Nature network, not for {', '.join(wrong)}" if wrong else None


def own_kernels_need(c: Config) -> str | None:
    """Why a config that has the wrapper `own-kernels` cannot be learned with it, whatever the machine."""
    needs_bfloat16_wrapper = None if "bfloat16" in c.wrappers else "it computes in bfloat16, and that rung is off"
    return first_reason(needs_ring, needs_nature_network, needs_triton)(c) or needs_bfloat16_wrapper


def needs_host_loop(c: Config) -> str | None:
    """What only helps where the host starts every kernel."""
    if c.runner in ("device", "hybrid"):
        return f"the runner {c.runner} records graphs of its own"
    return None


def needs_cuda_console(c: Config) -> str | None:
    """The console's kernels, and a card that is new enough for them."""
    import importlib.util

    from dqnitro.atari.cuda import build

    try:
        build.require()
    except build.CudaUnavailable as error:
        return str(error)
    if importlib.util.find_spec("numba_cuda") is None:
        return f"{build.NEEDS_NUMBA_CUDA}, which is not installed. {build.INSTALL}"
    return None


def needs_uniform_samples(c: Config) -> str | None:
    return "a replay on the card samples uniformly, and this run is prioritised" if c.prioritized else None


def runner_needs(runner: str, c: Config) -> str | None:
    """Why this config cannot run there, or None."""
    needs = {
        "hybrid": (needs_images, needs_uniform_samples, needs_gpu),
        "device": (atari_only, needs_uniform_samples, needs_gpu, needs_cuda_console),
        "processes": (needs_two_cores,),
    }
    return first_reason(*needs.get(runner, ()))(c)


def needs_two_gpus(c: Config) -> str | None:
    import torch

    if why := needs_gpu(c):
        return why
    return None if torch.cuda.device_count() > 1 else "there is one GPU here, and it takes two"


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
    return "the learner is on a GPU" if on_gpu(c) else None


def needs_cpu_bfloat16(c: Config) -> str | None:
    return needs_cpu(c) or needs_bfloat16(c)


def needs_own_acting(c: Config) -> str | None:
    """What only helps where the loop that learns chooses the actions, with the network that learns."""
    if c.runner != "inline":
        return f"the runner {c.runner} chooses actions elsewhere"
    return None if c.act_device == "same" else f"actions are chosen on {c.act_device}, with a copy of the network"


def needs_stack_of_four(c: Config) -> str | None:
    return (
        None if c.frame_stack == 4 else f"it is written for stacks of four frames, and this run stacks {c.frame_stack}"
    )


def needs_float16(c: Config) -> str | None:
    if on_gpu(c):
        return None
    if not cpu_flags() & {"avx512_fp16", "amx_fp16", "asimdhp"}:
        return "this CPU has no float16 arithmetic; every product would be converted back and forth, which is many times slower"
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
        return "torch supports TorchScript up to Python 3.13 only"
    return None


def needs_python_resize(c: Config) -> str | None:
    """The compiled environments scale by area and know nothing else."""
    if c.envs in ("ale", "console"):
        return f"envs {c.envs} scales by area only; wrappers, gym-sync and gym-async can do otherwise"
    return None


def needs_pillow(c: Config) -> str | None:
    import importlib.util

    return "Pillow is not installed" if importlib.util.find_spec("PIL") is None else None
