"""Where a step's time goes, as a tree: spans around the loop's parts, put on from outside and taken off again.

A run that is not profiled pays nothing: the functions are replaced on this one agent, and only while it is watched. A
span costs two reads of a clock.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from dqnitro.agent import PHASES, Agent
from dqnitro.envs.turns import groups_of

# Where in an agent, which function, and the span of the tree that it counts in.
Watched = tuple[tuple[str, str, str], ...]
LEARNING: Watched = (
    ("replay", "sample", "sampling"),
    ("replay", "update_priorities", "sampling"),
    ("replay", "add", "storing"),
    ("learner", "sync_target", "target copy"),
    ("learner", "begin", "learning"),
    ("learner", "update", "learning"),
    ("learner", "loss", "loss"),
    ("learner", "passes", "loss"),  # the two halves of a loss between which actions are chosen
    ("learner", "loss_of_passes", "loss"),
)
OPTIMISER: Watched = (("learner.optimizer", "zero_grad", "optimiser"), ("learner.optimizer", "step", "optimiser"))
PLAYING: Watched = (("envs", "send", "environment"), ("envs", "recv", "environment"))
# By runner. On a GPU, work is in graphs: what the host starts there is not where the time goes.
WATCHED: dict[str, Watched] = {
    "inline": (
        ("", "choose_actions", "acting"),
        ("learner", "greedy", "network"),
        *PLAYING,
        *LEARNING,
        *OPTIMISER,
    ),
    "processes": (
        ("envs", "permit", "handing over weights"),
        ("envs", "take", "environment"),
        ("envs", "wait", "waiting"),
        *LEARNING,
        *OPTIMISER,
    ),
    "cluster": (
        ("envs", "permit", "handing over weights"),
        ("envs", "take", "environment"),
        ("envs", "fetch", "waiting"),
        *LEARNING,
        *OPTIMISER,
    ),
    "hybrid": (*PLAYING, *OPTIMISER),
    "device": (),
}
# Environment backends that play from `send` on, on threads or in processes: what is left in `recv` is waiting for them.
POOLED = ("gym-async", "ale", "console")
HOST_PLAYS = ("inline", "hybrid")  # runners whose environments are in this process
PHASE_WORDS: dict[str, str] = dict(
    zip(PHASES, ("acting", "environment", "sampling", "learning", "storing"), strict=True)
)
ANNOTATION = "dqnitro: "  # what a span is called in the trace


@dataclass
class Node:
    """One place of the tree: seconds of wall clock in it and below, and how often it was entered."""

    name: str
    seconds: float = 0.0
    calls: int = 0
    children: dict[str, Node] = field(default_factory=dict)

    def child(self, name: str) -> Node:
        return self.children.setdefault(name, Node(name))

    def find(self, name: str) -> Node | None:
        """The first node of that name, this one or below."""
        if self.name == name:
            return self
        return next((found for c in self.children.values() if (found := c.find(name))), None)

    def own_seconds(self) -> float:
        """In this place and in none of its children."""
        return max(0.0, self.seconds - sum(c.seconds for c in self.children.values()))

    def to_dict(self, total_s: float) -> dict[str, Any]:
        """JSON-ready, the largest first; shares are of `total_s`."""
        children = sorted(self.children.values(), key=lambda c: -c.seconds)
        return {
            "name": self.name, "seconds": self.seconds, "share": self.seconds / total_s if total_s else 0.0,
            "calls": self.calls, "children": [c.to_dict(total_s) for c in children],
        }  # fmt: skip


class Spans:
    """Grows a tree from nested calls."""

    def __init__(self, name: str) -> None:
        self.restart(name)
        self.annotate = False  # also tell torch's profiler; costs more, so the figures come from a pass without it

    def restart(self, name: str) -> None:
        """Grow another tree from here on; the one before stays as it is."""
        self.root = Node(name)
        self._stack = [self.root]

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            node = self._stack[-1].child(name)
            self._stack.append(node)
            begin = time.perf_counter()
            try:
                if self.annotate:
                    with torch.profiler.record_function(ANNOTATION + name):
                        return function(*args, **kwargs)
                return function(*args, **kwargs)
            finally:
                node.seconds += time.perf_counter() - begin
                node.calls += 1
                self._stack.pop()

        return call


def _owner(agent: Any, path: str, name: str) -> Any:
    """The part of an agent at that path; a part or a function that was renamed is an error, not a hole in the tree."""
    for part in filter(None, path.split(".")):
        agent = getattr(agent, part)
    if not callable(getattr(agent, name, None)):
        raise AttributeError(f"{type(agent).__name__} has no function {name!r} to watch")
    return agent


@contextlib.contextmanager
def watch(agent: Agent) -> Iterator[Spans]:
    """Put spans on the parts of this agent, and take them off at the end."""
    spans, runner = Spans("step"), agent.config.runner
    with contextlib.ExitStack() as undo:

        def replace(owner: Any, name: str, label: str) -> None:
            old = getattr(owner, name)
            had = name in vars(owner)
            setattr(owner, name, spans.timed(label, old))
            undo.callback(setattr, owner, name, old) if had else undo.callback(delattr, owner, name)

        for path, name, label in WATCHED[runner]:
            replace(_owner(agent, path, name), name, label)
        for envs in groups_of(agent.envs) if agent.config.envs in POOLED and runner in HOST_PLAYS else ():
            replace(_owner(envs, "engine", "recv"), "recv", "waiting")
        # These two are called on whatever tensor and parameters there are, so they are replaced for everybody.
        replace(torch.Tensor, "backward", "backward")
        replace(torch.nn.utils, "clip_grad_norm_", "optimiser")
        yield spans


@dataclass
class Others:
    """What other processes did meanwhile: the player of the runner `processes`, the workers of an environment backend.

    The player has `pid` and `seconds` (per phase of the loop, since its start); of any other child process only the
    time on a core is known.
    """

    agent: Any
    _before: dict[int, float] = field(default_factory=dict)
    _phases: dict[int, dict[str, float]] = field(default_factory=dict)

    def begin(self) -> None:
        self._before = _cpu_seconds()
        self._phases = {pid: dict(part.seconds) for pid, part in self._parts().items()}

    def _parts(self) -> Mapping[int, Any]:
        return {self.agent.envs.pid: self.agent.envs} if self.agent.config.runner == "processes" else {}

    def nodes(self) -> list[Node]:
        """A tree for each process that was at work since `begin`."""
        out = []
        spent = {pid: s - self._before.get(pid, 0.0) for pid, s in _cpu_seconds().items()}
        for pid, part in self._parts().items():
            node = Node(f"player process {pid}")
            for phase, seconds in part.seconds.items():
                child = node.child(PHASE_WORDS.get(str(phase), str(phase)))
                child.seconds = seconds - self._phases.get(pid, {}).get(phase, 0.0)
            node.seconds = sum(c.seconds for c in node.children.values())
            spent.pop(pid, None)
            out.append(node)
        workers = {pid: s for pid, s in spent.items() if s > 0.0}
        if workers:
            out.append(Node(f"{len(workers)} worker process{'es' if len(workers) > 1 else ''}", sum(workers.values())))
        return out


def _cpu_seconds() -> dict[int, float]:
    """Seconds on a core of every process below this one."""
    import psutil

    out = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            out[child.pid] = times.user + times.system
    return out
