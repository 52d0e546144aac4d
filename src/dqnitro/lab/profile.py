"""`dqnitro profile`: a few hundred steps of a run, once timed and once under torch's profiler.

The figures come from the first pass: the profiler slows down every small operation, so spans with many of them would
look too large. The second pass gives the trace, the top operations, and the share of copies in each span.
"""

from __future__ import annotations

import pathlib
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dqnitro.agent import Agent, Tick
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab.advice import advise, learning_share, shares
from dqnitro.lab.spans import ANNOTATION, Node, Others, Spans, watch
from dqnitro.run import make_run

COPIES = frozenset({"aten::copy_", "aten::to", "aten::_to_copy", "aten::clone", "aten::contiguous", "aten::pin_memory"})
WAITS = frozenset({"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"})
FILL_STEPS = 500  # steps before the first update: enough to sample from
WARM_UPDATES = 5
TOP = 12


def settled(config: Config) -> Config:
    """The same work as in the middle of a run, reached quickly: a short first fill, epsilon at its end."""
    fill = min(config.first_fill_steps, max(FILL_STEPS, config.batch_size))
    return config.replace(
        first_fill_steps=fill, epsilon_start=config.epsilon_end, max_steps=0, max_minutes=0.0,
        stop_at_score=float("inf")
    )  # fmt: skip


Say = Callable[[int, str], None]  # how many of the steps are done, and what is being done


def run_for(ticks: Iterator[Tick], agent: Agent, steps: int) -> float:
    """Run for some steps; returns the seconds it took."""
    end, begin = agent.clock.steps + steps, time.perf_counter()
    while agent.clock.steps < end:
        next(ticks)
    if agent.learner.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def profile(
    config: Config, steps: int, trace: pathlib.Path, traced_steps: int = 0, say: Say = lambda n, what: None
) -> dict[str, Any]:
    """Plain data: the tree, the top operations, advice. Writes the trace, which Perfetto and chrome://tracing open.

    `traced_steps` (0: as many as are timed) are run under the profiler; each adds some hundred kilobytes to the trace.
    """
    say(0, "preparing")
    agent, ticks = make_run(settled(config))
    try:
        while next(ticks).updates < WARM_UPDATES:
            pass
        with watch(agent) as spans:
            before, others = (agent.clock.steps, agent.clock.updates), Others(agent)
            others.begin()
            say(0, "timed")
            wall = run_for(ticks, agent, steps)
            processes = others.nodes()
            tree, done = _finish(spans, wall, agent.clock.steps - before[0]), agent.clock.updates - before[1]
            played = agent.clock.steps - before[0]
            say(steps, "under the profiler")
            profiler = _under_profiler(spans, ticks, agent, traced_steps or steps)
        say(2 * steps, "writing the trace")
        _write_trace(profiler, trace)
        _add_inner(tree, profiler)
    finally:
        agent.close()
    of = shares(tree)
    return {
        "steps": played, "updates": done, "wall_s": wall, "steps_per_s": played / wall, "unit": "seconds",
        "tree": _over_processes(tree, processes, wall), "shares": of, "top": _top(profiler),
        "advice": advise(of, learning_share(tree), config), "trace": str(trace),
    }  # fmt: skip


def _finish(spans: Spans, wall: float, calls: int) -> Node:
    """The tree of this process; time outside the spans belongs to the loop."""
    root = spans.root
    root.seconds, root.calls = wall, calls
    root.child("loop").seconds = root.own_seconds()
    spans.restart("unused")  # the pass under the profiler does not count
    return root


def _under_profiler(spans: Spans, ticks: Iterator[Tick], agent: Agent, steps: int) -> Any:
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    spans.annotate = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that its first window is short
        with torch.profiler.profile(activities=kinds) as profiler:
            run_for(ticks, agent, steps)
    spans.annotate = False
    return profiler


def _write_trace(profiler: Any, path: pathlib.Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")  # the profiler aborts the process if it cannot write the file
    except OSError as e:
        raise ConfigError(f"cannot write {path} ({e.strerror})", "give another file with --trace") from e
    profiler.export_chrome_trace(str(path))


def _add_inner(tree: Node, profiler: Any) -> None:
    """Copies and waits for the GPU inside the spans, as shares from the profiler's pass.

    Only the outermost copy counts (`to` calls `_to_copy` calls `copy_`).
    """
    total: dict[str, float] = defaultdict(float)
    inner: dict[tuple[str, str], float] = defaultdict(float)
    for event in profiler.events():
        if event.name.startswith(ANNOTATION):
            total[event.name] += event.cpu_time_total
        kind = "copies" if event.name in COPIES else "waiting" if event.name in WAITS else None
        above, within = event.cpu_parent, kind is None
        while above is not None and not within and not above.name.startswith(ANNOTATION):
            within = above.name in COPIES
            above = above.cpu_parent
        if kind and above is not None and not within:
            inner[above.name, kind] += event.cpu_time_total
    for (annotation, kind), spent in inner.items():
        node = tree.find(annotation.removeprefix(ANNOTATION))
        if node is not None and total[annotation]:
            child = node.child(kind)
            child.seconds += min(node.own_seconds(), node.seconds * spent / total[annotation])
            child.calls = max(child.calls, node.calls)


def _over_processes(tree: Node, others: list[Node], wall: float) -> dict[str, Any]:
    """One root for all processes if there are several; they run in parallel,
    so their shares may add up to more than 1.
    """
    if not others:
        return tree.to_dict(wall)
    out = Node("all processes", wall, tree.calls, {"trainer": tree}).to_dict(wall)
    out["children"][0]["name"] = "trainer process"
    out["children"] += [o.to_dict(wall) for o in others]
    return out


def _top(profiler: Any) -> list[dict[str, Any]]:
    """The operations with the most own time, on the GPU if there is one."""
    on_gpu = torch.cuda.is_available()
    rows = []
    for op in profiler.key_averages():
        own = (op.self_device_time_total if on_gpu else op.self_cpu_time_total) / 1e6
        if own > 0 and not op.key.startswith((ANNOTATION, "ProfilerStep")):
            rows.append({"op": op.key, "self_s": own, "calls": op.count})
    total = sum(r["self_s"] for r in rows)
    rows.sort(key=lambda r: -r["self_s"])
    return [{**r, "share": r["self_s"] / total} for r in rows[:TOP]]


def tree_lines(tree: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """The tree as indented text; shares below half a per cent are only in the JSON."""
    calls = f"{tree['calls']:,} calls" if tree["calls"] else ""
    yield f"{'  ' * depth + tree['name']:<34} {tree['share']:7.1%} {1000 * tree['seconds']:10,.1f} ms  {calls}".rstrip()
    for child in tree["children"]:
        if child["share"] >= 0.005 or depth == 0:
            yield from tree_lines(child, depth + 1)
