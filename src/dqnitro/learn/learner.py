"""The learner: two networks, an optimiser, and one update made of the parts that `transforms` gives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro import dqn, own
from dqnitro.config import Config
from dqnitro.dqn import Batch, ConvNetwork
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import ConfigError, DivergedError
from dqnitro.heads import ONLINE, SELECT, Draws, UpdateDraws, Wants, noise_size
from dqnitro.learn import own_pieces
from dqnitro.learn.actors import CopiedNetwork, SameNetwork
from dqnitro.learn.rate import Rate, decaying, set_rate
from dqnitro.learn.transforms import UpdateParts, check_draws, wrap

Loss = Callable[[nn.Module, Any, Batch, UpdateDraws | None], tuple[Tensor, Tensor]]


class TargetOutputs(NamedTuple):
    """What the target network says in an update."""

    t: Tensor  # about `batch.obs_t`
    tm1: Tensor | None = None  # about `batch.obs_tm1`, where targets are Munchausen's


class Outputs(NamedTuple):
    """What the networks say in an update, before anything is made of it."""

    tm1: Tensor  # the online network about `batch.obs_tm1`, with gradients
    target: TargetOutputs
    selector: Tensor | None  # the online network about `batch.obs_t`, for double DQN; None: it is still to be asked
    act: Tensor | None  # the online network about the observations to act on, where they were given


class Losses(NamedTuple):
    """The loss of a batch and each sample's error (the priority of prioritised replay), and the two halves of the way
    there.
    """

    whole: Loss  # given the target network
    given: Loss  # given what that network says about `batch.obs_t`
    passes: Passes
    finish: Callable[[nn.Module, Outputs, Batch, UpdateDraws | None], tuple[Tensor, Tensor]]


Passes = Callable[[nn.Module, nn.Module, Batch, Tensor | None, UpdateDraws | None], Outputs]


def given_to(draws: Draws | None) -> tuple[Draws, ...]:
    """The last argument of a pass; a network that wants no random numbers need not know of them."""
    return () if draws is None else (draws,)


def make_passes(config: Config, parts: UpdateParts) -> Passes:
    """The passes of an update: one after the other, side by side, or divided."""

    def forward(online: nn.Module, obs: Tensor, also: tuple[Tensor, ...], mine: Draws | None) -> list[Tensor]:
        """The pass that learns; other observations go along and have no gradients."""
        if not also:
            return [parts.forward(online, obs, *given_to(mine))]
        if parts.by_hand is not None and isinstance(online, ConvNetwork):
            return parts.by_hand.forward_also(online, obs, *also)
        out, *others = parts.forward(online, dqn.joined(obs, *also)).split([len(obs), *map(len, also)])
        return [out, *(x.detach() for x in others)]

    def both(
        online: nn.Module, target: nn.Module, batch: Batch, also: tuple[Tensor, ...], draws: UpdateDraws | None
    ) -> tuple[Tensor, list[Tensor]]:
        if parts.split is not None and isinstance(online, ConvNetwork) and isinstance(target, ConvNetwork):
            return parts.split.together(online, target, batch.obs_tm1, batch.obs_t, also)
        theirs = given_to(None if draws is None else draws.of_target(config.munchausen))
        mine = None if draws is None else draws.of(ONLINE)
        if parts.beside is None:
            return parts.target_pass(target, batch.obs_t, *theirs), forward(online, batch.obs_tm1, also, mine)
        wait = parts.beside.start(parts.target_pass, target, batch.obs_t, *theirs)
        try:
            outputs = forward(online, batch.obs_tm1, also, mine)
        finally:
            out_t = wait()
        return out_t, outputs

    def passes(
        online: nn.Module, target: nn.Module, batch: Batch, obs: Tensor | None, draws: UpdateDraws | None = None
    ) -> Outputs:
        select = config.double and parts.one_pass
        also = ((batch.obs_t,) if select else ()) + (() if obs is None else (obs,))
        # With Munchausen's targets the target network sees both ends of a transition, in one pass.
        seen = dqn.joined(batch.obs_t, batch.obs_tm1) if config.munchausen else batch.obs_t
        out, (out_tm1, *others) = both(online, target, batch._replace(obs_t=seen), also, draws)
        said = TargetOutputs(*out.split(len(batch.obs_t)))
        return Outputs(out_tm1, said, others[0] if select else None, None if obs is None else others[-1])

    return passes


def make_losses(config: Config, parts: UpdateParts, atoms: Tensor | None) -> Losses:
    loss_kind = own_pieces.find_loss(config)
    munchausen = dqn.Munchausen(config.munchausen_temperature, config.munchausen_scale, config.munchausen_floor)

    def target(online: nn.Module, out: Outputs, batch: Batch, draws: UpdateDraws | None) -> Tensor:
        """What the values of the actions taken should be: (B, 1), or (B, quantiles)."""
        out_t, out_t_tm1 = out.target
        q_t = dqn.q_values(out_t, atoms)
        reward, discount = batch.reward_t.unsqueeze(1), batch.discount_t.unsqueeze(1)
        if out_t_tm1 is not None:
            q_tm1 = dqn.q_values(out_t_tm1, atoms)
            reward = dqn.munchausen_reward(batch.reward_t, q_tm1, batch.action_tm1, munchausen).unsqueeze(1)
            return reward + discount * dqn.soft_value(out_t, q_t, munchausen)
        best = select(online, out, batch, q_t, draws).argmax(1)
        rows = torch.arange(len(best), device=best.device)
        return reward + discount * out_t[rows, best].float()

    def select(online: nn.Module, out: Outputs, batch: Batch, q_t: Tensor, draws: UpdateDraws | None) -> Tensor:
        """The values by which the next action is chosen."""
        if not config.double:
            return q_t
        said = out.selector
        if said is None:
            mine = None if draws is None else draws.of(SELECT)
            said = parts.target_pass(online, batch.obs_t, *given_to(mine))
        return dqn.q_values(said, atoms)

    def value_loss(online: nn.Module, out: Outputs, batch: Batch, draws: UpdateDraws | None) -> tuple[Tensor, Tensor]:
        if config.munchausen:
            y = target(online, out, batch, draws).squeeze(1)
        else:
            q_t = dqn.q_values(out.target.t, None)
            y = dqn.td_target(batch.reward_t, batch.discount_t, q_t, select(online, out, batch, q_t, draws))
        return dqn.td_loss(dqn.q_values(out.tm1, None), batch.action_tm1, y, loss_kind)

    def quantile_loss(
        online: nn.Module, out: Outputs, batch: Batch, draws: UpdateDraws | None
    ) -> tuple[Tensor, Tensor]:
        taus = None if draws is None else draws.of(ONLINE).taus
        each = dqn.quantile_huber_loss(out.tm1, batch.action_tm1, target(online, out, batch, draws), taus)
        return each, each

    def categorical_loss(
        online: nn.Module, out: Outputs, batch: Batch, draws: UpdateDraws | None
    ) -> tuple[Tensor, Tensor]:
        assert atoms is not None
        out_t = out.target.t
        best = select(online, out, batch, dqn.q_values(out_t, atoms), draws).argmax(1)
        p_t = out_t[torch.arange(out_t.shape[0], device=out_t.device), best].float().softmax(-1)
        p_target = dqn.categorical_projection(batch.reward_t, batch.discount_t, p_t, atoms)
        each = dqn.categorical_loss(out.tm1, batch.action_tm1, p_target)
        return each, each

    quantiles = config.quantiles or config.implicit_quantiles
    of_each = categorical_loss if atoms is not None else quantile_loss if quantiles else value_loss

    def finish(
        online: nn.Module, out: Outputs, batch: Batch, draws: UpdateDraws | None = None
    ) -> tuple[Tensor, Tensor]:
        each, td = of_each(online, out, batch, draws)
        return (each * batch.weight).mean(), td.detach()

    def given(
        online: nn.Module, said: TargetOutputs, batch: Batch, draws: UpdateDraws | None = None
    ) -> tuple[Tensor, Tensor]:
        mine = None if draws is None else draws.of(ONLINE)
        out = parts.forward(online, batch.obs_tm1, *given_to(mine))
        return finish(online, Outputs(out, said, None, None), batch, draws)

    def whole(
        online: nn.Module, target: nn.Module, batch: Batch, draws: UpdateDraws | None = None
    ) -> tuple[Tensor, Tensor]:
        return finish(online, passes(online, target, batch, None, draws), batch, draws)

    passes = make_passes(config, parts)
    return Losses(parts.compile(whole), given, passes, finish)


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


class Learner:
    """Owns the parameters. Only `update` changes them, or in its place a `RingUpdate` made of this learner's parts.

    `loss` is of a batch, given both networks; `loss_given` the same given the target network's output. `passes` and
    `loss_of_passes` are the two halves of `loss`, between which actions may be chosen.
    """

    def __init__(self, config: Config, spec: EnvSpec, device: str) -> None:
        self._config, self.device = config, torch.device(device)
        check_draws(config)
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
        self._begun: tuple[Batch, Batch, Outputs] | None = None  # as it was given, on the device, and its passes
        self._copy, self.optimizer_step, self._rate = parts.copy, decaying(parts.step, config), Rate.of(config)
        self.update_on_gpu = parts.around_update(self.loss_and_step)
        if acting is None:
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
        self.n_updates = 0

    def greedy(self, obs: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """The best action of each environment. The copy back is a synchronisation point on a GPU.

        The noise of noisy layers is drawn from `rng`; without it there is none.
        """
        if self._begun is not None:
            out = self._begun[2].act
            assert out is not None
            return self.actor.choose(dqn.q_values(out, self.atoms))
        return self.actor.greedy(obs, acting_noise(self.wants, rng))

    def mean_best_value(self) -> float | None:
        """The value of the best action, mean over the observations that `greedy` was asked about last.

        None before that, for good where a runner chooses actions elsewhere, and if it is not finite. It synchronises a
        GPU.
        """
        best = self.actor.best
        value = math.nan if best is None else best.mean().item()
        return value if math.isfinite(value) else None

    def begin(self, batch: Batch, obs: np.ndarray) -> None:
        """The passes of the next update, and in the same pass what `greedy` wants to know of these observations. Until
        `update` finishes it no parameter changes.
        """
        mine = Batch(*map(self._copy, batch))
        self._begun = (batch, mine, self.passes(self.online, self.target, mine, torch.from_numpy(obs), None))

    def update(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """One optimiser step; the loss and each sample's error, still on the device."""
        if self._whole is not None:
            return self._update_whole(self._whole, batch)
        begun, self._begun = self._begun, None
        if begun is None:
            batch = Batch(*map(self._copy, batch))
        else:
            assert begun[0] is batch, "another update was begun"
        draws = self.wants.draw(len(batch.action_tm1), self.device, self._chance)
        if self._is_cpu:
            if begun is None:
                loss, td = self.loss(self.online, self.target, batch, draws)
            else:
                loss, td = self.loss_of_passes(self.online, begun[2], begun[1], None)
            # Free on a CPU, and early enough to keep the bad gradient out of the parameters.
            if not math.isfinite(value := loss.item()):
                raise DivergedError(self.n_updates + 1, value)
            self.optimizer_step(loss, self.online, self.optimizer, self._config.grad_clip)
        else:
            loss, td = self.update_on_gpu(*batch, *(() if draws is None else draws.tensors))
            if self._first_bad is None:
                self._first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
            bad = ~torch.isfinite(loss) & (self._first_bad < 0)
            self._first_bad = torch.where(bad, self.n_updates + 1, self._first_bad)
        self.n_updates += 1
        self.actor.updated(self.n_updates)
        return loss.detach(), td

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
