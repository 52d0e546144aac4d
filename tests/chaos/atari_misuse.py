"""Misuse of `AtariVec`: bad arguments, bad actions, bad resets, states that were tampered with.

`faults(seed, n)` gives n of them, each a name and a function that raises AssertionError unless the promise is kept: an
exception that says what is wrong, or, for a state whose numbers are all possible, an environment that goes on. The
worst break of the promise ends the process, so run them in one of their own (`python -m chaos.atari_misuse SEED N`,
with and without -O).
"""

from __future__ import annotations

import functools
import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dqnitro.atari import AtariVec
from dqnitro.atari.vector.options import REAL, WHOLE
from dqnitro.atari.vector.state_check import HIGH, LOW

Fault = tuple[str, Callable[[], None]]
GAMES = ("pong", "qbert", "pitfall2")  # plain; one that keeps its screens; one with a chip in its cartridge
HUGE = (1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63), 1 << 31, -(1 << 31), 1 << 20, 65536, 4096, 256, 255, -1, -2, 1)


def expect(allowed: tuple[type[BaseException], ...], call: Callable[[], Any], said: str = "") -> None:
    """The call raises one of these, with these words; anything else breaks the promise."""
    try:
        call()
    except allowed as error:
        if said not in str(error) or not str(error):
            raise AssertionError(f"it said {error!s:.200}") from error
        return
    raise AssertionError("it was accepted")


@functools.cache
def env(game: str) -> AtariVec:
    made = AtariVec(game, 3, num_threads=2, repeat_action_probability=0.25)
    made.reset(seed=1)
    return made


@functools.cache
def base(game: str) -> dict[str, np.ndarray]:
    """A state in the middle of a game."""
    for _ in range(20):
        env(game).step(np.array([1, 2, 3]))
    return env(game).get_state()


def bad_argument(r: random.Random) -> Fault:
    low_high = {**WHOLE, "num_threads": (0, 1024), "batch_size": (0, 3), "num_envs": (1, 2**20), **REAL}
    name = r.choice([*low_high, "frameskip", "autoreset_mode"])
    if name == "autoreset_mode":
        value: Any = r.choice(["Disabled", "never", None, 5])
    elif name == "frameskip":
        value = r.choice([0, -1, 2.5, True, "4", None, 10**9])
    else:
        low, high = low_high[name]
        value = r.choice([low - 1, high + 1, math.nan, math.inf, -math.inf, "two", 10**30])
        if name in WHOLE:
            value = r.choice([value, 1.5])
    arguments = {"num_envs": 3, name: value}
    allowed = (ValueError, TypeError) if name == "autoreset_mode" else (ValueError,)
    return f"AtariVec({name}={value!r})", lambda: expect(allowed, lambda: AtariVec("pong", **arguments))


def bad_action(r: random.Random) -> Fault:
    value: Any = r.choice([
        [0, 1], [0, 1, 99], [0, -1, 2], [0.5, 1.0, 2.0], ["a", "b", "c"], None, 5, [[0], [1, 2]],
        [True, False, True], {},
        np.zeros((3, 1), np.int64), np.zeros(0, np.int64), np.array([2**63] * 3, np.uint64), np.full(3, np.nan), "abc",
        np.zeros(4, np.int32), np.zeros((3,), object), b"abc", [None] * 3, np.array(["1"] * 3),
    ])  # fmt: skip
    game, way = r.choice(GAMES), r.choice(["step", "send"])
    return f"{game}.{way}({value!r})", lambda: expect((ValueError,), lambda: getattr(env(game), way)(value), "actions")


def bad_reset(r: random.Random) -> Fault:
    mask: Any
    mask, allowed, said = r.choice([
        ([True, False, True], TypeError, "must be a boolean numpy array"),
        (np.array([1, 0, 1]), TypeError, "must be a boolean numpy array"),
        ("x", TypeError, "must be a boolean numpy array"), (None, TypeError, "must be a boolean numpy array"),
        (np.ones(2, bool), ValueError, "must have shape"), (np.ones((3, 1), bool), ValueError, "must have shape"),
    ])  # fmt: skip
    seed: Any = None
    if r.random() < 0.5:
        mask = np.array([True, False, True])
        seed, allowed, said = r.choice([
            (np.array([1]), ValueError, "one entry per sub-environment"), (np.arange(3), ValueError, "one entry per"),
            ("x", TypeError, "seed"), (2**31, TypeError, "seed"), (10**30, TypeError, "seed"), (1.5, TypeError, "seed"),
            (np.array([0.5, 1.5]), TypeError, "seed"), (np.array([2**40, 1]), TypeError, "seed"),
        ])  # fmt: skip
    game = r.choice(GAMES)
    call = functools.partial(env(game).reset, seed=seed, options={"reset_mask": mask})
    return f"{game}.reset(seed={seed!r}, mask={mask!r})", lambda: expect((allowed,), call, said)


def tampered(r: random.Random) -> Fault:
    """Some numbers of a state are others: refused, or the environment goes on."""
    game = r.choice(GAMES)
    state = {key: np.array(value) for key, value in base(game).items()}
    key = r.choice([k for k, v in state.items() if v.size and v.dtype.kind in "iuf"] + ["state"] * 6)
    array = state[key]
    what = []
    for _ in range(r.choice([1, 1, 1, 3, 30])):
        place = tuple(r.randrange(n) for n in array.shape)
        value = r.choice([r.choice(HUGE), r.randrange(-300, 300), r.getrandbits(63)])
        if key == "state" and r.random() < 0.3:
            value = r.choice([bound[place[1]] + by for bound in (LOW.tolist(), HIGH.tolist()) for by in (-1, 0, 1)])
        info = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
        array[place] = value if info is None else min(max(value, info.min), info.max)
        what.append(f"{key}{list(place)}={array[place]}")
    if r.random() < 0.1:
        state[key] = r.choice([array[:1], array.astype(np.float32), array.reshape(-1), np.zeros(0), None, "x"])
        what = [f"{key} of another shape or type"]

    def go_on() -> None:
        one = env(game)
        try:
            one.set_state(state)
        except ValueError:
            pass
        else:
            if one._last_ids is not None and not one._waiting:
                for k in range(4):
                    one.step(np.full(3, k))
            one.reset(seed=3)
        one.set_state(base(game))

    return f"{game}: {', '.join(what[:3])}", go_on


KINDS = (bad_argument, bad_action, bad_reset, tampered, tampered, tampered)


def faults(seed: int, n: int) -> Iterator[Fault]:
    r = random.Random(seed)
    for k in range(n):
        yield KINDS[k % len(KINDS)](r)


def main(seed: int, n: int) -> int:
    """Run n faults; the last line says how many broke the promise, and each has a line before it."""
    broken = 0
    for name, fault in faults(seed, n):
        if "-v" in sys.argv:
            print(name, flush=True)
        try:
            fault()
        except Exception as error:
            broken += 1
            print(f"BROKEN {name}: {type(error).__name__}: {error}", flush=True)
    print(f"{n} faults, {broken} broken promises", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
