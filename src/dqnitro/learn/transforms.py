"""Wrappers of the update step. Each is a function `Parts -> Parts`; a config lists them in the order they are put on.

`Parts` is what an update is made of. A wrapper replaces one or two of them and knows nothing of the others, so they compose.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dqnitro.dqn import ConvNetwork
from dqnitro.errors import ConfigError
from dqnitro.learn.cpu.side_thread import SideThread
from dqnitro.learn.optimizer_step import PlainStep, ScaledStep, Stepper

if TYPE_CHECKING:
    from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses
    from dqnitro.learn.cpu.split_network import SplitNetwork

Forward = Callable[[nn.Module, Tensor], Tensor]


@dataclass(frozen=True)
class Parts:
    """The replaceable pieces of an update."""

    prepare: Callable[[nn.Module], nn.Module]  # once, on both networks
    prepare_target: Callable[[nn.Module], nn.Module]  # once, on the target network, after `prepare`
    forward: Forward  # the pass that learns
    quiet: Forward  # the passes that make the target
    act: Forward  # the pass that picks actions
    make_optimizer: Callable[[Iterable[Tensor], float, float], torch.optim.Optimizer]
    around_loss: Callable[[Callable[..., Any]], Callable[..., Any]]  # around the whole loss function
    copy: Callable[[Tensor], Tensor]  # to the learner's device: batches, and observations to act on
    step: Stepper
    around_update: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda f: f  # around loss and step, on a GPU
    beside: SideThread | None = None  # a second thread for the target's pass
    by_hand: HandwrittenPasses | None = None  # the passes over convolutional networks, where they are written out
    split: SplitNetwork | None = None  # those passes, divided between two threads
    one_pass: bool = False  # all that the online network is asked before an update, in the pass that learns


def plain_parts(device: str) -> Parts:
    """The textbook: no wrapper at all, every pass builds a graph."""

    def forward(network: nn.Module, obs: Tensor) -> Tensor:
        return network(obs)

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        # The same operations on the same numbers as torch's default on a CPU, but two of them overwrite their input.
        return torch.optim.Adam(parameters, lr=lr, eps=eps, foreach=True)

    def same(x: Any) -> Any:
        return x

    def copy(tensor: Tensor) -> Tensor:
        return tensor.to(device)

    return Parts(same, same, forward, forward, forward, make_optimizer, same, copy, PlainStep())


def no_grad(parts: Parts, device: str) -> Parts:
    """Target and acting passes without a graph. What every DQN should do; leaving it out is a rung below the baseline."""
    return replace(parts, quiet=torch.no_grad()(parts.quiet), act=torch.no_grad()(parts.act))


def fused_adam(parts: Parts, device: str) -> Parts:
    """One kernel for the whole optimiser step instead of a few per tensor."""

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        # capturable: the step counter lies beside the parameters, so that a CUDA graph can hold the whole update
        on_gpu = torch.device(device).type == "cuda"
        return torch.optim.Adam(parameters, lr=lr, eps=eps, fused=True, capturable=on_gpu)

    return replace(parts, make_optimizer=make_optimizer)


def one_pass_adam(parts: Parts, device: str) -> Parts:
    """The optimiser step as one compiled pass over the memory; what is made in bfloat16 by `written-out` and
    `distinct-patches` it reads and writes as it is.
    """
    from dqnitro.learn.cpu.one_pass_adam import OnePassAdam, OnePassStep

    if torch.device(device).type != "cpu":
        raise ConfigError("wrapper one-pass-adam is for a learner on the CPU", "on a GPU take fused-adam")
    return replace(parts, make_optimizer=OnePassAdam, step=OnePassStep())


def channels_last(parts: Parts, device: str) -> Parts:
    """Channels innermost, as the convolution kernels of oneDNN and cuDNN want them: no reordering inside every layer."""

    def prepare(network: nn.Module) -> nn.Module:
        network = parts.prepare(network)
        if isinstance(network, ConvNetwork):
            network.memory_format = torch.channels_last
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    return replace(parts, prepare=prepare)


def inplace_relu(parts: Parts, device: str) -> Parts:
    """Activations overwrite their input: half the memory of a layer's output. The backward pass needs only the result."""

    def prepare(network: nn.Module) -> nn.Module:
        network = parts.prepare(network)
        for module in network.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = True
        return network

    return replace(parts, prepare=prepare)


def pinned_copies(parts: Parts, device: str) -> Parts:
    """Through page-locked memory, from which the GPU reads by itself while the CPU goes on.

    torch keeps the page-locked blocks and gives none to anybody else before the copy out of it is done. For a network on
    the CPU nothing is copied, and this changes nothing.
    """
    if torch.device(device).type != "cuda":
        return parts

    def copy(tensor: Tensor) -> Tensor:
        return tensor if tensor.is_cuda else tensor.pin_memory().to(device, non_blocking=True)

    return replace(parts, copy=copy)


