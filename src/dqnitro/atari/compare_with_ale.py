"""Compare the console with ale-py: the same actions for both, everything observable compared after every frame.

`check` compares one console on a CPU, RAM included. `check_vectors` compares `AtariVec`, on a CPU or a GPU.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .console import Console
from .games import game_table, roms
from .vec import AtariVec

RESTARTS = 0.002  # share of frames after which a new game is started although the last one has not ended


@dataclass(frozen=True)
class CheckResult:
    """The result of one game. `difference` is empty, or says what differed and when; the check stops there."""

    game: str
    frames: int
    games_started: int
    rewards: int
    difference: str = ""

    @property
    def equal(self) -> bool:
        return not self.difference

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"equal": self.equal}


def check(
    names: Iterable[str] | None = None, frames: int = 3000, seed: int = 0, hold: int = 1
) -> Iterator[CheckResult]:
    """Play `frames` random frames of each game (default: all), from power-on, restarts included.

    Each action is held for `hold` frames. Yields a result when a game is finished.
    """
    for name in game_table.GAMES if names is None else names:
        yield check_game(game_table.game(name).name, frames, seed, hold)


def check_game(
    name: str, frames: int, seed: int = 0, hold: int = 1, rom: str | os.PathLike[str] | None = None
) -> CheckResult:
    """Check one game, or with `rom` an image of your own whose file is named like a game."""
    from ale_py import ALEInterface, LoggerMode

    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(rom) if rom is not None else str(roms.folder() / f"{name}.bin"))
    console = Console(name, rom=None if rom is None else str(rom))
    random = np.random.default_rng(seed)
    actions = game_table.GAMES[name].actions
    starts, rewards, action = 1, 0, 0

    def difference(when: str) -> str:
        wrong = []
        if not np.array_equal(ale.getRAM(), console.ram[0]):
            wrong.append("RAM")
        if not np.array_equal(ale.getScreen(), console.screen[0]):
            wrong.append("screen")
        if ale.lives() != console.lives[0]:
            wrong.append("lives")
        if ale.game_over() != console.game_over[0]:
            wrong.append("game over")
        return f"{', '.join(wrong)} {when}" if wrong else ""

    problem = difference("after power-on")
    done = 0
    for done in range(frames):
        if problem:
            return CheckResult(name, done, starts, rewards, problem)
        if done % hold == 0:
            action = int(random.choice(actions))
        expected, got = ale.act(action), int(console.act(action)[0])
        rewards += got != 0
        problem = f"reward {got} instead of {expected} in frame {done}" if expected != got else ""
        problem = problem or difference(f"in frame {done}")
        if not problem and (ale.game_over() or random.random() < RESTARTS):
            ale.reset_game()
            console.reset()
            starts += 1
            problem = difference(f"after the restart that follows frame {done}")
    return CheckResult(name, frames, starts, rewards, problem)


# Every frame is a step, in colour and of full size: nothing that the television shows is pooled or resized away.
EVERY_FRAME: dict[str, Any] = {
    "frameskip": 1, "maxpool": False, "stack_num": 1, "grayscale": False, "img_width": 160, "reward_clipping": False,
    "repeat_action_probability": 0.25,
}  # fmt: skip
HOLD = 3  # frames, on the average, after which an environment of `check_vector` takes another action


def check_vectors(
    names: Iterable[str] | None = None, frames: int = 2000, seed: int = 0, device: str = "cuda", jobs: int = 8
) -> Iterator[CheckResult]:
    """Check `AtariVec` on a device, `jobs` games at a time, each on a stream of its own."""

    def one(name: str) -> CheckResult:
        with own_stream(device):
            return check_vector(name, frames, seed, device)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, game_table.GAMES if names is None else names)


def own_stream(device: str) -> contextlib.AbstractContextManager[Any]:
    """Work of one thread on a GPU does not wait for the others'."""
    if device == "cpu":
        return contextlib.nullcontext()
    import torch

    return torch.cuda.stream(torch.cuda.Stream(device))


def check_vector(name: str, frames: int, seed: int = 0, device: str = "cpu", consoles: int = 2) -> CheckResult:
    """Compare what ale-py's vector environment and ours return for so many frames: pictures, rewards, ends, lives."""
    from ale_py import AtariVectorEnv

    options: dict[str, Any] = EVERY_FRAME | {"img_height": roms.load(name).height}
    theirs = AtariVectorEnv(name, consoles, num_threads=1, **options)
    ours: Any = AtariVec(name, consoles, num_threads=1, device=device, **options)
    random = np.random.default_rng(seed)
    starts, rewards, done = consoles, 0, 0
    problem = _difference(ours.reset(seed=seed), theirs.reset(seed=seed), "after power-on")
    actions = np.zeros(consoles, np.int64)
    with contextlib.closing(theirs), contextlib.closing(ours):
        while done < frames and not problem:
            fresh = random.integers(0, int(theirs.single_action_space.n), consoles)
            actions = np.where(random.random(consoles) < 1 / HOLD, fresh, actions)
            expected = theirs.step(actions)
            problem = _difference(ours.step(actions), expected, f"in frame {done}")
            rewards += int(np.count_nonzero(expected[1]))
            starts += int(np.logical_or(expected[2], expected[3]).sum())
            done += not problem
    return CheckResult(name, done, starts, rewards, problem)


def _difference(got: tuple[Any, ...], expected: tuple[Any, ...], when: str) -> str:
    """Which parts of a step's results differ."""
    names = ("screen", "info") if len(expected) == 2 else ("screen", "reward", "terminated", "truncated", "info")
    wrong = [name for name, ours, theirs in zip(names, got, expected, strict=True) if not _equal(ours, theirs)]
    return f"{', '.join(wrong)} {when}" if wrong else ""


def _equal(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(_equal(ours[key], theirs[key]) for key in theirs)
    return np.array_equal(ours if isinstance(ours, np.ndarray) else ours.cpu().numpy(), theirs)
