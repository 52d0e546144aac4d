"""Whole runs over a cluster: each is the process that one machine would start for it, on a node with room for it.

A Ray actor on that node starts the process, waits for it and passes signals on. The process saves and ends when its
standard input closes, which happens when the actor is gone, however it went. A run whose actor or process was lost is
started again wherever there is room and resumes from the last checkpoint of its folder. A node that does not see that
folder has a copy of it, and its actor brings what is new to a storage or, by messages, to the command (`storage/`).
How many runs are under way follows the nodes (`capacity`): more when one joins; when one leaves, none is ended for it.
Those that find no room wait here and not with Ray, which would place them on a node that joins before it is asked.
"""

from __future__ import annotations

import contextlib
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqnitro.cluster.capacity import Capacity
from dqnitro.cluster.connect import Cluster
from dqnitro.cluster.nodes import Need
from dqnitro.common.files import HeldLock
from dqnitro.storage.host import PATIENCE_S, TRAVEL_S, Order, RunHost
from dqnitro.storage.mailbox import Served, serve

STOPPED = (129, 130, 143)  # exit codes of a run that a signal stopped, after it had saved
LOST, LOST_WITHIN_S = 3, 120.0  # this many losses, each this soon after a start, are not accidents
LOOK_S = 5.0  # between two looks at the nodes
NO_NODE_S = 30.0  # without a node that can take a run, before that is said
NODE_ID = "ray.io/node-id"  # a label that Ray gives to every node


@dataclass
class Member:
    """A run that was handed to the cluster."""

    seed: int
    actor: Any = None  # None: it waits for room
    placed: Any = None  # ready when Ray has found room
    ended: Any = None  # ready when its process has ended
    code: int | None = None
    why: str = ""  # it ended so, where its log does not say it
    server: threading.Thread | None = None  # takes its files, where they travel by messages
    node: str = ""
    began: float = field(default_factory=time.monotonic)
    losses: int = 0  # in a row, each soon after a start
    kept_from: frozenset[str] = frozenset()  # ids of nodes that it was not to be placed on


