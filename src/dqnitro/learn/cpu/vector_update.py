"""The update and the acting pass of a `VectorNetwork` in a dozen calls instead of some hundred.

Such a network is so small that torch takes ten times as long to call its operations as to compute them. Here the
parameters of a network, its gradients and Adam's moments lie in flat arrays, and torch's tensors are views of them: all
that is saved, loaded or copied by torch works as before. The reference implementation is `Learner.update` without the
rung `few-calls`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro.config import Config
from dqnitro.dqn import Batch, VectorNetwork
from dqnitro.learn.cpu import vector_kernels as kernels
from dqnitro.learn.cpu.one_pass_adam import step_float32
from dqnitro.process_setup import optimizers_without_compiler


def flatten(network: nn.Module) -> nn.Module:
    """Let the parameters of a `VectorNetwork` lie one after the other in memory."""
    if isinstance(network, VectorNetwork):
        parameters = list(network.parameters())
        flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        for p, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
            p.data = part.view(p.shape)
    return network


def is_flat(network: nn.Module) -> bool:
    """Whether it is a `VectorNetwork` whose parameters lie one after the other in one piece of memory, as float32."""
    if not isinstance(network, VectorNetwork):
        return False
    parameters = list(network.parameters())
    if len({p.untyped_storage().data_ptr() for p in parameters}) > 1:
        return False  # neighbours by chance: torch lets no tensor reach from one piece into the next
    ends = (p.data_ptr() + 4 * p.numel() for p in parameters)
    follow = all(end == p.data_ptr() for end, p in zip(ends, parameters[1:], strict=False))
    return follow and all(p.dtype == torch.float32 and p.is_contiguous() for p in parameters)


def flat_array(network: VectorNetwork) -> np.ndarray:
    """The memory of all parameters as one array."""
    assert is_flat(network), "memory with holes"
    first, size = next(network.parameters()).detach(), sum(p.numel() for p in network.parameters())
    return first.as_strided((size,), (1,), first.storage_offset()).numpy()


class FlatAdam(torch.optim.Adam):
    """`torch.optim.Adam` whose moments and counters are there from the start, each kind one after the other."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, eps: float) -> None:
        optimizers_without_compiler()
        super().__init__(parameters, lr=lr, eps=eps, foreach=True)
        (group,) = self.param_groups
        sizes = [p.numel() for p in group["params"]]
        m, v, counts = torch.zeros(sum(sizes)), torch.zeros(sum(sizes)), torch.zeros(len(sizes))
        self.arrays, self._counts = (m.numpy(), v.numpy()), counts.numpy()
        for p, m_p, v_p, count in zip(group["params"], m.split(sizes), v.split(sizes), counts, strict=True):
            self.state[p] = {"step": count, "exp_avg": m_p.view(p.shape), "exp_avg_sq": v_p.view(p.shape)}

    def next_numbers(self) -> tuple[np.float32, ...]:
        """Count a step; the factors that `step_float32` takes after the scale."""
        self._counts += 1
        t = float(self._counts[0])
        (group,) = self.param_groups
        beta1, beta2 = group["betas"]
        size, root = group["lr"] / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t)
        return tuple(np.float32(x) for x in (beta1, beta2, size, root, group["eps"]))


class VectorPasses:
    """A network's forward pass over a fixed number of observations, into memory of its own."""

    def __init__(self, network: VectorNetwork, rows: int) -> None:
        hidden = network.head.advantage.hidden
        self.flat = flat_array(network)
        self.h1, self.h2 = torch.empty(rows, hidden.in_features), torch.empty(rows, hidden.out_features)
        self.q = torch.empty(rows, network.head.spec.n_actions)
        self.h1_array, self.h2_array, self.q_array = self.h1.numpy(), self.h2.numpy(), self.q.numpy()
        self._weight_t = hidden.weight.detach().t()  # a view: it follows the parameter

    def __call__(self, obs: np.ndarray) -> None:
        """Writes `h1`, `h2` and `q`."""
        kernels.first_layer(obs, self.flat, self.h1_array)
        torch.mm(self.h1, self._weight_t, out=self.h2)
        kernels.last_layers(self.h2_array, self.flat, obs.shape[1], self.q_array)


