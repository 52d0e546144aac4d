"""DQNitro: DQN on Atari as fast as your machine allows, and what every speed-up buys.

    from dqnitro import Config, recipes, resume, train

Everything is imported on first use, so that `import dqnitro` and `dqnitro --help` are fast and `dqnitro.atari` does not
need torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dqnitro import process_setup

if TYPE_CHECKING:
    from dqnitro import recipes
    from dqnitro.config import Config
    from dqnitro.session import Result, resume, train

__all__ = ["Config", "Result", "__version__", "recipes", "resume", "train"]
__version__ = "0.1.0"

process_setup.prepare()

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
