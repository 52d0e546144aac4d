"""The network that a config describes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro import dqn, own
from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import ConfigError
from dqnitro.heads import Wants
from dqnitro.learn import own_pieces


def head_spec(config: Config, spec: EnvSpec) -> dqn.HeadSpec:
    """What the network of a config predicts."""
    atoms = config.atoms if config.categorical else config.quantiles or 1
    return dqn.HeadSpec(
        spec.n_actions, config.dueling, atoms, config.value_min, config.value_max, config.quantiles > 0,
        config.implicit_quantiles, config.noisy_sigma,
    )  # fmt: skip


def build_network(config: Config, spec: EnvSpec) -> nn.Module:
    """The network of a config, on the CPU, with fresh weights."""
    if own.is_own("network", config.network):
        return own_pieces.make_network(config, spec, head_spec(config, spec))
    kind = config.network if spec.is_image else "vector"
    if kind in dqn.CONVOLUTIONS and min(spec.obs_shape[1:]) < dqn.SMALLEST_SIDE:
        size = "x".join(map(str, spec.obs_shape[1:]))
        raise ConfigError(
            f"network {kind} needs images of at least {dqn.SMALLEST_SIDE}x{dqn.SMALLEST_SIDE} pixels, got {size}",
            "use --network board",
        )
    impala = dqn.Impala(config.impala_width, config.impala_norm)
    head = head_spec(config, spec)
    make = functools.partial(dqn.make_network, spec.obs_shape, kind, config.hidden_units, head, impala)
    _check_memory(make, _more_than(config, spec, head, kind))
    network = make()
    if config.init == "kaiming":
        dqn.kaiming(network)
    return network


def _more_than(config: Config, spec: EnvSpec, head: dqn.HeadSpec, kind: str) -> int:
    """A number of bytes that the weights certainly fit into: as if a layer had all its channels at every pixel."""
    channels = 64 * (config.impala_width if kind == "impala" else 1)
    features = math.prod(spec.obs_shape) + channels * math.prod(spec.obs_shape[1:]) + head.n_actions * head.atoms
    columns = config.hidden_units + 64  # implicit quantiles look at 64 cosines
    copies = 2 * (1 + config.dueling) * (1 + (config.noisy_sigma > 0))
    return 2**28 + 4 * copies * columns * (features + columns)


def _check_memory(make: Callable[[], nn.Module], at_most: int) -> None:
    """Refuse a network that does not fit before its memory is asked for: the kernel may end the process instead.
    `at_most`: bytes that its weights certainly fit into. Counting them exactly imports torch's compiler, which takes
    longer than all else that a start imports.
    """
    import psutil

    free = psutil.virtual_memory().available
    if at_most <= free:
        return

    def size() -> int:
        with torch.device("meta"):  # shapes without memory
            return sum(4 * p.numel() for p in make().parameters())

    # In a thread: a signal that breaks off the main thread in there would leave torch's stack of modes in disorder.
    with ThreadPoolExecutor(1) as pool:
        needed = pool.submit(size).result()
    if needed > free:
        raise ConfigError(
            f"the network's weights need {needed / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are free",
            "lower --hidden-units, --screen-size or --atoms",
        )


def acting_noise(wants: Wants, rng: np.random.Generator | None) -> Tensor | None:
    """The noise of a pass that picks actions, None where there is to be none."""
    if rng is None or not wants.noise:
        return None
    return torch.from_numpy(rng.standard_normal(wants.noise, dtype=np.float32))
