"""Updates from a ring on the GPU, several at a time: drawn together, seen by the target network together, made one
after the other.

The target network does not change between them, so its pass over the batches of many updates is one pass over a large
batch, which a GPU does far faster. It is the same arithmetic as one update after the other. Nothing here waits for the
GPU, so that a CUDA graph can hold all of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dqnitro import dqn
from dqnitro.config import Config
from dqnitro.distributed.ranks import ALONE, Ranks
from dqnitro.dqn import Batch
from dqnitro.errors import ConfigError
from dqnitro.heads import TARGET, TARGET_TM1, Draws, UpdateDraws, together
from dqnitro.learn.averaging import AveragedStep
from dqnitro.learn.learner import Learner, TargetOutputs
from dqnitro.learn.rate import decaying
from dqnitro.learn.transforms import first_unfit
from dqnitro.replay.gpu_ring import Ring


class RingUpdate(Protocol):
    """What changes a learner's parameters where experience is in a ring, and acts with them."""

    weights: Any  # what acting uses: the online network, or what was made of it; always the newest

    def compile_for(self, passes: Callable[[], None]) -> None:
        """Compile what `passes` will start, if that is quicker beforehand. They may run, and compute rubbish."""
        ...

    def learn(
        self, t: Tensor, env: Tensor, weight: Tensor | None = None, chance: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """One update for each batch of transitions that begin at slots t of environments env, with these importance
        weights: their losses, and the error of each transition where weights were given. `chance`: where the passes get
        random numbers, if they want any.
        """
        ...

    def values(self, ring: Ring, obs: Tensor, weights: Any, chance: torch.Generator | None = None) -> Tensor:
        """Values (n, n_actions) of the newest observations in the ring, which are also in `obs`, for whom that is
        quicker.
        """
        ...

    def copy_weights(self) -> Any:
        """The weights as they are now, for acting while updates go on."""
        ...

    def tensors(self, weights: Any) -> list[Tensor]:
        """All that `weights` consist of, in one order: copying these makes two of them equal."""
        ...

    def target_copies(self) -> list[tuple[Tensor, Tensor]]:
        """Pairs (of the target, of the online network): copying the second into the first is a sync, and all of it."""
        ...

    def refresh(self) -> None:
        """Something other than an update has changed the networks."""
        ...


class TorchUpdate:
    """By autograd, with the parts of the learner. Frames are copied out of the ring whole; the first layer converts
    them.
    """

    def __init__(self, config: Config, learner: Learner, ring: Ring, ranks: Ranks = ALONE) -> None:
        self._config, self._learner, self._ring = config, learner, ring
        self.step = learner.optimizer_step
        if ranks is not ALONE:
            self.step = decaying(AveragedStep(learner.online, ranks), config)
        self.weights: nn.Module = learner.online
        parts = learner.parts

        def target_values(frames: Tensor, seen: Tensor, *draws: Draws) -> Tensor:
            return parts.target_pass(learner.target, ring.assemble(frames, seen), *draws)

        def loss(
            draws: UpdateDraws | None, frames: Tensor, seen: Tensor, frames_t: Tensor, seen_t: Tensor, *rest: Tensor
        ) -> tuple[Tensor, Tensor]:
            action, reward, discount, weight, *said = rest
            # only double DQN looks at it again
            obs_t = ring.assemble(frames_t, seen_t) if config.double else frames_t
            batch = Batch(ring.assemble(frames, seen), action, reward, discount, obs_t, weight)
            return learner.loss_given(learner.online, TargetOutputs(*said), batch, draws)

        self._target_values, self._loss = parts.compile(target_values), parts.compile(loss)
        self._look_up = parts.compile(ring.look_up)
        self.act = parts.around_act(parts.act)
        parts.fit_optimizer(learner.optimizer)

    def compile_for(self, passes: Callable[[], None]) -> None:
        """torch compiles in processes of its own when the passes run."""

    def learn(
        self, t: Tensor, env: Tensor, weight: Tensor | None = None, chance: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        c, learner, size = self._config, self._learner, self._config.batch_size
        draws = [learner.wants.draw(size, t.device, chance) for _ in range(len(t) // size)]
        d = self._look_up(t, env, c.n_step, c.gamma)
        frames, frames_t = self._ring.fetch(d.rows_tm1), self._ring.fetch(d.rows_t)
        with torch.no_grad():
            said = [self._target_values(frames_t, d.seen_t, *_of_all(draws, TARGET))]
            if c.munchausen:
                said.append(self._target_values(frames, d.seen_tm1, *_of_all(draws, TARGET_TM1)))
        weights = d.weight if weight is None else d.weight * weight
        columns = (
            frames, d.seen_tm1, frames_t, d.seen_t, d.action_tm1, d.reward_t, d.discount_t, weights, *said,
        )  # fmt: skip
        losses, errors = [], []
        for i, mine in enumerate(draws):
            loss, error = self._loss(mine, *(x[i * size : (i + 1) * size] for x in columns))
            self.step(loss, learner.online, learner.optimizer, c.grad_clip)
            losses.append(loss.detach())
            errors.append(error)
        return torch.stack(losses), torch.cat(errors)

    def values(self, ring: Ring, obs: Tensor, weights: nn.Module, chance: torch.Generator | None = None) -> Tensor:
        size = self._learner.wants.noise
        draws = (Draws(None, torch.randn(size, device=obs.device, generator=chance)),) if size else ()
        return dqn.q_values(self.act(weights, obs, *draws), self._learner.atoms)

    def copy_weights(self) -> nn.Module:
        return copy.deepcopy(self.weights)

    def tensors(self, weights: nn.Module) -> list[Tensor]:
        return [p.detach() for p in weights.parameters()]

    def target_copies(self) -> list[tuple[Tensor, Tensor]]:
        networks = self._learner.target, self._learner.online
        return [(to.detach(), of.detach()) for to, of in zip(*(n.parameters() for n in networks), strict=True)]

    def refresh(self) -> None:
        """Nothing is kept beside the parameters."""


def _of_all(draws: Sequence[UpdateDraws | None], which: int) -> tuple[Draws, ...]:
    """What one pass over the samples of all updates is given."""
    found = [d for d in draws if d is not None]
    if not found:
        return ()
    noise = found[0].noise
    return (Draws(together(found, which).taus, None if noise is None else noise[TARGET]),)


def make_update(config: Config, learner: Learner, ring: Ring, together: int, ranks: Ranks = ALONE) -> RingUpdate:
    """The update that the learner's parts ask for; at most `together` are made at a time. Gradients are the mean over
    all ranks.
    """
    if not learner.parts.reads_ring:
        return TorchUpdate(config, learner, ring, ranks)
    if unfit := first_unfit(config):
        transform, why = unfit
        raise ConfigError(f"wrapper {transform.name}: {why}", f"use --without {transform.name}")
    from dqnitro.learn.gpu.fused_update import FusedUpdate

    return FusedUpdate(config, learner, ring, together, ranks=ranks)
