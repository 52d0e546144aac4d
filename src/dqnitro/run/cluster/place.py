"""What the learner knows of a player, and what it hands to all of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dqnitro.run.cluster.chunk import Chunk
from dqnitro.run.cluster.player import Order, Permit, Position


class Weights(NamedTuple):
    """What a permit carries, in the host's keeping and by value."""

    version: int
    held: Any
    arrays: list[np.ndarray]  # parts of one array


class Leave(NamedTuple):
    """A permit for all players."""

    permit: Permit
    weights: Weights


@dataclass(eq=False)
class Place:
    """One player as the learner knows it."""

    order: Order
    rng: np.ndarray
    pending: np.ndarray
    handle: Any = None
    games: dict[str, np.ndarray] | None = None  # the last kept state of its environments ...
    log: list[np.ndarray] = field(default_factory=list)  # ... and the actions since, a chunk each
    crc: np.ndarray | None = None  # of its last observation
    done: int = 0  # chunks that came back
    answers: deque[Any] = field(default_factory=deque)  # of chunks that did not come back yet
    chunks: dict[int, Chunk] = field(default_factory=dict)  # that came back and were not taken
    losses: int = 0  # since the last chunk that came back

    @property
    def name(self) -> str:
        return f"player {self.order.player}"

    def position(self) -> Position:
        log = np.concatenate(self.log) if self.log else np.zeros((0, len(self.pending)), np.int64)
        return Position(self.games, log, self.rng, self.pending)
