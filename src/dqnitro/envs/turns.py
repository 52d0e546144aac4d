"""Groups of environments that alternate: the cores play one group while the learner works on another's step.

A runner that sends to all groups, and then receives from and sends to one after the other, keeps the cores busy all the
time. Which game an environment plays depends on its number alone, so groups play what all of them together would play.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dqnitro.config import Config
from dqnitro.envs.base import Envs, Step
from dqnitro.errors import CheckpointError, ConfigError


class EnvGroups:
    """Groups of equal size, in the order of the environments' numbers."""

    def __init__(self, groups: Sequence[Envs]) -> None:
        self.groups = tuple(groups)
        self.n_each = self.groups[0].spec.n_envs
        self.spec = replace(self.groups[0].spec, n_envs=self.n_each * len(self.groups))

    def reset(self) -> np.ndarray:
        return np.concatenate([group.reset() for group in self.groups])

    def send(self, k: int, actions: np.ndarray) -> None:
        """Start a step of group k."""
        self.groups[k].send(actions)

    def recv(self, k: int) -> Step:
        """Finish the step of group k. Arrays are those of the group; `ends` numbers environments among all."""
        step = self.groups[k].recv()
        if k and step.ends:
            ends = tuple(end._replace(env=end.env + k * self.n_each) for end in step.ends)
            step = step._replace(ends=ends)
        return step

    def get_state(self) -> dict[str, np.ndarray]:
        """What one group with all environments would save."""
        states = [group.get_state() for group in self.groups]
        return {key: np.concatenate([state[key] for state in states]) for key in states[0]}

    def set_state(self, state: Mapping[str, np.ndarray]) -> np.ndarray:
        if len(self.groups) == 1:
            return self.groups[0].set_state(state)
        steps = np.array(state.get("steps", ()), np.int64)
        if len(steps) != self.spec.n_envs:
            raise CheckpointError(
                f"{len(steps)} environments were saved, this run has {self.spec.n_envs}", "keep n_envs"
            )
        lengths = [int(s.sum()) for s in np.split(steps, len(self.groups))]
        shown = []
        for k, group in enumerate(self.groups):
            ours = slice(k * self.n_each, (k + 1) * self.n_each)
            played = slice(sum(lengths[:k]), sum(lengths[: k + 1]))
            mine = {key: array[played if key == "actions" else ours] for key, array in state.items()}
            shown.append(group.set_state(mine))
        return np.concatenate(shown)

    def close(self) -> None:
        for group in self.groups:
            group.close()


def groups_of(envs: Any) -> tuple[Any, ...]:
    """The groups of an agent's environments; one where they are not divided."""
    return envs.groups if isinstance(envs, EnvGroups) else (envs,)


def count_groups(config: Config) -> int:
    """How many groups the runner hybrid makes of the environments: what the config says, or what is useful."""
    if config.env_parts == 0:
        return 2 if config.envs == "console" and config.n_envs % 2 == 0 else 1
    if config.env_parts > 1 and config.envs != "console":
        raise ConfigError(
            f"env_parts {config.env_parts} needs the console, got envs {config.envs}", "use --envs console"
        )
    if config.n_envs % config.env_parts:
        raise ConfigError(
            f"{config.n_envs} environments cannot be divided into {config.env_parts} equal groups", "change --env-parts"
        )
    return config.env_parts


def make_env_groups(config: Config, first: int = 0) -> EnvGroups:
    """The environments that `config` describes, in as many groups as it says; those of a run from number `first` on."""
    from dqnitro.envs import atari_game, compiled_games, make_envs

    count = count_groups(config)
    if count == 1:
        return EnvGroups([make_envs(config, first)])
    return EnvGroups(compiled_games(config, atari_game(config.env_id), count, first))
