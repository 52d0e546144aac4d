"""A network, loss or optimiser of the user's own: built, and checked before the first step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dqnitro import own
from dqnitro.config import Config
from dqnitro.dqn import HeadSpec
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import ConfigError

# Transforms that bring an optimiser of their own, or hold it in a CUDA graph.
HAVE_OPTIMIZERS = ("fused-adam", "one-pass-adam", "split-network", "few-calls", "cuda-graphs", "own-kernels")


class OwnNetwork(nn.Module):
    """A user's network, (B, n_actions) or (B, n_actions, atoms), as the learner wants it: (B, n_actions, atoms)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, obs: Tensor) -> Tensor:
        out = self.network(obs)
        return out.unsqueeze(-1) if out.dim() == 2 else out


def make_network(config: Config, spec: EnvSpec, head: HeadSpec) -> nn.Module:
    """Call the user's function with (obs_shape, n_actions), and look at what its network says of two observations."""
    what = f"network {config.network}"
    if config.dueling:
        raise ConfigError(f"{what}: dueling is for the networks that come with dqnitro", "build it into yours")
    if wanted := [name for name in ("implicit_quantiles", "noisy_sigma") if getattr(config, name)]:
        raise ConfigError(f"{what}: {wanted[0]} is for the networks that come with dqnitro", "leave it at 0")
    made = own.made("network", config.network, spec.obs_shape, spec.n_actions)
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{what} returned {type(made).__name__}, expected a torch.nn.Module")
    shapes = [(2, spec.n_actions, head.atoms)] + [(2, spec.n_actions)] * (head.atoms == 1)
    obs = torch.zeros((2, *spec.obs_shape), dtype=torch.from_numpy(_empty(spec)).dtype)
    try:
        with torch.no_grad():
            out = made(obs)
    except Exception as e:
        raise ConfigError(
            f"{what} cannot take observations {tuple(obs.shape)} of {obs.dtype} ({type(e).__name__}: {e})",
            "images come as uint8 (batch, frames, height, width): call .float() / 255 yourself",
        ) from e
    if not isinstance(out, Tensor) or tuple(out.shape) not in shapes or not out.is_floating_point():
        got = f"{tuple(out.shape)} of {out.dtype}" if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError(
            f"{what} returned {got}, expected floats {' or '.join(map(str, shapes))}", "batch 2 was given"
        )
    if not any(p.requires_grad for p in made.parameters()):
        raise ConfigError(f"{what} has no parameters to learn")
    return OwnNetwork(made)


def _empty(spec: EnvSpec) -> Any:
    import numpy as np

    return np.zeros(0, spec.obs_dtype)


def find_loss(config: Config) -> str | Callable[[Tensor, Tensor], Tensor]:
    """The name of a built-in loss, or the user's: values and targets (B,) in, the loss of each sample (B,) out."""
    if not own.is_own("loss", config.loss):
        return config.loss
    if config.categorical or config.quantiles or config.implicit_quantiles:
        raise ConfigError(
            f"loss {config.loss} compares values, but this run learns a distribution",
            "leave out --categorical, --quantiles and --implicit-quantiles",
        )
    value = torch.zeros(3, requires_grad=True)
    each = own.made("loss", config.loss, value, torch.ones(3))
    if not isinstance(each, Tensor) or each.shape != (3,) or not each.requires_grad:
        got = tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__
        hint = 'one loss for each sample, with a gradient: reduction="none" in torch'
        raise ConfigError(f"loss {config.loss} returned {got} for values and targets of shape (3,)", hint)
    return own.find("loss", config.loss)


def make_optimizer(config: Config, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """Call the user's function or class with the parameters and `lr=`."""
    what = f"optimizer {config.optimizer}"
    if found := [name for name in config.wrappers if name in HAVE_OPTIMIZERS]:
        raise ConfigError(f"{what}: the rung {found[0]} has its own", f"--without {found[0]}")
    made = own.made("optimizer", config.optimizer, parameters, lr=config.learning_rate)
    if not isinstance(made, torch.optim.Optimizer):
        raise ConfigError(f"{what} returned {type(made).__name__}, expected a torch.optim.Optimizer")
    return made


def fitted(config: Config, rungs: tuple[str, ...]) -> tuple[Config, tuple[str, ...]]:
    """Without the transforms that an optimiser of the user's own cannot stand beside."""
    if not own.is_own("optimizer", config.optimizer):
        return config, rungs
    wrappers, rungs = (tuple(n for n in names if n not in HAVE_OPTIMIZERS) for names in (config.wrappers, rungs))
    return config.replace(wrappers=wrappers), rungs


def check_runner(config: Config) -> None:
    """The GPU runners keep experience in a ring of their own and hold the update in CUDA graphs."""
    if config.runner not in ("device", "hybrid"):
        return
    for kind in ("optimizer", "replay"):
        if own.is_own(kind, getattr(config, kind)):
            raise ConfigError(
                f"runner {config.runner} cannot use {kind} {getattr(config, kind)}: all of an update is a CUDA graph",
                "use --runner inline or processes",
            )
