"""DQN as pure functions: networks, targets, losses, exploration. Nothing here has its own clock, replay or device.

The suffix is the time: `obs_tm1, action_tm1` are from before the step, `reward_t, discount_t, obs_t` from after it.
`discount_t` is gamma to the power of the number of steps it spans, or 0 if the episode terminated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dqnitro.heads import Draws, Head, HeadSpec


class Batch(NamedTuple):
    """B transitions, as every replay returns them."""

    obs_tm1: Tensor  # (B, *obs_shape), uint8 for images
    action_tm1: Tensor  # int64 (B,)
    reward_t: Tensor  # float32 (B,): the discounted sum of n_step rewards
    discount_t: Tensor  # float32 (B,): gamma^n, or 0 if the episode terminated
    obs_t: Tensor  # (B, *obs_shape)
    weight: Tensor  # float32 (B,): importance weights; ones when sampling is uniform


def joined(obs: Tensor, *others: Tensor) -> Tensor:
    """Concatenate, in the memory order of the first."""
    if not others:
        return obs
    shape = (sum(map(len, (obs, *others))), *obs.shape[1:])
    out = torch.empty_strided(shape, obs.stride(), dtype=obs.dtype, device=obs.device)
    for part, x in zip(out.split([len(obs), *map(len, others)]), (obs, *others), strict=True):
        part.copy_(x)
    return out


# (channels, kernel, stride) of the convolutions
CONVOLUTIONS = {
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),  # Mnih et al. (2015)
    "small": ((16, 8, 4), (32, 4, 2)),  # Mnih et al. (2013)
}


SMALLEST_SIDE = 36  # of images for those


class ImageNetwork(nn.Module):
    """A network for stacked frames, uint8 in."""

    def __init__(self) -> None:
        super().__init__()
        self.memory_format = torch.contiguous_format  # of the pixels; they are reordered and converted in one pass


class ConvNetwork(ImageNetwork):
    """Two or three convolutions and a head."""

    def __init__(self, obs_shape: tuple[int, ...], kind: str, hidden: int, spec: HeadSpec) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = obs_shape[0]
        for channels, kernel, stride in CONVOLUTIONS[kind]:
            layers += [nn.Conv2d(inputs, channels, kernel, stride=stride), nn.ReLU()]
            inputs = channels
        self.convolutions = nn.Sequential(*layers)
        with torch.no_grad():
            features = self.convolutions(torch.zeros(1, *obs_shape)).numel()
        self.head = Head(features, hidden, spec)

    def forward(self, obs: Tensor, draws: Draws | None = None) -> Tensor:
        # Pixels are stored as bytes and scaled here, which needs a quarter of the memory traffic of floats.
        kind = obs.device.type
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            # Every byte is exact in bfloat16, so the weights are scaled: thousands of numbers instead of a million.
            first = self.convolutions[0]
            assert isinstance(first, nn.Conv2d)
            weight, stride = first.weight * (1.0 / 255.0), first.stride
            if obs.shape[1] != first.in_channels:
                weight, stride = deep_weight(weight), (1, 1)
            x = F.conv2d(obs.to(torch.bfloat16, memory_format=self.memory_format), weight, first.bias, stride)
            x = self.convolutions[1:](x)
        else:
            x = obs.to(torch.float32, memory_format=self.memory_format)
            # A converted copy may be overwritten, which saves a pass over megabytes.
            x = x * (1.0 / 255.0) if obs.dtype == torch.float32 else x.mul_(1.0 / 255.0)
            first = self.convolutions[0]
            assert isinstance(first, nn.Conv2d)
            if obs.shape[1] != first.in_channels:
                x = self.convolutions[1:](F.conv2d(x, deep_weight(first.weight), first.bias))
            else:
                x = self.convolutions(x)
        return self.head(x.flatten(1), draws)


def deep_weight(weight: Tensor) -> Tensor:
    """An 8x8 kernel of stride 4 as the equivalent 2x2 kernel of stride 1 over blocks of 4x4 pixels as channels."""
    out, inputs, height, width = weight.shape
    blocks = weight.view(out, inputs, height // 4, 4, width // 4, 4)
    return blocks.permute(0, 1, 3, 5, 2, 4).reshape(out, inputs * 16, height // 4, width // 4)


SQUARINGS = 5  # 2^5 power iterations


def spectral_norm(weights: Tensor) -> Tensor:
    """The largest singular value of each of these matrices, (..., outputs, inputs) -> (...), with gradients.

    Power iteration usually keeps a vector between passes; squaring the small matrix of products of the outputs needs
    none, so that a pass stays a function of the weights.
    """
    wide = weights.float()
    with torch.no_grad():
        products = wide @ wide.mT
        for _ in range(SQUARINGS):
            products = products / products.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None].clamp(min=1e-30)
            products = products @ products
        # Every column is nearly a multiple of the first singular vector; the one with the largest entry is not 0.
        column = products.diagonal(dim1=-2, dim2=-1).argmax(-1)[..., None, None].expand(*products.shape[:-1], 1)
        left = F.normalize(products.gather(-1, column).squeeze(-1), dim=-1)
        right = F.normalize((left[..., None, :] @ wide).squeeze(-2), dim=-1)
    return ((left[..., None, :] @ wide).squeeze(-2) * right).sum(-1)


class Residual(nn.Module):
    """Two convolutions whose result is added to their input. `F.relu`, since the input is needed again as it was.

    `spectral`: their weights are divided by the largest singular value, so that neither stretches its input much.
    """

    def __init__(self, channels: int, norm: str) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        # One group over all channels and pixels is a LayerNorm that does not depend on the size of the image.
        self.norm = nn.GroupNorm(1, channels) if norm == "layer" else nn.Identity()
        self.spectral = norm == "spectral"

    def forward(self, x: Tensor) -> Tensor:
        if not self.spectral:
            return x + self.second(F.relu(self.first(F.relu(self.norm(x)))))
        both = self.first.weight, self.second.weight
        first, second = spectral_norm(torch.stack([w.flatten(1) for w in both])).to(both[0].dtype)
        h = F.conv2d(F.relu(x), both[0] / first, self.first.bias, padding=1)
        return x + F.conv2d(F.relu(h), both[1] / second, self.second.bias, padding=1)


IMPALA_CHANNELS = (16, 32, 32)  # Espeholt et al. (2018), times the width


class ImpalaNetwork(ImageNetwork):
    """The residual network of IMPALA: stages of a convolution, a max pool and two residual blocks, then a head.

    A last max pool leaves 6x6 of 84x84 pixels, as in Clark et al. (2024): a quarter of the weights of the next layer.
    """

    def __init__(self, obs_shape: tuple[int, ...], width: int, norm: str, hidden: int, spec: HeadSpec) -> None:
        super().__init__()
        inputs, stages = obs_shape[0], []
        for channels in (width * c for c in IMPALA_CHANNELS):
            blocks = (Residual(channels, norm) for _ in range(2))
            stages.append(
                nn.Sequential(nn.Conv2d(inputs, channels, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1), *blocks)
            )
            inputs = channels
        self.stages = nn.Sequential(*stages)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        with torch.no_grad():
            features = self.pool(self.stages(torch.zeros(1, *obs_shape))).numel()
        self.head = Head(features, hidden, spec)

    def forward(self, obs: Tensor, draws: Draws | None = None) -> Tensor:
        stem = self.stages[0]
        assert isinstance(stem, nn.Sequential)
        first = stem[0]
        assert isinstance(first, nn.Conv2d)
        kind = obs.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
        # Scaling the few weights instead of the many pixels also keeps every byte exact in bfloat16.
        x = F.conv2d(
            obs.to(dtype, memory_format=self.memory_format), first.weight * (1.0 / 255.0), first.bias, padding=1
        )
        x = self.stages[1:](stem[1:](x))
        return self.head(F.relu(self.pool(x)).flatten(1), draws)


BOARD_CHANNELS = (16, 32)  # of the first convolution and of those that halve the sides
BOARD_SIDE = 10  # sides are halved until they are no longer than this


class BoardNetwork(ImageNetwork):
    """For boards and images that are too small for the networks above: 3x3 convolutions that keep every pixel.

    A 10x10 board goes through one of them, as in MinAtar (Young and Tian 2019); larger images are halved first.
    """

    def __init__(self, obs_shape: tuple[int, ...], hidden: int, spec: HeadSpec) -> None:
        super().__init__()
        first, later = BOARD_CHANNELS
        inputs, *sides = obs_shape
        layers: list[nn.Module] = [nn.Conv2d(inputs, first, 3, padding=1), nn.ReLU()]
        inputs = first
        while max(sides) > BOARD_SIDE:
            layers += [nn.Conv2d(inputs, later, 3, stride=2, padding=1), nn.ReLU()]
            inputs, sides = later, [-(-n // 2) for n in sides]
        self.convolutions = nn.Sequential(*layers)
        self.head = Head(inputs * sides[0] * sides[1], hidden, spec)

    def forward(self, obs: Tensor, draws: Draws | None = None) -> Tensor:
        pixels = obs.to(torch.float32, memory_format=self.memory_format) * (1.0 / 255.0)
        return self.head(self.convolutions(pixels).flatten(1), draws)


class VectorNetwork(nn.Module):
    """Two hidden layers for plain vectors (CartPole and the like)."""

    def __init__(self, obs_shape: tuple[int, ...], hidden: int, spec: HeadSpec) -> None:
        super().__init__()
        n_inputs = int(np.prod(obs_shape))
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(n_inputs, hidden), nn.ReLU())
        self.head = Head(hidden, hidden, spec)

    def forward(self, obs: Tensor, draws: Draws | None = None) -> Tensor:
        return self.head(self.body(obs.float()), draws)


@dataclass(frozen=True)
class Impala:
    """What can be chosen of the network of that name."""

    width: int = 1
    norm: str = "none"  # none, layer or spectral


def make_network(
    obs_shape: tuple[int, ...], kind: str, hidden: int, spec: HeadSpec, impala: Impala | None = None
) -> nn.Module:
    """`kind` is one of CONVOLUTIONS, `impala` or `board` for images, or `vector`."""
    if kind == "board":
        return BoardNetwork(obs_shape, hidden, spec)
    if kind == "vector":
        return VectorNetwork(obs_shape, hidden, spec)
    if kind == "impala":
        impala = impala or Impala()
        return ImpalaNetwork(obs_shape, impala.width, impala.norm, hidden, spec)
    return ConvNetwork(obs_shape, kind, hidden, spec)


def kaiming(network: nn.Module) -> None:
    """Initial weights that preserve a ReLU network's variance from layer to layer (He et al. 2015); biases 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)


