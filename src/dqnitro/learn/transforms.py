"""Speed-ups of the learner: transforms of the pieces that an update is made of (`update_parts`).

A transform is a function that replaces some of the pieces; its `@transform` line says where it works, which others it
cannot stand beside, and what the rest of the program has to know of it. A config names those it wants (`wrappers`).
They are applied in the order of this file, so the order of the names means nothing. Both `Learner` and the updates over
a ring on a GPU (`ring_update`) are built from the result.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dqnitro.config import Config
from dqnitro.dqn import Batch, ConvNetwork, ImageNetwork, VectorNetwork
from dqnitro.errors import ConfigError
from dqnitro.heads import Draws
from dqnitro.learn.cpu.side_thread import SideThread
from dqnitro.learn.optimizer_step import ScaledStep
from dqnitro.learn.update_parts import TRANSFORMS, Forward, Transform, UpdateParts, plain_parts, transform
from dqnitro.process_setup import optimizers_without_compiler
from dqnitro.requirements import few_calls_need, gpu_replay_needs, needs_no_draws, own_kernels_need

if TYPE_CHECKING:
    from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses

KEEPS_GRADIENTS = "it keeps gradients of its own, of which no mean over the ranks can be taken"


@transform("no-grad")
def no_grad(parts: UpdateParts, device: str) -> UpdateParts:
    """Target and acting passes without a graph. What every DQN should do; leaving it out is a rung below it."""
    return replace(parts, target_pass=torch.no_grad()(parts.target_pass), act=torch.no_grad()(parts.act))


@transform("fused-adam", graph_holds_optimizer=True)
def fused_adam(parts: UpdateParts, device: str) -> UpdateParts:
    """One kernel for the whole optimiser step instead of a few per tensor."""

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        # capturable: the step counter lies beside the parameters, so that a CUDA graph can hold the whole update
        on_gpu = torch.device(device).type == "cuda"
        return torch.optim.Adam(parameters, lr=lr, eps=eps, fused=True, capturable=on_gpu)

    return replace(parts, make_optimizer=make_optimizer)


@transform(
    "one-pass-adam", only_on="cpu", elsewhere="on a GPU take fused-adam", excludes=("fused-adam", "float16"),
    alone=KEEPS_GRADIENTS,
)  # fmt: skip
def one_pass_adam(parts: UpdateParts, device: str) -> UpdateParts:
    """The optimiser step as one compiled pass over the memory; what is made in bfloat16 by `written-out` and
    `distinct-patches` it reads and writes as it is.
    """
    from dqnitro.learn.cpu.one_pass_adam import OnePassAdam, OnePassStep

    return replace(parts, make_optimizer=OnePassAdam, step=OnePassStep())


@transform("inplace-relu")
def inplace_relu(parts: UpdateParts, device: str) -> UpdateParts:
    """Activations overwrite their input: half the memory. The backward pass needs only the result."""

    def prepare(network: nn.Module) -> nn.Module:
        network = parts.prepare(network)
        for module in network.modules():
            if isinstance(module, nn.ReLU):
                module.inplace = True
        return network

    return replace(parts, prepare=prepare)


@transform("channels-last")
def channels_last(parts: UpdateParts, device: str) -> UpdateParts:
    """Channels innermost, as the convolution kernels of oneDNN and cuDNN want them: no reordering in every layer."""

    def prepare(network: nn.Module) -> nn.Module:
        network = parts.prepare(network)
        if isinstance(network, ImageNetwork):
            network.memory_format = torch.channels_last
        return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    return replace(parts, prepare=prepare, channels_last=True)


@transform("pinned-copies")
def pinned_copies(parts: UpdateParts, device: str) -> UpdateParts:
    """Through page-locked memory, from which the GPU reads by itself while the CPU goes on.

    torch keeps the page-locked blocks and gives none to anybody else before the copy out of it is done. For a network
    on the CPU nothing is copied, and this changes nothing.
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
        warnings.filterwarnings("ignore", "Converting a tensor to a Python boolean")  # shapes decide; they never change
        traced: Any = torch.jit.trace(network, obs, check_trace=False)
    for _ in range(3):  # TorchScript watches the first calls and optimises after them: before the clock starts
        traced(obs)
    return traced


