"""Trained agents that come with the package, one exported folder for each game: `dqnitro play pong`."""

from __future__ import annotations

import pathlib

BOX = pathlib.Path(__file__).parent


def boxed() -> list[str]:
    """The games of the agents in the box."""
    return sorted(p.parent.name for p in BOX.glob("*/model.safetensors"))


def find(name: str) -> pathlib.Path:
    """The folder of a run or of an exported agent. The name of a game means the agent in the box, if there is one."""
    from dqnitro.envs.names import atari_game

    path = pathlib.Path(name)
    game = None if path.exists() else atari_game(name)
    return path if game is None or game not in boxed() else BOX / game