def support(spec: HeadSpec, device: torch.device | str = "cpu") -> Tensor:
    """The returns that the atoms of a categorical head stand for."""
    return torch.linspace(spec.value_min, spec.value_max, spec.atoms, device=device)


def q_values(out: Tensor, atoms: Tensor | None) -> Tensor:
    """Expected returns (B, n_actions) from a network's output (B, n_actions, atoms).

    Without `atoms` the output is the value itself, or quantiles of it, whose mean it is.
    """
    if atoms is None:
        return out.squeeze(-1) if out.shape[-1] == 1 else out.float().mean(-1)
    return (out.float().softmax(-1) * atoms).sum(-1)


def td_target(reward_t: Tensor, discount_t: Tensor, q_t: Tensor, q_t_selector: Tensor) -> Tensor:
    """r + discount * Q(s', argmax selector): DQN if the selector is q_t, double DQN if it is the online network's."""
    best = q_t_selector.argmax(1, keepdim=True)
    return reward_t + discount_t * q_t.gather(1, best).squeeze(1)


def td_loss(
    q_tm1: Tensor, action_tm1: Tensor, target_t: Tensor, kind: str | Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Per-sample loss and the temporal-difference error; gradients flow through q_tm1 alone."""
    value = q_tm1.gather(1, action_tm1.unsqueeze(1)).squeeze(1)
    td = target_t.detach() - value
    if callable(kind):
        return kind(value, target_t.detach()), td
    if kind == "huber":
        loss = F.huber_loss(td, torch.zeros_like(td), reduction="none")
    else:
        loss = td.square()
    return loss, td


def categorical_projection(reward_t: Tensor, discount_t: Tensor, p_t: Tensor, atoms: Tensor) -> Tensor:
    """Shift the distribution p_t (B, atoms) by the reward, shrink it by the discount, and put it back on the atoms."""
    low, high = atoms[0], atoms[-1]
    spacing = (high - low) / (atoms.numel() - 1)
    moved = (reward_t[:, None] + discount_t[:, None] * atoms[None, :]).clamp(low, high)
    # Each atom gets a share of the mass of a moved one, by distance: a triangle one spacing wide on both sides.
    distance = (moved[:, None, :] - atoms[None, :, None]).abs() / spacing
    return ((1.0 - distance).clamp(0.0, 1.0) * p_t[:, None, :]).sum(-1)


def categorical_loss(out_tm1: Tensor, action_tm1: Tensor, target_p_t: Tensor) -> Tensor:
    """Cross entropy between the projected target and the predicted distribution of the action taken."""
    rows = torch.arange(out_tm1.shape[0], device=out_tm1.device)
    log_p = out_tm1.float()[rows, action_tm1].log_softmax(-1)
    return -(target_p_t.detach() * log_p).sum(-1)


def quantile_huber_loss(out_tm1: Tensor, action_tm1: Tensor, target_t: Tensor, taus: Tensor | None = None) -> Tensor:
    """The loss of quantile regression (Dabney et al. 2018) for the action taken, target_t (B, samples).

    Too low an estimate of the quantile tau costs tau, too high a one the rest. Without `taus` (B, N) quantile i of N is
    the midpoint (i + 1/2) / N.
    """
    rows = torch.arange(out_tm1.shape[0], device=out_tm1.device)
    theta = out_tm1.float()[rows, action_tm1]
    n = theta.shape[1]
    if taus is None:
        taus = ((torch.arange(n, device=theta.device) + 0.5) / n)[None]
    error = target_t.detach()[:, None, :] - theta[:, :, None]  # (B, quantiles, samples)
    huber = F.huber_loss(error, torch.zeros_like(error), reduction="none")
    return ((taus[:, :, None] - (error.detach() < 0).float()).abs() * huber).mean(2).sum(1)


class Munchausen(NamedTuple):
    """Settings of Munchausen targets (Vieillard et al. 2020)."""

    temperature: float  # of the softmax policy
    scale: float  # of the bonus
    floor: float  # the lowest logarithm of a probability that counts


def log_policy(q: Tensor, temperature: float) -> Tensor:
    """temperature * log softmax(q / temperature), (B, n_actions): 0 for a certain action, negative for the others."""
    return temperature * (q / temperature).log_softmax(1)


def munchausen_reward(reward_t: Tensor, q_tm1: Tensor, action_tm1: Tensor, m: Munchausen) -> Tensor:
    """The reward and a bonus for actions that the target network's policy was sure of."""
    taken = log_policy(q_tm1, m.temperature).gather(1, action_tm1.unsqueeze(1)).squeeze(1)
    return reward_t + m.scale * taken.clamp(m.floor, 0.0)


def soft_value(out_t: Tensor, q_t: Tensor, m: Munchausen) -> Tensor:
    """The value of a state under the softmax policy, with its entropy; quantile by quantile: (B, atoms)."""
    scaled = log_policy(q_t, m.temperature)
    policy = (scaled / m.temperature).exp()
    return (policy.unsqueeze(-1) * (out_t.float() - scaled.unsqueeze(-1))).sum(1)


# In an environment that has had no reward for long: the chance of a random action, and the chance that it makes its
# last action again instead, whatever it would choose. Ten steps in one direction lead further than ten random ones: in
# Freeway random actions never cross the road, and actions that are kept do so once in 800 steps.
IDLE_EPSILON, IDLE_HOLDS = 0.5, 0.9


def epsilon_greedy(greedy: np.ndarray, epsilon: float, n_actions: int, rng: np.random.Generator) -> np.ndarray:
    """Every environment flips its own coin; one coin for the whole vector would make all of them explore at once."""
    explore = rng.random(greedy.shape[0]) < epsilon
    return np.where(explore, rng.integers(0, n_actions, greedy.shape[0]), greedy)
