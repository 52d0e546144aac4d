"""A first look at an environment that is not an Atari game: what it shows, and how long a game takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
from gymnasium.spaces import Box

from dqnitro.config import Config
from dqnitro.envs.bookkeeping import episode_seed
from dqnitro.envs.failures import env_failure
from dqnitro.envs.generic import find_spec, layout_of, make_gym_env

# An environment without a time limit is played at random for this many games, but no longer than this many steps:
# enough to tell ten steps from a thousand. The seconds count for environments whose steps are slow.
PROBE_GAMES = 10
PROBE_STEPS = 2_000
PROBE_S = 2.0
SPEED_STEPS = 100  # from which the time of a step is known well enough to plan with


@dataclass(frozen=True)
class EnvLook:
    """What a recipe has to know of an environment."""

    kind: Literal["image", "vector"]
    length: int  # steps of a game: its time limit; without one, the mean of some random games
    small: bool = False  # an image that is too small for the networks of Atari
    single: bool = False  # an image that is one picture, so that stacking makes motion visible


_SEEN: dict[tuple[Any, ...], EnvLook] = {}


def look(env_id: str) -> EnvLook:
    """Make the environment and look at it; once for each, since a plan asks several times and random games differ."""
    spec = find_spec(env_id)
    key = env_id, spec.entry_point, spec.max_episode_steps
    if key not in _SEEN:
        _SEEN[key] = _first_look(spec, env_id)
    return _SEEN[key]


def _first_look(spec: Any, env_id: str) -> EnvLook:
    env = make_gym_env(spec, Config(env_id=env_id, images="full"))
    try:
        space = _inner_space(env)
        image = len(env.observation_space.shape or ()) == 3
        layout = layout_of(space.shape) if image and isinstance(space, Box) else None
        length = _limit(env) or round(_random_length(env))
        if layout is None:
            return EnvLook("vector", length)
        return EnvLook("image", length, layout.small, layout.single)
    finally:
        env.close()


def step_seconds(env_id: str) -> float:
    """About how long a step takes, resets included: random play for a moment."""
    env = make_gym_env(find_spec(env_id), Config(env_id=env_id, images="full"))
    try:
        began = time.perf_counter()
        steps = sum(_games(env, SPEED_STEPS, 0.25))
        return (time.perf_counter() - began) / max(1, steps)
    finally:
        env.close()


def _inner_space(env: gym.Env) -> gym.Space[Any]:
    """The observation space below our own wrappers: that of the environment as the user registered it."""
    inner: Any = env
    while isinstance(inner, gym.Wrapper) and type(inner).__module__.startswith("dqnitro.envs."):
        inner = inner.env
    return inner.observation_space


def _limit(env: gym.Env) -> int | None:
    return env.spec.max_episode_steps if env.spec is not None else None


def _random_length(env: gym.Env) -> float:
    """Steps of a random game. A game that does not end within the probe counts with the steps that it took."""
    lengths = _games(env, PROBE_STEPS, PROBE_S)
    return sum(lengths) / len(lengths)


def _games(env: gym.Env, most_steps: int, most_s: float) -> list[int]:
    """The lengths of random games; the last one may be cut off. An exception of the environment is `EnvFailed`."""
    try:
        return _play(env, most_steps, most_s)
    except Exception as e:
        raise env_failure(e) from e


def _play(env: gym.Env, most_steps: int, most_s: float) -> list[int]:
    env.action_space.seed(0)
    end, lengths = time.perf_counter() + most_s, []
    while len(lengths) < PROBE_GAMES and sum(lengths) < most_steps and time.perf_counter() < end:
        env.reset(seed=episode_seed(0, 0, len(lengths)))
        steps, over = 0, False
        while not over and sum(lengths) + steps < most_steps and (steps == 0 or time.perf_counter() < end):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            steps, over = steps + 1, terminated or truncated
        lengths.append(steps)
    return lengths
