"""The protocol of a score: the rules of the game that it was reached with, and how it was counted.

Scores of different protocols must not be compared without a remark. Every result that has scores has its protocol.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dqnitro.config import Config
from dqnitro.errors import ConfigError

# The settings that a name stands for. `machado`: Machado et al. (2018), as in Dopamine's tables: sticky actions take
# the place of no-op starts.
NAMED: dict[str, dict[str, Any]] = {
    "machado": {"sticky_actions": 0.25, "noop_max": 0, "episodic_life": False, "max_episode_frames": 108_000},
    # DQN of 2015, and most PPO tables: the console does what it is told, and a lost life ends the return.
    "nature": {"sticky_actions": 0.0, "episodic_life": True, "max_episode_frames": 108_000},
}


def settings(name: str) -> dict[str, Any]:
    """The settings of a named protocol."""
    if name not in NAMED:
        raise ConfigError(f"unknown protocol {name!r}", f"the protocols are {', '.join(NAMED)}")
    return NAMED[name]


@dataclass(frozen=True)
class Protocol:
    """The rules of the games, and how scores were counted."""

    name: str  # of NAMED, or `other`
    sticky_actions: float  # the chance, per frame, that the console repeats the previous action
    noop_max: int  # games begin with fewer than this many frames without an action
    fire_reset: bool
    lives_told: bool  # losing a life ended the return while training
    full_actions: bool
    frame_limit: int
    counted: str  # `fresh games`, or `training games`
    games: int
    epsilon: float  # the chance of a random action in those games
    backend: str  # what emulated them

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def of(config: Config, counted: str, games: int, epsilon: float, backend: str = "") -> Protocol:
    """The protocol of scores that a config was trained for and counted with."""
    names = [n for n, wanted in NAMED.items() if all(getattr(config, k) == v for k, v in wanted.items())]
    return Protocol(
        names[0] if names else "other", config.sticky_actions, config.noop_max, config.fire_reset,
        config.episodic_life, config.full_actions, config.max_episode_frames, counted, games, epsilon,
        backend or config.envs,
    )  # fmt: skip
