"""Environments that step together: what they see, decide and get, in some columns of the ring and of what is counted.

The `device` runner has one part. `hybrid` has two where threads play: while one part's actions are chosen and its outcome
is stored, the other plays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dqnitro import dqn

if TYPE_CHECKING:
    from dqnitro.run.device import DeviceAgent

MOST_ENDS = 4096  # games that may end in one graph


class Part:
    """Columns `first` to `last` of an agent's tensors, and who plays them."""

    def __init__(self, agent: DeviceAgent, player: Any, first: int, is_last: bool) -> None:
        self.agent, self.player, self.first = agent, player, first
        columns = slice(first, first + len(player.actions))
        self.ring = agent.ring.columns(columns, is_last)
        self.age, self.score = agent.age[columns], agent.score[columns]
        self.length, self.was_away = agent.length[columns], agent.was_away[columns]

    # ---- tensors in, tensors out, nothing waits: parts of a graph

    def choose(self) -> None:
        """Look, decide, and fix what the updates beside this step may read."""
        a, player, obs = self.agent, self.player, self.player.obs
        here = player.away == 0
        self.ring.see(obs[:, -1], self.age)
        out = a._act(a.learner.online, obs)
        greedy = dqn.q_values(out, a.learner._atoms).argmax(1)
        explore = torch.rand(len(here), device=a.device) < a._epsilon()
        chance = torch.randint(0, player.n_actions, (len(here),), device=a.device)
        actions = torch.where(explore, chance, greedy)
        player.actions.copy_(actions)
        self.ring.decide(actions, here)
        self.was_away.copy_(~here)
        # of the part that is behind: what lies before it is complete in all columns
        a.head.copy_(a.ring.head)
        a.filled.copy_(a.ring.filled)

    def play(self) -> None:
        """One step of every machine that is here, and the book-keeping of its games."""
        a = self.agent
        self.player.step()
        reward, done, cut, over = self.player.outcome()
        here = ~self.was_away
        over = over & here
        learned = reward.clamp(-1, 1) if a.config.clip_rewards else reward
        self.ring.outcome(learned * here, done & here, cut & here)
        self.age.add_(1)
        self.score.add_(reward * here)
        self.length.add_(here)
        place = torch.where(over, a.report[2].long() + over.cumsum(0) - 1, MOST_ENDS).clamp(max=MOST_ENDS)
        env = self.first + torch.arange(len(here), device=a.device)
        a.ends.index_copy_(0, place, torch.stack([env.float(), self.score, self.length.float()], 1))
        self.score.masked_fill_(over, 0)
        self.length.masked_fill_(over, 0)
        a.report[0].add_(here.sum())
        a.report[2].add_(over.sum())
