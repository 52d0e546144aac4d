"""DQNitro: DQN on Atari as fast as your machine allows, and what every speed-up buys.

    from dqnitro import Config, recipes, resume, train

Everything is imported on first use, so that `import dqnitro` and `dqnitro --help` take no time and `dqnitro.atari` needs no torch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dqnitro import recipes
    from dqnitro.config import Config
    from dqnitro.session import Result, resume, train

__all__ = ["Config", "Result", "__version__", "recipes", "resume", "train"]
__version__ = "0.1.0"

# Before torch is imported: libgomp's idle threads spin for milliseconds, and as soon as anything else wants the cores (another
# process, a browser) an update of 26 ms takes 430. Sleeping at once (OMP_WAIT_POLICY=PASSIVE) costs a third of the speed of
# an idle machine. A short spin costs a few per cent and keeps most of both.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

_HOME = {
    "Config": "dqnitro.config",
    "Result": "dqnitro.session",
    "train": "dqnitro.session",
    "resume": "dqnitro.session",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "recipes":
        return importlib.import_module("dqnitro.recipes")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'dqnitro' has no attribute {name!r}")
