"""`deterministic`: what torch has to do on a GPU so that a run repeats, and resumes, bit for bit.

On a CPU additions have a fixed order anyway. What has none on a GPU is refused before (`check_deterministic`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.requirements import on_gpu

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"  # cuBLAS reads it when it is first used
FIXED = (":4096:8", ":16:8")  # with these its results do not depend on what else is on the GPU


@contextlib.contextmanager
def fixed_order(config: Config) -> Iterator[None]:
    """While a run lasts: only operations that add in a fixed order. torch refuses any other by name."""
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
