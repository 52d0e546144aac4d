"""The books of `hybrid` in kernels of our own: four launches a turn where torch needs sixty, and every one of them is waited for.

What they write is what `DeviceAgent.look`, `DeviceAgent.decide` and `HybridAgent.play` write, to the bit; a test steps both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dqnitro.run import card_books
from dqnitro.run.ring import COLUMNS

if TYPE_CHECKING:
    from dqnitro.run.hybrid import HybridAgent

kernels: Any = card_books


def _power(n: int) -> int:
    """The power of two that is not below n."""
    return 1 << (n - 1).bit_length()


class Books:
    """For an agent whose ring keeps pictures by blocks."""

    def __init__(self, agent: HybridAgent) -> None:
        ring = agent.ring
        assert ring.deep
        self.agent, self._frames, self._side = agent, ring.frames.view(torch.int32), ring.frames.shape[2]
        self._words = 4 * self._side**2
        device = ring.frames.device
        # Of each part's current observations: which frames they are made of, and which of them are not black.
        places = [(part.ring.n, ring.stack) for part in agent.parts]
        self.rows = [torch.zeros(shape, dtype=torch.int64, device=device) for shape in places]
        self.seen = [torch.zeros(shape, dtype=torch.bool, device=device) for shape in places]

    def look(self, k: int) -> None:
        part, ring = self.agent.parts[k], self.agent.ring
        kernels.look[(part.ring.n,)](
            self.agent.players[k].obs.view(torch.int32), part.age, part.ring.head, self._frames, ring.age, self.rows[k], self.seen[k],
            ring.slots, ring.n, part.first, SIDE=self._side, STACK=ring.stack, BLOCK=_power(self._words), num_warps=8,
        )  # fmt: skip

    def decide(self, k: int, values: Tensor, chance: Tensor, epsilon: Tensor) -> None:
        a = self.agent
        part, player, ring, last = a.parts[k], a.players[k], a.ring, a.parts[-1]
        behind = ring if part is last else last  # up to where all parts have looked
        block = min(32, _power(part.ring.n))
        kernels.decide[(-(-part.ring.n // block),)](
            values, chance, epsilon, player.away, behind.head, behind.filled, player.actions, ring.action, ring.valid, part.was_away,
            part.ring.head, part.head, part.filled, part.ring.n, ring.n, part.first,
            A=player.n_actions, AP=_power(player.n_actions), BLOCK=block, num_warps=1,
        )  # fmt: skip

    def play(self, k: int) -> None:
        """What a step has brought is here by now."""
        part, player, ring = self.agent.parts[k], self.agent.players[k], self.agent.ring
        n, block = part.ring.n, 512
        kernels.push[(n, -(-self._words // block))](
            player.frame.view(torch.int32), player.flags, player.obs.view(torch.int32), n,
            WORDS=self._words, STACK=ring.stack, BLOCK=block, num_warps=4,
        )  # fmt: skip
        kernels.book[(1,)](
            player.reward, player.flags, part.was_away, player.away, part.age, part.ring.head, part.ring.filled,
            ring.reward, ring.done, ring.cut, n, ring.slots, ring.n, part.first,
            CLIP=int(self.agent.config.clip_rewards), BLOCK=_power(n), num_warps=1,
        )  # fmt: skip

    def warm_up(self) -> None:
        """Compile, at the very start: what is written on the way is zero again."""
        a, device = self.agent, self.agent.device
        for k, (part, player) in enumerate(zip(a.parts, a.players, strict=True)):
            n = part.ring.n
            self.look(k)
            self.decide(
                k, torch.zeros((n, player.n_actions), device=device), torch.zeros((2, n), device=device), a._epsilon()
            )
            self.play(k)
            for x in (part.age, part.was_away, part.ring.head, part.ring.filled, part.head, part.filled):
                x.zero_()
            for x in (player.obs, player.actions, player.away, self.rows[k], self.seen[k]):
                x.zero_()
        for name in COLUMNS:
            getattr(a.ring, name)[0].zero_()
