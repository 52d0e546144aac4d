"""`bench replay`: how many transitions fit into the memory, in each replay and in those that tutorials write?

Every turn is a fresh process, so that nothing a predecessor left in the allocator is counted: it fills a replay to the
brim and reads how much its resident memory (RSS) grew. Adding and sampling are timed on the way.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dqnitro.envs.base import EnvSpec, Step
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, Rate

NAIVE = "naive list of float stacks"
BATCH = 32
MOST, LEAST, BUDGET = 20_000, 2_000, 512 * 2**20  # transitions; bytes that the naive list may take beyond LEAST
GAME_STEPS = 500


class NaiveList:
    """The first replay that most people write: a list of (state, action, reward, next state, done), states as float32
    stacks.
    """

    def __init__(self, capacity: int, spec: EnvSpec) -> None:
        self._items: list[tuple[np.ndarray, int, float, np.ndarray, bool]] = []
        self._capacity, self._spec = capacity, spec
        self._state = np.zeros(0)

    def _float(self, obs: np.ndarray) -> np.ndarray:
        return obs.astype(np.float32) / 255.0 if self._spec.is_image else obs.astype(np.float32)

    def start(self, obs: np.ndarray) -> None:
        self._state = obs[0].copy()

    def add(self, actions: np.ndarray, step: Step) -> None:
        if not step.reset[0]:
            new = (
                self._float(self._state),
                int(actions[0]),
                float(step.reward_t[0]),
                self._float(step.obs_t[0]),
                bool(step.terminated[0]),
            )
            self._items.append(new)
            if len(self._items) > self._capacity:
                self._items.pop(0)
        self._state = step.obs_t[0].copy()

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 1.0) -> Any:
        import torch

        rows = [self._items[i] for i in rng.integers(0, len(self._items), batch_size)]
        return [torch.from_numpy(np.array(column)) for column in zip(*rows, strict=True)]


class Arrays:
    """Preallocated arrays of whole stacks, state and next state separate: the memory-efficient buffer of the notes, and
    of SB3.
    """

    def __init__(self, capacity: int, spec: EnvSpec, dtype: Any) -> None:
        shape = (capacity, *spec.obs_shape)
        self._columns = (
            np.zeros(shape, dtype),
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.float32),
            np.zeros(shape, dtype),
            np.zeros(capacity, np.bool_),
        )
        self._capacity, self._added, self._obs = capacity, 0, np.zeros(0)

    def start(self, obs: np.ndarray) -> None:
        self._obs = obs[0].copy()

    def add(self, actions: np.ndarray, step: Step) -> None:
        if not step.reset[0]:
            new = self._obs, actions[0], step.reward_t[0], step.obs_t[0], step.terminated[0]
            for column, value in zip(self._columns, new, strict=True):
                column[self._added % self._capacity] = value
            self._added += 1
        self._obs = step.obs_t[0].copy()

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 1.0) -> Any:
        import torch

        rows = rng.integers(0, min(self._added, self._capacity), batch_size)
        return [torch.from_numpy(column[rows]) for column in self._columns]


def contenders() -> dict[str, Callable[[int, EnvSpec], Any]]:
    from dqnitro.replay.frames import FrameReplay
    from dqnitro.replay.plain import PlainReplay
    from dqnitro.replay.prioritized import PrioritizedReplay

    return {
        NAIVE: NaiveList,
        "arrays of float stacks": lambda n, spec: Arrays(n, spec, np.float32),
        "arrays of byte stacks": lambda n, spec: Arrays(n, spec, np.uint8),
        "plain": lambda n, spec: PlainReplay(n, spec, 1, 0.99),
        "frames": lambda n, spec: FrameReplay(n, spec, 1, 0.99),
        "frames, prioritised": lambda n, spec: PrioritizedReplay(n, spec, 1, 0.99),
    }


class Stream:
    """A made-up game: stacks that advance by one frame per step, and an end every GAME_STEPS."""

    def __init__(self, spec: EnvSpec) -> None:
        rng = np.random.default_rng(0)
        shape = spec.obs_shape[1:] if spec.frame_stack > 1 else spec.obs_shape
        self._frames = [rng.integers(0, 256, shape).astype(spec.obs_dtype) for _ in range(16)]
        self._stacked, self._t = spec.frame_stack > 1, 0
        self.obs = np.zeros((1, *spec.obs_shape), spec.obs_dtype)

    def step(self) -> Step:
        ended, self._t = self._t % GAME_STEPS == GAME_STEPS - 1, self._t + 1
        reset = self._t > 1 and self._t % GAME_STEPS == 1
        frame = self._frames[self._t % 16]
        obs = np.zeros_like(self.obs)
        if self._stacked:
            if not reset:
                obs[0, :-1] = self.obs[0, 1:]
            obs[0, -1] = frame
        else:
            obs[0] = frame
        self.obs = obs
        terminated, truncated, begun = (np.array([x]) for x in (ended, False, reset))
        return Step(obs, np.zeros(1, np.float32), terminated, truncated, begun, ())


def how_many(spec: EnvSpec) -> int:
    """As many transitions as the naive list can hold in the budget: more make the measurement more precise."""
    naive = 2 * 4 * float(np.prod(spec.obs_shape)) + 300
    return int(min(MOST, max(LEAST, BUDGET / naive)))


def resident() -> int:
    """Bytes of this process that are in memory, without what the allocator only keeps for later."""
    import psutil

    gc.collect()
    with contextlib.suppress(OSError, AttributeError, TypeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss


def fill(make: Callable[[int, EnvSpec], Any], spec: EnvSpec, n: int) -> tuple[Any, float]:
    """A replay with n transitions, and the seconds that adding them took."""
    stream, actions, added, spent = Stream(spec), np.zeros(1, np.int64), 0, 0.0
    replay = make(n, spec)
    replay.start(stream.obs)
    while added < n:
        step = stream.step()
        begin = time.perf_counter()
        replay.add(actions, step)
        spent += time.perf_counter() - begin
        added += int(not step.reset[0])
    return replay, spent


def measure(name: str, spec: EnvSpec, n: int, seconds: float) -> dict[str, float]:
    """Fill one replay with n transitions in this process: bytes, additions and samples a second."""
    make = contenders()[name]
    small, _ = fill(make, spec, 64)  # one-time loading and allocation do not count
    small.sample(BATCH, np.random.default_rng(0), 1.0)
    del small
    before = resident()
    replay, spent = fill(make, spec, n)
    grown = resident() - before
    rng, samples, begin = np.random.default_rng(0), 0, time.perf_counter()
    while (wall := time.perf_counter() - begin) < seconds or not samples:
        replay.sample(BATCH, rng, 1.0)
        samples += BATCH
    return {"bytes": max(grown, 1) / n, "adds_per_s": n / spent, "samples_per_s": samples / max(wall, 1e-9)}


def in_fresh_process(name: str, spec: EnvSpec, n: int, seconds: float) -> dict[str, float]:
    facts = {"name": name, "n": n, "seconds": seconds, "spec": {**vars(spec), "obs_dtype": str(spec.obs_dtype)}}
    command = [sys.executable, "-m", "dqnitro.lab.bench.replay", json.dumps(facts)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"measuring {name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def bench(o: Options) -> dict[str, Any]:
    """The rate is transitions per GiB, so that more is better, as elsewhere; bytes have their own column."""
    import psutil

    from dqnitro.lab.bench.workload import game_spec

    _, spec = game_spec(o.game)
    n = how_many(spec)
    columns = {"bytes": "bytes per transition", "adds_per_s": "additions/s", "samples_per_s": "samples/s"}
    found: dict[str, list[dict[str, float]]] = {}

    def turns(name: str) -> Rate:
        if name == "arrays of byte stacks" and spec.obs_dtype != np.uint8:
            raise CannotRun(f"observations of {o.game} are not bytes")
        need = n * 8.0 * float(np.prod(spec.obs_shape)) * 1.2
        if "float" in name and need > psutil.virtual_memory().available:
            raise CannotRun(f"it needs {need / 2**30:.1f} GiB of free memory")

        def turn(seconds: float) -> float:
            found.setdefault(name, []).append(in_fresh_process(name, spec, n, seconds))
            return 2**30 / found[name][-1]["bytes"]

        return turn

    title = f"memory of a replay for {o.game}, each filled with {n:,} transitions in a fresh process"
    with Contest(o, title, "transitions/GiB", NAIVE, columns) as contest:
        for name in contenders():
            contest.add_rate(name, lambda name=name: turns(name), NAIVE)
        result = contest.run(lambda table: "")
    for name, row in result["table"].items():
        row |= {key: float(np.mean([f[key] for f in found[name]])) for key in columns}
    result["transitions"] = n
    result["verdict"] = verdict(result["table"]) + result["verdict"]
    return result


def verdict(table: Mapping[str, dict[str, Any]]) -> str:
    best = min(table, key=lambda n: table[n]["bytes"])
    if best == NAIVE:
        return "The naive list is the smallest here."
    row, ref = table[best], table[NAIVE]
    million = 1e6 * row["bytes"] / 2**30
    return (
        f"Use {best}: {row['bytes']:,.0f} bytes per transition against {ref['bytes']:,.0f} of the {NAIVE}, "
        f"{row['ratio']:.1f}x as many in the same memory (a million take {million:.1f} GiB), at "
        f"{row['samples_per_s'] / ref['samples_per_s']:.1f}x its samples a second."
    )


def main(argument: str) -> None:
    facts = json.loads(argument)
    s = facts["spec"]
    spec = EnvSpec(**{**s, "obs_shape": tuple(s["obs_shape"]), "obs_dtype": np.dtype(s["obs_dtype"])})
    print(json.dumps(measure(facts["name"], spec, facts["n"], facts["seconds"])))


if __name__ == "__main__":
    main(sys.argv[1])
