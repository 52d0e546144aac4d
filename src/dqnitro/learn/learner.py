"""The learner: two networks, an optimiser, and one update made of the parts that `transforms` gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from dqnitro import dqn, own
from dqnitro.config import Config
from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import DivergedError
from dqnitro.heads import Wants, noise_size
from dqnitro.learn import own_pieces
from dqnitro.learn.actors import CopiedNetwork, SameNetwork, WaitingNetwork
from dqnitro.learn.losses import Outputs, make_losses
from dqnitro.learn.networks import acting_noise, build_network, head_spec
from dqnitro.learn.placed_update import PlacedUpdate
from dqnitro.learn.rate import Rate, decaying, set_rate
from dqnitro.learn.transforms import check_fit, wrap
from dqnitro.replay.placed import Drawn


class Learner:
    """Owns the parameters. Only `update` changes them, or in its place a `RingUpdate` made of this learner's parts.

    `loss` is of a batch, given both networks; `loss_given` the same given the target network's output. `passes` and
    `loss_of_passes` are the two halves of `loss`, between which actions may be chosen.
    """

    def __init__(self, config: Config, spec: EnvSpec, device: str) -> None:
        self._config, self.device = config, torch.device(device)
        check_fit(config)
        self.head = head = head_spec(config, spec)
        self.parts = parts = wrap(config.wrappers, device)
        # The seed decides the first weights whatever happened before in this process.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            online = build_network(config, spec)
            target = build_network(config, spec)
            acting = None if config.act_device == "same" else build_network(config, spec)
        self.online = parts.prepare(online.to(self.device))
        self.target = parts.prepare_target(parts.prepare(target.to(self.device)))
        self.sync_target()
        self.wants = Wants(config.implicit_quantiles, noise_size(self.online))
        self._chance = torch.Generator(self.device)  # of the random numbers that the passes of `update` want
        self._chance.manual_seed(config.seed)
        self.atoms = dqn.support(head, self.device) if head.categorical else None
        if own.is_own("optimizer", config.optimizer):
            self.optimizer = own_pieces.make_optimizer(config, self.online.parameters())
        else:
            self.optimizer = parts.make_optimizer(self.online.parameters(), config.learning_rate, config.adam_epsilon)
        self.loss, self.loss_given, self.passes, self.loss_of_passes = make_losses(config, parts, self.atoms)
        self.acts_in_pass = parts.one_pass and acting is None
        # A batch as it was given, the same on the device, and the passes over it.
        self._begun: tuple[Batch | Drawn, Batch, Outputs] | None = None
        self._copy, self.optimizer_step, self._rate = parts.copy, decaying(parts.step, config), Rate.of(config)
        self.update_on_gpu = parts.around_update(self.loss_and_step)
        if acting is None and parts.takes_places:
            like = np.zeros((spec.n_envs, *spec.obs_shape), spec.obs_dtype)
            self.actor = WaitingNetwork(self.online, parts, self.atoms, like, self.device)
        elif acting is None:
            self.actor = SameNetwork(self.online, parts.act, parts.copy, self.atoms)
        else:
            acting = parts.prepare(acting.to(config.act_device))
            self.actor = CopiedNetwork(self.online, acting, parts.act, self.atoms, config.act_sync_updates)
        self._is_cpu = self.device.type == "cpu"
        self._whole = parts.whole(self.online, self.target, self.optimizer, config)
        # On a GPU the first bad update is remembered there: reading every loss would stall the queue. None before the
        # first update, and so for good where a `RingUpdate` learns: its runner reports the first bad one with every
        # tick.
        self._first_bad: Tensor | None = None
        self._placed: PlacedUpdate | None = None  # where batches come as places
        self.n_updates = 0

    def greedy(
        self, obs: np.ndarray, rng: np.random.Generator | None = None, meanwhile: Callable[[], None] | None = None
    ) -> np.ndarray:
        """The best action of each environment. The copy back is a synchronisation point on a GPU.

        The noise of noisy layers is drawn from `rng`; without it there is none. `meanwhile`: what the host may start
        before it waits for the GPU; it is not called where there is nothing to wait for.
        """
        if self._begun is not None:
            out = self._begun[2].act
            assert out is not None
            return self.actor.choose(dqn.q_values(out, self.atoms))
        return self.actor.greedy(obs, acting_noise(self.wants, rng), meanwhile)

    def mean_best_value(self) -> float | None:
        """The value of the best action, mean over the observations that `greedy` was asked about last.

        None before that, for good where a runner chooses actions elsewhere, and if it is not finite. It synchronises a
        GPU.
        """
        best = self.actor.best
        value = math.nan if best is None else best.mean().item()
        return value if math.isfinite(value) else None

    def begin(self, batch: Batch | Drawn, obs: np.ndarray) -> None:
        """The passes of the next update, and in the same pass what `greedy` wants to know of these observations. Until
        `update` finishes it no parameter changes.
        """
        mine = self._fetched(batch)
        self._begun = (batch, mine, self.passes(self.online, self.target, mine, torch.from_numpy(obs), None))

    def update(self, batch: Batch | Drawn) -> tuple[Tensor, Tensor]:
        """One optimiser step; the loss and each sample's error, still on the device. The errors of a batch that came as
        places are overwritten by the next update.
        """
        if isinstance(batch, Drawn) and not self._is_cpu:
            return self._update_placed(batch)
        if self._whole is not None:
            return self._update_whole(self._whole, batch.fetch() if isinstance(batch, Drawn) else batch)
        begun, self._begun = self._begun, None
        assert begun is None or begun[0] is batch, "another update was begun"
        mine = self._fetched(batch) if begun is None else begun[1]
        draws = self.wants.draw(len(mine.action_tm1), self.device, self._chance)
        if self._is_cpu:
            if begun is None:
                loss, td = self.loss(self.online, self.target, mine, draws)
            else:
                loss, td = self.loss_of_passes(self.online, begun[2], mine, None)
            # Free on a CPU, and early enough to keep the bad gradient out of the parameters.
            if not math.isfinite(value := loss.item()):
                raise DivergedError(self.n_updates + 1, value)
            self.optimizer_step(loss, self.online, self.optimizer, self._config.grad_clip)
        else:
            loss, td = self.update_on_gpu(*mine, *(() if draws is None else draws.tensors))
            if self._first_bad is None:
                self._first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
            bad = ~torch.isfinite(loss) & (self._first_bad < 0)
            self._first_bad = torch.where(bad, self.n_updates + 1, self._first_bad)
        self.n_updates += 1
        self.actor.updated(self.n_updates)
        return loss.detach(), td

    def _fetched(self, batch: Batch | Drawn) -> Batch:
        """The batch where the learner is."""
        return batch.fetch() if isinstance(batch, Drawn) else Batch(*map(self._copy, batch))

    def _update_placed(self, drawn: Drawn) -> tuple[Tensor, Tensor]:
        if self._placed is None or self._placed.drawn is not drawn:
            self._placed = PlacedUpdate(self.loss_and_step, drawn, self.parts.record, self.n_updates)
        loss, td = self._placed()
        self.n_updates += 1
        self.actor.updated(self.n_updates)
        return loss.clone(), td

    def _update_whole(self, whole: Callable[[Batch], tuple[float, Tensor]], batch: Batch) -> tuple[Tensor, Tensor]:
        if self._rate.per_update:
            set_rate(self.optimizer, self._rate)
        value, td = whole(batch)
        if not math.isfinite(value):
            raise DivergedError(self.n_updates + 1, value)
        self.n_updates += 1
        self.actor.updated(self.n_updates)
        return torch.tensor(value), td

    def loss_and_step(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Both, for a GPU: nothing in here asks the GPU anything, so a transform may record it. `tensors`: a batch, and
        the random numbers of its passes.
        """
        n = len(Batch._fields)
        loss, td = self.loss(self.online, self.target, Batch(*tensors[:n]), self.wants.named(tensors[n:]))
        self.optimizer_step(loss, self.online, self.optimizer, self._config.grad_clip)
        return loss.detach(), td

    def check_finite(self) -> None:
        """Raise if an update on the GPU went bad; call it seldom, it synchronises."""
        if self._placed is not None and (good := int(self._placed.good)) < self.n_updates:
            raise DivergedError(good + 1, math.nan)
        if self._first_bad is not None and (bad := int(self._first_bad)) >= 0:
            raise DivergedError(bad, math.nan)

    def sync_target(self) -> None:
        self.target.load_state_dict(self.online.state_dict())

    def warm_up(self, spec: EnvSpec, batch_size: int) -> None:
        """Compile and allocate on dummy data before the clock starts. Changes no parameter and draws no random
        number.
        """
        obs = torch.from_numpy(np.zeros((batch_size, *spec.obs_shape), spec.obs_dtype)).to(self.device)
        ones = torch.ones(batch_size, device=self.device)
        action = torch.zeros(batch_size, dtype=torch.int64, device=self.device)
        batch = Batch(obs, action, ones, ones, obs, ones)
        if self._whole is None:
            draws = self.wants.draw(batch_size, self.device, torch.Generator(self.device))
            loss, _ = self.loss(self.online, self.target, batch, draws)
            loss.backward()
            self.optimizer.zero_grad(set_to_none=True)
        else:
            before = self.get_state()
            self._whole(batch)
            self.set_state(before)
        few = np.zeros((spec.n_envs, *spec.obs_shape), spec.obs_dtype)
        self.greedy(few)
        self.actor.best = None
        if self.acts_in_pass:
            out = self.passes(self.online, self.target, batch, torch.from_numpy(few), None)
            out.tm1.mean().backward()
            self.optimizer.zero_grad(set_to_none=True)

    # -- saving

    def weights(self) -> dict[str, Tensor]:
        """The online network, contiguous and on the CPU: what `play` needs."""
        if (device := next(self.online.parameters()).device).type == "cuda":
            torch.cuda.synchronize(device)  # updates may be under way in a stream of their own
        return {k: v.detach().cpu().contiguous().clone() for k, v in self.online.state_dict().items()}

    def get_state(self) -> dict[str, Tensor]:
        out = {f"online.{k}": v for k, v in self.online.state_dict().items()}
        out |= {f"target.{k}": v for k, v in self.target.state_dict().items()}
        for i, p in enumerate(self.online.parameters()):
            kept = self.optimizer.state.get(p, {})  # those of others may hold plain numbers, too
            out |= {f"adam.{i}.{k}": torch.as_tensor(v) for k, v in kept.items() if v is not None}
        out |= {f"step.{k}": v for k, v in self.optimizer_step.get_state().items()}
        out |= {f"acting.{k}": v for k, v in self.actor.get_state().items()}
        out["n_updates"] = torch.tensor(self.n_updates)
        if any(self.wants):
            out["chance"] = self._chance.get_state()
        # NumPy has no bfloat16; float32 holds every bfloat16 exactly.
        return {
            k: (v.float() if v.dtype == torch.bfloat16 else v).detach().cpu().contiguous().clone()
            for k, v in out.items()
        }

    def _check_adam(self, saved: Sequence[Mapping[str, Tensor]]) -> None:
        """ValueError unless every parameter has the same kinds of state, of its own shape: a copy would broadcast."""
        if len({frozenset(s) for s in saved}) > 1:
            raise ValueError("the optimiser's state is not complete")
        for i, (p, s) in enumerate(zip(self.online.parameters(), saved, strict=True)):
            for k, v in s.items():
                other_shape = k.startswith("exp_avg") and v.shape != p.shape
                if not v.is_floating_point() or other_shape or v.numel() != (1 if k == "step" else p.numel()):
                    raise ValueError(f"adam.{i}.{k} is {v.dtype} {tuple(v.shape)}")
                if k == "step" and not 0 <= float(v) < math.inf:
                    raise ValueError(f"adam.{i}.step is {float(v):g}, expected a number of updates")

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {k[len(prefix) :]: v for k, v in state.items() if k.startswith(prefix)}

        self._check_adam([part(f"adam.{i}.") for i, _ in enumerate(self.online.parameters())])
        self.online.load_state_dict(part("online."))
        self.target.load_state_dict(part("target."))
        for i, p in enumerate(self.online.parameters()):
            saved, there = part(f"adam.{i}."), self.optimizer.state.get(p, {})
            if saved and set(saved) == set(there):
                for k, v in saved.items():  # in place: a CUDA graph may know these tensors by address
                    there[k].copy_(v)
            elif saved:
                # `step` stays on the CPU unless the fused kernel, or a graph, wants it beside the parameters.
                fused = any(g.get("fused") or g.get("capturable") for g in self.optimizer.param_groups)
                self.optimizer.state[p] = {
                    k: v.to(self.device if fused or k != "step" else "cpu").clone(memory_format=torch.preserve_format)
                    if k == "step"
                    else torch.empty_like(p).copy_(v)
                    if v.shape == p.shape
                    else v.to(self.device).clone()
                    for k, v in saved.items()
                }
        self.optimizer_step.set_state(part("step."))
        self.actor.set_state(part("acting."))
        if "chance" in state:
            self._chance.set_state(state["chance"])
        self.n_updates = int(state["n_updates"])
        if self._placed is not None:
            self._placed.restart(self.n_updates)
