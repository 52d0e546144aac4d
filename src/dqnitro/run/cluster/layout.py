"""Another number of players: what a checkpoint holds of each, shared out again.

Environments are numbered over all players, in their order, so this is joining and dividing along the axis of the
environments: no game is lost. Each new player has random numbers of its own, drawn from where those of all players
before were. So a run is determined by its seed, its config and the chunks at which its players changed, which
metrics.jsonl records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dqnitro.errors import CheckpointError
from dqnitro.run.cluster.chunk import Chunk, from_arrays, to_arrays
from dqnitro.run.processes.player import pack_rng

RAGGED, LENGTHS = "actions", "steps"  # in the state of environments: entries, and how many are each one's


def players_in(state: Mapping[str, np.ndarray]) -> int:
    """How many players saved this."""
    k = 0
    while f"p{k}.rng" in state:
        k += 1
    return k


def shared_out_again(state: Mapping[str, np.ndarray], players: int) -> Mapping[str, np.ndarray]:
    """The state of `Crew.get_state`, as this many players would have saved it."""
    before = players_in(state)
    if before == players:
        return state
    done = {int(state[f"p{i}.done"]) for i in range(before)}
    if len(done) != 1 or any(name.startswith("leave") for name in state):
        raise CheckpointError(
            "the players were lost when this run was saved, and what they owe cannot be shared out",
            f"resume it with --players {before} first",
        )
    out = {name: np.array(state[name]) for name in ("obs", "tick", "permitted", "before") if name in state}
    games = divided_games([_below(state, f"p{i}.games.") for i in range(before)], players)
    logs = np.split(np.concatenate([_log(state, i) for i in range(before)], axis=1), players, axis=1)
    pending = np.split(np.concatenate([state[f"p{i}.pending"] for i in range(before)]), players)
    rngs = new_rngs([state[f"p{i}.rng"] for i in range(before)], players)
    for i in range(players):
        out |= {f"p{i}.games.{name}": array for name, array in games[i].items()}
        out |= {f"p{i}.log": logs[i], f"p{i}.pending": pending[i], f"p{i}.rng": rngs[i]}
        out[f"p{i}.done"] = np.array(done.copy().pop())
    for c in range(done.pop()):
        parts = [from_arrays(state, f"p{i}.chunk{c}.") for i in range(before)]
        for i, chunk in enumerate(divided_chunk(parts, rngs)):
            out |= to_arrays(chunk, f"p{i}.chunk{c}.")
    return out


def new_rngs(before: Sequence[np.ndarray], players: int) -> list[np.ndarray]:
    """Generators for new players, from the states of those before."""
    seed = np.random.SeedSequence([int(word) for words in before for word in words])
    return [pack_rng(np.random.Generator(np.random.PCG64(child))) for child in seed.spawn(players)]


def divided_games(games: Sequence[Mapping[str, np.ndarray]], players: int) -> list[dict[str, np.ndarray]]:
    """States of environments, for each of so many players."""
    if not any(games):  # none is kept yet: they begin with the first game
        return [{} for _ in range(players)]
    whole = {name: np.concatenate([g[name] for g in games]) for name in games[0]}
    out: list[dict[str, np.ndarray]] = [{} for _ in range(players)]
    for name, array in whole.items():
        parts = np.split(array, players) if name != RAGGED else _ragged(array, whole[LENGTHS], players)
        for mine, part in zip(out, parts, strict=True):
            mine[name] = part
    return out


def divided_chunk(parts: Sequence[Chunk], rngs: Sequence[np.ndarray]) -> list[Chunk]:
    """A chunk that was played by some players, as if others had played it."""
    players, firsts = len(rngs), np.cumsum([0] + [p.action.shape[1] for p in parts])
    n = int(firsts[-1])
    joined = {
        name: np.concatenate([getattr(p, name) for p in parts], axis=1)
        for name in Chunk._fields
        if name not in ("whole_at", "whole", "rng", "crc", "seconds")
    }
    whole_at = np.concatenate([p.whole_at + np.array([0, first]) for p, first in zip(parts, firsts[:-1], strict=True)])
    whole, crc = np.concatenate([p.whole for p in parts]), np.concatenate([p.crc for p in parts])
    order = np.argsort(whole_at[:, 0], kind="stable")  # by vector step
    whole_at, whole = whole_at[order], whole[order]
    out, m = [], n // players
    for i, rng in enumerate(rngs):
        mine = slice(i * m, (i + 1) * m)
        of_mine = (whole_at[:, 1] >= mine.start) & (whole_at[:, 1] < mine.stop)
        out.append(
            Chunk(
                **{name: array[:, mine].copy() for name, array in joined.items()},
                whole_at=whole_at[of_mine] - np.array([0, mine.start]), whole=whole[of_mine], rng=rng,
                crc=crc[mine].copy(),
                seconds=np.mean([p.seconds for p in parts], axis=0),
            )
        )  # fmt: skip
    return out


def _below(state: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def _log(state: Mapping[str, np.ndarray], i: int) -> np.ndarray:
    m = len(state[f"p{i}.pending"])
    return np.array(state[f"p{i}.log"], np.int64).reshape(-1, m)


def _ragged(array: np.ndarray, lengths: np.ndarray, players: int) -> list[np.ndarray]:
    ends = np.concatenate([[0], np.cumsum(lengths)])
    m = len(lengths) // players
    return [array[ends[i * m] : ends[(i + 1) * m]] for i in range(players)]
