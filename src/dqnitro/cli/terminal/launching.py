"""Where many runs go: processes on this machine, or on the nodes of a cluster (`--on`). Seeds, games and values of a
setting share it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dqnitro.cli.terminal.flags import Parser, note
from dqnitro.common.files import alone_in
from dqnitro.errors import ConfigError
from dqnitro.process_setup import SHARED_GPU
from dqnitro.seeds.launcher import Team
from dqnitro.storage.by_url import is_url, plain_path
from dqnitro.storage.home import Home, UrlHome, home_at

if TYPE_CHECKING:
    from dqnitro.cluster.connect import Cluster
    from dqnitro.cluster.nodes import Need, Node
    from dqnitro.cluster.team import RayTeam
    from dqnitro.config import Config
    from dqnitro.seeds.allocation import Share
    from dqnitro.storage.away import Away

    AnyTeam = Team | RayTeam

DISK = Home()


class Job(NamedTuple):
    """A run as a process."""

    command: Callable[[], Sequence[str]]  # asked for when it starts: what is left to do may have changed
    log: pathlib.Path
    folder: pathlib.Path  # of the run
    name: str
    result: pathlib.Path | None = None  # what it makes, if that is not its folder; like that beside the log

    def away(self, home: Home) -> Away:
        """What a process needs that does not see the folder."""
        from dqnitro.seeds.folder import FILE
        from dqnitro.storage.away import Away

        root = self.log.resolve().parent
        inputs = {FILE: (root / FILE).read_bytes()} if (root / FILE).is_file() else {}
        tops = ((self.result or self.folder).name, self.log.name)
        return Away(str(root), tops, inputs, home.folder_of(root) or str(self.log.parent))


def add_on_flag(p: Parser, what: str) -> None:
    p.add_argument(
        "--on", metavar="CLUSTER",
        help=f"{what} on a Ray cluster: ray (started on this machine), auto (the one that this machine belongs to) or "
        "ray://HOST:PORT (default: this machine, without Ray)",
    )  # fmt: skip


@dataclass(frozen=True)
class Place:
    """This machine, or a cluster."""

    cluster: Cluster | None

    def share(self, config: Config, n_runs: int, at_once: int) -> Share:
        """How many runs are played in parallel and with how many threads."""
        from dqnitro.seeds.allocation import Room, find_room, least_need, share

        if self.cluster is None:
            return share(config, n_runs, find_room(config), at_once)
        from dqnitro.cluster.nodes import alive, shared_out

        nodes = alive(self.cluster)
        need, count = shared_out(nodes, least_need(config), at_once or n_runs)
        each = share(config, 1, Room(need.cpus, float(need.memory)), 1)
        why = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}, {need.text()} per run"
        return dataclasses.replace(each, at_once=min(count, n_runs), why=why)

    def carries(self, config: Config) -> int:
        """How many runs of this config the nodes of the cluster carry at the same time."""
        from dqnitro.cluster.nodes import alive, fits
        from dqnitro.seeds.allocation import least_need

        assert self.cluster is not None
        return fits(alive(self.cluster), least_need(config))

    def team(
        self, jobs: dict[int, Job], at_once: int, threads: int, need: Need | None, shared: pathlib.Path,
        config: Config | None = None, home: Home = DISK, most: int = 0,
    ) -> AnyTeam:  # fmt: skip
        """Processes for the jobs, `at_once` at a time on this machine. On a cluster: on nodes with what a job needs, as
        many at a time as these carry (at most `most`, if that is not 0), also those that join later. Where one of them
        does not see the file `shared` beside it, or does not reach the URL of `home`, files travel to this machine
        through Ray.
        """
        # Every process has torch's compiler, which would start one worker per core.
        environment = {"OMP_NUM_THREADS": str(threads), "TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
        if self.cluster is None:
            environment |= {SHARED_GPU: "1"} if at_once > 1 else {}
            if home.url:
                return _carried(jobs, at_once, environment, home)
            return Team(lambda i: jobs[i].command(), list(jobs), at_once, lambda i: jobs[i].log, environment)
        from dqnitro.cluster.capacity import Capacity
        from dqnitro.cluster.nodes import alive, fits, shared_out
        from dqnitro.cluster.team import RayTeam
        from dqnitro.storage.host import Order, order_of

        assert need is not None
        nodes = alive(self.cluster)
        shared_out(nodes, need, len(jobs) or 1)
        able = [n for n in nodes if fits([n], need)]
        blind = self._checked(able, None if home.url else shared, config)
        reached = bool(home.url) and self._reached(able, home, shared)
        travels = bool(home.url or blind)
        if blind:
            note(f"{_names(blind)} not see {shared.parent}: files of runs travel through Ray")

        def order(i: int) -> Order:
            away = jobs[i].away(home) if travels else None
            if away is not None and reached:
                away = away._replace(url=away.shown_as)
            return order_of(jobs[i].command(), jobs[i].log, jobs[i].folder, environment, away)

        def why_not(node: Node) -> str:
            return self._why_not(node, None if travels else shared, config) or (
                self._out_of_reach([node], home, shared) if reached else ""
            )

        return RayTeam(
            self.cluster, need, order, list(jobs), most, note, lambda i: jobs[i].name,
            (lambda i: home.served(jobs[i].log.parent)) if travels else None,
            Capacity(self.cluster, need, able, why_not, note),
        )  # fmt: skip

    def _checked(self, nodes: Sequence[Node], shared: pathlib.Path | None, config: Config | None) -> list[Node]:
        """Whether nodes can do the work, ConfigError if not; returns those that do not see the file `shared`."""
        from dqnitro.cluster.nodes import check_nodes, check_work
        from dqnitro.requirements import cannot_play

        assert self.cluster is not None
        blind = check_nodes(self.cluster, nodes, shared)
        if config is not None:
            check_work(self.cluster, nodes, cannot_play, config)
        return blind

    def _why_not(self, node: Node, shared: pathlib.Path | None, config: Config | None) -> str:
        """Why a node that has joined cannot do the work; empty if it can."""
        try:
            blind = self._checked([node], shared, config)
        except ConfigError as e:
            return str(e).partition("; hint: ")[0]
        return f"{_names(blind)} not see {shared.parent}" if blind and shared else ""

    def _reached(self, nodes: Sequence[Node], home: Home, shared: pathlib.Path) -> bool:
        """Whether all nodes can read and write at the URL, which has the file `shared` by now."""
        if why := self._out_of_reach(nodes, home, shared):
            note(f"{why}: files of runs travel through Ray and this machine")
        return not why

    def _out_of_reach(self, nodes: Sequence[Node], home: Home, shared: pathlib.Path) -> str:
        """The first node that cannot use the URL, and why; empty if all can."""
        from dqnitro.cluster.nodes import without_storage

        assert self.cluster is not None
        bad = without_storage(self.cluster, nodes, home.url, shared.name, shared.read_bytes())
        return next((f"node {name} cannot use {home.url} ({why})" for name, why in bad.items()), "")


def _carried(jobs: dict[int, Job], at_once: int, environment: dict[str, str], home: Home) -> Team:
    """Processes on this machine for runs at a URL: each trains in a scratch folder, whose files another one brings
    there.
    """
    from dqnitro.storage.host import TRAVEL_S, order_of

    assert isinstance(home, UrlHome)
    if jobs and home.url.startswith("memory://"):
        raise ConfigError(f"{home.url}: what is in memory:// ends with its process", "give a folder, or add --on ray")
    orders = home.folder / "orders"
    orders.mkdir(exist_ok=True)

    def command(i: int) -> list[str]:
        away = jobs[i].away(home)
        order = order_of(jobs[i].command(), jobs[i].log, jobs[i].folder, environment, away._replace(url=away.shown_as))
        (orders / f"{i}.pickle").write_bytes(pickle.dumps(order))
        return [sys.executable, "-m", "dqnitro.cli.carried", str(orders / f"{i}.pickle"), str(os.getpid())]

    return Team(command, list(jobs), at_once, lambda i: orders / f"{i}.log", environment, TRAVEL_S, beside=True)


def _names(nodes: Sequence[Node]) -> str:
    others = f" and {len(nodes) - 1} others do" if len(nodes) > 1 else " does"
    return f"node {nodes[0].name}{others}"


def state_folder(text: str | None) -> pathlib.Path | None:
    """What `--state` names, for a command whose parts are put together on this machine."""
    if text and is_url(plain_path(text)):
        raise ConfigError(
            f"--state {text} is a URL, expected a folder", "nodes need not see it: what they make travels"
        )
    return pathlib.Path(plain_path(text)) if text else None


@contextlib.contextmanager
def state_at(text: str | None, default: pathlib.Path, must_have: str) -> Iterator[tuple[pathlib.Path, Home]]:
    """The folder that `--state` names, or the copy here of one at a URL; if it has been begun, the file `must_have` is
    in it. On a disk one command at a time works there.
    """
    if text and is_url(plain_path(text)):
        with home_at(text, must_have, None) as home:
            assert home.path is not None
            yield home.path, home
        return
    path = pathlib.Path(plain_path(text)) if text else default
    with alone_in(path):
        yield path, DISK


@contextlib.contextmanager
def place(on: str | None) -> Iterator[Place]:
    """Where `--on` says; a cluster that is started for it ends with it."""
    if on is None:
        yield Place(None)
        return
    from dqnitro.cluster.connect import check_address, connect

    check_address(on)
    note("starting Ray on this machine: it takes some seconds" if on == "ray" else f"connecting to Ray ({on})")
    with connect(on) as cluster:
        yield Place(cluster)
