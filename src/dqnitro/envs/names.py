"""The names that users may give a game, and the game that they mean."""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
import sys
import urllib.parse
from typing import Any

from dqnitro import own
from dqnitro.config import Config
from dqnitro.errors import CheckpointError, ConfigError

# These cartridges have no mode for one player.
TWO_PLAYER_ONLY = frozenset({"combat", "joust", "maze_craze", "warlords"})

# The lowest and highest score of a whole game, where the rules of the game set them.
SCORES = {
    "pong": (-21.0, 21.0), "boxing": (-100.0, 100.0), "CartPole-v0": (0.0, 200.0), "CartPole-v1": (0.0, 500.0),
    "Acrobot-v1": (-500.0, 0.0), "MountainCar-v0": (-200.0, 0.0),
}  # fmt: skip


def possible_scores(env_id: str) -> tuple[float, float]:
    """Between which bounds every score of a whole game lies; infinite ones where none are known."""
    return SCORES.get(atari_game(env_id) or env_id, (-math.inf, math.inf))


@functools.lru_cache(maxsize=1)
def atari_games() -> list[str]:
    """All games of ale-py that one player can play, by their snake_case names."""
    from ale_py import roms

    return sorted(set(roms.get_all_rom_ids()) - TWO_PLAYER_ONLY)


def atari_game(env_id: str) -> str | None:
    """The Atari game that `env_id` means, or None: `pong`, `Pong`, `ALE/Pong-v5`, `PongNoFrameskip-v4` are the same.

    Only the game is taken from such an id; frame skip, sticky actions and everything else come from the config.
    """
    env_id = env_id.removeprefix("dqnitro.atari:")
    if ":" in env_id or _is_foreign(env_id):
        return None
    name = re.sub(r"-v\d+$", "", env_id.removeprefix("ALE/").removeprefix("DQNitro/"))
    name = re.sub(r"(NoFrameskip|Deterministic)$", "", name)
    return _by_letters().get(_letters(name))


def _pieces(config: Config) -> dict[str, str]:
    """The names of what may be the user's own code, by kind."""
    return {"env": split_kwargs(config.env_id)[0], **{kind: str(getattr(config, kind, "")) for kind in own.KINDS}}


def know_pieces(config: Config) -> None:
    """The user asks for this config: running its pieces is their wish."""
    for kind, name in _pieces(config).items():
        own.know(kind, name)


def check_trust(config: Config, trust: bool) -> None:
    """Refuse the pieces of a stored run that are code which the user has not named: the files may be a stranger's.

    An id that a module has already registered runs nothing new. A function does, whether or not its module is imported.
    """
    import gymnasium as gym

    for kind, name in _pieces(config).items():
        module, _, path = name.partition(":")
        harmless = not path or name.startswith(own.LOCAL) or own.is_known(kind, name)
        if trust or harmless or (kind == "env" and module in sys.modules and path in gym.registry):
            continue
        raise CheckpointError(
            f"the run's {'environment' if kind == 'env' else kind} {name!r} would import the Python module {module!r}",
            "if you trust this run, add --trust (in Python trust=True, or import the module first)"
            if kind == "env" and "-v" in path
            else "if you trust this run, add --trust (in Python trust=True)",
        )


def _made_in(module: str) -> list[str]:
    """The environments of an imported module: ids that it registered, and its classes."""
    import gymnasium as gym

    def home(spec: Any) -> str:
        point = spec.entry_point
        return point.partition(":")[0] if isinstance(point, str) else str(getattr(point, "__module__", ""))

    ids = [name for name, spec in gym.registry.items() if home(spec) == module]
    classes = [
        name for name, found in vars(sys.modules[module]).items()
        if isinstance(found, type) and issubclass(found, gym.Env) and found.__module__ == module
    ]  # fmt: skip
    return [f"{module}:{name}" for name in ids + classes]


def unknown_env(env_id: str) -> ConfigError:
    """The error for a name that is neither a game nor a registered environment, with similar names."""
    import gymnasium as gym

    if env_id in TWO_PLAYER_ONLY:
        return ConfigError(f"{env_id} has no mode for one player", f"the {len(atari_games())} others have one")
    module, _, name = env_id.partition("?")[0].rpartition(":")
    if module in sys.modules:
        there = _made_in(module)
        hint = f"it has {', '.join(there[:4])}" if there else "write make_env() there, or register an id with Gymnasium"
        return ConfigError(f"module {module!r} neither has {name!r} nor registers it with Gymnasium", hint)
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


def with_kwargs(env_id: str, kwargs: dict[str, Any]) -> str:
    """The environment with these arguments, as one name: `FrozenLake-v1?is_slippery=false`. TypeError: not JSON."""
    if not kwargs:
        return env_id
    name, before = split_kwargs(env_id)
    texts = {k: v if isinstance(v, str) and _plain(v) == v else json.dumps(v) for k, v in (before | kwargs).items()}
    return f"{name}?{urllib.parse.urlencode(texts, quote_via=urllib.parse.quote)}"


def split_kwargs(env_id: str) -> tuple[str, dict[str, Any]]:
    """A name without its arguments, and those; values are JSON, and text where they are not."""
    name, _, query = env_id.partition("?")
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
    return name, {key: _plain(value) for key, value in pairs}


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


@functools.lru_cache(maxsize=1)
def _by_letters() -> dict[str, str]:
    return {_letters(game): game for game in atari_games()}


def _is_ale(entry_point: object) -> bool:
    return isinstance(entry_point, str) and entry_point.startswith(("ale_py.", "dqnitro.atari."))


def _is_foreign(env_id: str) -> bool:
    # A user may register their own `Pong-v1`: an id that Gymnasium knows and ale-py did not register is theirs.
    import gymnasium as gym

    spec = gym.registry.get(env_id)
    return spec is not None and not _is_ale(spec.entry_point)
