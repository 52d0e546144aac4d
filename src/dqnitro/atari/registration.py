"""The games under their Gymnasium names: `gymnasium.make("DQNitro/Pong-v5")` is one console, `make_vec` many."""

from __future__ import annotations

import gymnasium

from .games.game_table import GAMES

NAMESPACE = "DQNitro"


def env_id(game: str) -> str:
    """`ms_pacman` -> `DQNitro/MsPacman-v5`, spelled as ale-py spells its own names."""
    return f"{NAMESPACE}/{game.title().replace('_', '')}-v5"


def register() -> None:
    """Idempotent. The arguments are those of ale-py's `ALE/...-v5`, so that only the namespace differs."""
    for game in GAMES:
        if env_id(game) in gymnasium.registry:
            continue
        gymnasium.register(
            id=env_id(game),
            entry_point="dqnitro.atari.env:AtariEnv",
            vector_entry_point="dqnitro.atari.vec:AtariVec",
            kwargs={
                "game": game,
                "repeat_action_probability": 0.25,
                "full_action_space": False,
                "frameskip": 4,
                "max_num_frames_per_episode": 108_000,
            },
        )
