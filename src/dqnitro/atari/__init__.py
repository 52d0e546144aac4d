"""The Atari 2600 in Python, compiled by Numba, exact to ale-py.

`AtariVec` is the environment to train on, `AtariEnv` a single one, `Console` the bare machine. Importing this package
registers the games with Gymnasium; what needs the compiler is loaded at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .registration import register

if TYPE_CHECKING:
    from .console import Console
    from .env import AtariEnv
    from .vec import AtariVec

__all__ = ["AtariEnv", "AtariVec", "Console", "register"]

register()


def __getattr__(name: str) -> Any:
    if name == "AtariVec":
        from .vec import AtariVec

        return AtariVec
    if name == "AtariEnv":
        from .env import AtariEnv

        return AtariEnv
    if name == "Console":
        from .console import Console

        return Console
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
