"""DQNitro: DQN on Atari as fast as your machine allows, and what every speed-up buys.

    from dqnitro import Callback, Config, load, recipes, resume, train

Everything is imported on first use, so that `import dqnitro` and `dqnitro --help` are fast and `dqnitro.atari` does not
need torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dqnitro import process_setup

if TYPE_CHECKING:
    from dqnitro import recipes
    from dqnitro.callback import Callback, Training
    from dqnitro.config import Config
    from dqnitro.own import register
    from dqnitro.python.api import Result, load, resume, train
    from dqnitro.trained import TrainedAgent

__all__ = [
    "Callback",
    "Config",
    "Result",
    "TrainedAgent",
    "Training",
    "__version__",
    "load",
    "recipes",
    "register",
    "resume",
    "train",
]
__version__ = "0.1.0"

process_setup.prepare()

_HOME = {
    "Callback": "dqnitro.callback",
    "Config": "dqnitro.config",
    "Result": "dqnitro.python.api",
    "TrainedAgent": "dqnitro.trained",
    "Training": "dqnitro.callback",
    "load": "dqnitro.python.api",
    "register": "dqnitro.own",
    "resume": "dqnitro.python.api",
    "train": "dqnitro.python.api",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "recipes":
        return importlib.import_module("dqnitro.recipes")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'dqnitro' has no attribute {name!r}")
