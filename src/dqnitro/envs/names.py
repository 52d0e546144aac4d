"""The names that users may give a game, and the game that they mean."""

from __future__ import annotations

import difflib
import functools
import re
import sys

from dqnitro.errors import CheckpointError, ConfigError

# These cartridges have no mode for one player.
TWO_PLAYER_ONLY = frozenset({"combat", "joust", "maze_craze", "warlords"})


@functools.lru_cache(maxsize=1)
def atari_games() -> list[str]:
    """All games of ale-py that one player can play, by their snake_case names."""
    from ale_py import roms

    return sorted(set(roms.get_all_rom_ids()) - TWO_PLAYER_ONLY)


def atari_game(env_id: str) -> str | None:
    """The Atari game that `env_id` means, or None: `pong`, `Pong`, `ALE/Pong-v5`, `PongNoFrameskip-v4` are the same.

    Only the game is taken from such an id; frame skip, sticky actions and everything else come from the config.
    """
    if ":" in env_id or _is_foreign(env_id):
        return None
    name = re.sub(r"-v\d+$", "", env_id.removeprefix("ALE/"))
    name = re.sub(r"(NoFrameskip|Deterministic)$", "", name)
    return _by_letters().get(_letters(name))


def check_trust(env_id: str, trust: bool) -> None:
    """Refuse the environment of a stored run if that would import code that the user has not named.

    The files may be a stranger's. A module that is already imported runs no code by being imported again.
    """
    module = env_id.partition(":")[0] if ":" in env_id else ""
    if module and not trust and module not in sys.modules:
        raise CheckpointError(
            f"the run's environment {env_id!r} would import the Python module {module!r}",
            "if you trust this run, add --trust (in Python trust=True, or import the module first)",
        )


def unknown_env(env_id: str) -> ConfigError:
    """The error for a name that is neither a game nor a registered environment, with similar names."""
    import gymnasium as gym

    if env_id in TWO_PLAYER_ONLY:
        return ConfigError(f"{env_id} has no mode for one player", f"the {len(atari_games())} others have one")
    others = [name for name, spec in gym.registry.items() if not _is_ale(spec.entry_point)]
    names = {_letters(game): game for game in atari_games()} | {name.lower(): name for name in others}
    wanted = re.sub(r"-v\d+$", "", env_id.removeprefix("ALE/")).lower()
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    close += [name for name in names if name.startswith(wanted + "-v") and name not in close]
    if close:
        hint = f"did you mean {', '.join(names[c] for c in close[:4])}?"
    else:
        hint = "give an Atari game (pong, breakout, ...) or a Gymnasium id (CartPole-v1, my_module:MyEnv-v0)"
    return ConfigError(f"unknown game or environment {env_id!r}", hint)


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


@functools.lru_cache(maxsize=1)
def _by_letters() -> dict[str, str]:
    return {_letters(game): game for game in atari_games()}


def _is_ale(entry_point: object) -> bool:
    return isinstance(entry_point, str) and entry_point.startswith("ale_py.")


def _is_foreign(env_id: str) -> bool:
    # A user may register their own `Pong-v1`: an id that Gymnasium knows and ale-py did not register is theirs.
    import gymnasium as gym

    spec = gym.registry.get(env_id)
    return spec is not None and not _is_ale(spec.entry_point)
