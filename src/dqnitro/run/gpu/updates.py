"""Updates on the card, several at a time: drawn together, seen by the target network together, made one after the other.

The target network does not change between them, so its pass over the batches of many updates is one pass over a large batch,
which a card does far faster. It is the same arithmetic as one update after the other. Frames are copied out of the ring
whole; the network's first layer converts them. With `own-kernels` all of that is `learn.own_kernels`, which reads the ring itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dqnitro.dqn import Batch
from dqnitro.errors import ConfigError
from dqnitro.requirements import MOST_TOGETHER, own_kernels_need

if TYPE_CHECKING:
    from dqnitro.learn.gpu.fused_update import OwnKernels
    from dqnitro.run.gpu.agent import GpuAgent


class Updates:
    """What an agent's `learn` does."""

    def __init__(self, agent: GpuAgent) -> None:
        self.agent = a = agent
        c, learner, ring = a.config, a.learner, a.ring
        # Compiled code knows its sizes: groups of one size (what a part's step owes), and single updates for what is left.
        self.together = max(1, min(MOST_TOGETHER, int(c.n_envs / len(a.players) / c.steps_per_update)))
        self.own: OwnKernels | None = None
        if "own-kernels" in c.wrappers:
            if why := own_kernels_need(c):
                raise ConfigError(f"wrapper own-kernels: {why}", "use --without own-kernels")
            from dqnitro.learn.gpu.fused_update import OwnKernels

            self.own = OwnKernels(c, learner, ring, a.players[0].n_actions, self.together)
            return

        def target_values(frames: Tensor, seen: Tensor) -> Tensor:
            return learner.quiet(learner.target, ring.assemble(frames, seen))

        def loss(
            frames: Tensor, seen: Tensor, out_t: Tensor, frames_t: Tensor, seen_t: Tensor, *rest: Tensor
        ) -> Tensor:
            action, reward, discount, weight = rest
            # only double DQN looks at it again
            obs_t = ring.assemble(frames_t, seen_t) if c.double else frames_t
            batch = Batch(ring.assemble(frames, seen), action, reward, discount, obs_t, weight)
            return learner.loss_given(learner.online, out_t, batch)[0]

        compiled = "compile" in c.wrappers
        self._target_values: Any = torch.compile(target_values, dynamic=False) if compiled else target_values
        self._loss: Any = torch.compile(loss, dynamic=False) if compiled else loss
        self._look_up: Any = torch.compile(ring.look_up, dynamic=False) if compiled else ring.look_up
        if compiled and a.device.type == "cuda":
            # One kernel over all parameters that fills the card; torch's own fused one uses a few dozen blocks.
            for group in learner._optimizer.param_groups:
                group["fused"], group["foreach"] = False, True
            learner._optimizer.step = torch.compile(learner._optimizer.step)

    def sizes(self, k: int) -> list[int]:
        """k updates, as how many are drawn together."""
        return [self.together] * (k // self.together) + [1] * (k % self.together)

    def run(self, k: int, group: int = -1) -> None:
        """k updates on what that group's choice has left to read; nothing here waits for the GPU."""
        a, readable = self.agent, self.agent.groups[group]
        c, learner, size = a.config, a.learner, a.config.batch_size
        t, env = a.ring.draw(k * size, c.n_step, readable.head, readable.filled, a.chances.get("learn"))
        if self.own is not None:
            self._report(self.own.learn(t, env))
            return
        d = self._look_up(t, env, c.n_step, c.gamma)
        frames, frames_t = a.ring.fetch(d.rows_tm1), a.ring.fetch(d.rows_t)
        with torch.no_grad():
            out_t = self._target_values(frames_t, d.seen_t)
        columns = frames, d.seen_tm1, out_t, frames_t, d.seen_t, d.action_tm1, d.reward_t, d.discount_t, d.weight
        losses = []
        for i in range(k):
            loss = self._loss(*(x[i * size : (i + 1) * size] for x in columns))
            learner._step(loss, learner.online, learner._optimizer, c.grad_clip)
            losses.append(loss.detach())
        self._report(torch.stack(losses))

    def refresh(self) -> None:
        """Something else than an update has changed the networks."""
        if self.own is not None:
            self.own.refresh()

    def sync_target(self) -> None:
        """The target network was just made equal to the online one."""
        if self.own is not None:
            self.own.sync_target()

    def _report(self, losses: Tensor) -> None:
        """Count them, keep the last loss and the number of the first bad update there ever was."""
        report = self.agent.report
        bad = ~torch.isfinite(losses)
        first = report[1] + 1 + bad.to(torch.int8).argmax()
        report[4].copy_(torch.where(bad.any() & (report[4] < 0), first, report[4]))
        report[1].add_(len(losses))
        report[3].copy_(losses[-1])
