"""The pieces that an update is made of, and the table of the transforms that replace them.

`UpdateParts` holds the pieces; `plain_parts` are those of the textbook. A `Transform` replaces some of them and says
where it works and what it cannot stand beside; `transforms` has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dqnitro.config import Config
from dqnitro.dqn import Batch
from dqnitro.heads import Draws
from dqnitro.learn.cpu.side_thread import SideThread
from dqnitro.learn.optimizer_step import PlainStep, Stepper

if TYPE_CHECKING:
    from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses
    from dqnitro.learn.cpu.split_network import SplitNetwork

Forward = Callable[..., Tensor]  # network, observations, and `heads.Draws` where the network wants any
Function = Callable[..., Any]


@dataclass(frozen=True)
class UpdateParts:
    """The replaceable pieces of an update, and what its surroundings have to do for them."""

    prepare: Callable[[nn.Module], nn.Module]  # once, on both networks
    prepare_target: Callable[[nn.Module], nn.Module]  # once, on the target network, after `prepare`
    forward: Forward  # the pass that learns
    target_pass: Forward  # the passes that make the target
    act: Forward  # the pass that picks actions
    make_optimizer: Callable[[Iterable[Tensor], float, float], torch.optim.Optimizer]
    compile: Callable[[Function], Function]  # around functions of tensors: the loss, or what it is made of
    copy: Callable[[Tensor], Tensor]  # to the learner's device: batches, and observations to act on
    step: Stepper
    around_update: Callable[[Function], Function] = lambda f: f  # around loss and step, on a GPU
    # Around functions without arguments, on memory that stays where it is; what they give, the next call overwrites:
    record: Callable[[Function], Function] = lambda f: f
    # Only where whole updates and choices are pieces of CUDA graphs (the runners `device` and `hybrid`):
    around_act: Callable[[Forward], Forward] = lambda f: f  # around the pass that picks actions, for many environments
    fit_optimizer: Callable[[torch.optim.Optimizer], None] = lambda optimizer: None
    beside: SideThread | None = None  # a second thread for the target's pass
    by_hand: HandwrittenPasses | None = None  # the passes over convolutional networks, where they are written out
    split: SplitNetwork | None = None  # those passes, divided between two threads
    # The whole update of networks that it is written for: from both of them, the optimiser and the config.
    whole: Callable[..., Callable[[Batch], tuple[float, Tensor]] | None] = lambda *_: None
    compiled_sampling: bool = False  # the replay puts batches together in compiled code
    one_pass: bool = False  # all that the online network is asked before an update, in the pass that learns
    channels_last: bool = False  # batches that come with channels innermost save a pass over their pixels
    takes_places: bool = False  # batches come as places in a replay on the learner's device
    reads_ring: bool = False  # the update is `FusedUpdate`, which reads frames out of the ring by itself


Apply = Callable[[UpdateParts, str], UpdateParts]


@dataclass(frozen=True)
class Transform:
    """A speed-up of the learner: what it does, and what others have to know to use it."""

    name: str
    apply: Apply
    only_on: str = ""  # where the learner has to be: cpu, cuda
    elsewhere: str = ""  # what to do where it is not
    excludes: tuple[str, ...] = ()
    compiles: bool = False  # with torch.compile, which counts versions of what it compiled
    reads_ring: bool = False  # its update needs the replay of the runners device and hybrid
    graph_holds_optimizer: bool = False  # the optimiser's step counter is where a CUDA graph can count
    start_up: str = ""  # what takes long before the first step
    unordered: str = ""  # why a run on a GPU repeats with it only up to rounding
    needs: Callable[[Config], str | None] = lambda _: None  # why it does not support the settings of a config, or None
    alone: str = ""  # why it cannot be used on several GPUs
    builds_on: tuple[str, ...] = ()  # transforms that have to be there as well
    instead: str = ""  # the transform to use where this one does not fit

    def unfit(self, config: Config) -> str | None:
        """Why it cannot be used in this config, on any machine; None if it can."""
        missing = [name for name in self.builds_on if name not in config.wrappers]
        return self.needs(config) or (f"it builds on {' and '.join(missing)}, which is off" if missing else None)


TRANSFORMS: dict[str, Transform] = {}  # in the order in which they are applied, first innermost


def transform(name: str, **facts: Any) -> Callable[[Apply], Apply]:
    """Put the function below into the table."""

    def add(apply: Apply) -> Apply:
        TRANSFORMS[name] = Transform(name, apply, **facts)
        return apply

    return add


def plain_parts(device: str) -> UpdateParts:
    """The textbook: no transform at all, every pass builds a graph."""

    def forward(network: nn.Module, obs: Tensor, *draws: Draws) -> Tensor:
        return network(obs, *draws)

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        # The same operations on the same numbers as torch's default on a CPU, but two of them overwrite their input.
        return torch.optim.Adam(parameters, lr=lr, eps=eps, foreach=True)

    def same(x: Any) -> Any:
        return x

    def copy(tensor: Tensor) -> Tensor:
        return tensor.to(device)

    return UpdateParts(same, same, forward, forward, forward, make_optimizer, same, copy, PlainStep())