# A TorchScript graph has the precision of its tracing in it, and torch.compile cannot look inside.
@transform("torchscript", excludes=("compile", "float16", "bfloat16", "written-out"), needs=needs_no_draws)
def torchscript(parts: UpdateParts, device: str) -> UpdateParts:
    """The network as a TorchScript graph, without Python between its layers. Traced, because its Python asks for the
    precision in use, which `torch.jit.script` cannot express. The graph shares the network's parameters.
    """

    def scripted(f: Forward) -> Forward:
        # One graph per network and pass: TorchScript optimises for the batch size it sees.
        graphs: weakref.WeakKeyDictionary[nn.Module, nn.Module] = weakref.WeakKeyDictionary()

        def forward(network: nn.Module, obs: Tensor) -> Tensor:
            if network not in graphs:
                graphs[network] = _trace(network, obs)
            return f(graphs[network], obs)

        return forward

    return replace(
        parts, forward=scripted(parts.forward), target_pass=scripted(parts.target_pass), act=scripted(parts.act)
    )


def _mixed(parts: UpdateParts, device: str, dtype: torch.dtype) -> UpdateParts:
    """Convolutions and matrix products of the update in `dtype`; parameters, optimiser, output layer and loss stay
    float32.

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
        def forward(network: nn.Module, obs: Tensor, *draws: Draws) -> Tensor:
            with torch.autocast(kind, dtype=dtype):
                return f(network, obs, *draws).float()

        return forward

    return replace(
        parts, prepare_target=prepare_target, forward=mixed(parts.forward), target_pass=mixed(parts.target_pass)
    )


@transform(
    "float16", excludes=("bfloat16", "written-out"), alone="its scale of the loss would differ from rank to rank"
)
def float16(parts: UpdateParts, device: str) -> UpdateParts:
    """11 bits of precision but a narrow range, so the loss is scaled up for the backward pass."""
    return replace(_mixed(parts, device, torch.float16), step=ScaledStep(device))


@transform("bfloat16")
def bfloat16(parts: UpdateParts, device: str) -> UpdateParts:
    """8 bits of precision and the range of float32: nothing vanishes, nothing overflows.

    Where hundreds of environments act in one pass, that pass is in bfloat16 as well.
    """
    kind = torch.device(device).type

    def around_act(f: Forward) -> Forward:
        def act(network: nn.Module, obs: Tensor, *draws: Draws) -> Tensor:
            with torch.autocast(kind, dtype=torch.bfloat16):
                return f(network, obs, *draws)

        return act

    return replace(_mixed(parts, device, torch.bfloat16), around_act=around_act)


@transform(
    "written-out", only_on="cpu", elsewhere="on a GPU take bfloat16", needs=needs_no_draws, alone=KEEPS_GRADIENTS
)  # fmt: skip
def written_out(parts: UpdateParts, device: str) -> UpdateParts:
    """bfloat16 with the convolutional network's passes written out by hand, forward and backward, for learners on a
    CPU.

    Acting is in bfloat16 as well: the converted weights are there already. On top of `bfloat16` it takes over all of
    its passes.
    """
    from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses

    return _by_hand(parts, HandwrittenPasses())


@transform(
    "distinct-patches", only_on="cpu", elsewhere="on a GPU take bfloat16",
    excludes=("torchscript", "float16", "written-out", "compile"), needs=needs_no_draws, alone=KEEPS_GRADIENTS,
)  # fmt: skip
def distinct_patches(parts: UpdateParts, device: str) -> UpdateParts:
    """The passes of `written-out`, with every distinct patch of a batch convolved once."""
    from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses
    from dqnitro.learn.cpu.patch_dedup import PatchDedup

    return _by_hand(parts, HandwrittenPasses(PatchDedup()))


def _by_hand(parts: UpdateParts, passes: HandwrittenPasses) -> UpdateParts:
    """Parts whose passes over convolutional networks are these; other networks keep theirs."""
    from dqnitro.learn.cpu.handwritten_passes import count_versions
    from dqnitro.learn.cpu.one_pass_adam import OnePassAdam

    def or_else(mine: Callable[[ConvNetwork, Tensor], Tensor], other: Forward) -> Forward:
        def forward(network: nn.Module, obs: Tensor, *draws: Draws) -> Tensor:
            return mine(network, obs) if isinstance(network, ConvNetwork) else other(network, obs, *draws)

        return forward

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        optimizer = parts.make_optimizer(parameters, lr, eps)
        if isinstance(optimizer, OnePassAdam):  # it counts the versions of what it writes
            passes.use_shadows(optimizer.shadows)
        else:
            optimizer.register_step_post_hook(count_versions)
        return optimizer

    return replace(
        parts, forward=or_else(passes.forward, parts.forward),
        target_pass=or_else(passes.forward_no_grad, parts.target_pass),
        act=or_else(passes.act, parts.act), make_optimizer=make_optimizer, by_hand=passes,
    )  # fmt: skip


@transform(
    "side-by-side", only_on="cpu", elsewhere="leave it out: a GPU has one queue",
    alone="the ranks already share the cores",
)  # fmt: skip
def side_by_side(parts: UpdateParts, device: str) -> UpdateParts:
    """The target's pass in a second thread while the online network's runs."""
    return replace(parts, beside=SideThread())


@transform("split-network", needs=needs_no_draws, alone=KEEPS_GRADIENTS)
def split_network(parts: UpdateParts, device: str) -> UpdateParts:
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


@transform(
    "one-pass-acting", only_on="cpu", elsewhere="on a GPU take cuda-graphs", needs=needs_no_draws,
    alone="its runners act from the ring, not from the pass that learns",
)  # fmt: skip
def one_pass_acting(parts: UpdateParts, device: str) -> UpdateParts:
    """Actions from the update's own pass over the batch. It has the weights that acting would use: both come before the
    step.
    """
    return replace(parts, one_pass=True)


@transform(
    "compile", excludes=("written-out", "side-by-side", "split-network", "one-pass-acting"), compiles=True,
    unordered="every process measures again which kernels are fastest",
    start_up="compiling the update step: some tens of seconds, once",
)  # fmt: skip
def compiled(parts: UpdateParts, device: str) -> UpdateParts:
    """`torch.compile` around the loss: forward and backward become a few fused kernels. Costs tens of seconds once."""
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)  # advice; `close` means float32

    def fit_optimizer(optimizer: torch.optim.Optimizer) -> None:
        """One kernel over all parameters that fills the GPU; torch's own fused one uses a few dozen blocks."""
        for group in optimizer.param_groups:
            group["fused"], group["foreach"] = False, True
        optimizer.step = torch.compile(optimizer.step)

    return replace(
        parts,
        compile=lambda f: torch.compile(parts.compile(f), dynamic=False),
        fit_optimizer=fit_optimizer if torch.device(device).type == "cuda" else parts.fit_optimizer,
    )


