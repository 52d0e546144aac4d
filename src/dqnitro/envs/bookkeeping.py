"""The bookkeeping that all environment backends share: ends of games, scores, clipping, and how a game is resumed.

Below it is an *engine* that plays; it knows nothing of scores or checkpoints. Every game begins with a seed that is a
pure function of the run's seed, the environment's number and the game's number. So the exact state of an environment is
the number of its game and the actions played in it, and going back to a state means playing that game again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dqnitro.common.signals import WAIT
from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec, GameEnd, Step
from dqnitro.errors import CheckpointError, EnvFailed


def episode_seed(run_seed: int, env: int, game: int) -> int:
    """The seed of game number `game` in environment number `env`, in 0..2^31-1 (what a C++ int holds)."""
    return int(np.random.SeedSequence((run_seed, env, game)).generate_state(1)[0]) & 0x7FFF_FFFF


class Outcome(NamedTuple):
    """What a vector step of an engine brought, in the words of Gymnasium; index i is environment i."""

    obs: np.ndarray  # a fresh array: the caller may keep it
    reward: np.ndarray  # as the game gave it; anything where a new game began
    terminated: np.ndarray  # bool: the game ended by its rules
    truncated: np.ndarray  # bool: a time limit cut the game off
    life_lost: np.ndarray  # bool: a life was lost and the game goes on


class Engine(Protocol):
    """Plays the environments. In the step after an end it begins the next game by itself, with that game's seed."""

    n_actions: int
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype[Any]

    def begin(self, games: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
        """Put every environment into its game number `games[i]` after `actions[i]`; the observations."""
        ...

    def send(self, actions: np.ndarray) -> None: ...

    def recv(self) -> Outcome: ...

    def close(self) -> None: ...


class Games:
    """The Envs protocol over an engine."""

    def __init__(self, engine: Engine, config: Config, is_image: bool, frames_per_step: int) -> None:
        n = config.n_envs
        self.spec = EnvSpec(
            n_envs=n,
            n_actions=engine.n_actions,
            obs_shape=engine.obs_shape,
            obs_dtype=np.dtype(engine.obs_dtype),
            frame_stack=config.frame_stack if is_image else 1,
            frames_per_step=frames_per_step,
            is_image=is_image,
            channels=engine.obs_shape[0] // config.frame_stack if is_image else 1,
        )
        self.engine = engine
        self._clip = config.clip_rewards
        self._idle_steps = -(-config.idle_frames // frames_per_step)
        self._without = np.zeros(n, np.int64)  # steps since the last reward, counted if `idle_frames` is set
        self._life_ends_return = config.episodic_life
        self._all = np.arange(n)
        self._game = np.zeros(n, np.int64)
        self._score = np.zeros(n, np.float64)
        self._steps = np.zeros(n, np.int64)
        self._reset_next = np.zeros(n, np.bool_)  # the next step begins a new game here
        # One byte a decision (for up to 256 actions): a 30-minute Atari game is 27 KB. Doubled when it is full.
        self._played = np.zeros((n, 1024), np.uint8 if engine.n_actions <= 256 else np.int64)
        self._obs: np.ndarray | None = None
        self._sent: np.ndarray | None = None
        self._closed = False

    def reset(self) -> np.ndarray:
        """Begin game 0 everywhere."""
        return self._go_to(np.zeros_like(self._game), [np.zeros(0, np.int64)] * self.spec.n_envs)

    def send(self, actions: np.ndarray) -> None:
        """Start a vector step with integer actions (n_envs,)."""
        if self._obs is None or self._sent is not None:
            raise RuntimeError("send comes after reset, set_state or recv, and only once")
        actions = np.array(actions, np.int64)  # a copy: the caller may reuse its buffer before recv
        if actions.shape != self._game.shape:
            raise ValueError(f"expected actions of shape {self._game.shape}, got {actions.shape}")
        if actions.min() < 0 or actions.max() >= self.spec.n_actions:
            raise ValueError(f"actions must be in 0..{self.spec.n_actions - 1}, got {actions.tolist()}")
        self.engine.send(actions)
        self._sent = actions

    def recv(self) -> Step:
        """Finish the vector step. The arrays are fresh: nothing overwrites them later."""
        if self._sent is None:
            raise RuntimeError("recv comes after send")
        actions, self._sent = self._sent, None
        with WAIT:
            out = self.engine.recv()
        reset = self._reset_next
        self._check_numbers(out, reset)
        self._record(actions, reset)
        reward = np.where(reset, 0.0, out.reward)
        self._score += reward
        if self._idle_steps:
            self._without = np.where((reward != 0) | reset, 0, self._without + 1)
        # Of bools, a > b is a & ~b in one call; each call takes longer than what it does for a few environments.
        terminated, truncated = out.terminated > reset, out.truncated > reset
        ended, ends = terminated | truncated, ()
        if ended.any():
            ends = tuple(GameEnd(int(i), float(self._score[i]), int(self._steps[i])) for i in np.flatnonzero(ended))
        if self._life_ends_return:
            terminated = terminated | (out.life_lost > reset)
        if self._clip:
            reward = np.minimum(np.maximum(reward, -1.0), 1.0)
        self._reset_next, self._obs = ended, out.obs
        return Step(out.obs, reward.astype(np.float32), terminated, truncated > terminated, reset, ends)

    @property
    def idle(self) -> np.ndarray | None:
        """bool (n_envs,): which have had no reward for `idle_frames`; None if that is off."""
        return self._without >= self._idle_steps if self._idle_steps else None

    @property
    def last_actions(self) -> np.ndarray | None:
        """int64 (n_envs,): what each did last in its game, anything if nothing yet; None where `idle` is."""
        if not self._idle_steps:
            return None
        return self._played[self._all, np.maximum(self._steps - 1, 0)].astype(np.int64)

    def _check_numbers(self, out: Outcome, reset: np.ndarray) -> None:
        """Before anything is counted: what is not a number would show much later, as a loss that diverged."""
        if out.reward.dtype.kind == "f" and not np.isfinite(out.reward).all():
            for i in np.flatnonzero(~np.isfinite(out.reward) & ~reset):
                raise EnvFailed(f"environment {i} returned the reward {out.reward[i]} in step {self._steps[i] + 1}")
        self._check_obs(out.obs)

    def _check_obs(self, obs: np.ndarray) -> None:
        if self.spec.obs_dtype.kind == "f" and not np.isfinite(obs).all():
            for i in np.flatnonzero(~np.isfinite(obs.reshape(len(obs), -1)).all(1)):
                bad = obs[i][~np.isfinite(obs[i])].reshape(-1)[0]
                raise EnvFailed(
                    f"environment {i} returned an observation with {bad} in it, in step {self._steps[i] + 1}"
                )

    def _record(self, actions: np.ndarray, reset: np.ndarray) -> None:
        acted = self._all
        if reset.any():
            self._game[reset] += 1
            self._score[reset] = 0.0
            self._steps[reset] = 0
            acted = np.flatnonzero(~reset)
        steps = self._steps[acted]
        if len(acted) and steps.max() >= self._played.shape[1]:
            self._played = np.concatenate([self._played, np.zeros_like(self._played)], axis=1)
        self._played[acted, steps] = actions[acted]
        self._steps[acted] = steps + 1

    def get_state(self) -> Mapping[str, np.ndarray]:
        """The games and what was played in them: plain arrays, some KB an environment."""
        if self._obs is None or self._sent is not None:
            raise RuntimeError("a state is taken after reset, set_state or recv, not between send and recv")
        played = [self._played[i, :count] for i, count in enumerate(self._steps)]
        idle = {"without_reward": self._without.copy()} if self._idle_steps else {}
        return {
            **idle,
            "game": self._game.copy(),
            "steps": self._steps.copy(),
            "score": self._score.copy(),
            "ended": self._reset_next.copy(),
            "actions": np.concatenate(played),
            "obs_crc": _checksums(self._obs),
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> np.ndarray:
        """Play the saved games again up to where they were; an environment that plays differently is an error."""
        steps = self._checked(state)
        actions = np.split(np.asarray(state["actions"]), np.cumsum(steps)[:-1])
        obs = self._go_to(np.array(state["game"], np.int64), [np.asarray(a, np.int64) for a in actions])
        wrong = np.flatnonzero(_checksums(obs) != state["obs_crc"])
        if len(wrong):
            self._obs = None
            raise CheckpointError(
                f"environment {wrong[0]} did not replay its saved game: it differs after {steps[wrong[0]]} steps",
                "an environment must depend on nothing but the seed of reset and the actions; versions may differ too",
            )
        width = max(self._played.shape[1], int(steps.max()))
        self._played = np.zeros((len(steps), width), self._played.dtype)
        for i, a in enumerate(actions):
            self._played[i, : len(a)] = a
        self._steps = steps
        self._score = np.array(state["score"], np.float64)
        self._reset_next = np.array(state["ended"], np.bool_)
        if self._idle_steps and "without_reward" in state:
            self._without = np.array(state["without_reward"], np.int64).reshape(self._steps.shape)
        return obs

    def _go_to(self, games: np.ndarray, actions: list[np.ndarray]) -> np.ndarray:
        if self._sent is not None:
            self._sent = None
            self.engine.recv()
        self._obs = self.engine.begin(games, actions)
        self._check_obs(self._obs)
        self._game = games
        self._score[:], self._steps[:], self._reset_next[:] = 0.0, 0, False
        self._without = np.zeros_like(self._without)
        return self._obs

    def _checked(self, state: Mapping[str, np.ndarray]) -> np.ndarray:
        """The saved step counts, after a look at everything that could make a replay go wrong half-way."""
        n = self.spec.n_envs
        for name in ("game", "steps", "score", "ended", "obs_crc", "actions"):
            if name not in state:
                raise CheckpointError(f"the saved environments have no {name!r}", "is this a checkpoint of DQNitro?")
            if name != "actions" and np.shape(state[name]) != (n,):
                raise CheckpointError(f"{len(state[name])} environments were saved, this run has {n}", "keep n_envs")
        steps = np.array(state["steps"], np.int64)
        actions = np.asarray(state["actions"])
        if steps.min() < 0 or steps.sum() != len(actions):
            raise CheckpointError(f"{len(actions)} actions were saved for {steps.sum()} steps")
        if len(actions) and (actions.min() < 0 or actions.max() >= self.spec.n_actions):
            raise CheckpointError(f"action {actions.max()} was saved, there are {self.spec.n_actions}", "keep env_id")
        return steps

    def close(self) -> None:
        """Stop threads and processes. May be called twice."""
        if not self._closed:
            self._closed = True
            self._obs = None
            self.engine.close()


def _checksums(obs: np.ndarray) -> np.ndarray:
    return np.array([zlib.crc32(np.ascontiguousarray(o).tobytes()) for o in obs], np.uint32)
