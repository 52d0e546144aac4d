"""Environments: `make_envs(config)` makes the environment backend that the config names. See docs/environments.md."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from dqnitro.config import Config
from dqnitro.envs.base import Envs, EnvSpec, GameEnd, Step
from dqnitro.envs.names import atari_game, atari_games, possible_scores
from dqnitro.errors import ConfigError

if TYPE_CHECKING:
    import gymnasium as gym
    import numpy as np

    from dqnitro.envs.bookkeeping import Games
    from dqnitro.envs.look import EnvLook

__all__ = [
    "EnvSpec",
    "Envs",
    "GameEnd",
    "Step",
    "atari_game",
    "atari_games",
    "env_kind",
    "env_look",
    "make_envs",
    "make_single_env",
    "make_watched_envs",
    "of_one_env",
    "possible_scores",
]

# gymnasium, cv2 and ale_py take most of a second to import, so functions import them when they are called.


def make_envs(config: Config, first: int = 0) -> Envs:
    """The environments that `config` describes, ready for `reset` or `set_state`.

    They are those of the run from number `first` on: the number decides which games an environment plays.
    """
    game = atari_game(config.env_id)
    if config.envs in ("ale", "console"):
        return compiled_games(config, game, first=first)[0]
    return _wrapped(config, game, config.envs, first=first)


def env_kind(env_id: str, images: str = "full") -> Literal["atari", "image", "vector"]:
    """What a network for `env_id` observes, with that setting `images`.

    An environment that is not an Atari game is made once to find out.
    """
    if atari_game(env_id) is not None:
        return "atari"
    from dqnitro.envs.generic import find_spec, make_gym_env

    env = make_gym_env(find_spec(env_id), Config(env_id=env_id, images=images))
    kind = _kind(env)
    env.close()
    return kind


def env_look(env_id: str) -> EnvLook:
    """What a recipe has to know of an environment that is not an Atari game. It is made once, and may be played."""
    from dqnitro.envs.look import look

    return look(env_id)


def of_one_env(config: Config, envs: str = "") -> Config:
    """The config of one environment in this process, whoever plays and learns in the run."""
    return config.replace(
        n_envs=1, envs=envs or config.envs, env_threads=0, env_parts=0, runner="inline", slack_steps=0, players=1,
        most_players=0, player_changes="", gpus=1,
    )  # fmt: skip


def make_watched_envs(config: Config, on_frame: Callable[[np.ndarray], None]) -> tuple[Envs, float]:
    """One environment whose frames go to `on_frame` as RGB arrays, and the number of frames per second.

    It plays the same games as environment 0 of `make_envs(config)`. Atari shows every console frame (60 per second,
    also those that the agent skips). Other environments show what `render()` returns after each reset and step; they
    must support render_mode="rgb_array".
    """
    config = of_one_env(config)
    game = atari_game(config.env_id)
    envs = _wrapped(config, game, "wrappers", on_frame)
    if game is not None:
        return envs, 60.0
    from dqnitro.envs.generic import frames_per_second

    return envs, frames_per_second(config.env_id)


def make_single_env(config: Config, render_mode: str | None = None) -> gym.Env:
    """One Gymnasium environment with the observations of a config; whole games, unclipped rewards, its own resets."""
    config = config.replace(episodic_life=False)
    game = atari_game(config.env_id)
    if game is None:
        from dqnitro.envs.generic import find_spec, make_gym_env

        return make_gym_env(find_spec(config.env_id), config, render_mode=render_mode)
    if render_mode is not None:
        raise ConfigError(f"{game} has no render_mode here, got {render_mode!r}", "agent.record(FILE) makes a video")
    from dqnitro.envs.atari import make_atari_env

    return make_atari_env(game, config, None)


def compiled_games(config: Config, game: str | None, parts: int = 1, first: int = 0) -> list[Games]:
    """The environments of `ale` or of the console; the console's can be divided into several groups (`parts`)."""
    from dqnitro.envs.ale import make_ale_engine
    from dqnitro.envs.bookkeeping import Games
    from dqnitro.envs.console import make_console_engines

    if game is None:
        env_kind(config.env_id)  # an unknown name is the likelier mistake, and its error is more helpful
        raise ConfigError(f"--envs {config.envs} plays Atari only, got {config.env_id!r}", "use --envs gym-sync")
    if config.envs == "ale":
        engines = [make_ale_engine(game, config, first)]
    else:
        engines = make_console_engines(game, config, parts, first)
    each = config.replace(n_envs=config.n_envs // parts)
    return [Games(engine, each, is_image=True, frames_per_step=config.frame_skip) for engine in engines]


def _wrapped(
    config: Config, game: str | None, backend: str, on_frame: Callable[[np.ndarray], None] | None = None, first: int = 0
) -> Games:
    from dqnitro.envs.bookkeeping import Games
    from dqnitro.envs.serial import SerialEngine

    spec = None
    if game is None:
        from dqnitro.envs.generic import find_spec

        spec = find_spec(config.env_id)
    env_fns = [functools.partial(_one_env, config, game, spec, first + i, on_frame) for i in range(config.n_envs)]
    if backend == "wrappers":
        engine = SerialEngine(env_fns)
    else:
        from dqnitro.envs.gym_vector import AsyncEngine, SyncEngine

        engine = SyncEngine(env_fns) if backend == "gym-sync" else AsyncEngine(env_fns)
    frames_per_step = config.frame_skip if game is not None else 1
    return Games(engine, config, is_image=len(engine.obs_shape) == 3, frames_per_step=frames_per_step)


def _one_env(
    config: Config, game: str | None, spec: Any, index: int, on_frame: Callable[[np.ndarray], None] | None
) -> gym.Env:
    from dqnitro.envs.serial import SeededGames

    if game is not None:
        from dqnitro.envs.atari import make_atari_env

        env = make_atari_env(game, config, on_frame)
    else:
        from dqnitro.envs.generic import make_gym_env

        env = make_gym_env(spec, config, on_frame)
    return SeededGames(env, config.seed, index)


def _kind(env: gym.Env) -> Literal["image", "vector"]:
    return "image" if len(env.observation_space.shape or ()) == 3 else "vector"
