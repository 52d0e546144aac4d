"""Compress integer arrays, mostly frames, for a checkpoint: zlib, in chunks, on all cores.

Atari frames shrink to a fortieth or less, faster than a disk could store them uncompressed. Floats do not shrink, so
they stay as they are.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from dqnitro.common.host import usable_cores

MIN_BYTES = 1 << 20  # smaller arrays are not worth it
CHUNK_BYTES = 1 << 22  # compressed independently, so that several cores have work
LEVEL = 1  # 3 shrinks a sixth more in about the same time on frames, but is slow on everything else
WORTH = 0.9  # an array that does not shrink to this share of its size is stored uncompressed
MAX_RATIO = 1100  # zlib cannot compress more than this


def compress(group: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays as they are stored, and what `decompress` must know about the compressed ones."""
    stored, facts = dict(group), {}
    with ThreadPoolExecutor(usable_cores()) as pool:
        for name, array in group.items():
            if array.nbytes < MIN_BYTES or array.dtype.kind not in "uib":
                continue
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            starts = range(0, len(raw), CHUNK_BYTES)
            chunks = list(pool.map(lambda at, raw=raw: zlib.compress(raw[at : at + CHUNK_BYTES], LEVEL), starts))
            if sum(map(len, chunks)) <= WORTH * len(raw):
                stored[name] = np.frombuffer(b"".join(chunks), np.uint8)
                facts[name] = {
                    "shape": list(array.shape),
                    "dtype": array.dtype.name,
                    "piece": CHUNK_BYTES,
                    "sizes": [len(chunk) for chunk in chunks],
                }
    return stored, facts


def decompress(stored: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The original arrays. ValueError, KeyError or zlib.error if the facts and the data do not agree."""
    arrays = dict(stored)
    with ThreadPoolExecutor(usable_cores()) as pool:
        for name, fact in facts.items():
            arrays[name] = _decompress_one(name, stored[name], fact, pool)
    return arrays


def _decompress_one(name: str, data: np.ndarray, fact: Mapping[str, Any], pool: ThreadPoolExecutor) -> np.ndarray:
    shape = [int(n) for n in fact["shape"]]
    dtype = np.dtype(str(fact["dtype"]))
    sizes = [int(n) for n in fact["sizes"]]
    chunk_bytes = int(fact["piece"])
    length = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "uib" or min([chunk_bytes, *shape, *sizes], default=0) < 0 or sum(sizes) != data.nbytes:
        raise ValueError(f"{name}: the manifest does not describe the compressed data")
    # Checked before any memory is allocated.
    if chunk_bytes < 1 or length > MAX_RATIO * max(1, data.nbytes) or len(sizes) != -(-length // chunk_bytes):
        raise ValueError(f"{name}: decompressed size {length:,} is implausible")
    out = np.empty(shape, dtype)
    raw = out.reshape(-1).view(np.uint8).data
    held = np.ascontiguousarray(data).data
    ends = np.cumsum(sizes).tolist()

    def fill(i: int) -> None:
        room = raw[i * chunk_bytes : (i + 1) * chunk_bytes]
        chunk = zlib.decompressobj().decompress(held[ends[i] - sizes[i] : ends[i]], len(room) + 1)
        if len(chunk) != len(room):
            raise ValueError("chunk has the wrong decompressed length")
        room[:] = chunk

    list(pool.map(fill, range(len(sizes))))
    return out
