"""How many runs a cluster carries while nodes join and leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from dqnitro.cluster.connect import Cluster
from dqnitro.cluster.nodes import Need, Node, alive, fits


class Capacity:
    """The nodes that take runs: those that were checked at the start, and those that join and pass the same checks."""

    def __init__(
        self, cluster: Cluster, need: Need, checked: Sequence[Node], why_not: Callable[[Node], str],
        say: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        """`why_not` asks a node that has joined; what it returns is empty if the node may take runs."""
        self.need = need
        self.barred: frozenset[str] = frozenset()  # ids of nodes that have room, but may take no runs, or not yet
        self._cluster, self._why_not, self._say = cluster, why_not, say
        self._answers: dict[str, str | None] = {n.id: "" for n in checked}  # None: it is being asked
        self._told: set[str] = set()

    def look(self) -> int:
        """How many runs the nodes that are up carry at the same time."""
        nodes = [n for n in alive(self._cluster) if fits([n], self.need)]
        able = [n for n in nodes if self._may_take_runs(n)]
        self.barred = frozenset(n.id for n in nodes) - {n.id for n in able}
        return fits(able, self.need)

    def _may_take_runs(self, node: Node) -> bool:
        if node.id not in self._answers:
            self._answers[node.id] = None
            threading.Thread(target=self._ask, args=(node,), name=f"questions to {node.name}", daemon=True).start()
        why = self._answers[node.id]
        if why and node.id not in self._told:
            self._told.add(node.id)
            self._say(f"{why}: it joined, but gets no runs")
        return why == ""

    def _ask(self, node: Node) -> None:
        try:
            self._answers[node.id] = self._why_not(node)
        except Exception as e:
            self._answers[node.id] = f"node {node.name} cannot be asked ({type(e).__name__}: {e})"
