"""Players on the nodes of a Ray cluster: each in a process of its own, and one more process that waits for a loss.

A new process needs five seconds of a core until it can play, most of them for importing torch. So a lost player moves
into a process that is there already: the spare one, or that of another player, which then plays for both in turn. When
the next spare process is ready, players that share one, or crowd a node, move there. The same happens when a node
joins. Where a player lives changes nothing in what it plays.

How many players there may be is told here too: as many as have a CPU each that nobody else uses.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dqnitro.cluster.connect import Cluster
from dqnitro.cluster.nodes import Node, alive, free_cpus, versions
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
    why_not: str = ""  # players cannot play there


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

    def warm(self, order: Order, theirs: dict[str, str]) -> Where:
        """Import and compile what this order takes, and forget it again; the learner has these versions."""
        here = versions()
        for name, version in theirs.items():
            if here.get(name) != version:
                return self.ping()._replace(why_not=f"it has {name} {here.get(name)}, the learner {version}")
        try:
            Player(order).close()
        except UserError as e:
            return self.ping()._replace(why_not=str(e))
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
    cpus: float  # that Ray keeps for it
    meant: str = ""  # the node where it was to start
    began: float = field(default_factory=time.monotonic)
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

    kind = PlayerHost

    def __init__(self, cluster: Cluster, cpus_each: float) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        self._actors = self._ray.remote(self.kind)
        self._cpus = cpus_each
        self._hosts: list[Host] = []
        self._spare: Host | None = None
        self._coming: list[Host] = []  # for players that are to join
        self._rooms: dict[str, int] = {}  # how many of our players would have a CPU of a node each
        self._unfit: set[str] = set()  # nodes that joined and cannot play
        self._versions = versions()
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
        self._take(host)
        host.players.add(order.player)
        return Seat(host, order.player, host.actor.take.remote(order))

    def _new(self, cpus: float, node: str | None = None) -> Host:
        # A replacement asks for no CPU: those of the lost player count as taken until Ray has noticed its end.
        options: dict[str, Any] = {"num_cpus": cpus, "max_restarts": 0, "max_task_retries": 0}
        if node:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=True)
        actor = self._actors.options(**options).remote()
        host = Host(actor, actor.ping.remote(), cpus, node or "")
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
            where = self._value(host.ready) or Where("", 0)
            if where.why_not:
                self._refuse(host, where)
            else:
                host.node, host.pid = where.node, where.pid
        return bool(host.node)

    def _refuse(self, host: Host, where: Where) -> None:
        """A node that joined while the run went on cannot play."""
        if where.node not in self._unfit:
            name = next((n.name for n in alive(self._cluster) if n.id == where.node), where.node)
            sys.stderr.write(f"dqnitro: node {name} joined, but gets no players: {where.why_not}\n")
        self._unfit.add(where.node)
        self._kill(host)

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
        for host in list(self._hosts):
            self._is_up(host)
        nodes = [n for n in alive(self._cluster) if n.cpus and n.id not in self._unfit]
        self._nodes, self._looked = nodes, time.monotonic()
        if any(not h.node and time.monotonic() - h.began < BIRTH_S for h in self._coming):
            # Whether Ray keeps CPUs for these already cannot be told.
            self._rooms = {n.id: self._rooms[n.id] for n in nodes if n.id in self._rooms}
            return
        free = free_cpus(self._cluster, nodes)
        self._rooms = {n.id: int(min(n.cpus, f + self._kept(n.id))) for n, f in zip(nodes, free, strict=True)}

    def _kept(self, node: str) -> float:
        return sum(h.cpus for h in self._hosts if h.node == node)

    def room(self) -> int:
        if not self._looked:
            self._look()
        return sum(self._rooms.values())

    def grow(self, players: int, order: Order) -> bool:
        for host in self._coming[players:]:
            self._kill(host)
        for host in list(self._coming):
            if not self._is_up(host) and self.has(host.ready):
                self._lost_at[host.meant] = time.monotonic()
                self._kill(host)
        while len(self._coming) < players:
            node = self._roomiest()
            if node is None or self._is_suspect(node):
                return False
            host = self._new(1.0, node)
            self._warm(host, order)
            self._coming.append(host)
        return all(self._is_up(h) for h in self._coming)

    def _warm(self, host: Host, order: Order) -> None:
        host.ready = host.actor.warm.remote(order, self._versions)

    def _roomiest(self) -> str | None:
        """The node with most CPUs that no player has, and none is to have."""
        taken = self._players_on()
        return max(self._rooms, key=lambda n: (not self._is_suspect(n), self._rooms[n] - taken[n]), default=None)

    def again(self, players: Sequence[Seat], orders: Sequence[Order]) -> list[Seat]:
        hosts = list(dict.fromkeys(seat.host for seat in players))
        for _ in range(min(len(orders), self.room()) - len(hosts) - len(self._coming)):
            self._coming.append(self._new(1.0, self._roomiest()))
        if self._coming:
            self._ray.wait([h.ready for h in self._coming], num_returns=len(self._coming), timeout=BIRTH_S)
        for host in hosts:
            for player in host.players:
                host.actor.leave.remote(player)
            host.players.clear()
        hosts = [*self._spread(hosts), *(h for h in self._coming if self._is_up(h))]
        for host in [h for h in self._coming if not h.node]:
            self._kill(host)
        for host in hosts[len(orders) :]:
            self._dismiss(host)
        return [self._seat(hosts[i % len(hosts)], order) for i, order in enumerate(orders)]

    def _spread(self, hosts: Sequence[Host]) -> list[Host]:
        """First those that leave most room to each other."""
        cpus, before, crowd = {n.id: n.cpus for n in self._nodes}, Counter[str](), dict[int, float]()
        for host in hosts:
            before[host.node] += 1
            crowd[id(host)] = before[host.node] / cpus.get(host.node, 1e-9)
        return sorted(hosts, key=lambda h: (self._is_suspect(h.node), crowd[id(h)]))

    def _load(self, node: str, more: int = 0) -> float:
        """Players per CPU of a node, those that are to join included, if `more` came."""
        cpus = next((n.cpus for n in self._nodes if n.id == node), 0.0)
        return (self._players_on()[node] + more) / (cpus or 1e-9)

    def _players_on(self) -> Counter[str]:
        found = Counter(h.node or h.meant for h in self._coming)
        found.update(h.node for h in self._hosts for _ in h.players)
        return found

    def _emptiest(self) -> str | None:
        nodes = [n.id for n in self._nodes]
        return min(nodes, key=lambda n: (self._is_suspect(n), self._load(n, 1)), default=None)

    def prepare(self, order: Order) -> None:
        if time.monotonic() - self._looked < LOOK_S:
            return
        self._look()
        spare = self._spare
        if spare is not None and self.has(spare.ready) and not self._is_up(spare):
            self._kill(spare)  # it died before it was needed
        self._call_to_a_better_node()
        if self._spare is None:
            self._spare = self._new(0, self._emptiest())
            self._warm(self._spare, order)

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

    def together(self, one: Seat, other: Seat) -> bool:
        return one.host is other.host

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
        host.actor.leave.remote(player.player)
        if not host.players:
            self._dismiss(host)

    def _dismiss(self, host: Host) -> None:
        """It has no players any more."""
        self._take(host)
        if self._spare is None and self._is_up(host):
            self._spare = host
        else:
            self._kill(host)

    def _take(self, host: Host) -> None:
        """It is kept for nothing else any more."""
        self._coming = [h for h in self._coming if h is not host]
        if host is self._spare:
            self._spare = None

    def end(self, player: Seat) -> None:
        self._suspect(player.host)
        player.host.players.discard(player.player)
        self._kill(player.host)

    def _kill(self, host: Host) -> None:
        self._hosts = [h for h in self._hosts if h is not host]
        self._take(host)
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(host.actor)

    def close(self) -> None:
        for host in list(self._hosts):
            self._kill(host)
        self._cluster.close()
