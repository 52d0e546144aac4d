"""Stable-Baselines3: `AtariVec` as its `VecEnv`.

Stable-Baselines3 expects that a game which ends starts again in the same step, with the last observation in the info;
so the consoles run in Gymnasium's same-step mode. Its image policies take stacks as channels, channels first: the
observation is (frames, height, width), and no `VecFrameStack` or `VecTransposeImage` is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from ..vec import AtariVec
from .missing import MissingLibrary

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise MissingLibrary("Sb3AtariVec", "Stable-Baselines3", "stable-baselines3") from error


class Sb3AtariVec(VecEnv):
    """`Sb3AtariVec("pong", 8, episodic_life=True)`; the arguments are those of `AtariVec`.

    `info["episode"]` sums what the consoles report. For scores that can be compared, evaluate with an environment that
    has `reward_clipping=False` and not `episodic_life`.
    """

    def __init__(self, game: str, num_envs: int, *, seed: int | None = None, **options: Any) -> None:
        if options.get("batch_size") or "autoreset_mode" in options:
            raise ValueError("Sb3AtariVec steps all environments, in same-step mode. hint: leave out that argument")
        self.vec = AtariVec(game, num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **options)
        if not self.vec.single_observation_space.shape or len(self.vec.single_observation_space.shape) != 3:
            raise ValueError("Sb3AtariVec shows grey stacks. hint: leave grayscale at True")
        self.render_mode = None
        super().__init__(num_envs, self.vec.single_observation_space, self.vec.single_action_space)
        self._seed = seed
        self._score, self._length = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def reset(self) -> np.ndarray:
        given = self._seeds[0] if self._seeds and self._seeds[0] is not None else self._seed
        obs, info = self.vec.reset(seed=given)
        self._seed = None
        self._score[:], self._length[:] = 0.0, 0
        self.reset_infos = [{"lives": int(n)} for n in info["lives"]]
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self.vec.send(np.asarray(actions))

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, reward, terminated, truncated, info = self.vec.recv()
        self._score += reward
        self._length += 1
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{"lives": int(n)} for n in info["lives"]]
        for i in np.flatnonzero(done):
            infos[i]["terminal_observation"] = info["final_obs"][i]
            infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
            infos[i]["episode"] = {"r": float(self._score[i]), "l": int(self._length[i])}
            self._score[i], self._length[i] = 0.0, 0
        return obs, reward.astype(np.float32), done, infos

    def close(self) -> None:
        self.vec.close()

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        return [getattr(self.vec, attr_name)] * len(self._numbers(indices))

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        raise NotImplementedError("the consoles of an AtariVec share their attributes. hint: make another one")

    def env_method(
        self, method_name: str, *args: Any, indices: int | Iterable[int] | None = None, **kwargs: Any
    ) -> list[Any]:
        raise NotImplementedError("the consoles of an AtariVec are not objects of their own. hint: use `.vec`")

    def env_is_wrapped(self, wrapper_class: type, indices: int | Iterable[int] | None = None) -> list[bool]:
        return [False] * len(self._numbers(indices))

    def get_images(self) -> Sequence[np.ndarray | None]:
        return [None] * self.num_envs

    def _numbers(self, indices: int | Iterable[int] | None) -> list[int]:
        if indices is None:
            return list(range(self.num_envs))
        return [indices] if isinstance(indices, int) else list(indices)