@transform(
    "few-calls", only_on="cpu", elsewhere="on a GPU take cuda-graphs", needs=few_calls_need, instead="fused-adam",
    alone=KEEPS_GRADIENTS,
    excludes=("fused-adam", "one-pass-adam", "inplace-relu", "torchscript", "float16", "bfloat16", "one-pass-acting",
              "compile"),
)  # fmt: skip
def few_calls(parts: UpdateParts, device: str) -> UpdateParts:
    """The whole update of a `VectorNetwork` in a dozen calls of compiled code, its acting pass in three."""
    from dqnitro.learn.cpu import vector_update as v

    def whole(
        online: nn.Module, target: nn.Module, optimizer: torch.optim.Optimizer, config: Config
    ) -> Callable[[Batch], tuple[float, Tensor]] | None:
        if not (isinstance(online, VectorNetwork) and isinstance(target, VectorNetwork)):
            return None
        assert isinstance(optimizer, v.FlatAdam)
        return v.VectorUpdate(online, target, optimizer, config)

    return replace(
        parts, prepare=lambda network: v.flatten(parts.prepare(network)), make_optimizer=v.FlatAdam, whole=whole,
        act=v.VectorActing(parts.act), compiled_sampling=True,
    )  # fmt: skip


# Scaling asks on the host whether a gradient overflowed, and TorchScript rewrites itself while it runs: neither can be
# recorded.
@transform("cuda-graphs", excludes=("torchscript", "float16"))
def cuda_graphs(parts: UpdateParts, device: str) -> UpdateParts:
    """The update and the acting pass as CUDA graphs: one start instead of some hundred. On the CPU there is nothing to
    record.
    """
    if torch.device(device).type != "cuda":
        return parts
    from dqnitro.learn.gpu.cuda_graphs import Graphed, Recorded

    graphs: weakref.WeakKeyDictionary[nn.Module, Graphed] = weakref.WeakKeyDictionary()

    def act(network: nn.Module, obs: Tensor, *draws: Draws) -> Tensor:
        if not obs.is_cuda:  # a copy of the network that acts on the CPU
            return parts.act(network, obs, *draws)
        if network not in graphs:
            whole: Any = weakref.proxy(network)  # a graph that held its key would never be forgotten
            graphs[network] = Graphed(lambda x, *noise: (parts.act(whole, x, *(Draws(None, n) for n in noise)),))
        return graphs[network](obs, *(d.noise for d in draws if d.noise is not None))[0]

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        optimizer = parts.make_optimizer(parameters, lr, eps)
        for group in optimizer.param_groups:
            group["capturable"] = True  # its step counter lies on the GPU, where a graph can count
        return optimizer

    return replace(
        parts, act=act, make_optimizer=make_optimizer, around_update=lambda f: Graphed(parts.around_update(f)),
        record=lambda f: Recorded(parts.record(f)),
    )  # fmt: skip


