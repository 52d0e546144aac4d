"""The passes of an update and the losses that are made of them, composed of the parts that `transforms` gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dqnitro import dqn
from dqnitro.config import Config
from dqnitro.dqn import Batch, ConvNetwork
from dqnitro.heads import ONLINE, SELECT, Draws, UpdateDraws
from dqnitro.learn import own_pieces
from dqnitro.learn.update_parts import UpdateParts

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
