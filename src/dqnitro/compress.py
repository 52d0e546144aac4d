"""Large arrays of whole numbers, frames above all, made small for a checkpoint and large again: zlib, in pieces, on all cores.

Atari frames shrink to a fortieth and less, quicker than a disk takes them as they are. Floats do not shrink and are left alone.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dqnitro.host import usable_cores

LEAST = 1 << 20  # bytes; smaller arrays are not worth it
PIECE = 1 << 22  # bytes, each squeezed apart: work for several cores
LEVEL = 1  # 3 shrinks a sixth more in about the same time on frames, and is slow on everything else
WORTH = 0.9  # of its size at most, or an array stays as it is
MOST = 1100  # times its own size is more than any zlib data becomes


def squeeze(group: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays as they are stored, and what `expand` must know of those that were squeezed."""
    stored, facts = dict(group), {}
    with ThreadPoolExecutor(usable_cores()) as pool:
        for name, array in group.items():
            if array.nbytes < LEAST or array.dtype.kind not in "uib":
                continue
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            starts = range(0, len(raw), PIECE)
            pieces = list(pool.map(lambda start, raw=raw: zlib.compress(raw[start : start + PIECE], LEVEL), starts))
            if sum(map(len, pieces)) <= WORTH * len(raw):
                stored[name] = np.frombuffer(b"".join(pieces), np.uint8)
                facts[name] = {
                    "shape": list(array.shape), "dtype": array.dtype.name, "piece": PIECE, "sizes": [len(p) for p in pieces],
                }  # fmt: skip
    return stored, facts


def expand(stored: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The arrays as they were. ValueError, KeyError or zlib.error where the facts and the data do not agree."""
    arrays = dict(stored)
    with ThreadPoolExecutor(usable_cores()) as pool:
        for name, fact in facts.items():
            data, shape, dtype = stored[name], [int(n) for n in fact["shape"]], np.dtype(str(fact["dtype"]))
            sizes, piece = [int(n) for n in fact["sizes"]], int(fact["piece"])
            length = math.prod(shape) * dtype.itemsize
            if dtype.kind not in "uib" or min([piece, *shape, *sizes], default=0) < 0 or sum(sizes) != data.nbytes:
                raise ValueError(f"{name} was not squeezed like that")
            # checked before any memory is taken
            if piece < 1 or length > MOST * max(1, data.nbytes) or len(sizes) != -(-length // piece):
                raise ValueError(f"{name} would become {length:,} bytes, which it cannot have been")
            out = np.empty(shape, dtype)
            raw, held = out.reshape(-1).view(np.uint8).data, np.ascontiguousarray(data).data
            ends = np.cumsum(sizes).tolist()

            def grow(
                i: int, raw: Any = raw, held: Any = held, ends: Any = ends, sizes: Any = sizes, piece: int = piece
            ) -> None:
                room = raw[i * piece : (i + 1) * piece]
                grown = zlib.decompressobj().decompress(held[ends[i] - sizes[i] : ends[i]], len(room) + 1)
                if len(grown) != len(room):
                    raise ValueError("a piece has another length than it had")
                room[:] = grown

            list(pool.map(grow, range(len(sizes))))
            arrays[name] = out
    return arrays
