"""What to try next, given where the time goes, and the most it could gain.

No rung is known by name here: a rung is applied to the config, and the settings it changes tell which part of a step
gets cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab.spans import Node
from dqnitro.ladder import RUNGS, Rung

# The parts of a step, in the order of the loop. `loop` is what no part accounts for.
PARTS = (
    "environment", "acting", "copies", "sampling", "loss", "backward", "optimiser", "storing", "waiting", "loop",
)  # fmt: skip
LEARNING = ("sampling", "loss", "backward", "optimiser")
WITHIN = (*LEARNING, "copies")  # what learning as a whole consists of
PROMISES = ("exact", "close", "learning")
MOST_NAMES = 6  # in a sentence; the JSON has all
WORTH_A_WORD = 0.03  # of a step: a gain of at most 1.03x is not worth mentioning

_ENVS = ("wrappers", "gym-sync", "gym-async", "ale", "console")


def _up(old: Any, new: Any) -> bool:
    return new > old


def _down(old: Any, new: Any) -> bool:
    return new < old


def _any(old: Any, new: Any) -> bool:
    return True


# setting -> (the parts of a step that it lightens, whether this change does)
SETTINGS: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], bool]]] = {
    "envs": (("environment", "waiting"), lambda old, new: _ENVS.index(new) > _ENVS.index(old)),
    "env_threads": (("environment", "waiting"), _up),
    "n_envs": (("acting", "environment", "storing", "waiting"), _up),
    "noop_max": (("environment",), _down),
    "max_pool": (("environment",), _down),
    "episodic_life": (("environment",), _down),
    "resize": (("environment",), lambda old, new: new == "linear"),
    "screen_size": (("environment", "copies", "sampling", "loss", "backward", "acting"), _down),
    "frame_stack": (("copies", "sampling", "loss", "backward"), _down),
    "network": (("acting", "loss", "backward", "optimiser"), lambda old, new: new == "small"),
    "hidden_units": (("acting", "loss", "backward", "optimiser"), _down),
    "steps_per_update": (WITHIN, _up),
    "replay": (("sampling", "storing", "copies"), lambda old, new: new == "frames"),
    "replay_device": (("copies", "sampling"), _any),
    "runner": (("environment", "acting", "waiting", "loop"), lambda old, new: old == "inline"),
    "device": (("acting", "loss", "backward", "optimiser"), lambda old, new: old == "cpu"),
    "act_device": (("acting",), _any),
}
WRAPPERS: dict[str, tuple[str, ...]] = {
    "no-grad": ("acting", "loss"),
    "fused-adam": ("optimiser",),
    "inplace-relu": ("acting", "loss"),
    "channels-last": ("loss", "backward"),
    "pinned-copies": ("copies",),
    "written-out": ("acting", "loss", "backward"),
    "distinct-patches": ("acting", "loss", "backward"),
    "one-pass-adam": ("acting", "optimiser"),
    "split-network": ("loss", "backward", "optimiser"),
    "one-pass-acting": ("acting",),
    "few-calls": ("acting", "sampling", "loss", "backward", "optimiser"),
    "compile": ("loss", "backward", "copies"),
    "own-kernels": ("acting", "sampling", "loss", "backward", "optimiser"),
}
ANY_WRAPPER = ("loss", "backward")  # transforms of an update exist to make these faster


def lightens(rung: Rung, config: Config) -> set[str]:
    """The parts of a step that a rung would make cheaper here; none if it is already in force, or only costs time."""
    if set(getattr(rung, "replaces", ())) & set(config.wrappers):
        return set()  # it would remove a transform that is in force
    try:
        after = rung.apply(config)
    except ConfigError:  # it cannot be combined with these settings
        return set()
    parts: set[str] = set()
    as_many_samples = after.batch_size / after.steps_per_update >= config.batch_size / config.steps_per_update
    for name, (lighter, helps) in SETTINGS.items():
        old, new = getattr(config, name, None), getattr(after, name, None)
        if old != new and helps(old, new):
            # Fewer updates with proportionally larger batches train as many samples per step: only optimiser steps are
            # saved.
            grown = name == "steps_per_update" and as_many_samples
            parts |= {"optimiser"} if grown else set(lighter)
    for wrapper in after.wrappers:
        if wrapper not in config.wrappers:
            parts |= set(WRAPPERS.get(wrapper, ANY_WRAPPER))
    return parts


def shares(tree: Node) -> dict[str, float]:
    """The share of every part in a step; they add up to 1."""
    seconds = dict.fromkeys(PARTS, 0.0)
    other = {"network": "acting", "target copy": "optimiser", "handing over weights": "copies", "learning": "optimiser"}

    def walk(node: Node) -> None:
        name = other.get(node.name, node.name)
        seconds[name if name in seconds else "loop"] += node.own_seconds()
        for child in node.children.values():
            walk(child)

    walk(tree)
    total = sum(seconds.values())
    return {part: s / total if total else 0.0 for part, s in seconds.items()}


def at_most(share: float) -> float:
    """Amdahl: the speed-up if this share cost nothing at all."""
    return 1.0 / max(1.0 - share, 1e-9)


def learning_share(tree: Node) -> float:
    """Sampling and updates with everything inside them, copies too: what fewer or cheaper updates would save."""
    nodes = (tree.find("sampling"), tree.find("learning"))
    return sum(node.seconds for node in nodes if node) / tree.seconds if tree.seconds else 0.0


def advise(of: Mapping[str, float], learning: float, config: Config) -> list[dict[str, Any]]:
    """What to try, the largest share first. `learning` is the share of the updates as a whole."""
    found = [("learning as a whole", LEARNING, learning), *((part, (part,), of[part]) for part in PARTS)]
    lighter = {name: lightens(rung, config) for name, rung in RUNGS.items()}
    whole = {name for name, some in lighter.items() if set(LEARNING) <= some}
    out = []
    for what, parts, share in found:
        if share < WORTH_A_WORD:
            continue
        if len(parts) > 1:
            names = [n for n in lighter if n in whole]
        else:  # rungs that make all of learning cheaper are named there, once
            names = [
                n for n, some in lighter.items() if parts[0] in some and (n not in whole or parts[0] not in WITHIN)
            ]
        cannot = {n: why for n in names if (why := RUNGS[n].needs(config))}
        can = sorted((n for n in names if n not in cannot), key=lambda n: PROMISES.index(RUNGS[n].promise))
        out.append(
            {
                "part": what,
                "share": share,
                "buys_at_most": at_most(share),
                "rungs": can,
                "cannot": cannot,
                "text": _words(what, share, can),
            }
        )
    return sorted(out, key=lambda a: -a["share"])


def _words(what: str, share: float, can: list[str]) -> str:
    text = f"{what}: {share:.0%} of a step, at most {at_most(share):.2f}x if it cost nothing; "
    if not can:
        return text + "no rung makes it cheaper here"
    text += "try " + ", ".join(f"{n} [{RUNGS[n].promise}]" for n in can[:MOST_NAMES])
    return text + (f" and {len(can) - MOST_NAMES} more" if len(can) > MOST_NAMES else "")
