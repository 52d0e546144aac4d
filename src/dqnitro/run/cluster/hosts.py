"""Where players live: the few things that the learner asks of whatever hosts them, and Ray's answer.

A host may be lost at any moment. `get` says so by raising `Lost`; what follows from that is decided in `crew.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dqnitro.cluster.connect import Cluster
from dqnitro.errors import UserError
from dqnitro.run.cluster.player import THREADS, Order, Permit, Played, Player, Position


class Lost(Exception):
    """A player is gone, hangs or crashed."""

    def __init__(self, why: str, trace: str = "") -> None:
        super().__init__(why)
        self.trace = trace


class Hosts(Protocol):
    """Starts players and passes messages. Handles and answers are the host's own business."""

    def start(self, order: Order, again: bool) -> Any:
        """A new player; `again`: in the place of one that was lost."""
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

    def put(self, weights: Sequence[np.ndarray]) -> Any:
        """Weights for many calls of `play`, handed over once."""
        ...

    def get(self, answer: Any, seconds: float) -> Any:
        """Wait for an answer; Lost, or the player's own UserError."""
        ...

    def end(self, player: Any) -> None:
        """Make sure that it plays no more."""
        ...

    def close(self) -> None: ...


class RayPlayer:
    """The actor."""

    def __init__(self, order: Order) -> None:
        import torch

        torch.set_num_threads(THREADS)
        # A refusal is an answer of `hello`: an actor whose constructor fails is only ever "dead" to Ray.
        self._player: Player | None = None
        self._refused: UserError | None = None
        try:
            self._player = Player(order)
        except UserError as e:
            self._refused = e

    def _there(self) -> Player:
        if self._player is None:
            assert self._refused is not None
            raise self._refused
        return self._player

    def hello(self) -> Any:
        return self._there().spec

    def begin(self, at: Position) -> np.ndarray:
        return self._there().begin(at)

    def play(self, permit: Permit, *weights: np.ndarray) -> Played:
        return self._there().play(permit, weights)

    def node(self) -> str:
        import ray

        return ray.get_runtime_context().get_node_id()


class RayHosts:
    """Players as Ray actors, on whatever nodes there are."""

    def __init__(self, cluster: Cluster, cpus_each: float) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        self._kind = self._ray.remote(RayPlayer)
        self._cpus = cpus_each
        self._nodes: dict[Any, Any] = {}  # of each player, as an answer
        self._suspects: list[str] = []  # nodes on which players were lost, the newest last

    def start(self, order: Order, again: bool) -> Any:
        # A replacement asks for no CPU: those of the lost player count as taken until Ray has noticed its end.
        options: dict[str, Any] = {"num_cpus": 0 if again else self._cpus, "max_restarts": 0, "max_task_retries": 0}
        if again and (node := self._elsewhere()):
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        player = self._kind.options(**options).remote(order)
        self._nodes[player] = player.node.remote()
        return player

    def _elsewhere(self) -> str | None:
        """A node that has lost no player, or lost one longest ago."""
        from dqnitro.cluster.nodes import alive

        nodes = [n.id for n in alive(self._cluster)]
        return min(nodes, key=lambda n: self._suspects.index(n) + 1 if n in self._suspects else 0, default=None)

    def hello(self, player: Any) -> Any:
        return player.hello.remote()

    def begin(self, player: Any, at: Position) -> Any:
        return player.begin.remote(at)

    def play(self, player: Any, permit: Permit, weights: Any) -> Any:
        return player.play.remote(permit, *weights)

    def put(self, weights: Sequence[np.ndarray]) -> Any:
        # Each array is an object of its own: Ray hands out views of what is in the store only for whole arguments.
        return [self._ray.put(w) for w in weights]

    def get(self, answer: Any, seconds: float) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(answer, timeout=seconds)
        except errors.GetTimeoutError:
            raise Lost(f"it did not answer within {seconds:.0f} s") from None
        except errors.RayTaskError as e:
            if isinstance(e.cause, UserError):
                raise e.cause from None
            raise Lost(f"{type(e.cause).__name__}: {e.cause}", str(e)) from None
        except errors.RayError as e:
            raise Lost(f"its process or node was lost ({type(e).__name__})") from None

    def end(self, player: Any) -> None:
        where = self._nodes.pop(player, None)
        if where is not None:
            with contextlib.suppress(self._ray.exceptions.RayError, self._ray.exceptions.GetTimeoutError):
                node = self._ray.get(where, timeout=1.0)
                self._suspects = [n for n in self._suspects if n != node] + [node]
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(player)

    def close(self) -> None:
        for player in list(self._nodes):
            self.end(player)
        self._cluster.close()
