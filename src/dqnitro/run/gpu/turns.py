"""Parts of the environments that take turns: what is known of each, and with which weights it acts."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from dqnitro.learn.gpu.fused_update import OwnKernels
    from dqnitro.replay.gpu_ring import Ring
    from dqnitro.run.gpu.device import DeviceAgent


class Part:
    """Environments that choose and play together, from number `first` on: what is known of them, as views of the agent's tensors."""

    def __init__(self, agent: DeviceAgent, ring: Ring) -> None:
        self.ring, self.first = ring, ring.first
        mine = slice(ring.first, ring.first + ring.n)
        self.age, self.score, self.length = agent.age[mine], agent.score[mine], agent.length[mine]
        self.was_away = agent.was_away[mine]
        self.numbers = torch.arange(mine.start, mine.stop, device=agent.device).float()
        # What the updates that follow its choice may read: up to here all parts have looked.
        self.head, self.filled = agent.ring.head.clone(), agent.ring.filled.clone()


class Acting:
    """`weights[k]` are what part k acts with: a network, or what `own-kernels` has packed of one.

    One part acts with the learner's own. Several have a copy each, taken after the updates that follow their turn: while one part
    chooses, the updates that were started after another's turn may go on.
    """

    def __init__(self, online: nn.Module, own: OwnKernels | None, parts: int) -> None:
        self._live: Any = online if own is None else own.weights
        self.weights: list[Any] = [self._live]
        if parts > 1:
            self.weights = [copy.deepcopy(online) if own is None else own.copy_weights() for _ in range(parts)]

    def _tensors(self, weights: Any) -> list[Tensor]:
        if isinstance(weights, nn.Module):
            return [p.detach() for p in weights.parameters()]
        return [*weights.copies, *(x.detach() for x in weights.outputs)]

    @torch.no_grad()
    def refresh(self, k: int) -> None:
        """Part k acts with the newest weights."""
        if self.weights[k] is not self._live:
            for mine, newest in zip(self._tensors(self.weights[k]), self._tensors(self._live), strict=True):
                mine.copy_(newest)

    def get_state(self) -> dict[str, Any]:
        """The copies, in float32, which holds every number of them."""
        if len(self.weights) == 1:
            return {}
        return {
            f"acting.{k}.{i}": x.to(torch.float32).cpu().numpy()
            for k, weights in enumerate(self.weights)
            for i, x in enumerate(self._tensors(weights))
        }

    @torch.no_grad()
    def set_state(self, state: dict[str, Any]) -> None:
        """Copies that were not saved become the newest weights."""
        for k, weights in enumerate(self.weights):
            self.refresh(k)
            for i, x in enumerate(self._tensors(weights)):
                if (saved := state.get(f"acting.{k}.{i}")) is not None and len(self.weights) > 1:
                    x.copy_(torch.from_numpy(saved).view(x.shape))