class RayTeam:
    """The same work and the same interface as `seeds.launcher.Team`, over the nodes of a cluster."""

    def __init__(
        self, cluster: Cluster, need: Need, order: Callable[[int], Order], seeds: Sequence[int], at_once: int,
        say: Callable[[str], None] = lambda text: None, name: Callable[[int], str] = lambda seed: f"seed {seed}",
        served: Callable[[int], Served] | None = None, capacity: Capacity | None = None,
    ) -> None:  # fmt: skip
        """`served`: the storage of a run whose files travel by messages. With `capacity` as many runs are under way as
        the nodes carry, at most `at_once` (0: no other limit).
        """
        self._served, self._capacity = served, capacity
        self._ray, self._order, self._at_once, self._say = cluster.ray, order, at_once, say
        self._limit, self._looked = at_once, float("-inf")
        self._carried, self._told = time.monotonic(), False  # when a node could take a run, and that none can
        self._name = name
        self._host = self._ray.remote(
            num_cpus=need.cpus, num_gpus=need.gpus, memory=need.memory, max_concurrency=4, max_restarts=0
        )(RunHost)
        self.waiting = list(seeds)
        self.peak = 0  # the most that were under way at a time
        self.members: dict[int, Member] = {}
        self._signal = 0

    @property
    def stopping(self) -> bool:
        return bool(self._signal)

    @property
    def running(self) -> list[int]:
        """Those that have a node."""
        return [m.seed for m in self._open() if m.node]

    @property
    def over(self) -> bool:
        return not self.waiting and not self._open()

    def _open(self) -> list[Member]:
        return [m for m in self.members.values() if m.code is None]

    def _under_way(self) -> list[Member]:
        return [m for m in self._open() if m.actor is not None]

    def _next(self) -> Member | None:
        """The next one that waits for room: first those that were lost."""
        lost = next((m for m in self._open() if m.actor is None), None)
        if lost is None and self.waiting:
            seed = self.waiting.pop(0)
            lost = self.members[seed] = Member(seed)
        return lost

    def poll(self) -> list[Member]:
        """Return the members that ended since the last call, and hand the next ones to the cluster."""
        ended = []
        for member in self._under_way():
            if not member.node and self._is_ready(member.placed):
                with contextlib.suppress(self._ray.exceptions.RayError):
                    member.node, member.began = self._ray.get(member.placed), time.monotonic()
            if self._is_ready(member.ended):
                self._settle(member)
                ended += [member] if member.code is not None else []
        self._look()
        while len(self._under_way()) < self._limit and (member := self._next()):
            self._start(member)
        self.peak = max(self.peak, len(self.running))
        return ended

    def _is_ready(self, ref: Any) -> bool:
        return bool(self._ray.wait([ref], timeout=0)[0])

    def _look(self) -> None:
        """Follow the nodes, every few seconds."""
        now = time.monotonic()
        if self._capacity is None or self._signal or now - self._looked < LOOK_S:
            return
        self._looked, room = now, self._capacity.look()
        self._limit = min(room, self._at_once) if self._at_once else room
        for member in self._under_way():
            if member.kept_from - self._capacity.barred and not (member.node or self._is_ready(member.placed)):
                self._free(member)  # Ray found no room for it, and it may have a node that has been asked since
        if room:
            self._carried, self._told = now, False
        elif now - self._carried >= NO_NODE_S and not self._told:
            self._tell(self._capacity.need)

    def _tell(self, need: Need) -> None:
        """No node can take those that have none."""
        seeds = [*(m.seed for m in self._open() if not m.node), *self.waiting]
        if not seeds:
            return
        self._told = True
        who = self._name(seeds[0]) + (f" and {len(seeds) - 1} more" if len(seeds) > 1 else "")
        self._say(
            f"{who}: no node of the cluster can take a run, which needs {need.text()}; waiting until one that can joins"
        )

    def _place(self, member: Member) -> Any:
        """An actor for a run, wherever there is room."""
        member.kept_from = self._capacity.barred if self._capacity else frozenset()
        if not member.kept_from:
            return self._host.remote()
        return self._host.options(label_selector={NODE_ID: f"!in({','.join(sorted(member.kept_from))})"}).remote()

    def _start(self, member: Member) -> None:
        if member.server is not None:
            member.server.join(PATIENCE_S)  # a file of the one before may be half written
        order, actor = self._order(member.seed), self._place(member)
        member.actor, member.placed, member.ended = actor, actor.node.remote(), actor.run.remote(order)
        member.node, member.began = "", time.monotonic()
        if order.away is not None and not order.away.url:
            assert self._served is not None
            named = {
                "target": self.serve_files,
                "args": (actor, self._served(member.seed), order.folder),
                "daemon": True,
            }
            member.server = threading.Thread(name=f"files of {self._name(member.seed)}", **named)
            member.server.start()

    def serve_files(self, actor: Any, storage: Served, folder: str) -> None:
        """Do what a run wants done with its files, until it is gone."""
        answer, lock = None, HeldLock(pathlib.Path(folder))
        try:
            with contextlib.suppress(self._ray.exceptions.RayError):
                while True:
                    answer = serve(storage, self._ray.get(actor.exchange.remote(answer)))
                    lock.look()
        finally:
            lock.release()

    def _settle(self, member: Member) -> None:
        """A run that ended has its exit code; one that was lost starts again, unless it is to stop anyway."""
        try:
            (code, member.why), why = self._ray.get(member.ended), "its process was killed or stopped"
        except self._ray.exceptions.RayActorError:
            code, why = -signal.SIGKILL, f"node {member.node or '(none yet)'} or its worker was lost"
        except self._ray.exceptions.RayError as e:
            code, why = -signal.SIGKILL, f"node {member.node} cannot run it ({str(e).strip().splitlines()[-1][:200]})"
            member.why = why
        self._free(member)
        # A run that was stopped, though nobody here said so, has a node that is going down.
        if self._signal or (code >= 0 and code not in STOPPED):
            member.code = code if code >= 0 else 128 + self._signal
            return
        soon = time.monotonic() - member.began < LOST_WITHIN_S
        member.losses = member.losses + 1 if soon else 1
        if member.losses > LOST:
            member.code = code
            return
        self._say(f"{self._name(member.seed)}: {why}; it goes on from its last checkpoint ({member.losses} of {LOST})")
        member.node, self._looked = "", float("-inf")

    def _free(self, member: Member) -> None:
        """Give its resources back."""
        if member.actor is not None:
            with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
                self._ray.kill(member.actor)
        member.actor = None

    def stop(self, number: int) -> None:
        """Send the signal to all runs and start no more; those that have no node yet are taken back."""
        self.waiting, self._signal = [], int(number)
        for member in self._open():
            if member.actor is not None and (member.node or self._is_ready(member.placed)):
                member.actor.stop.remote(int(number))
            else:
                self._free(member)
                member.code = 128 + int(number)

    def close(self) -> None:
        """Stop all that still run; they have time to save."""
        if self._open():
            self.stop(signal.SIGTERM)
        end = time.monotonic() + (PATIENCE_S if self._served is None else TRAVEL_S)
        while self._open() and time.monotonic() < end:
            self.poll()
            time.sleep(0.1)
        for member in self._open():
            self._free(member)
            member.code = -signal.SIGKILL
