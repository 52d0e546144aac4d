"""Bad input: environments that misbehave, misuse of AtariVec, random bytes as ROMs, bad command lines and configs."""

from __future__ import annotations

import contextlib
import io
import random
import sys
from typing import Any

import gymnasium as gym
import numpy as np

from chaos.harness import CONFIG, Kind, Outcome, World, digest, forked, judge, named, warm_console
from dqnitro.session import train

TEN = 10  # small faults in one process
RETURNS: list[Any] = [
    None, float("nan"), float("inf"), -float("inf"), "x", [], [1.0, 2.0], {}, b"", 1e400, np.array([np.nan]),
    np.zeros((3, 3)), object(), True, 10**400,
]  # fmt: skip


class Wild(gym.Env):
    """A corridor that does one wrong thing at one step, in one of the ways of `RETURNS` or by raising."""

    bad: tuple[str, Any, int] = ("", None, 0)
    steps = 0

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 1, (6,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def _obs(self) -> np.ndarray:
        return np.eye(6, dtype=np.float32)[min(self.at, 5)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.t = 0, 0
        return self._spoil("reset", (self._obs(), {}))

    def step(self, action: Any) -> Any:
        Wild.steps += 1
        self.t += 1
        self.at = max(0, self.at + (1 if action == 1 else -1))
        return self._spoil("step", (self._obs(), 1.0 if self.at >= 5 else -0.01, self.at >= 5, self.t >= 20, {}))

    def _spoil(self, where: str, result: Any) -> Any:
        what, value, at = Wild.bad
        if Wild.steps < at or not what.startswith(where) or Wild.bad[0] == "":
            return result
        Wild.bad = ("", None, 0)  # once
        if what.endswith("raise"):
            raise (value if isinstance(value, BaseException) else RuntimeError(str(value)))
        if what.endswith("obs"):
            return (value, *result[1:])
        if what.endswith("reward"):
            return (result[0], value, *result[2:])
        return value


RAISED = [
    ValueError("x"),
    KeyError("door"),
    RuntimeError(""),
    MemoryError(),
    OSError(28, "full"),
    EOFError(),
    TypeError(),
    AssertionError(),
]


def wild_env(world: World, rng: random.Random, i: int) -> Outcome:
    """One wrong thing of an environment: named in a line, the run saved, and the same run once it is repaired."""
    out, run = Outcome(), world.new()
    if "chaos/Wild-v0" not in gym.registry:
        gym.register("chaos/Wild-v0", entry_point=Wild)
    what = ["step obs", "step reward", "step raise", "step all", "reset obs", "reset raise"][i % 6]
    value = rng.choice(RAISED if what.endswith("raise") else RETURNS)
    at = rng.randrange(1, 60)
    backend = rng.choice(["wrappers", "gym-sync"])
    changes = {"env_id": "chaos/Wild-v0", "envs": backend}

    def work() -> str:
        Wild.bad, Wild.steps = (what, value, at), 0
        return digest(train(CONFIG.replace(max_steps=60, **changes), run))

    child = forked(work)
    told = f"{what} {str(value)[:30]!r} at step {at}, {backend}"
    judge(child, out, codes=(0, 2, 5), what=told)
    if child.code == 5 and (run / "checkpoints").exists():
        world.check_resumes(run, out, f"wild, {backend}", steps=60, **changes)
    world.forget(run)
    return named(out, told)


def atari_vec(world: World, rng: random.Random, i: int) -> Outcome:
    """Ten misuses of AtariVec in one process: exceptions that say what is wrong, never the end of the process."""
    out, seed = Outcome(faults=TEN), rng.randrange(2**31)
    warm_console()

    def work() -> None:
        from chaos import atari_misuse

        for name, check in atari_misuse.faults(seed, TEN):
            print(name)
            check()

    judge(forked(work), out, codes=(0,), what=f"misuse with seed {seed}")
    return out


def random_rom(world: World, rng: random.Random, i: int) -> Outcome:
    """Random bytes as a cartridge, random actions: it runs, whatever it does."""
    out = Outcome()
    warm_console()

    def work() -> None:
        from dqnitro.atari.console import Console

        sizes = {"2K": 2048, "4K": 4096, "F8": 8192, "F6": 16384, "E0": 8192, "FE": 8192, "F8SC": 8192, "F6SC": 16384}
        kind = rng.choice(sorted(sizes))
        image = np.frombuffer(rng.randbytes(sizes[kind]), np.uint8).copy()
        if i % 2:  # fewer jams: a dead CPU tests nothing
            image[np.isin(image, range(0x02, 0x100, 0x10))] = 0x85
        console = Console(rom=image.tobytes(), cartridge=kind)
        for _ in range(60):
            console.act(rng.randrange(18), draw=bool(rng.randrange(2)))

    judge(forked(work), out, codes=(0,), what="random ROM")
    return out


def command_line(world: World, rng: random.Random, i: int) -> Outcome:
    """Ten bad command lines or configs, generated from the settings' own types and ranges."""
    from chaos import command_lines

    out = Outcome(faults=TEN)
    seed = rng.randrange(2**31)

    def work() -> None:
        make = command_lines.faults if i % 2 else command_lines.config_faults
        for name, check in make(seed, TEN):
            print(name, file=sys.stderr)
            with contextlib.redirect_stdout(io.StringIO()):
                check()

    child = forked(work)
    judge(child, out, codes=(0,), what=f"generated with seed {seed}")
    return out


KINDS = [
    Kind("environment", "one wrong value or exception of an environment", wild_env, short=24, long=40, seconds=2),
    Kind(
        "command line",
        "bad options and settings, generated from their types and ranges",
        command_line,
        short=0,
        long=650,
        seconds=0.1,
    ),
    Kind("AtariVec", "bad arguments, actions, resets or states", atari_vec, short=0, long=400, seconds=0.4),
    Kind("ROM", "random bytes as a cartridge", random_rom, short=0, long=40),
]
