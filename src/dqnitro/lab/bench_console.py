"""How fast is the console? `AtariVec` against ale-py's `AtariVectorEnv` and, where it is installed, EnvPool.

Same games, same options, same number of threads, in turns in one process: a machine that slows down slows all of
them, so the ratios hold even where the rates do not. Steps are the agent's (4 frames at the default options), and
new games are part of the time, as they are in training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dqnitro.lab.measure import interleave, timed_rate
from dqnitro.lab.statistics import mean_interval, ratio_interval

OURS, ALE, ENVPOOL = "AtariVec", "AtariVectorEnv", "EnvPool"
# paddles and joysticks, quiet and busy screens, 2K to 8K cartridges
GAMES = ("pong", "breakout", "space_invaders", "seaquest", "beam_rider", "qbert", "enduro", "ms_pacman", "freeway",
         "asterix", "montezuma_revenge", "boxing")  # fmt: skip
TABLE_HEAD = "| game | threads | AtariVec steps/s | AtariVectorEnv steps/s | EnvPool steps/s | vs the faster peer |"


def ours(game: str, num_envs: int, threads: int) -> Any:
    from dqnitro.atari import AtariVec

    return AtariVec(game, num_envs, num_threads=threads)


def ale(game: str, num_envs: int, threads: int) -> Any:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py.AtariVectorEnv(game, num_envs, num_threads=threads)


def envpool(game: str, num_envs: int, threads: int) -> Any:
    """EnvPool at the same options; raises ImportError where it is not installed."""
    import envpool as pool  # type: ignore[import-not-found]

    return pool.make(
        f"{game.title().replace('_', '')}-v5", env_type="gymnasium", num_envs=num_envs, num_threads=threads, seed=0,
        stack_num=4, frame_skip=4, img_height=84, img_width=84, noop_max=30, episodic_life=False, reward_clip=True,
        use_fire_reset=True, repeat_action_probability=0.0, full_action_space=False, max_episode_steps=27_000,
    )  # fmt: skip


MAKERS: dict[str, Callable[[str, int, int], Any]] = {OURS: ours, ALE: ale, ENVPOOL: envpool}


def contenders(game: str, num_envs: int, threads: int) -> dict[str, Callable[[float], float]]:
    """A function per environment that steps it for some seconds with random actions and returns steps per second."""
    out: dict[str, Callable[[float], float]] = {}
    for name, make in MAKERS.items():
        try:
            env = make(game, num_envs, threads)
        except (ImportError, OSError):  # not installed, or installed without its ROMs
            continue
        n_actions = env.action_space.n if name == ENVPOOL else env.single_action_space.n
        out[name] = _stepper(env, num_envs, int(n_actions), seeded=name != ENVPOOL)
    return out


def _stepper(env: Any, num_envs: int, n_actions: int, seeded: bool) -> Callable[[float], float]:
    actions = np.random.default_rng(0).integers(0, n_actions, (64, num_envs))
    if seeded:
        env.reset(seed=0)
    else:
        env.reset()
        actions = actions.astype(np.int32)
    count = 0

    def step() -> float:
        nonlocal count
        env.step(actions[count % 64])
        count += 1
        return num_envs

    for _ in range(5):  # the first steps touch fresh memory
        step()
    return lambda seconds: timed_rate(step, seconds)


def bench_console(
    games: Sequence[str] = GAMES,
    threads: Iterable[int] = (1, 2),
    seconds: float = 1.0,
    rounds: int = 5,
    num_envs: int = 32,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Plain data: a row per game and thread count, and the geometric mean of the ratios per thread count.

    `seconds` is the time of one contender in one round.
    """
    rows: list[dict[str, Any]] = []
    for count in threads:
        for game in games:
            progress(f"{game}, {count} thread{'s' if count > 1 else ''}")
            racers = contenders(game, num_envs, count)
            rates: dict[str, list[float]] = {name: [] for name in racers}
            for _, name, rate in interleave(racers, rounds, seconds):
                rates[name].append(rate)
            rows.append(_row(game, count, rates))
    return {
        "unit": "steps per second",
        "num_envs": num_envs,
        "rounds": rounds,
        "seconds": seconds,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "rows": rows,
        "geomean": _geomeans(rows),
    }


def _row(game: str, threads: int, rates: dict[str, list[float]]) -> dict[str, Any]:
    mean = {name: float(np.mean(values)) for name, values in rates.items()}
    peers = {name: v for name, v in mean.items() if name != OURS}
    row: dict[str, Any] = {"game": game, "threads": threads, "rates": mean, "rounds": rates, "ratios": {}}
    for peer in peers:
        row["ratios"][peer] = ratio_interval(rates[OURS], rates[peer])._asdict()
    if peers:
        row["faster_peer"] = max(peers, key=lambda name: peers[name])
    return row


def _geomeans(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Per thread count: the geometric mean over games of the ratio to each game's faster peer, games resampled."""
    out: dict[int, dict[str, Any]] = {}
    for threads in sorted({r["threads"] for r in rows}):
        logs = [
            float(np.log(r["ratios"][r["faster_peer"]]["mean"]))
            for r in rows
            if r["threads"] == threads and "faster_peer" in r
        ]
        if logs:
            i = mean_interval(logs)
            out[threads] = {
                "mean": float(np.exp(i.mean)),
                "low": float(np.exp(i.low)),
                "high": float(np.exp(i.high)),
                "n": i.n,
            }
    return out


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown table; only what was measured."""
    lines = [TABLE_HEAD, "| --- | --- | --- | --- | --- | --- |"]
    for r in result["rows"]:
        rates = [f"{r['rates'][name]:,.0f}" if name in r["rates"] else "-" for name in (OURS, ALE, ENVPOOL)]
        ratio = r["ratios"].get(r.get("faster_peer", ""))
        text = f"{ratio['mean']:.2f}x [{ratio['low']:.2f}, {ratio['high']:.2f}]" if ratio else "-"
        lines.append(f"| {r['game']} | {r['threads']} | {' | '.join(rates)} | {text} |")
    for threads, g in result["geomean"].items():
        text = f"{g['mean']:.2f}x [{g['low']:.2f}, {g['high']:.2f}] (n={g['n']} games)"
        lines.append(f"| **geometric mean** | {threads} | | | | **{text}** |")
    return "\n".join(lines)
