"""Players on the nodes of a Ray cluster: each in a process of its own, and one more process that waits for a loss.

A new process needs five seconds of a core until it can play, most of them for importing torch. So a lost player moves
into a process that is there already: the spare one, or that of another player, which then plays for both in turn. When
the next spare process is ready, players that share one, or crowd a node, move there. The same happens when a node
joins. Where a player lives changes nothing in what it plays.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dqnitro.cluster.connect import Cluster
from dqnitro.cluster.nodes import Node, alive
from dqnitro.common.signals import end_with_parent
from dqnitro.errors import UserError, line_in
from dqnitro.run.cluster.hosts import Late, Lost
from dqnitro.run.cluster.player import THREADS, Order, Permit, Played, Player, Position

PING_S = 3.0  # for the first of the processes that could take a player over
BIRTH_S = 60.0  # for a new one, if none of them answers
OTHERS_S = 0.1  # for the rest of them, from then on
LOOK_S = 2.0  # between two looks at the nodes
SUSPECT_S = 60.0  # a node that lost a player is avoided for so long


class Where(NamedTuple):
    """A process of the cluster."""

    node: str
    pid: int


class PlayerHost:
    """The actor: a process with one player, or several, or none yet."""

    def __init__(self) -> None:
        import torch

        end_with_parent()  # one that was stopped (SIGSTOP) cannot notice that its node is gone
        torch.set_num_threads(THREADS)
        self._players: dict[int, Player] = {}

    def ping(self) -> Where:
        import ray

        return Where(ray.get_runtime_context().get_node_id(), os.getpid())

    def warm(self, order: Order) -> Where:
        """Import and compile what this order takes, and forget it again."""
        with contextlib.suppress(UserError):  # the player itself will say it
            Player(order).close()
        return self.ping()

    def take(self, order: Order) -> Any:
        """Make the player; the EnvSpec of its environments."""
        self.leave(order.player)
        self._players[order.player] = Player(order)
        return self._players[order.player].spec

    def begin(self, player: int, at: Position) -> np.ndarray:
        return self._players[player].begin(at)

    def play(self, player: int, permit: Permit, weights: np.ndarray) -> Played:
        return self._players[player].play(permit, weights)

    def leave(self, player: int) -> None:
        if player in self._players:
            self._players.pop(player).close()


@dataclass(eq=False)
class Host:
    """A process as the learner knows it."""

    actor: Any
    ready: Any  # an answer with `Where`
    node: str = ""
    pid: int = 0
    players: set[int] = field(default_factory=set)


class Seat(NamedTuple):
    """The handle of a player."""

    host: Host
    player: int
    took: Any  # the answer of `take`


class RayHosts:
    """Players as Ray actors, on whatever nodes there are."""

    def __init__(self, cluster: Cluster, cpus_each: float) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        self._kind = self._ray.remote(PlayerHost)
        self._cpus = cpus_each
        self._hosts: list[Host] = []
        self._spare: Host | None = None
        self._nodes: list[Node] = []
        self._looked = 0.0
        self._lost_at: dict[str, float] = {}  # when each node last lost a player

    # -- starting and replacing

    def start(self, order: Order, instead: Seat | None = None) -> Seat:
        if instead is None:
            return self._seat(self._new(self._cpus), order)
        self._suspect(instead.host)
        return self._seat(self._survivor(instead.host), order)

    def _seat(self, host: Host, order: Order) -> Seat:
        if host is self._spare:
            self._spare = None
        host.players.add(order.player)
        return Seat(host, order.player, host.actor.take.remote(order))

    def _new(self, cpus: float, node: str | None = None) -> Host:
        # A replacement asks for no CPU: those of the lost player count as taken until Ray has noticed its end.
        options: dict[str, Any] = {"num_cpus": cpus, "max_restarts": 0, "max_task_retries": 0}
        if node:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        actor = self._kind.options(**options).remote()
        host = Host(actor, actor.ping.remote())
        self._hosts.append(host)
        return host

    def _survivor(self, lost: Host) -> Host:
        """The best of the processes that answer at once: one on a node that lost nobody, the spare one, an idle one.

        If none does, because all are lost or very busy: whichever answers first, or a new one.
        """
        asked = {h.actor.ping.remote(): h for h in self._hosts if h is not lost and self._is_up(h)}
        good, new = self._answering(asked, PING_S), None
        if not good:
            self._look()
            new = self._new(0, self._emptiest())
            asked[new.ready] = new
            good = self._answering(asked, BIRTH_S)
        good.sort(key=lambda h: (self._is_suspect(h.node), h is not self._spare, len(h.players)))
        if new is not None and new not in good[:1]:
            if good and self._spare is None:
                self._spare = new
            else:
                self._kill(new)
        if not good:
            raise Lost(f"no process of the cluster answered within {BIRTH_S:.0f} s")
        self._is_up(good[0])
        return good[0]

    def _answering(self, asked: dict[Any, Host], seconds: float) -> list[Host]:
        """Those that answer by the time that the first does, or soon after. An error is no answer."""
        end, pending, good = time.monotonic() + seconds, list(asked), list[Host]()
        while pending and not good:
            ready, pending = self._ray.wait(pending, num_returns=1, timeout=max(0.0, end - time.monotonic()))
            good += [asked[a] for a in ready if self._value(a)]
            if not ready:
                return good
        ready = self._ray.wait(pending, num_returns=len(pending), timeout=OTHERS_S)[0] if pending else []
        return good + [asked[a] for a in ready if self._value(a)]

    def _is_up(self, host: Host) -> bool:
        """Has it started? Then its node is known."""
        if not host.node and self.has(host.ready):
            host.node, host.pid = self._value(host.ready) or ("", 0)
        return bool(host.node)

    def _value(self, answer: Any) -> Any:
        """Of an answer that is there; None if it is an error."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            return self._ray.get(answer, timeout=1.0)
        return None

    def _suspect(self, host: Host) -> None:
        if self._is_up(host):
            self._lost_at[host.node] = time.monotonic()

    def _is_suspect(self, node: str) -> bool:
        return time.monotonic() - self._lost_at.get(node, -SUSPECT_S) < SUSPECT_S

    # -- room

    def _look(self) -> None:
        self._nodes, self._looked = [n for n in alive(self._cluster) if n.cpus], time.monotonic()

    def _load(self, node: str, more: int = 0) -> float:
        """Players per CPU of a node, with so many more."""
        cpus = next((n.cpus for n in self._nodes if n.id == node), 0.0)
        return (sum(len(h.players) for h in self._hosts if h.node == node) + more) / (cpus or 1e-9)

    def _emptiest(self) -> str | None:
        nodes = [n.id for n in self._nodes]
        return min(nodes, key=lambda n: (self._is_suspect(n), self._load(n, 1)), default=None)

    def prepare(self, order: Order) -> None:
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._look()
        for host in self._hosts:
            self._is_up(host)
        if self._spare is not None and self.has(self._spare.ready) and not self._is_up(self._spare):
            self._kill(self._spare)  # it died before it was needed
        self._call_to_a_better_node()
        if self._spare is None:
            self._spare = self._new(0, self._emptiest())
            self._spare.ready = self._spare.actor.warm.remote(order)

    def _call_to_a_better_node(self) -> None:
        """The spare process starts again elsewhere if a player there would have more room than where it is now."""
        node, spare = self._emptiest(), self._spare
        if spare is None or not spare.node or node is None or node == spare.node or self._is_suspect(node):
            return
        most = max((self._load(h.node) for h in self._hosts if h.players and h.node), default=0.0)
        if self._load(node, 1) < most:
            self._kill(spare)

    def better(self, player: Seat, order: Order) -> Seat | None:
        spare = self._spare
        if spare is None or not spare.node or not self._nodes:
            return None
        alone = len(player.host.players) == 1
        if alone and self._load(spare.node, 1) >= self._load(player.host.node):
            return None
        return self._seat(spare, order)

    def sharing(self, player: Seat) -> int:
        return len(player.host.players)

    # -- messages

    def hello(self, player: Seat) -> Any:
        return player.took

    def begin(self, player: Seat, at: Position) -> Any:
        return player.host.actor.begin.remote(player.player, at)

    def play(self, player: Seat, permit: Permit, weights: Any) -> Any:
        return player.host.actor.play.remote(player.player, permit, weights)

    def put(self, weights: np.ndarray) -> Any:
        return self._ray.put(weights)

    def get(self, answer: Any, seconds: float) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(answer, timeout=seconds)
        except errors.GetTimeoutError:
            raise Late(f"it did not answer within {seconds:.0f} s") from None
        except errors.RayTaskError as e:
            if isinstance(e.cause, UserError):
                raise e.cause from None
            raise Lost(f"{line_in([str(e)])}{type(e.cause).__name__}: {e.cause}", str(e)) from None
        except errors.RayError as e:
            raise Lost(f"its process or node was lost ({type(e).__name__})") from None

    def has(self, answer: Any) -> bool:
        return bool(self._ray.wait([answer], timeout=0)[0])

    def processes(self) -> dict[int, set[int]]:
        """The players of each process that is up."""
        return {h.pid: set(h.players) for h in self._hosts if self._is_up(h)}

    # -- ending

    def leave(self, player: Seat) -> None:
        host = player.host
        host.players.discard(player.player)
        if host.players:
            host.actor.leave.remote(player.player)
        elif self._spare is None and self._is_up(host):
            host.actor.leave.remote(player.player)
            self._spare = host
        else:
            self._kill(host)

    def end(self, player: Seat) -> None:
        self._suspect(player.host)
        player.host.players.discard(player.player)
        self._kill(player.host)

    def _kill(self, host: Host) -> None:
        self._hosts = [h for h in self._hosts if h is not host]
        if host is self._spare:
            self._spare = None
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(host.actor)

    def close(self) -> None:
        for host in list(self._hosts):
            self._kill(host)
        self._cluster.close()
