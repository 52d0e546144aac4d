"""Where the lab measures: on the GPU if torch can use one, unless `--device` says otherwise; and with how many threads.

The network is so small that threads that share a product wait for each other more than they compute: beyond a few
cores more of them are slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dqnitro import recipes
from dqnitro.config import Config

FEW_THREADS = 4  # of torch, for one network pass on a CPU with many cores


@dataclass(frozen=True)
class Where:
    """The settings that say where a measurement runs, and the sentence that a result begins with."""

    settings: dict[str, Any]
    text: str


def where(changes: Mapping[str, Any] | None = None, config: Config | None = None) -> Where:
    """Where the lab measures on this machine, with these settings from the command line.

    A config that is known has the last word: a recipe may choose its own device and threads.
    """
    import torch

    from dqnitro.common.host import usable_cores

    asked = dict(changes or {})
    given = asked if config is None else {"device": config.device, "torch_threads": config.torch_threads} | asked
    device, cores = str(given.get("device", "auto")), usable_cores()
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    few = 1 if on_gpu else min(cores, FEW_THREADS)
    threads = given.get("torch_threads") or few
    settings: dict[str, Any] = {"device": (device if device != "auto" else "cuda") if on_gpu else "cpu"}
    if on_gpu or cores > FEW_THREADS:  # otherwise it is what torch does by itself
        settings["torch_threads"] = threads
    host = (
        f"{cores} core{'s' if cores > 1 else ''}, {threads} torch thread{'s' if threads > 1 else ''} for a network pass"
    )
    if on_gpu:
        name = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "which torch cannot use"
        return Where(settings, f"measuring on the GPU ({name}; on the host {host}); --device cpu measures on the CPU")
    why = "as --device says" if asked.get("device") == "cpu" else "torch can use no GPU here"
    if why.startswith("torch") and torch.cuda.is_available():
        why = "the recipe's network is too small for a GPU"
    return Where(settings, f"measuring on the CPU ({host}): {why}")


def lab_plan(recipe: str, game: str, changes: Mapping[str, Any] | None = None) -> recipes.Plan:
    """A recipe as the lab measures it: the textbook DQN on the GPU, too, if there is one.

    Recipes that choose a device for themselves keep it; `--device` and other settings are applied by the caller.
    """
    plan = recipes.plan(recipe, game, (changes or {}).get("device"))
    here = where(changes).settings
    if recipe == "baseline":
        return replace(plan, base=plan.base.replace(**here))
    threads = {"torch_threads": here["torch_threads"]} if "torch_threads" in here else {}
    if plan.base.device == "auto" and not plan.base.torch_threads:
        return replace(plan, base=plan.base.replace(**threads))
    return plan