def _trace(network: nn.Module, obs: Tensor) -> nn.Module:
    with warnings.catch_warnings():
        # torch marks TorchScript as deprecated in favour of torch.compile, which is the next rung.
        warnings.simplefilter("ignore", DeprecationWarning)
        traced: Any = torch.jit.trace(network, obs, check_trace=False)
    for _ in range(3):  # TorchScript watches the first calls and optimises after them: before the clock starts
        traced(obs)
    return traced


def torchscript(parts: Parts, device: str) -> Parts:
    """The network as a TorchScript graph, without Python between its layers. Traced, because its Python asks for the precision
    in use, which `torch.jit.script` cannot express. The graph shares the network's parameters.
    """

    def scripted(f: Forward) -> Forward:
        # One graph per network and pass: TorchScript optimises for the batch size it sees.
        graphs: weakref.WeakKeyDictionary[nn.Module, nn.Module] = weakref.WeakKeyDictionary()

        def forward(network: nn.Module, obs: Tensor) -> Tensor:
            if network not in graphs:
                graphs[network] = _trace(network, obs)
            return f(graphs[network], obs)

        return forward

    return replace(parts, forward=scripted(parts.forward), quiet=scripted(parts.quiet), act=scripted(parts.act))


def _mixed(parts: Parts, device: str, dtype: torch.dtype) -> Parts:
    """Convolutions and matrix products of the update in `dtype`; parameters, optimiser, output layer and loss stay float32.

    The target network is kept in `dtype` (it is read far more often than written). Acting stays float32: for a few
    observations, converting the weights costs more than the arithmetic saves.
    """
    kind = torch.device(device).type

    def prepare_target(network: nn.Module) -> nn.Module:
        for name, parameter in parts.prepare_target(network).named_parameters():
            if ".output." not in name:
                parameter.data = parameter.data.to(dtype)
        return network

    def mixed(f: Forward) -> Forward:
        def forward(network: nn.Module, obs: Tensor) -> Tensor:
            with torch.autocast(kind, dtype=dtype):
                return f(network, obs).float()

        return forward

    return replace(parts, prepare_target=prepare_target, forward=mixed(parts.forward), quiet=mixed(parts.quiet))


def bfloat16(parts: Parts, device: str) -> Parts:
    """8 bits of precision and the range of float32: nothing vanishes, nothing overflows."""
    return _mixed(parts, device, torch.bfloat16)


def float16(parts: Parts, device: str) -> Parts:
    """11 bits of precision but a narrow range, so the loss is scaled up for the backward pass."""
    return replace(_mixed(parts, device, torch.float16), step=ScaledStep(device))


def written_out(parts: Parts, device: str) -> Parts:
    """bfloat16 with the convolutional network's passes written out by hand, forward and backward, for learners on a CPU.

    Acting is in bfloat16 as well: the converted weights are there already. On top of `bfloat16` it takes over all of its passes.
    """
    from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses

    if torch.device(device).type != "cpu":
        raise ConfigError("wrapper written-out is for a learner on the CPU", "on a GPU take bfloat16")
    return _by_hand(parts, HandwrittenPasses())


def distinct_patches(parts: Parts, device: str) -> Parts:
    """The passes of `written-out`, with every distinct patch of a batch convolved once."""
    from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses
    from dqnitro.learn.cpu.patch_dedup import PatchDedup

    if torch.device(device).type != "cpu":
        raise ConfigError("wrapper distinct-patches is for a learner on the CPU", "on a GPU take bfloat16")
    return _by_hand(parts, HandwrittenPasses(PatchDedup()))


def _by_hand(parts: Parts, passes: HandwrittenPasses) -> Parts:
    """Parts whose passes over convolutional networks are these; other networks keep theirs."""
    from dqnitro.learn.cpu.handwritten_passes import count_versions
    from dqnitro.learn.cpu.one_pass_adam import OnePassAdam

    def or_else(mine: Callable[[ConvNetwork, Tensor], Tensor], other: Forward) -> Forward:
        return lambda network, obs: mine(network, obs) if isinstance(network, ConvNetwork) else other(network, obs)

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        optimizer = parts.make_optimizer(parameters, lr, eps)
        if isinstance(optimizer, OnePassAdam):  # it counts the versions of what it writes
            passes.use_shadows(optimizer.shadows)
        else:
            optimizer.register_step_post_hook(count_versions)
        return optimizer

    return replace(
        parts, forward=or_else(passes.forward, parts.forward), quiet=or_else(passes.forward_no_grad, parts.quiet),
        act=or_else(passes.act, parts.act), make_optimizer=make_optimizer, by_hand=passes,
    )  # fmt: skip


def side_by_side(parts: Parts, device: str) -> Parts:
    """The target's pass in a second thread while the online network's runs."""
    if torch.device(device).type != "cpu":
        raise ConfigError("wrapper side-by-side is for a learner on the CPU", "leave it out: a GPU has one queue")
    return replace(parts, beside=SideThread())


