"""The same faults in the GPU runners, whose both halves are on the CPU here (`gpu_models`)."""

from __future__ import annotations

import random
from collections.abc import Callable

from chaos import damage, saves
from chaos.harness import Kind, Outcome, World, named

NAMES = ("hybrid", "device", "parts")


def in_turn(*faults: Callable[..., Outcome]) -> Callable[[World, random.Random, int], Outcome]:
    """A fault of each of these functions in each of the runners, one after the other."""

    def fault(world: World, rng: random.Random, i: int) -> Outcome:
        k, name = divmod(i, len(NAMES))
        out = faults[k % len(faults)](world, rng, k // len(faults), NAMES[name])
        return named(out, NAMES[name])

    return fault


KINDS = [
    Kind("GPU save", "as save, of the runners hybrid and device", in_turn(saves.fault_in_a_save), 6, 18, seconds=3),
    Kind("GPU kill -9", "as kill -9, of those runners", in_turn(saves.killed_at_random), 2, 6, seconds=3),
    Kind(
        "GPU damage",
        "as the damaged kinds, of those runners",
        in_turn(damage.damaged_file, damage.damaged_structure, damage.damaged_arrays),
        short=6,
        long=18,
        seconds=4,
    ),
]
