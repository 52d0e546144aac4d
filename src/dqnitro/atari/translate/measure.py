"""How much faster is a translated game? `python -m dqnitro.atari.translate.measure [--games ...] [--out FILE]`

Two environments of each game, one translated and one interpreted, take turns on one thread, so that a machine with
other work slows both. CPU time is compared, not time on the clock. Two ways of playing are measured: an agent's steps
(84x84 observations, four frames a step), and frames that nobody sees, which is the CPU and the collisions alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np

from ..chips.layout import S_LATCH
from ..console import Console
from ..games import game_table
from ..vec import AtariVec
from .program import Request

GAMES = (
    "pong breakout qbert seaquest space_invaders beam_rider ms_pacman enduro asterix battle_zone freeway name_this_game"
)
ENVS = 8


def _turns(rounds: int, *plays: Callable[[], None], before: Callable[[], None] | None = None) -> list[list[float]]:
    """CPU seconds of each, in turns; `before` each round, something that does not count."""
    spent: list[list[float]] = [[] for _ in plays]
    for _ in range(rounds):
        if before is not None:
            before()
        for play, times in zip(plays, spent, strict=True):
            began = time.process_time()
            play()
            times.append(time.process_time() - began)
    return spent


def _ratio(spent: list[list[float]]) -> float:
    interpreted, translated = spent
    return statistics.median(a / b for a, b in zip(interpreted, translated, strict=True))


def _environment(game: str, translated: bool) -> AtariVec:
    env = AtariVec(game, ENVS, num_threads=1)
    _choose(env.translation, translated)
    env.reset(seed=1)
    return env


def _choose(translation: Request, translated: bool) -> None:
    if translated:
        translation.translate()
    else:
        translation.interpret()
    assert translation.granted == translated


def measure(game: str, rounds: int, steps: int) -> dict[str, Any]:
    """The ratios of one game: interpreted time over translated time."""
    name = game_table.game(game).name
    began = time.process_time()
    environments = [_environment(name, translated) for translated in (False, True)]
    start = time.process_time() - began
    actions = len(environments[0].game.actions)
    drawn = np.random.default_rng(0).integers(0, actions, (steps, ENVS))

    def stepping(env: AtariVec) -> Callable[[], None]:
        def play() -> None:
            for row in drawn:
                env.step(row)

        return play

    consoles = [Console(name, n=ENVS) for _ in range(2)]
    for console, translated in zip(consoles, (False, True), strict=True):
        _choose(console.translation, translated)

    def unseen(console: Console) -> Callable[[], None]:
        def play() -> None:
            for k in range(4 * steps):
                console.act(k // 8 % 6, draw=False)

        return play

    def new_games() -> None:  # one that has ended plays no frames
        for console in consoles:
            console.reset()

    seen = _turns(rounds, *(stepping(env) for env in environments))
    states = [env.get_state() for env in environments]
    for state in states:
        state["state"][:, S_LATCH] = 0  # the last byte on the bus: only the reference keeps it
    differ = [key for key in states[0] if not np.array_equal(states[0][key], states[1][key])]
    blind = _turns(rounds, *(unseen(console) for console in consoles), before=new_games)
    for env in environments:
        env.close()
    return {
        "game": name,
        "step": round(_ratio(seen), 3),
        "frame": round(_ratio(blind), 3),
        "step_us": [round(1e6 * statistics.median(times) / steps / ENVS, 1) for times in seen],
        "frame_us": [round(1e6 * statistics.median(times) / steps / 4 / ENVS, 1) for times in blind],
        "step_rounds": [round(a / b, 3) for a, b in zip(*seen, strict=True)],
        "start_cpu_s": round(start, 2),
        "states_differ_in": differ,  # after all steps
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", nargs="+", default=GAMES.split())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60, help="of each environment in a turn")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    rows = []
    for game in chosen.games:
        rows.append(measure(game, chosen.rounds, chosen.steps))
        row = rows[-1]
        wrong = f"  DIFFERENT: {', '.join(row['states_differ_in'])}" if row["states_differ_in"] else ""
        print(f"{row['game']:16} step {row['step']:.2f}x  frame without picture {row['frame']:.2f}x{wrong}", flush=True)
    means = {kind: round(statistics.geometric_mean(row[kind] for row in rows), 3) for kind in ("step", "frame")}
    print(f"geometric mean   step {means['step']:.2f}x  frame without picture {means['frame']:.2f}x")
    if chosen.out is not None:
        result = {
            "title": "Translated games against interpreted ones",
            "protocol": f"CPU time, in turns, {chosen.rounds} rounds of {chosen.steps} steps, {ENVS} consoles, one "
            "thread; "
            "medians of interpreted over translated; other programs ran beside it: ratios only",
            "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
            "versions": {"python": platform.python_version(), "numba": numba.__version__, "numpy": np.__version__,
                         "llvmlite": llvmlite.__version__},
            "commit": _commit(),
            "command": f"python -m dqnitro.atari.translate.measure --rounds {chosen.rounds} --steps {chosen.steps}",
            "geometric_mean": means,
            "rows": rows,
        }  # fmt: skip
        chosen.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