class VectorActing:
    """The acting pass of `VectorNetwork`s that lie flat in memory; of others that of `otherwise`."""

    def __init__(self, otherwise: Callable[[nn.Module, Tensor], Tensor]) -> None:
        self._otherwise = otherwise
        # A network may be given other memory: `run/processes` lets its parameters follow the trainer's.
        self._passes: weakref.WeakKeyDictionary[nn.Module, tuple[int, int, VectorPasses | None]]
        self._passes = weakref.WeakKeyDictionary()

    def __call__(self, network: nn.Module, obs: Tensor) -> Tensor:
        where = next(network.parameters()).data_ptr()
        address, rows, passes = self._passes.get(network, (0, 0, None))
        if address != where or rows != len(obs):
            passes = None
            if isinstance(network, VectorNetwork) and is_flat(network) and obs.device.type == "cpu":
                passes = VectorPasses(network, len(obs))
            self._passes[network] = (where, len(obs), passes)
        if passes is None:
            return self._otherwise(network, obs)
        passes(obs.numpy().reshape(len(obs), -1))
        return passes.q.clone().unsqueeze(-1)


class VectorUpdate:
    """Loss, gradients, clipping and Adam of one batch."""

    def __init__(self, online: VectorNetwork, target: VectorNetwork, optimizer: FlatAdam, config: Config) -> None:
        n = config.batch_size
        self._parameters: list[Tensor] = list(online.parameters())
        self._optimizer, self._config = optimizer, config
        # With double DQN the online network sees both ends of a transition, in one pass.
        self._online = VectorPasses(online, 2 * n if config.double else n)
        self._target = VectorPasses(target, n)
        self._seen = np.zeros((2 * n if config.double else n, self._parameters[0].shape[1]), np.float32)
        self._gradient = np.zeros_like(self._online.flat)
        hidden = online.head.advantage.hidden.weight
        before = self._parameters[0].numel() + self._parameters[1].numel()
        self._hidden = hidden.detach()
        self._hidden_gradient = torch.from_numpy(self._gradient)[before : before + hidden.numel()].view(hidden.shape)
        self._d1, self._d2 = torch.empty(n, hidden.shape[1]), torch.empty(n, hidden.shape[0])
        self._slope = np.empty(n, np.float32)

    def __call__(self, batch: Batch) -> tuple[float, Tensor]:
        """The loss and each sample's error. The parameters stay as they are if the loss is not finite."""
        obs_tm1, action, reward, discount, obs_t, weight = (x.numpy() for x in batch)
        n, online, target = len(action), self._online, self._target
        obs_tm1, obs_t = obs_tm1.reshape(n, -1), obs_t.reshape(n, -1)
        self._seen[:n] = obs_tm1
        self._seen[n:] = obs_t[: len(self._seen) - n]
        online(self._seen)
        target(obs_t)
        td = np.empty(n, np.float32)
        selector = online.q_array[n:] if self._config.double else target.q_array
        huber = self._config.loss == "huber"
        said = (online.q_array[:n], target.q_array, selector)
        loss = kernels.errors(action, reward, discount, weight, *said, huber, td, self._slope)
        if math.isfinite(loss):
            self._step(action)
        return loss, torch.from_numpy(td)

    def _step(self, action: np.ndarray) -> None:
        n, online, inputs = len(action), self._online, self._seen.shape[1]
        kernels.last_gradients(
            action, self._slope, online.h2_array[:n], online.flat, inputs, self._gradient, self._d2.numpy()
        )
        torch.mm(self._d2.t(), online.h1[:n], out=self._hidden_gradient)
        torch.mm(self._d2, self._hidden, out=self._d1)
        kernels.first_gradients(self._seen[:n], online.h1_array[:n], self._d1.numpy(), self._gradient)
        scale = np.float32(kernels.clip_scale(self._gradient, self._config.grad_clip))
        numbers = self._optimizer.next_numbers()
        step_float32(online.flat, *self._optimizer.arrays, self._gradient, scale, *numbers)
        torch.autograd.graph.increment_version(self._parameters)  # written past torch's own operations
