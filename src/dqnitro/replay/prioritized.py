"""Prioritised replay (Schaul et al., 2016): the frame ring with a sum tree over its slots."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from dqnitro.envs.base import EnvSpec, Step
from dqnitro.replay.base import Sample, saved
from dqnitro.replay.frames import TRUNCATED, FrameReplay


class SumTree:
    """A complete binary tree in one array: node i has children 2i and 2i+1; leaves hold priorities, parents sums."""

    def __init__(self, n_leaves: int) -> None:
        self.depth = max(1, int(np.ceil(np.log2(max(2, n_leaves)))))
        self.first_leaf = 1 << self.depth
        self.nodes = np.zeros(2 * self.first_leaf, np.float64)

    @property
    def total(self) -> float:
        return float(self.nodes[1])

    def get(self, leaves: np.ndarray) -> np.ndarray:
        return self.nodes[self.first_leaf + leaves]

    def set(self, leaves: np.ndarray, priorities: np.ndarray) -> None:
        """Set leaves (a repeated leaf keeps its last value). Parents are recomputed, so rounding never accumulates."""
        self.nodes[self.first_leaf + leaves] = priorities
        parents = np.unique((self.first_leaf + leaves) >> 1)
        while parents[0] >= 1:
            self.nodes[parents] = self.nodes[2 * parents] + self.nodes[2 * parents + 1]
            if parents[0] == 1:
                break
            parents = np.unique(parents >> 1)

    def find(self, mass: np.ndarray) -> np.ndarray:
        """The leaves that contain these cumulative masses (0 <= mass < total)."""
        node = np.ones(len(mass), np.int64)
        mass = mass.copy()
        for _ in range(self.depth):
            left = self.nodes[2 * node]
            # Never enter an empty right side, even if rounding put the mass slightly above the left sum.
            right = (mass >= left) & (self.nodes[2 * node + 1] > 0)
            mass = np.where(right, mass - left, np.minimum(mass, left))
            node = 2 * node + right
        return node - self.first_leaf


class PrioritizedReplay(FrameReplay):
    """Samples by priority^alpha. A new transition gets the largest priority so far, so that it is sampled soon."""

    def __init__(
        self,
        capacity: int,
        spec: EnvSpec,
        n_step: int,
        gamma: float,
        device: str | torch.device = "cpu",
        alpha: float = 0.6,
        channels_last: bool = False,
    ) -> None:
        super().__init__(capacity, spec, n_step, gamma, device, channels_last)
        self._alpha = alpha
        self._tree = SumTree(self.slots * spec.n_envs)
        self._max_priority = 1.0

    def _leaf(self, position: np.ndarray, env: np.ndarray) -> np.ndarray:
        return position % self.slots * self._spec.n_envs + env

    def add(self, actions: np.ndarray, step: Step) -> None:
        before = self._head
        super().add(actions, step)
        moved = self._envs[self._head > before]
        if not len(moved):
            return
        head = self._head[moved]
        # The slot that left the window and the slot at the head cannot be sampled.
        self._tree.set(self._leaf(head, moved), np.zeros(len(moved)))
        gone = head - self._kept - 1
        old = gone >= 0
        if old.any():
            self._tree.set(self._leaf(gone[old], moved[old]), np.zeros(int(old.sum())))
        # The slot whose n-step return has just become complete can be sampled.
        ready = head - self._n_step
        ok = ready >= 0
        ready, moved = ready[ok], moved[ok]
        if len(moved):
            truncated = (self._flags[ready % self.slots, moved] & TRUNCATED) != 0
            self._tree.set(self._leaf(ready, moved), np.where(truncated, 0.0, self._max_priority**self._alpha))

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 1.0) -> Sample:
        # One draw from each of batch_size equal slices of the mass: the same expectation, less variance.
        mass = (np.arange(batch_size) + rng.random(batch_size)) * (self._tree.total / batch_size)
        leaves = self._tree.find(mass)
        slot, env = np.divmod(leaves, self._spec.n_envs)
        # The position in that slot: the largest one that is not past the head.
        position = self._head[env] - (self._head[env] - slot) % self.slots
        chance = self._tree.get(leaves) / self._tree.total
        weight = (len(self) * chance) ** -beta
        return Sample(self.gather(env, position, weight / weight.max()), np.stack([leaves, position]))

    def update_priorities(self, ids: np.ndarray, td_error: Tensor) -> None:
        leaves, position = ids
        # A slot may have been overwritten between sampling and learning (they overlap): then the error is not its own.
        slot, env = np.divmod(leaves, self._spec.n_envs)
        mine = (self._head[env] - (self._head[env] - slot) % self.slots == position) & (self._tree.get(leaves) > 0)
        priority = np.abs(td_error.double().cpu().numpy()) + 1e-6  # synchronises with a GPU
        self._max_priority = max(self._max_priority, float(priority.max()))
        if mine.any():
            self._tree.set(leaves[mine], priority[mine] ** self._alpha)

    def get_state(self) -> Mapping[str, np.ndarray]:
        tree = self._tree
        leaves = tree.nodes[tree.first_leaf : tree.first_leaf + self.slots * self._spec.n_envs]
        return {**super().get_state(), "priorities": leaves, "max_priority": np.array(self._max_priority)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        finite = float(np.finfo(np.float64).max)
        priorities = saved(state, "priorities", np.zeros(self.slots * self._spec.n_envs), 0, finite)
        most = saved(state, "max_priority", np.array(0.0), 0, finite)
        super().set_state(state)
        self._tree.set(np.arange(len(priorities)), priorities)
        self._max_priority = float(most)
