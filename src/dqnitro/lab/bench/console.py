"""How fast is the console? `AtariVec` against ale-py's `AtariVectorEnv` and, where it is installed, EnvPool.

Same games, same options, same number of threads, in turns in one process: a machine that slows down slows all of
them, so the ratios hold even where the rates do not. Steps are the agent's (4 frames at the default options), and
new games are part of the time, as they are in training.

How much faster more threads are is measured in the same rounds, beside what the machine allows: as many environments as
threads, each with its share of the machines and a thread of its own, which have nothing to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dqnitro.common.host import usable_cores
from dqnitro.common.intervals import mean_interval, ratio_interval
from dqnitro.lab.interleave import interleave, timed_rate

OURS, ALE, ENVPOOL = "AtariVec", "AtariVectorEnv", "EnvPool"
ALLOWED = "independent"  # AtariVec, one environment for each thread
# paddles and joysticks, simple and busy screens, 2K to 8K cartridges
GAMES = ("pong", "breakout", "space_invaders", "seaquest", "beam_rider", "qbert", "enduro", "ms_pacman", "freeway",
         "asterix", "montezuma_revenge", "boxing")  # fmt: skip
TABLE_HEAD = "| game | threads | AtariVec steps/s | AtariVectorEnv steps/s | EnvPool steps/s | vs the faster peer |"
SCALING_HEAD = "| game | threads | AtariVec | AtariVectorEnv | EnvPool | independent AtariVecs: what the cores allow |"

Rate = Callable[[float], float]
Rates = dict[str, list[float]]


class Racer(NamedTuple):
    """A contender and how to end it."""

    rate: Rate
    close: Callable[[], object]


def ours(game: str, num_envs: int, threads: int) -> Any:
    from dqnitro.atari import AtariVec

    return AtariVec(game, num_envs, num_threads=threads)


def ale(game: str, num_envs: int, threads: int) -> Any:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py.AtariVectorEnv(game, num_envs, num_threads=threads)


def envpool(game: str, num_envs: int, threads: int) -> Any:
    """EnvPool with the same options; raises ImportError if it is not installed."""
    import envpool as pool  # type: ignore[import-not-found]

    return pool.make(
        f"{game.title().replace('_', '')}-v5", env_type="gymnasium", num_envs=num_envs, num_threads=threads, seed=0,
        stack_num=4, frame_skip=4, img_height=84, img_width=84, noop_max=30, episodic_life=False, reward_clip=True,
        use_fire_reset=True, repeat_action_probability=0.0, full_action_space=False, max_episode_steps=27_000,
    )  # fmt: skip


MAKERS: dict[str, Callable[[str, int, int], Any]] = {OURS: ours, ALE: ale, ENVPOOL: envpool}


def contenders(game: str, num_envs: int, threads: int, skipped: dict[str, str]) -> dict[str, Racer]:
    """A function per environment that steps it for some seconds with random actions and returns steps per second.

    Who cannot run here is in `skipped`, with the reason.
    """
    out: dict[str, Racer] = {}
    for name, make in MAKERS.items():
        try:
            out[name] = racer(make(game, num_envs, threads), num_envs, seeded=name != ENVPOOL)
        except (ImportError, OSError) as e:  # not installed, or installed without its ROMs
            skipped[name] = f"not installed here ({e}). hint: pip install -c constraints.txt -e '.[peers]'"
    return out


def racer(env: Any, num_envs: int, seeded: bool) -> Racer:
    n_actions = env.single_action_space.n if seeded else env.action_space.n
    return Racer(_stepper(env, num_envs, int(n_actions), seeded), env.close)


def independent(game: str, num_envs: int, threads: int) -> Racer:
    """The most that the machine allows: environments that share nothing, one per thread, all at once."""
    share = max(1, num_envs // threads)
    parts = [racer(ours(game, share, 1), share, seeded=True) for _ in range(threads)]

    def rate(seconds: float) -> float:
        rates, together = [0.0] * threads, threading.Barrier(threads)

        def work(k: int) -> None:
            together.wait()
            rates[k] = parts[k].rate(seconds)

        helpers = [threading.Thread(target=work, args=(k,)) for k in range(1, threads)]
        for helper in helpers:
            helper.start()
        work(0)
        for helper in helpers:
            helper.join()
        return sum(rates)

    return Racer(rate, lambda: [part.close() for part in parts])


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
    """Plain data: a row per game and thread count, the geometric mean of the ratios per thread count, and the scaling.

    `seconds` is the time of one contender in one round.
    """
    counts, skipped = sorted(set(threads)), {}
    rows: list[dict[str, Any]] = []
    scaling: list[dict[str, Any]] = []
    for game in games:
        progress(f"{game}, {' and '.join(map(str, counts))} thread{'s' if counts != [1] else ''}")
        rates = race(game, num_envs, counts, rounds, seconds, skipped)
        rows += [_row(game, count, {n: r for n, r in rates[count].items() if n != ALLOWED}) for count in counts]
        if counts[0] == 1:
            scaling += [_scaling_row(game, count, rates[1], rates[count]) for count in counts[1:]]
    rows.sort(key=lambda r: r["threads"])
    return {
        "unit": "steps per second",
        "num_envs": num_envs,
        "rounds": rounds,
        "seconds": seconds,
        "cores": usable_cores(),
        "rows": rows,
        "geomean": _geomeans(rows),
        "scaling": scaling,
        "scaling_geomean": _scaling_geomeans(scaling),
        "skipped": skipped,
    }


def race(
    game: str, num_envs: int, counts: Sequence[int], rounds: int, seconds: float, skipped: dict[str, str]
) -> dict[int, Rates]:
    """All contenders with every number of threads, in the same rounds: rates by threads and name."""
    racers: dict[tuple[int, str], Racer] = {}
    for count in counts:
        racers |= {(count, name): one for name, one in contenders(game, num_envs, count, skipped).items()}
        if count > 1 and counts[0] == 1:
            racers[count, ALLOWED] = independent(game, num_envs, count)
    keys = {f"{name}, {count}": (count, name) for count, name in racers}
    rates: dict[int, Rates] = {count: {} for count in counts}
    for _, key, rate in interleave({key: racers[keys[key]].rate for key in keys}, rounds, seconds):
        count, name = keys[key]
        rates[count].setdefault(name, []).append(rate)
    for one in racers.values():
        one.close()
    return rates


def _scaling_row(game: str, threads: int, single: Rates, many: Rates) -> dict[str, Any]:
    """Speed relative to one thread: each contender, and `ALLOWED` relative to `AtariVec` with one thread."""
    times = {name: ratio_interval(many[name], single[name])._asdict() for name in single if name in many}
    times[ALLOWED] = ratio_interval(many[ALLOWED], single[OURS])._asdict()
    return {"game": game, "threads": threads, "times": times}


def _scaling_geomeans(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Per thread count and contender: the geometric mean over games."""
    out: dict[int, dict[str, Any]] = {}
    for threads in sorted({r["threads"] for r in rows}):
        of = [r["times"] for r in rows if r["threads"] == threads]
        names = {name: None for times in of for name in times}
        out[threads] = {name: _geomean([times[name]["mean"] for times in of if name in times]) for name in names}
    return out


