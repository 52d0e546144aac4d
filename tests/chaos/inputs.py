"""Bad input: environments that misbehave, misuse of AtariVec, random bytes as ROMs, bad command lines and configs."""

from __future__ import annotations

import contextlib
import functools
import io
import random
from typing import Any

import gymnasium as gym
import numpy as np

from chaos.harness import CONFIG, Kind, Outcome, World, digest, forked, judge
from chaos.saves import named
from dqnitro.session import resume, train

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
    config = CONFIG.replace(env_id="chaos/Wild-v0", envs=backend)

    def work() -> str:
        Wild.bad, Wild.steps = (what, value, at), 0
        return digest(train(config.replace(max_steps=60), run))

    child = forked(work)
    told = f"{what} {str(value)[:30]!r} at step {at}, {backend}"
    judge(child, out, codes=(0, 2, 5), what=told)
    whole = forked(lambda: digest(train(config.replace(max_steps=60))))
    if child.code == 5 and (run / "checkpoints").exists():
        after = forked(lambda: digest(resume(run, max_steps=60)))
        judge(after, out, codes=(0,), what="resume")
        if after.code == 0 and after.value != whole.value:
            out.count("different", "after the environment was repaired")
        elif after.code == 2:
            out.count("lost", after.told)
    world.forget(run)
    return named(out, told)


def atari_vec(world: World, rng: random.Random, i: int) -> Outcome:
    """Wrong arguments, shapes, types and orders of calls: exceptions, never the end of the process."""
    out = Outcome()
    words: list[str] = []

    def work() -> str:
        from dqnitro.atari import AtariVec

        odd: list[Any] = [-1, 0, 1.5, 10**9, float("nan"), None, "x", [], (1, 2), True, np.int64(2), 2**40]
        options: dict[str, Any] = {}
        for name in rng.sample(
            ["num_envs", "frame_skip", "noop_max", "repeat_action_probability", "num_threads", "img_height"], 2
        ):
            options[name] = rng.choice(odd)
        words.append(f"{options}")
        usual = {"num_envs": 2, "noop_max": 0, "num_threads": 1}
        with contextlib.suppress(Exception):
            vec = AtariVec("pong", **(usual | options if rng.random() < 0.5 else usual))
            try:
                actions = [
                    np.zeros(2, np.int64),
                    np.zeros(3),
                    np.zeros((2, 2), int),
                    np.array([99, -1]),
                    None,
                    "x",
                    [0, 0],
                    5,
                    np.array([np.nan, 0]),
                ]
                calls = [
                    lambda: vec.reset(), lambda: vec.step(rng.choice(actions)), lambda: vec.send(rng.choice(actions)),
                    lambda: vec.recv(), lambda: vec.close(), lambda: vec.reset(seed=rng.choice(odd)),
                ]  # fmt: skip
                for _ in range(6):
                    with contextlib.suppress(Exception):
                        rng.choice(calls)()
            finally:
                vec.close()
        return words[0]

    child = forked(work)
    judge(child, out, codes=(0,), what=str(child.value))
    return out


def random_rom(world: World, rng: random.Random, i: int) -> Outcome:
    """Random bytes as a cartridge, random actions: it runs, whatever it does."""
    out = Outcome()
    _warm_console()

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


@functools.cache
def _warm_console() -> None:
    """Load what is compiled once, in the process that forks: it takes two seconds."""
    from dqnitro.atari.console import Console

    Console(rom=bytes(4096), cartridge="4K").act(0)


def command_line(world: World, rng: random.Random, i: int) -> Outcome:
    """A bad command line or config, generated from the settings' own types and ranges."""
    from chaos import command_lines

    out = Outcome()
    seed = rng.randrange(2**31)

    def work() -> str:
        make = command_lines.faults if i % 2 else command_lines.config_faults
        ((name, check),) = list(make(seed, 1))
        with contextlib.redirect_stdout(io.StringIO()):
            check()
        return name

    child = forked(work)
    judge(child, out, codes=(0,), what=f"generated with seed {seed}")
    return out


def _exists(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


KINDS = [
    Kind("environment", "one wrong value or exception of an environment", wild_env, short=24, long=120),
    Kind("AtariVec", "wrong arguments, shapes and orders of calls", atari_vec, short=0, long=40),
    Kind("ROM", "random bytes as a cartridge", random_rom, short=0, long=40),
]
if _exists("chaos.command_lines"):
    KINDS.append(Kind("command line", "bad options and settings", command_line, short=0, long=200))