def split_network(parts: Parts, device: str) -> Parts:
    """The hidden layer, its gradient and its optimiser on a second thread; the convolutions on the first."""
    from dqnitro.learn.cpu.one_pass_adam import OnePassAdam
    from dqnitro.learn.cpu.split_network import SplitNetwork

    if parts.by_hand is None:
        raise ConfigError("wrapper split-network divides passes written out by hand", "add distinct-patches")
    beside = parts.beside or SideThread()

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        optimizer = parts.make_optimizer(parameters, lr, eps)
        if isinstance(optimizer, OnePassAdam):
            optimizer.side_thread = beside
        return optimizer

    return replace(parts, beside=beside, split=SplitNetwork(parts.by_hand, beside), make_optimizer=make_optimizer)


def one_pass_acting(parts: Parts, device: str) -> Parts:
    """Actions from the update's own pass over the batch. It has the weights that acting would use: both come before the step."""
    if torch.device(device).type != "cpu":
        raise ConfigError("wrapper one-pass-acting is for a learner on the CPU", "on a GPU take cuda-graphs")
    return replace(parts, one_pass=True)


def compiled(parts: Parts, device: str) -> Parts:
    """`torch.compile` around the loss: forward and backward become a few fused kernels. Costs tens of seconds once."""
    return replace(parts, around_loss=lambda f: torch.compile(parts.around_loss(f), dynamic=False))


def cuda_graphs(parts: Parts, device: str) -> Parts:
    """The update and the acting pass as CUDA graphs: one start instead of some hundred. On the CPU there is nothing to record."""
    if torch.device(device).type != "cuda":
        return parts
    from dqnitro.learn.gpu.cuda_graphs import Graphed

    graphs: weakref.WeakKeyDictionary[nn.Module, Graphed] = weakref.WeakKeyDictionary()

    def act(network: nn.Module, obs: Tensor) -> Tensor:
        if not obs.is_cuda:  # a copy of the network that acts on the CPU
            return parts.act(network, obs)
        if network not in graphs:
            whole: Any = weakref.proxy(network)  # a graph that held its key would never be forgotten
            graphs[network] = Graphed(lambda x: (parts.act(whole, x),))
        return graphs[network](obs)[0]

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        optimizer = parts.make_optimizer(parameters, lr, eps)
        for group in optimizer.param_groups:
            group["capturable"] = True  # its step counter lies on the card, where a graph can count
        return optimizer

    return replace(
        parts, act=act, make_optimizer=make_optimizer, around_update=lambda f: Graphed(parts.around_update(f))
    )


def own_kernels(parts: Parts, device: str) -> Parts:
    """Passes, gradients and optimiser as kernels of our own. They read the ring on the card, so `run.updates` puts them in.

    The target network stays as precise as the online one: they keep a copy in the precision that they want.
    """
    if torch.device(device).type != "cuda":
        raise ConfigError("wrapper own-kernels is for a learner on a GPU", "on the CPU take distinct-patches")
    return replace(parts, prepare_target=lambda network: network)


WRAPPERS: dict[str, Callable[[Parts, str], Parts]] = {
    "no-grad": no_grad,
    "fused-adam": fused_adam,
    "one-pass-adam": one_pass_adam,
    "inplace-relu": inplace_relu,
    "channels-last": channels_last,
    "pinned-copies": pinned_copies,
    "torchscript": torchscript,
    "float16": float16,
    "bfloat16": bfloat16,
    "written-out": written_out,
    "distinct-patches": distinct_patches,
    "side-by-side": side_by_side,
    "split-network": split_network,
    "one-pass-acting": one_pass_acting,
    "compile": compiled,
    "cuda-graphs": cuda_graphs,
    "own-kernels": own_kernels,
}
# A TorchScript graph has the precision of its tracing in it, and torch.compile cannot look inside.
EXCLUDE = (
    *(("torchscript", other) for other in ("compile", "float16", "bfloat16", "written-out")),
    *(("float16", other) for other in ("bfloat16", "written-out")),
    *(("compile", other) for other in ("written-out", "side-by-side", "split-network", "one-pass-acting")),
    *(("distinct-patches", other) for other in ("torchscript", "float16", "written-out", "compile")),
    *(("one-pass-adam", other) for other in ("fused-adam", "float16")),
    # Scaling asks on the host whether a gradient overflowed, and TorchScript rewrites itself while it runs: neither can be recorded.
    *(("cuda-graphs", other) for other in ("torchscript", "float16")),
    *(("own-kernels", other) for other in ("torchscript", "float16", "compile", "cuda-graphs")),
)


def wrap(names: tuple[str, ...], device: str) -> Parts:
    """Put the named wrappers on, in the order of the table, first innermost: the order of the names means nothing."""
    for a, b in EXCLUDE:
        if a in names and b in names:
            raise ConfigError(f"wrappers {a} and {b} exclude each other", "leave one of them out")
    for name in names:
        if name not in WRAPPERS:
            raise ConfigError(f"unknown wrapper {name!r}", f"the wrappers are {', '.join(WRAPPERS)}")
    parts = plain_parts(device)
    for name in (n for n in WRAPPERS if n in names):
        parts = WRAPPERS[name](parts, device)
    return parts
