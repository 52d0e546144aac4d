"""The arrays that compiled code works on, by name: four named tuples travel instead of forty arguments.

Numba takes a named tuple of arrays as it takes the arrays, at no cost inside compiled code. Only a call from Python
costs 3 us more than one with plain tuples, so `worker.work` gets plain ones and names them first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..observation import resize
from ..observation.resize_plan import Plan
from .reset_cache import Start


class Memory(NamedTuple):
    """All that consoles remember from step to step; row i is console i. The names are keys of saved states.

    A console either keeps its screens (`kept`, `where`, `rows`, see `screen_store`), or the last grey picture and its
    generators (`raw`, `source`, `rng_machine`, `rng_noops`); the arrays of the other kind have no rows.
    """

    state: np.ndarray  # int64[n, S_SIZE]: registers and counters of the chips, see `chips/layout.py`
    ram: np.ndarray  # uint8[n, 256]
    rules: np.ndarray  # int32[n, G_SIZE]: score, lives, end, see `games/rules.py`
    rng_actions: np.ndarray  # uint32[n, MT_SIZE]: the environment's generator, for sticky actions
    rng_machine: np.ndarray  # uint32[n or 0, MT_SIZE]: the console's own generator
    rng_noops: np.ndarray  # uint32[n or 0, MT_SIZE]: how long to wait at the start of a game
    episode: np.ndarray  # int64[n, E_SIZE], see `agent_step`
    frames: np.ndarray  # uint8[n, stack, frame_bytes]: a ring, whose newest frame is number `E_SLOT`
    raw: np.ndarray  # uint8[n or 0, channels, height, 160]: the last picture in grey
    source: np.ndarray  # int32[n or 0, height]: the row of `raw` that a row is equal to
    kept: np.ndarray  # int64[0 or n, K_SIZE]
    where: np.ndarray  # int16[0 or n, SCREENS, height]
    rows: np.ndarray  # uint64[0 or n, room, WORDS]


class Shared(NamedTuple):
    """What all consoles of an environment have in common. Nobody writes to it but the first console that starts."""

    rom: np.ndarray  # uint8: the image
    program: np.ndarray  # uint32: the image, predecoded
    prop: np.ndarray  # int64: properties of the cartridge
    ntsc: np.ndarray  # int64: the same while the television standard is found out
    options: np.ndarray  # int64[O_SIZE], see `VecOptions.numbers`
    sticky: float  # probability that the last action is repeated
    action_set: np.ndarray  # int64: an agent's actions as the console's
    plan: Plan  # how a picture is resized
    luts: np.ndarray  # uint8[channels, 256]: brightness of a colour code
    start: Start  # a console after power-on


class Scratch(NamedTuple):
    """Working space of one thread."""

    log: np.ndarray  # int64: writes to the TIA of one frame
    resize: resize.Scratch
    screens: np.ndarray  # uint64[SCREENS, ROWS, WORDS]
    raw: np.ndarray  # uint8[channels, height, 160]
    source: np.ndarray  # int32[height]
    generators: np.ndarray  # uint32[2, MT_SIZE]


class Tasks(NamedTuple):
    """A batch: what n consoles shall do, and where the results go."""

    order: np.ndarray  # int64[n]: the places in the order in which they are handed out
    ids: np.ndarray  # int32[n]: the console of each place
    commands: np.ndarray  # int64[n]: STEP, RESET, SEEDED_RESET or LOOK
    seeds: np.ndarray  # int64[n]
    actions: np.ndarray  # int64[n]
    strengths: np.ndarray  # float32[n]: how far a paddle turns
    obs: np.ndarray  # uint8[n, stack * frame_bytes]
    final_obs: np.ndarray  # uint8[n, stack * frame_bytes]: written where a game ends and the next begins in one step
    results: np.ndarray  # int32[R_SIZE, n]
    flags: np.ndarray  # bool[2, n]: terminated, truncated