def _geomean(values: Sequence[float]) -> dict[str, Any]:
    """Geometric mean of ratios with its interval."""
    i = mean_interval([float(np.log(v)) for v in values])
    return {"mean": float(np.exp(i.mean)), "low": float(np.exp(i.low)), "high": float(np.exp(i.high)), "n": i.n}


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
        of = [r for r in rows if r["threads"] == threads and "faster_peer" in r]
        if of:
            out[threads] = _geomean([r["ratios"][r["faster_peer"]]["mean"] for r in of])
    return out


def table(result: dict[str, Any]) -> str:
    """The result as Markdown tables, with the reasons for what was not measured."""
    lines = [TABLE_HEAD, "| --- | --- | --- | --- | --- | --- |"]
    for r in result["rows"]:
        rates = [f"{r['rates'][name]:,.0f}" if name in r["rates"] else "-" for name in (OURS, ALE, ENVPOOL)]
        ratio = _times(r["ratios"].get(r.get("faster_peer", "")))
        lines.append(f"| {r['game']} | {r['threads']} | {' | '.join(rates)} | {ratio} |")
    for threads, g in result["geomean"].items():
        lines.append(f"| **geometric mean** | {threads} | | | | **{_times(g)} (n={g['n']} games)** |")
    if result["scaling"]:
        lines += ["", "Speed relative to one thread:", "", SCALING_HEAD, "| --- | --- | --- | --- | --- | --- |"]
        means = [{"game": "**geometric mean**", "threads": t, "times": g} for t, g in result["scaling_geomean"].items()]
        for r in result["scaling"] + means:
            cells = [_times(r["times"].get(name)) for name in (OURS, ALE, ENVPOOL, ALLOWED)]
            lines.append(f"| {r['game']} | {r['threads']} | {' | '.join(cells)} |")
    for name, why in result["skipped"].items():
        lines += ["", f"{name}: {why}"]
    return "\n".join(lines)


def _times(interval: dict[str, Any] | None) -> str:
    return f"{interval['mean']:.2f}x [{interval['low']:.2f}, {interval['high']:.2f}]" if interval else "-"
