"""A chunk: what a player brings back of some vector steps, as plain arrays, with each frame once.

An observation is a stack of frames, and all but the newest of them are in the observation before it. So only the newest
frame travels; a whole stack does so where that does not hold, which is when a new game begins.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dqnitro.envs.base import EnvSpec, GameEnd, Step


class Chunk(NamedTuple):
    """T vector steps of m environments."""

    action: np.ndarray  # int64 (T, m)
    reward: np.ndarray  # float32 (T, m)
    terminated: np.ndarray  # bool (T, m), as the next three
    truncated: np.ndarray
    reset: np.ndarray
    ended: np.ndarray  # a game ended here; its score and its number of steps follow
    score: np.ndarray  # float64 (T, m)
    game_steps: np.ndarray  # int64 (T, m)
    frames: np.ndarray  # the newest frame of each observation, or all of it where nothing is stacked
    whole_at: np.ndarray  # int64 (W, 2): vector step and environment of each of ...
    whole: np.ndarray  # ... these observations, which are not the last one moved on by a frame
    rng: np.ndarray  # uint64 (6,): the generator of the actions, after the last step
    crc: np.ndarray  # uint32 (m,): checksums of the last observation
    seconds: np.ndarray  # float64 (2,): what acting and playing took

    @property
    def pending(self) -> np.ndarray:
        """Environments that reset in the next step."""
        return self.ended[-1].copy()


def checksums(obs: np.ndarray) -> np.ndarray:
    return np.array([zlib.crc32(np.ascontiguousarray(o).tobytes()) for o in obs], np.uint32)


class Recorder:
    """Makes a chunk of the steps that it is shown."""

    def __init__(self, spec: EnvSpec, obs: np.ndarray) -> None:
        self._spec, self._stacked, self._n = spec, spec.is_image and spec.frame_stack > 1, spec.n_envs
        self._obs = obs
        self._steps: list[tuple[np.ndarray, Step]] = []
        self._frames: list[np.ndarray] = []
        self._whole_at: list[tuple[int, int]] = []
        self._whole: list[np.ndarray] = []

    def add(self, actions: np.ndarray, step: Step) -> None:
        obs = step.obs_t
        if self._stacked:
            c = self._spec.channels
            moved = (obs[:, :-c] == self._obs[:, c:]).reshape(self._n, -1).all(1)
            for env in np.flatnonzero(~moved):
                self._whole_at.append((len(self._steps), int(env)))
                self._whole.append(obs[env].copy())
        self._frames.append(self._spec.newest(obs).copy())
        self._steps.append((actions, step))
        self._obs = obs

    def chunk(self, rng: np.ndarray, seconds: np.ndarray) -> Chunk:
        steps = [step for _, step in self._steps]
        shape = (len(steps), self._n)
        ended, score, game_steps = np.zeros(shape, bool), np.zeros(shape), np.zeros(shape, np.int64)
        for t, step in enumerate(steps):
            for end in step.ends:
                ended[t, end.env], score[t, end.env], game_steps[t, end.env] = True, end.score, end.steps
        whole = np.stack(self._whole) if self._whole else np.zeros((0, *self._obs.shape[1:]), self._obs.dtype)
        return Chunk(
            np.stack([actions for actions, _ in self._steps]).astype(np.int64), np.stack([s.reward_t for s in steps]),
            np.stack([s.terminated for s in steps]), np.stack([s.truncated for s in steps]),
            np.stack([s.reset for s in steps]), ended, score, game_steps, np.stack(self._frames),
            np.array(self._whole_at, np.int64).reshape(-1, 2), whole, rng, checksums(self._obs), seconds,
        )  # fmt: skip


def steps_of(chunk: Chunk, spec: EnvSpec, obs: np.ndarray, begin: int = 0) -> Iterator[tuple[np.ndarray, Step]]:
    """The steps of a chunk from number `begin` on; `obs` is the observation before that one. All arrays are fresh."""
    stacked = spec.is_image and spec.frame_stack > 1
    for t in range(begin, len(chunk.action)):
        if stacked:
            frame = chunk.frames[t].reshape(len(obs), spec.channels, *obs.shape[2:])
            obs = np.concatenate([obs[:, spec.channels :], frame], axis=1)
            for k in np.flatnonzero(chunk.whole_at[:, 0] == t):
                obs[chunk.whole_at[k, 1]] = chunk.whole[k]
        else:
            obs = chunk.frames[t].copy()
        ends = tuple(
            GameEnd(int(i), float(chunk.score[t, i]), int(chunk.game_steps[t, i]))
            for i in np.flatnonzero(chunk.ended[t])
        )
        reward, terminated, truncated, reset, actions = (
            x[t].copy() for x in (chunk.reward, chunk.terminated, chunk.truncated, chunk.reset, chunk.action)
        )
        yield actions, Step(obs, reward, terminated, truncated, reset, ends)


def joined(parts: list[tuple[np.ndarray, Step]]) -> tuple[np.ndarray, Step]:
    """One vector step out of those of all players, in their order."""
    actions = np.concatenate([a for a, _ in parts])
    steps = [s for _, s in parts]
    ends: list[GameEnd] = []
    first = 0
    for s in steps:
        ends += [GameEnd(first + e.env, e.score, e.steps) for e in s.ends]
        first += len(s.reward_t)
    obs, reward, terminated, truncated, reset = (
        np.concatenate(arrays)
        for arrays in zip(*((s.obs_t, s.reward_t, s.terminated, s.truncated, s.reset) for s in steps), strict=True)
    )
    return actions, Step(obs, reward, terminated, truncated, reset, tuple(ends))


def to_arrays(chunk: Chunk, prefix: str) -> dict[str, np.ndarray]:
    """For a checkpoint."""
    return {prefix + name: value for name, value in chunk._asdict().items()}


def from_arrays(state: Mapping[str, Any], prefix: str) -> Chunk:
    """The inverse of `to_arrays`."""
    return Chunk(*(np.array(state[prefix + name]) for name in Chunk._fields))
