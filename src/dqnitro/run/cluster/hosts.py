"""Where players live: the few things that the learner asks of whatever hosts them. `actors.py` is Ray's answer.

A host may be lost at any moment. `get` says so by raising `Lost`; what follows from that is decided in `crew.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dqnitro.run.cluster.player import Order, Permit, Position


class Lost(Exception):
    """A player is gone or crashed."""

    def __init__(self, why: str, trace: str = "") -> None:
        super().__init__(why)
        self.trace = trace


class Late(Lost):
    """A player has not answered in time: it hangs, is cut off, or is only slow."""


class Hosts(Protocol):
    """Starts players and passes messages. Handles and answers are the host's own business."""

    def start(self, order: Order, instead: Any = None) -> Any:
        """A new player; `instead`: the handle of the lost one whose place it takes. That one is not ended by this."""
        ...

    def hello(self, player: Any) -> Any:
        """An answer with the EnvSpec of its environments."""
        ...

    def begin(self, player: Any, at: Position) -> Any:
        """An answer with the observation there."""
        ...

    def play(self, player: Any, permit: Permit, weights: Any) -> Any:
        """An answer with `Played`."""
        ...

    def put(self, weights: np.ndarray) -> Any:
        """Weights for many calls of `play`, handed over once."""
        ...

    def get(self, answer: Any, seconds: float) -> Any:
        """Wait for an answer; Late, Lost, or the player's own UserError."""
        ...

    def has(self, answer: Any) -> bool:
        """Is the answer there by now?"""
        ...

    def sharing(self, player: Any) -> int:
        """How many players take turns in the process of this one, itself included."""
        ...

    def together(self, one: Any, other: Any) -> bool:
        """Do these players take turns in one process (every player does with itself)?"""
        ...

    def prepare(self, order: Order) -> None:
        """Called at every border of a chunk: be ready to replace a player soon."""
        ...

    def better(self, player: Any, order: Order) -> Any:
        """The handle of another player of this order, on a host with more room, or None, as nearly always."""
        ...

    def room(self) -> int:
        """How many players of this run would have a CPU each at the moment; looked up by `prepare`."""
        ...

    def grow(self, players: int, order: Order) -> bool:
        """Start processes for more players, without waiting; are they all up? 0: no more are wanted."""
        ...

    def again(self, players: Sequence[Any], orders: Sequence[Order]) -> list[Any]:
        """Handles of players of these orders in the place of all those before: in their processes, in those of `grow`,
        and in others if there is room.
        """
        ...

    def leave(self, player: Any) -> None:
        """It is not needed any more, and nothing was wrong with it."""
        ...

    def end(self, player: Any) -> None:
        """It was lost: make sure that it plays no more."""
        ...

    def close(self) -> None: ...
