"""`AtariVec` for other libraries: Stable-Baselines3, TorchRL, JAX. Each module imports its library when it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .jax import JaxAtari
    from .sb3 import Sb3AtariVec
    from .torchrl import TorchRLAtari

__all__ = ["JaxAtari", "Sb3AtariVec", "TorchRLAtari"]


def __getattr__(name: str) -> Any:
    if name == "Sb3AtariVec":
        from .sb3 import Sb3AtariVec

        return Sb3AtariVec
    if name == "TorchRLAtari":
        from .torchrl import TorchRLAtari

        return TorchRLAtari
    if name == "JaxAtari":
        from .jax import JaxAtari

        return JaxAtari
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
