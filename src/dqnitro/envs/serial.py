"""One environment after the other in a Python loop: the reference implementation of the faster engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from dqnitro.envs.bookkeeping import Outcome, episode_seed
from dqnitro.envs.wrappers import StepResult

EnvFn = Callable[[], gym.Env]


class Plan(NamedTuple):
    """The game, and the actions in it, to which the next reset goes instead of the next game."""

    game: int
    actions: np.ndarray
    idle: bool = False  # the step after it does nothing and returns the same observation


class SeededGames(gym.Wrapper):
    """Every `reset()` starts the next game with that game's own seed; rewards become floats.

    Gymnasium's vector environments reset by themselves and pass no seed, so games are numbered here. Info is dropped
    except for `life_lost`: merging infos in Gymnasium costs more than a CartPole step.
    """

    def __init__(self, env: gym.Env, run_seed: int, index: int) -> None:
        super().__init__(env)
        self.run_seed = run_seed
        self.index = index
        self.game = -1
        self.plan: Plan | None = None
        self.idle_obs: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        plan, self.plan = self.plan or Plan(self.game + 1, np.zeros(0, np.int64)), None
        self.game = plan.game
        obs, _ = self.env.reset(seed=episode_seed(self.run_seed, self.index, self.game))
        for action in plan.actions:
            obs, *_ = self.env.step(int(action))
        self.idle_obs = obs if plan.idle else None
        return obs, {}

    def step(self, action: Any) -> StepResult:
        if self.idle_obs is not None:
            obs, self.idle_obs = self.idle_obs, None
            return obs, 0.0, False, False, {}
        obs, reward, terminated, truncated, info = self.env.step(int(action))
        kept = {"life_lost": True} if info.get("life_lost") else {}
        return obs, as_number(reward), bool(terminated), bool(truncated), kept


def as_number(reward: Any) -> float:
    """Rewards may be ints, NumPy numbers and arrays of one element; anything else is an error of the environment."""
    if isinstance(reward, float | int):
        return float(reward)
    if reward is None:
        raise TypeError("the environment's reward must be a number, got None")
    array = np.asarray(reward, np.float64)
    if array.size != 1:
        raise ValueError(f"the environment's reward must be one number, got {reward!r}")
    return float(array.reshape(-1)[0])


class SerialEngine:
    """Steps all environments in `recv`, in this process."""

    def __init__(self, env_fns: Sequence[EnvFn]) -> None:
        self._envs: list[Any] = [fn() for fn in env_fns]
        observations, actions = self._envs[0].observation_space, self._envs[0].action_space
        assert isinstance(observations, Box) and isinstance(actions, Discrete)
        self.n_actions = int(actions.n)
        self.obs_shape = observations.shape
        self.obs_dtype = np.dtype(observations.dtype)
        self._reset_next = np.zeros(len(self._envs), np.bool_)
        self._actions = np.zeros(len(self._envs), np.int64)

    @property
    def envs(self) -> list[Any]:
        """The environments that are stepped one after the other, with all their wrappers."""
        return self._envs

    def begin(self, games: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
        obs = np.empty((len(self._envs), *self.obs_shape), self.obs_dtype)
        self._reset_next[:] = False
        for i, env in enumerate(self._envs):
            # The last action is stepped here and not by the plan, to know whether it ended the game.
            env.plan = Plan(int(games[i]), actions[i][:-1])
            obs[i], _ = env.reset()
            for action in actions[i][-1:]:
                obs[i], _, terminated, truncated, _ = env.step(action)
                self._reset_next[i] = terminated or truncated
        return obs

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> Outcome:
        n = len(self._envs)
        out = Outcome(
            np.empty((n, *self.obs_shape), self.obs_dtype),
            np.zeros(n, np.float64),
            *(np.zeros(n, np.bool_) for _ in range(3)),
        )
        for i, env in enumerate(self._envs):
            if self._reset_next[i]:
                out.obs[i], _ = env.reset()
            else:
                out.obs[i], out.reward[i], out.terminated[i], out.truncated[i], info = env.step(self._actions[i])
                out.life_lost[i] = "life_lost" in info
        self._reset_next = out.terminated | out.truncated
        return out

    def close(self) -> None:
        for env in self._envs:
            env.close()
