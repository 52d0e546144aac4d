"""The learner: two networks, an optimiser, and one update made of wrapped parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro import dqn
from dqnitro.config import Config
from dqnitro.dqn import Batch, ConvNetwork
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import DivergedError
from dqnitro.learn.actors import CopiedNetwork, SameNetwork
from dqnitro.learn.transforms import Parts, wrap

Loss = Callable[[nn.Module, Any, Batch], tuple[Tensor, Tensor]]


class Outputs(NamedTuple):
    """What the networks say in an update, before anything is made of it."""

    tm1: Tensor  # the online network about `batch.obs_tm1`, with gradients
    t: Tensor  # the target network about `batch.obs_t`
    selector: Tensor | None  # the online network about `batch.obs_t`, for double DQN; None: it is still to be asked
    act: Tensor | None  # the online network about the observations to act on, where they were given


class Losses(NamedTuple):
    """The loss of a batch and each sample's error (the priority of prioritised replay), and the way there in two parts."""

    whole: Loss  # given the target network
    given: Loss  # given what that network says about `batch.obs_t`
    look: Look
    finish: Callable[[nn.Module, Outputs, Batch], tuple[Tensor, Tensor]]


Look = Callable[[nn.Module, nn.Module, Batch, Tensor | None], Outputs]


def make_look(config: Config, parts: Parts) -> Look:
    """The passes of an update: one after the other, side by side, or divided."""

    def forward(online: nn.Module, obs: Tensor, also: tuple[Tensor, ...]) -> list[Tensor]:
        """The pass that learns; other observations go along and have no gradients."""
        if not also:
            return [parts.forward(online, obs)]
        if parts.by_hand is not None and isinstance(online, ConvNetwork):
            return parts.by_hand.forward_also(online, obs, *also)
        out, *others = parts.forward(online, dqn.joined(obs, *also)).split([len(obs), *map(len, also)])
        return [out, *(x.detach() for x in others)]

    def both(
        online: nn.Module, target: nn.Module, batch: Batch, also: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        if parts.split is not None and isinstance(online, ConvNetwork) and isinstance(target, ConvNetwork):
            return parts.split.together(online, target, batch.obs_tm1, batch.obs_t, also)
        if parts.beside is None:
            return parts.quiet(target, batch.obs_t), forward(online, batch.obs_tm1, also)
        wait = parts.beside.start(parts.quiet, target, batch.obs_t)
        try:
            outputs = forward(online, batch.obs_tm1, also)
        finally:
            out_t = wait()
        return out_t, outputs

    def look(online: nn.Module, target: nn.Module, batch: Batch, obs: Tensor | None) -> Outputs:
        select = config.double and parts.one_pass
        also = ((batch.obs_t,) if select else ()) + (() if obs is None else (obs,))
        out_t, (out_tm1, *others) = both(online, target, batch, also)
        return Outputs(out_tm1, out_t, others[0] if select else None, None if obs is None else others[-1])

    return look


def make_losses(config: Config, parts: Parts, atoms: Tensor | None) -> Losses:
    def finish(online: nn.Module, out: Outputs, batch: Batch) -> tuple[Tensor, Tensor]:
        q_t = dqn.q_values(out.t, atoms)
        selector = q_t
        if config.double:
            said = parts.quiet(online, batch.obs_t) if out.selector is None else out.selector
            selector = dqn.q_values(said, atoms)
        if atoms is None:
            y = dqn.td_target(batch.reward_t, batch.discount_t, q_t, selector)
            each, td = dqn.td_loss(dqn.q_values(out.tm1, None), batch.action_tm1, y, config.loss)
        else:
            best = selector.argmax(1)
            p_t = out.t[torch.arange(out.t.shape[0], device=out.t.device), best].float().softmax(-1)
            p_target = dqn.categorical_projection(batch.reward_t, batch.discount_t, p_t, atoms)
            each = dqn.categorical_loss(out.tm1, batch.action_tm1, p_target)
            td = each
        return (each * batch.weight).mean(), td.detach()

    def given(online: nn.Module, out_t: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        return finish(online, Outputs(parts.forward(online, batch.obs_tm1), out_t, None, None), batch)

    def whole(online: nn.Module, target: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        return finish(online, look(online, target, batch, None), batch)

    look = make_look(config, parts)
    return Losses(parts.around_loss(whole), given, look, finish)


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
        self._loss, self.loss_given, self._look, self._finish = make_losses(config, parts, self._atoms)
        self.acts_in_pass = parts.one_pass and acting is None
        self._begun: tuple[Batch, Batch, Outputs] | None = None  # as it was given, on the device, and its passes
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
        if self._begun is not None:
            out = self._begun[2].act
            assert out is not None
            return dqn.q_values(out, self._atoms).argmax(1).numpy()
        return self._actor.greedy(obs)

    def begin(self, batch: Batch, obs: np.ndarray) -> None:
        """The passes of the next update, and in the same pass what `greedy` wants to know of these observations. Until `update`
        finishes it no parameter changes.
        """
        mine = Batch(*map(self._copy, batch))
        self._begun = (batch, mine, self._look(self.online, self.target, mine, torch.from_numpy(obs)))

    def update(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """One optimiser step; the loss and each sample's error, still on the device."""
        begun, self._begun = self._begun, None
        if begun is None:
            batch = Batch(*map(self._copy, batch))
        else:
            assert begun[0] is batch, "another update was begun"
        if self._is_cpu:
            if begun is None:
                loss, td = self._loss(self.online, self.target, batch)
            else:
                loss, td = self._finish(self.online, begun[2], begun[1])
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
        batch = Batch(obs, action, ones, ones, obs, ones)
        loss, _ = self._loss(self.online, self.target, batch)
        loss.backward()
        self._optimizer.zero_grad(set_to_none=True)
        few = np.zeros((spec.n_envs, *spec.obs_shape), spec.obs_dtype)
        self.greedy(few)
        if self.acts_in_pass:
            out = self._look(self.online, self.target, batch, torch.from_numpy(few))
            out.tm1.mean().backward()
            self._optimizer.zero_grad(set_to_none=True)

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
