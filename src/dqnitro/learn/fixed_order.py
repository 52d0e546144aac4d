"""`deterministic`: what torch has to do on a GPU so that a run repeats, and resumes, bit for bit.

On a CPU additions have a fixed order anyway. What has none on a GPU is refused (`check`): transforms of the update that
say so (`Transform.unordered`), and some settings.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.learn.transforms import chosen
from dqnitro.requirements import on_gpu

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS reads it when it is first used
FIXED = (":4096:8", ":16:8")  # with these its results do not depend on what else is on the GPU


class Unordered(NamedTuple):
    """A setting whose sums have no fixed order on a GPU."""

    name: str
    is_in: Callable[[Config], bool]
    why: str
    hint: str


UNORDERED = (
    Unordered("network impala", lambda c: c.network == "impala", "the gradient of its pooling adds in no fixed order",
              "--network nature"),
    Unordered("prioritized", lambda c: c.prioritized and c.runner in ("device", "hybrid"),
              "torch's cumulative sum on a GPU adds in no fixed order", "leave it out, or use --runner inline"),
)  # fmt: skip


def check(c: Config) -> None:
    """Refuse what cannot be repeated bit for bit on a GPU, where that was asked for."""
    if not c.deterministic or not on_gpu(c):
        return
    for found in chosen(c.wrappers):
        if found.unordered:
            raise _refused(found.name, found.unordered, f"--without {found.name}")
    for setting in UNORDERED:
        if setting.is_in(c):
            raise _refused(setting.name, setting.why, setting.hint)


def _refused(name: str, why: str, hint: str) -> ConfigError:
    return ConfigError(f"{name} cannot be deterministic on a GPU: {why}", hint)


def fitted(
    config: Config, rungs: tuple[str, ...], asked: Sequence[str] = ()
) -> tuple[Config, tuple[str, ...], str | None]:
    """Leave out the rungs of a recipe that cannot be deterministic on a GPU, where that is asked for.

    Those that were asked for by name stay, and are refused (`check`).
    """
    if not config.deterministic or not on_gpu(config):
        return config, rungs, None
    out = {found.name for found in chosen(config.wrappers) if found.unordered} - set(asked)
    if not out:
        return config, rungs, None
    kept = tuple(name for name in config.wrappers if name not in out)
    text = f"deterministic: without {' and '.join(sorted(out))}, which repeat only up to rounding on a GPU"
    return config.replace(wrappers=kept), tuple(name for name in rungs if name not in out), text


@contextlib.contextmanager
def fixed_order(config: Config) -> Iterator[None]:
    """While a run lasts: only operations that add in a fixed order. torch refuses any other by name."""
    check(config)
    if not config.deterministic or not on_gpu(config):
        yield
        return
    given = os.environ.get(WORKSPACE)
    if given not in FIXED and (given is not None or torch.cuda.is_initialized()):
        raise ConfigError(
            f"deterministic needs {WORKSPACE}={FIXED[0]} before the GPU is first used; it is {given or 'not set'}",
            f"set it before Python starts: {WORKSPACE}={FIXED[0]} dqnitro ...",
        )
    os.environ[WORKSPACE] = given or FIXED[0]
    was = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic
    cudnn = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was[0])
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = was[1], cudnn
