"""Who chooses actions: the network that learns, or a copy of it on another device."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro import dqn
from dqnitro.heads import Draws
from dqnitro.learn.update_parts import UpdateParts
from dqnitro.replay.placed import Mark

Act = Callable[..., Tensor]  # network, observations, and random numbers where it wants any


class _Greedy:
    """Chooses the action of the highest value."""

    best: Tensor | None = None  # the values of the actions that were chosen last

    def values(self, obs: np.ndarray, noise: Tensor | None = None) -> Tensor:
        """Of every action, (environments, actions), where the network is. `noise`: of its noisy layers."""
        raise NotImplementedError

    def greedy(
        self, obs: np.ndarray, noise: Tensor | None = None, meanwhile: Callable[[], None] | None = None
    ) -> np.ndarray:
        """`meanwhile` is called before the host waits for a GPU, if it can be asked without waiting."""
        return self.choose(self.values(obs, noise))

    def choose(self, values: Tensor) -> np.ndarray:
        """The copy back is a synchronisation point on a GPU."""
        best = values.max(1)  # both at once; of equal values the first, as with argmax
        self.best = best.values
        return best.indices.cpu().numpy()


class SameNetwork(_Greedy):
    """Acts with the network that learns, where it is."""

    def __init__(self, network: nn.Module, act: Act, copy: Callable[[Tensor], Tensor], atoms: Tensor | None) -> None:
        self._network, self._act, self._copy, self._atoms = network, act, copy, atoms

    def values(self, obs: np.ndarray, noise: Tensor | None = None) -> Tensor:
        draws = () if noise is None else (Draws(None, self._copy(noise)),)
        return dqn.q_values(self._act(self._network, self._copy(torch.from_numpy(obs)), *draws), self._atoms)

    def updated(self, n_updates: int) -> None:
        """Its own parameters were changed: nothing to do."""

    def get_state(self) -> dict[str, Tensor]:
        return {}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Nothing is kept."""


class WaitingNetwork(SameNetwork):
    """Acts with the network that learns, in a pass over memory that stays where it is: observations are written to
    page-locked memory, from which the pass begins, and it ends in page-locked memory with the actions. One start, if
    `record` makes it one, and one wait.
    """

    def __init__(
        self, network: nn.Module, parts: UpdateParts, atoms: Tensor | None, like: np.ndarray, device: torch.device
    ) -> None:
        """`like`: observations of all environments."""
        super().__init__(network, parts.act, parts.copy, atoms)
        on_gpu = device.type == "cuda"
        given = torch.from_numpy(like)
        self._here = torch.zeros(given.shape, dtype=given.dtype, pin_memory=on_gpu)
        self._there = self._here.to(device)
        self._actions = torch.zeros(len(like), dtype=torch.int64, pin_memory=on_gpu)
        self._write, self._read = self._here.numpy(), self._actions.numpy()
        self._done = Mark(device) if on_gpu else None
        self._pass = parts.record(self.look)

    def look(self) -> tuple[Tensor]:
        """The observations fetched, and the best actions sent; their values."""
        self._there.copy_(self._here, non_blocking=True)
        best = dqn.q_values(self._act(self._network, self._there), self._atoms).max(1)
        self._actions.copy_(best.indices, non_blocking=True)
        return (best.values.detach(),)

    def greedy(
        self, obs: np.ndarray, noise: Tensor | None = None, meanwhile: Callable[[], None] | None = None
    ) -> np.ndarray:
        if noise is not None or obs.shape != self._write.shape:
            return super().greedy(obs, noise)
        self._write[:] = obs  # the last pass over it is done: its actions were waited for
        (self.best,) = self._pass()
        if self._done is not None:
            self._done.set()
            if meanwhile is not None:
                meanwhile()
            self._done.wait()
        return self._read.copy()


class CopiedNetwork(_Greedy):
    """Acts with a second network. After every `every_updates`-th update it is out of date, and is refreshed before it
    is asked again: a network that nobody asks (everybody explores) is not copied.
    """

    def __init__(
        self, source: nn.Module, network: nn.Module, act: Act, atoms: Tensor | None, every_updates: int
    ) -> None:
        self._source, self._network, self._act, self._every_updates = source, network, act, every_updates
        self._device = next(network.parameters()).device
        self._atoms = None if atoms is None else atoms.to(self._device)
        self._stale = True
        self.n_copies = 0

    def values(self, obs: np.ndarray, noise: Tensor | None = None) -> Tensor:
        if self._stale:
            self._network.load_state_dict(self._source.state_dict())
            self._stale = False
            self.n_copies += 1
        draws = () if noise is None else (Draws(None, noise.to(self._device)),)
        return dqn.q_values(self._act(self._network, torch.from_numpy(obs).to(self._device), *draws), self._atoms)

    def updated(self, n_updates: int) -> None:
        self._stale |= n_updates % self._every_updates == 0

    def get_state(self) -> dict[str, Tensor]:
        return {**self._network.state_dict(), "stale": torch.tensor(self._stale)}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        weights = dict(state)
        self._stale = bool(weights.pop("stale"))
        self._network.load_state_dict(weights)