@transform("gpu-replay", needs=gpu_replay_needs)
def gpu_replay(parts: UpdateParts, device: str) -> UpdateParts:
    """Samples are places in a replay on the learner's device, and the pass that acts is over memory that stays."""
    return replace(parts, takes_places=True)


@transform(
    "own-kernels", only_on="cuda", elsewhere="on the CPU take distinct-patches", reads_ring=True,
    excludes=("torchscript", "float16", "compile", "cuda-graphs"),
    needs=own_kernels_need, builds_on=("bfloat16",), instead="compile",
    start_up="compiling the kernels of the update, if they are new to this machine: half a minute",
    unordered="its kernels add gradients in no fixed order",
)  # fmt: skip
def own_kernels(parts: UpdateParts, device: str) -> UpdateParts:
    """Passes, gradients and optimiser as kernels of our own (`gpu.fused_update`), which read the ring on the GPU.

    The target network stays as precise as the online one: they keep a copy in the precision that they want. Of torch's
    optimiser they use the state alone.
    """

    def make_optimizer(parameters: Iterable[Tensor], lr: float, eps: float) -> torch.optim.Optimizer:
        optimizers_without_compiler()
        return parts.make_optimizer(parameters, lr, eps)

    return replace(parts, prepare_target=lambda network: network, make_optimizer=make_optimizer, reads_ring=True)


def chosen(names: tuple[str, ...]) -> tuple[Transform, ...]:
    """The transforms of these names, in the order in which they are applied; ConfigError if they do not go together."""
    for a, found in TRANSFORMS.items():
        for b in found.excludes:
            if a in names and b in names:
                raise ConfigError(f"wrappers {a} and {b} exclude each other", "leave one of them out")
    for name in names:
        if name not in TRANSFORMS:
            raise ConfigError(f"unknown wrapper {name!r}", f"the wrappers are {', '.join(TRANSFORMS)}")
    return tuple(found for name, found in TRANSFORMS.items() if name in names)


def first_unfit(config: Config) -> tuple[Transform, str] | None:
    """The first transform of a config that cannot be used with its other settings, and why; None if all can."""
    found = (t for name, t in TRANSFORMS.items() if name in config.wrappers)
    return next(((t, why) for t in found if (why := t.unfit(config))), None)


def check_fit(config: Config) -> None:
    """Refuse a transform whose passes are not those of this config's network or loss."""
    for found in chosen(config.wrappers):
        if not found.reads_ring and (why := found.needs(config)):
            raise ConfigError(f"wrapper {found.name}: {why}", f"use --without {found.name}")


def fit_for_ranks(config: Config, rungs: tuple[str, ...], asked: Sequence[str] = ()) -> tuple[Config, tuple[str, ...]]:
    """Without the transforms that cannot be used on several GPUs, where there are several; those that were `asked` for
    by name are refused.
    """
    out = {t.name: t.alone for t in chosen(config.wrappers) if t.alone} if config.gpus > 1 else {}
    for name in asked:
        if name in out:
            raise ConfigError(f"{name} cannot be used on several GPUs: {out[name]}", "leave it out")
    kept = tuple(name for name in config.wrappers if name not in out)
    return config.replace(wrappers=kept), tuple(name for name in rungs if name not in out)


def for_graphs(names: tuple[str, ...]) -> tuple[str, ...]:
    """These transforms with an optimiser that a CUDA graph can hold; the default one reads its step counter on the
    host.
    """
    return names if any(t.graph_holds_optimizer for t in chosen(names)) else (*names, "fused-adam")


def wrap(names: tuple[str, ...], device: str) -> UpdateParts:
    """The parts of an update with the named transforms, for a learner on this device."""
    parts = plain_parts(device)
    for found in chosen(names):
        if found.only_on and found.only_on != torch.device(device).type:
            where = {"cpu": "the CPU", "cuda": "a GPU"}[found.only_on]
            raise ConfigError(f"wrapper {found.name} is for a learner on {where}", found.elsewhere)
        parts = found.apply(parts, device)
    return parts
