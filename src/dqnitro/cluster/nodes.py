"""The nodes of a cluster: what they have, whether they can run our runs, and how many fit."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dqnitro.cluster.connect import INSTALL, Cluster
from dqnitro.errors import ConfigError

PROBE_S = 120.0  # for a task of some milliseconds on each node: starting a worker takes seconds, many on a busy one
GONE_S = 15.0  # for Ray to notice that a node is gone, after a call on it has failed
SAME = ("torch", "numpy", "ale-py", "gymnasium")  # packages whose version decides what a run computes


@dataclass(frozen=True)
class Node:
    """A machine of the cluster and the resources that it offers."""

    id: str
    name: str
    cpus: float
    gpus: float
    memory: float  # bytes


@dataclass(frozen=True)
class Need:
    """The resources of one run."""

    cpus: int
    gpus: int
    memory: int  # bytes

    def text(self) -> str:
        gpus = f", {self.gpus} GPU" if self.gpus else ""
        return f"{self.cpus} CPU{'s' if self.cpus > 1 else ''}{gpus} and {self.memory / 2**30:.1f} GiB"


def alive(cluster: Cluster) -> list[Node]:
    """The nodes that are up."""
    found = []
    for n in cluster.ray.nodes():
        if n["Alive"]:
            r = n["Resources"]
            name = str(n.get("NodeManagerHostname") or n.get("NodeManagerAddress"))
            found.append(Node(n["NodeID"], name, r.get("CPU", 0.0), r.get("GPU", 0.0), r.get("memory", 0.0)))
    return found


def fits(nodes: Sequence[Node], need: Need) -> int:
    """How many runs the nodes carry at the same time."""

    def on(n: Node) -> int:
        rooms = [n.memory // need.memory if need.memory else 1 << 20]
        rooms += [n.cpus // need.cpus] if need.cpus else []
        rooms += [n.gpus // need.gpus] if need.gpus else []
        return int(min(rooms))

    return sum(on(n) for n in nodes)


def shared_out(nodes: Sequence[Node], least: Need, n_runs: int) -> tuple[Need, int]:
    """What each run gets, and how many run at the same time: spare CPUs are divided once all runs are placed.

    ConfigError if no node could ever carry one: Ray would wait for such a node for ever.
    """
    count = fits(nodes, least)
    if not count:
        have = "; ".join(f"{n.name}: {Need(int(n.cpus), int(n.gpus), int(n.memory)).text()}" for n in nodes)
        raise ConfigError(
            f"a run needs {least.text()}, and no node of the cluster has that ({have or 'it has no nodes'})",
            "add a node, or lower --torch-threads, --replay-capacity or the number of --seeds in parallel",
        )
    need, wanted = least, min(n_runs, count)
    while fits(nodes, replace(need, cpus=need.cpus + 1)) >= wanted:
        need = replace(need, cpus=need.cpus + 1)
    return need, min(n_runs, fits(nodes, need))


def source_digest() -> str:
    """A checksum of the installed DQNitro: equal sources, equal runs."""
    root = pathlib.Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def versions() -> dict[str, str]:
    """What has to be the same everywhere."""
    found = {"DQNitro": f"{importlib.metadata.version('dqnitro')} ({source_digest()})"}
    return found | {name: importlib.metadata.version(name) for name in SAME}


def check_nodes(cluster: Cluster, nodes: Sequence[Node], shared: pathlib.Path | None = None) -> list[Node]:
    """Ask every node for its versions; returns those that do not see the file `shared` as it is here, or may not write
    beside it.
    """

    def probe(path: str | None) -> tuple[Any, str | None, bool]:
        """Travels by value, so that a node without DQNitro can answer too."""
        import hashlib
        import os
        import pathlib

        try:
            from dqnitro.cluster.nodes import versions

            found: Any = versions()
        except Exception as e:
            found = f"{type(e).__name__}: {e}"
        if path is None:
            return found, None, True
        try:
            data = pathlib.Path(path).read_bytes()
        except OSError:
            return found, None, False
        return found, hashlib.sha256(data).hexdigest(), os.access(os.path.dirname(path), os.W_OK)

    path, blind = str(shared.resolve()) if shared else None, []
    here, digest = versions(), hashlib.sha256(shared.read_bytes()).hexdigest() if shared else None
    for node, (theirs, seen, writable) in _each(cluster, nodes, probe, path):
        _same_versions(node, here, theirs)
        if path is not None and (seen != digest or not writable):
            blind.append(node)
    return blind


def without_storage(cluster: Cluster, nodes: Sequence[Node], url: str, name: str, data: bytes) -> dict[str, str]:
    """Names of the nodes that cannot read and write at a URL, and why; there is a file of this name with this data."""
    return {node.name: why for node, why in _each(cluster, nodes, _cannot_store, (url, name, data)) if why}


def _cannot_store(about: tuple[str, str, bytes]) -> str:
    from dqnitro.errors import UserError
    from dqnitro.storage.base import whole
    from dqnitro.storage.by_url import storage_at

    url, name, data = about
    probe = f"probe-{uuid.uuid4().hex}"
    try:
        storage = storage_at(url)
        if b"".join(whole(storage, name)) != data:
            return "it has other files there"
        storage.write(probe, [b"may be deleted"])
        storage.delete([probe])
    except FileNotFoundError:
        return "it does not see the files there"
    except UserError as e:
        return str(e).partition("; hint: ")[0]
    return ""


def check_work(cluster: Cluster, nodes: Sequence[Node], why_not: Callable[[Any], str | None], work: Any) -> None:
    """Ask every node, after `check_nodes`, why it cannot do this work."""
    for node, why in _each(cluster, nodes, why_not, work):
        if why:
            raise ConfigError(f"node {node.name}: {why}", f"{INSTALL} there, or leave it out")


def _each(
    cluster: Cluster, nodes: Sequence[Node], question: Callable[[Any], Any], about: Any
) -> Iterator[tuple[Node, Any]]:
    """The answer of every node that does not die meanwhile; all work at the same time."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray = cluster.ray
    task = ray.remote(num_cpus=0, max_retries=1)(question)
    asked = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(n.id, soft=False)).remote(about) for n in nodes
    ]
    for node, answer in zip(nodes, asked, strict=True):
        try:
            found = ray.get(answer, timeout=PROBE_S)
        except Exception as e:
            if (cause := getattr(e, "cause", None)) is not None:  # it answered, with an error
                told = " ".join(f"{type(cause).__name__}: {cause}".split())[:300]
                raise ConfigError(f"node {node.name} cannot be asked ({told})", f"{INSTALL} there") from e
            if not is_up(cluster, node):
                continue
            raise ConfigError(f"node {node.name} does not answer ({type(e).__name__})", "`ray status` shows it") from e
        yield node, found


def is_up(cluster: Cluster, node: Node) -> bool:
    """Is it still a node of the cluster? Ray may need some seconds to notice that it is not."""
    end = time.monotonic() + GONE_S
    while node.id in {n.id for n in alive(cluster)}:
        if time.monotonic() > end:
            return True
        time.sleep(0.2)
    return False


def free_cpus(cluster: Cluster, nodes: Sequence[Node]) -> list[float]:
    """Of each node, what nobody uses at the moment; all of them where Ray does not tell."""
    try:
        state = importlib.import_module("ray._private.state")
        free = state.available_resources_per_node()
    except Exception:
        return [n.cpus for n in nodes]
    return [float(free.get(n.id, {}).get("CPU", 0.0)) for n in nodes]


def _same_versions(node: Node, here: dict[str, str], theirs: Any) -> None:
    if not isinstance(theirs, dict):
        raise ConfigError(f"node {node.name} has no DQNitro that works ({theirs})", f"{INSTALL} there")
    for name, version in here.items():
        if theirs.get(name) != version:
            raise ConfigError(
                f"node {node.name} has {name} {theirs.get(name)}, here it is {version}",
                "install the same versions everywhere: runs would differ",
            )
