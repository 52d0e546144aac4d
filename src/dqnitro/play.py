"""Play with a trained network: scores over new games, and a video of one."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dqnitro.common.files import seal_holds
from dqnitro.common.intervals import Scored
from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec
from dqnitro.envs.names import check_trust
from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.scoring import (
    EPSILON,
    IDLE_FRAMES,
    NOT_IDLE,
    Bounds,
    MakePolicy,
    Played,
    Policy,
    fresh_games,
    ignore,
    load_network,
    play_games,
    score_policy,
    torch_while_playing,
    where,
)
from dqnitro.seeds.folder import is_seeds
from dqnitro.store.run_folder import BEST, LAST
from dqnitro.video import Stopped, VideoWriter

VIDEO_FRAMES = 18_000  # a video shows at most five minutes of play


def load_config(run_dir: pathlib.Path, trust: bool = True) -> Config:
    """The config with which a run was started. Without `trust`, one whose environment would import code is refused."""
    path = run_dir / "config.json"
    if not path.is_file() and is_seeds(run_dir):
        raise CheckpointError(
            f"{run_dir} holds the runs of several seeds", f"give one of them, such as {run_dir / 's1'}"
        )
    if not path.is_file():
        raise CheckpointError(
            f"{run_dir} is not a run folder (config.json is missing)", "`dqnitro runs` lists all runs"
        )
    try:
        head = json.loads(path.read_text())
        if not seal_holds(head):
            raise CheckpointError(
                f"{path} is damaged (its checksum differs)", "restore it; manifest.json has a copy of its settings"
            )
        config = Config.from_dict(head["config"])
    except ConfigError as e:
        raise CheckpointError(f"{path} was written by another version ({e})") from e
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        raise CheckpointError(f"{path} is damaged ({type(e).__name__}: {e})") from e
    check_trust(config, trust)
    return config


def weights_file(run_dir: pathlib.Path, best: bool = False) -> pathlib.Path:
    """The newest weights of a run, or those of its best evaluation; CheckpointError if there are none."""
    path = run_dir / (BEST if best else LAST)
    if not path.is_file():
        if best:
            raise CheckpointError(f"{run_dir} has no {BEST}", "a run with --eval-every-steps keeps its best weights")
        raise CheckpointError(f"{run_dir} has no {LAST} yet", "it is written with the first checkpoint")
    return path


def _maker(weights: pathlib.Path, config: Config, epsilon: float) -> MakePolicy:
    def make(spec: EnvSpec, seed: int) -> Policy:
        return Policy(*load_network(weights, config, spec), spec.n_actions, epsilon, seed, where(config))

    return make


def score(
    run_dir: pathlib.Path, n_games: int, epsilon: float = EPSILON, seed: int = 0, backend: str = "",
    trust: bool = False, *, best: bool = False, idle_frames: int = IDLE_FRAMES,
    on_game: Callable[[int], None] = ignore, on_action: Callable[[int], None] = ignore,
) -> Scored:  # fmt: skip
    """Play `n_games` new games with a run's newest or best weights; `on_game` is told how many have ended, `on_action`
    each action of the first of them (see `record`).

    They are played at the same time, `AT_ONCE` at most, in the environment backend of the run or, where that one plays
    in Python, in ale-py's equal one. `trust`: import the module of an environment `module:Id` (see `resume`).
    """
    config = load_config(run_dir, trust)
    policy = _maker(weights_file(run_dir, best), config, epsilon)
    return score_policy(
        policy, config, n_games, seed, backend, idle_frames=idle_frames, on_game=on_game, on_action=on_action
    )


def show(
    run_dir: pathlib.Path, make_screen: Callable[[float], Any], epsilon: float = EPSILON, seed: int = 0,
    trust: bool = False, bounds: Bounds = NOT_IDLE, best: bool = False,
) -> Played:  # fmt: skip
    """Play one new game of a run on a screen (see `show_policy`)."""
    config = load_config(run_dir, trust)
    policy = _maker(weights_file(run_dir, best), config, epsilon)
    with torch_while_playing(config):
        return show_policy(policy, config, make_screen, seed, bounds)


def show_policy(
    make_policy: MakePolicy, config: Config, make_screen: Callable[[float], Any], seed: int = 0,
    bounds: Bounds = NOT_IDLE,
) -> Played:  # fmt: skip
    """Play one new game on a screen: `make_screen(fps)` returns an object to call with each RGB frame and to close.

    Atari games show every console frame, other environments what `render()` returns.
    """
    from dqnitro.envs import make_watched_envs

    screen: Any = None
    envs, fps = make_watched_envs(fresh_games(config, 1, seed), lambda rgb: screen(rgb))
    try:
        policy = make_policy(envs.spec, seed)
        screen = make_screen(fps)
        (played,) = play_games(policy, envs, bounds)
    finally:
        envs.close()
        if screen is not None:
            screen.close()
    return played


class Script:
    """Plays what was chosen elsewhere; `Stopped` where nothing more comes."""

    def __init__(self, actions: Iterable[int]) -> None:
        self._actions = iter(actions)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        for action in self._actions:
            return np.array([action], np.int64)
        raise Stopped


def record(
    run_dir: pathlib.Path, path: pathlib.Path, epsilon: float = EPSILON, seed: int = 0, trust: bool = False,
    stopped: Callable[[], bool] = lambda: False, best: bool = False, actions: Iterable[int] | None = None,
) -> Played:  # fmt: skip
    """Record one new game as an mp4, its first five minutes if it is longer.

    With the `actions` that `score` tells of the first of its games (with the same seed), it is that game and no network
    is needed. That holds for Atari games, which every backend plays alike.
    """
    bounds = Bounds(frames=VIDEO_FRAMES)

    def screen(fps: float) -> VideoWriter:
        return VideoWriter(path, fps, stopped)

    if actions is None:
        return show(run_dir, screen, epsilon, seed, trust, bounds, best)
    script = Script(actions)
    return show_policy(lambda spec, seed: script, load_config(run_dir, trust), screen, seed, bounds)
