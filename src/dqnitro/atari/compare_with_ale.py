"""Compare the console with ale-py: the same actions for both, everything observable compared after every frame."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .console import Console
from .games import game_table, roms

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
