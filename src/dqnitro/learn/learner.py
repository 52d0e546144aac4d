"""The learner: two networks, an optimiser, and one update made of wrapped parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro import dqn
from dqnitro.config import Config
from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import DivergedError
from dqnitro.learn.acting import CopiedNetwork, SameNetwork
from dqnitro.learn.wrappers import Parts, wrap

Loss = Callable[[nn.Module, Any, Batch], tuple[Tensor, Tensor]]


def make_losses(config: Config, parts: Parts, atoms: Tensor | None) -> tuple[Loss, Loss]:
    """The loss of a batch and each sample's error (the priority of prioritised replay), twice: given the target network,
    and given what that network says about `batch.obs_t`.
    """

    def finish(online: nn.Module, out_tm1: Tensor, out_t: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        q_t = dqn.q_values(out_t, atoms)
        selector = dqn.q_values(parts.quiet(online, batch.obs_t), atoms) if config.double else q_t
        if atoms is None:
            y = dqn.td_target(batch.reward_t, batch.discount_t, q_t, selector)
            each, td = dqn.td_loss(dqn.q_values(out_tm1, None), batch.action_tm1, y, config.loss)
        else:
            best = selector.argmax(1)
            p_t = out_t[torch.arange(out_t.shape[0], device=out_t.device), best].float().softmax(-1)
            p_target = dqn.categorical_projection(batch.reward_t, batch.discount_t, p_t, atoms)
            each = dqn.categorical_loss(out_tm1, batch.action_tm1, p_target)
            td = each
        return (each * batch.weight).mean(), td.detach()

    def given(online: nn.Module, out_t: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        return finish(online, parts.forward(online, batch.obs_tm1), out_t, batch)

    def loss(online: nn.Module, target: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return given(online, parts.quiet(target, batch.obs_t), batch)

    def loss_beside(online: nn.Module, target: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        assert parts.beside is not None
        wait = parts.beside.start(parts.quiet, target, batch.obs_t)
        try:
            out_tm1 = parts.forward(online, batch.obs_tm1)
        finally:
            out_t = wait()
        return finish(online, out_tm1, out_t, batch)

    return parts.around_loss(loss if parts.beside is None else loss_beside), given


def head_spec(config: Config, spec: EnvSpec) -> dqn.HeadSpec:
    """What the network of a config predicts."""
    atoms = config.atoms if config.categorical else 1
    return dqn.HeadSpec(spec.n_actions, config.dueling, atoms, config.value_min, config.value_max)


def build_network(config: Config, spec: EnvSpec) -> nn.Module:
    """The network of a config, on the CPU, with fresh weights."""
    kind = config.network if spec.is_image else "vector"
    network = dqn.make_network(spec.obs_shape, kind, config.hidden_units, head_spec(config, spec))
    if config.init == "kaiming":
        dqn.kaiming(network)
    return network


class Learner:
    """Owns the parameters. `update` is the only thing that changes them."""

    def __init__(self, config: Config, spec: EnvSpec, device: str) -> None:
        self._config, self.device = config, torch.device(device)
        head = head_spec(config, spec)
        parts = wrap(config.wrappers, device)
        # The seed decides the first weights whatever happened before in this process.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            online = build_network(config, spec)
            target = build_network(config, spec)
            acting = None if config.act_device == "same" else build_network(config, spec)
        self.online = parts.prepare(online.to(self.device))
        self.target = parts.prepare_target(parts.prepare(target.to(self.device)))
        self.sync_target()
        self._atoms = dqn.support(head, self.device) if head.categorical else None
        self._optimizer = parts.make_optimizer(self.online.parameters(), config.learning_rate, config.adam_epsilon)
        self._loss, self.loss_given = make_losses(config, parts, self._atoms)
        self.quiet = parts.quiet
        self._copy, self._step = parts.copy, parts.step
        self._loss_and_step = parts.around_update(self._loss_then_step)
        if acting is None:
            self._actor = SameNetwork(self.online, parts.act, parts.copy, self._atoms)
        else:
            acting = parts.prepare(acting.to(config.act_device))
            self._actor = CopiedNetwork(self.online, acting, parts.act, self._atoms, config.act_sync_updates)
        self._is_cpu = self.device.type == "cpu"
        # On a GPU the first bad update is remembered on the card: reading every loss would stall the queue.
        self._first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        self.n_updates = 0

    def greedy(self, obs: np.ndarray) -> np.ndarray:
        """The best action of each environment. The copy back is a synchronisation point on a GPU."""
        return self._actor.greedy(obs)

    def update(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """One optimiser step; the loss and each sample's error, still on the device."""
        batch = Batch(*map(self._copy, batch))
        if self._is_cpu:
            loss, td = self._loss(self.online, self.target, batch)
            # Free on a CPU, and early enough to keep the bad gradient out of the parameters.
            if not math.isfinite(value := loss.item()):
                raise DivergedError(self.n_updates + 1, value)
            self._step(loss, self.online, self._optimizer, self._config.grad_clip)
        else:
            loss, td = self._loss_and_step(*batch)
            bad = ~torch.isfinite(loss) & (self._first_bad < 0)
            self._first_bad = torch.where(bad, self.n_updates + 1, self._first_bad)
        self.n_updates += 1
        self._actor.updated(self.n_updates)
        return loss.detach(), td

    def _loss_then_step(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        """Both, for a GPU: nothing in here asks the card anything, so a wrapper may record it."""
        loss, td = self._loss(self.online, self.target, Batch(*batch))
        self._step(loss, self.online, self._optimizer, self._config.grad_clip)
        return loss.detach(), td

    def check_finite(self) -> None:
        """Raise if an update on the GPU went bad; call it seldom, it synchronises."""
        if not self._is_cpu and (bad := int(self._first_bad)) >= 0:
            raise DivergedError(bad, math.nan)

    def sync_target(self) -> None:
        self.target.load_state_dict(self.online.state_dict())

    def warm_up(self, spec: EnvSpec, batch_size: int) -> None:
        """Compile and allocate on dummy data before the clock starts. Changes no parameter and draws no random number."""
        obs = torch.from_numpy(np.zeros((batch_size, *spec.obs_shape), spec.obs_dtype)).to(self.device)
        ones = torch.ones(batch_size, device=self.device)
        action = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        loss, _ = self._loss(self.online, self.target, Batch(obs, action, ones, ones, obs, ones))
        loss.backward()
        self._optimizer.zero_grad(set_to_none=True)
        self.greedy(np.zeros((spec.n_envs, *spec.obs_shape), spec.obs_dtype))

    # -- saving

    def weights(self) -> dict[str, Tensor]:
        """The online network, contiguous and on the CPU: what `play` needs."""
        return {k: v.detach().cpu().contiguous().clone() for k, v in self.online.state_dict().items()}

    def get_state(self) -> dict[str, Tensor]:
        out = {f"online.{k}": v for k, v in self.online.state_dict().items()}
        out |= {f"target.{k}": v for k, v in self.target.state_dict().items()}
        for i, p in enumerate(self.online.parameters()):
            out |= {f"adam.{i}.{k}": v for k, v in self._optimizer.state.get(p, {}).items()}
        out |= {f"step.{k}": v for k, v in self._step.get_state().items()}
        out |= {f"acting.{k}": v for k, v in self._actor.get_state().items()}
        out["n_updates"] = torch.tensor(self.n_updates)
        # NumPy has no bfloat16; float32 holds every bfloat16 exactly.
        return {
            k: (v.float() if v.dtype == torch.bfloat16 else v).detach().cpu().contiguous().clone()
            for k, v in out.items()
        }

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}

        self.online.load_state_dict(part("online."))
        self.target.load_state_dict(part("target."))
        for i, p in enumerate(self.online.parameters()):
            saved, there = part(f"adam.{i}."), self._optimizer.state.get(p, {})
            if saved and set(saved) == set(there):
                for k, v in saved.items():  # in place: a CUDA graph may know these tensors by address
                    there[k].copy_(v)
            elif saved:
                # `step` stays on the CPU unless the fused kernel, or a graph, wants it beside the parameters.
                fused = any(g.get("fused") or g.get("capturable") for g in self._optimizer.param_groups)
                self._optimizer.state[p] = {
                    k: v.to(self.device if fused or k != "step" else "cpu").clone(memory_format=torch.preserve_format)
                    if k == "step"
                    else torch.empty_like(p).copy_(v)
                    for k, v in saved.items()
                }
        self._step.set_state(part("step."))
        self._actor.set_state(part("acting."))
        self.n_updates = int(state["n_updates"])
