"""`dqnitro compare`: is the difference between two runs (or two groups of runs) real, or noise?

Scores are compared over games that ended in the same window of steps, speeds over equal intervals of time. The interval
of the difference tells how large it is, a rank test whether it could be chance; only if both agree is it called real.
With one run per side the answer is about these two runs; for the effect of a recipe give several seeds per side, and
each run counts once.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dqnitro.common.intervals import ANYTHING, FEW, Interval, Range, mean_interval
from dqnitro.envs import possible_scores
from dqnitro.errors import ConfigError
from dqnitro.lab.store import header
from dqnitro.store.read_run import Run, read_run, run_folders

BLOCK_S = 10.0  # neighbouring seconds of a run are correlated; blocks of this length hardly are
FEWEST = 4  # values per side that a rank test needs
LEVEL = 0.05


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    name: str
    runs: list[Run]


def read_side(text: str) -> Side:
    """The folder of a run or of several seeds, or several of these separated by commas."""
    paths = [pathlib.Path(t.strip()) for t in text.split(",") if t.strip()]
    if not paths:
        raise ConfigError("no run was given", "give the folder of a run; `dqnitro runs` lists the stored runs")
    runs = [read_run(folder) for p in paths for folder in run_folders(p)]
    if not runs:
        raise ConfigError(f"{text} has no runs yet", "none of its seeds has started")
    return Side(text, runs)


def shared_window(sides: Sequence[Side], share: float = 0.25) -> tuple[float, float]:
    """The last quarter (`share`) of the steps that all runs have in common."""
    ends = [max((s for s in r.metrics.game["steps"]), default=0.0) for side in sides for r in side.runs]
    end = min(ends)
    if end <= 0:
        raise ConfigError("one of the runs has not finished a game", "let it play longer, or compare other runs")
    return end * (1 - share), end


def scores_in(run: Run, window: tuple[float, float]) -> list[float]:
    g = run.metrics.game
    pairs = zip(g["steps"], g["score"], strict=True)
    return [score for steps, score in pairs if window[0] <= steps <= window[1] and math.isfinite(score)]


def speed_blocks(run: Run) -> list[float]:
    """Steps a second over blocks of BLOCK_S seconds (shorter ones for short runs), after the first update."""
    p = run.metrics.progress
    points = [
        (w, s) for w, s, u in zip(p["wall_s"], p["steps"], p["updates"], strict=True)
        if math.isfinite(w) and math.isfinite(s) and u > 0
    ]  # fmt: skip
    if len(points) < 2:
        return []
    length = min(BLOCK_S, (points[-1][0] - points[0][0]) / (2 * FEWEST))
    out, begin = [], points[0]
    for w, s in points[1:]:
        if w - begin[0] >= length > 0:
            out.append((s - begin[1]) / (w - begin[0]))
            begin = (w, s)
    return out


def values_of(side: Side, per_run: Sequence[list[float]], word: str, each_once: bool) -> list[float]:
    """The values of a single run, or one mean per run: values of one run are not independent evidence for its
    recipe.
    """
    empty = [str(r.path) for r, v in zip(side.runs, per_run, strict=True) if not v]
    if empty:
        raise ConfigError(f"{empty[0]} has no {word} to compare", "give a wider --window, or let it run longer")
    return [float(np.mean(v)) for v in per_run] if each_once else list(per_run[0])


def difference(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Interval:
    """Mean of b minus mean of a, 95%: Welch's t for few values, the bootstrap for many."""
    x, y = np.asarray(a, float), np.asarray(b, float)
    mean, n = float(y.mean() - x.mean()), min(len(x), len(y))
    if n < 2 or (np.ptp(x) == 0 and np.ptp(y) == 0):
        return Interval(mean, mean, mean, n)
    if n < FEW:
        from scipy.stats import ttest_ind

        ci = ttest_ind(y, x, equal_var=False).confidence_interval(0.95)
        return Interval(mean, float(ci.low), float(ci.high), n)
    from scipy.stats import bootstrap

    r = bootstrap(
        (y, x), lambda p, q, axis=-1: np.mean(p, axis=axis) - np.mean(q, axis=axis), method="percentile",
        n_resamples=5000, rng=np.random.default_rng(seed), vectorized=True,
    )  # fmt: skip
    return Interval(mean, float(r.confidence_interval.low), float(r.confidence_interval.high), n)


def rank_test(a: Sequence[float], b: Sequence[float]) -> float | None:
    """p-value of the Mann-Whitney test, two-sided; None for too few values."""
    if min(len(a), len(b)) < FEWEST:
        return None
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(a, b, alternative="two-sided").pvalue)


def judge(a: Sequence[float], b: Sequence[float], *, within: Range = ANYTHING) -> dict[str, Any]:
    """Means, difference, rank test and verdict: real, noise, or too little to say."""
    d, p = difference(a, b), rank_test(a, b)
    if p is None:
        word = "too little to say"
    elif p < LEVEL and (d.low > 0 or d.high < 0):
        word = "real"
    else:
        word = "noise"
    means = [mean_interval(side, within=within) for side in (a, b)]
    return {"means": means, "difference": d, "p_value": p, "verdict": word}


def sentence(what: str, unit: str, names: tuple[str, str], j: dict[str, Any]) -> str:
    """A judgement in words."""
    a, b = j["means"]
    d, p = j["difference"], j["p_value"]
    figures = f"{a.mean:,.1f} and {b.mean:,.1f} {unit}, difference {d.mean:+,.1f}"
    figures += f" [{d.low:+,.1f}, {d.high:+,.1f}]" if d.n > 1 else ""  # one value has no interval
    if p is None:
        n = min(a.n, b.n)
        values = "one value" if n == 1 else f"{n} values"
        return f"{what}: too little to say ({figures}; {values} per side, a rank test needs {FEWEST})"
    chance = f"a rank test gives p = {p:.2g}"
    if j["verdict"] == "real":
        better = names[1] if d.mean > 0 else names[0]
        return f"{what}: the difference is real, {better} is higher ({figures}; {chance})"
    return f"{what}: the difference may be noise ({figures}; {chance})"


def compare_runs(left: str, right: str, window: tuple[float, float] | None = None) -> dict[str, Any]:
    """Both sides' scores in the same window of steps, and their speeds; with a verdict in words."""
    sides = [read_side(left), read_side(right)]
    games = {r.env_id for side in sides for r in side.runs}
    if len(games) > 1:
        raise ConfigError(f"these runs play different games: {', '.join(sorted(games))}", "compare runs of one game")
    window = window or shared_window(sides)
    names = (short(sides[0]), short(sides[1]))
    each_once = any(len(s.runs) > 1 for s in sides)
    scores = [values_of(s, [scores_in(r, window) for r in s.runs], "game in the window", each_once) for s in sides]
    score = judge(*scores, within=possible_scores(sides[0].runs[0].env_id))
    said = [sentence("score", "points", names, score)]
    blocks = [[speed_blocks(r) for r in s.runs] for s in sides]
    speed = None
    if all(b for side in blocks for b in side):
        speed = judge(*(values_of(s, b, "speed", each_once) for s, b in zip(sides, blocks, strict=True)))
        said.append(sentence("speed", "steps/s", names, speed))
    said += caveats(sides)
    result = header("compare", games.pop(), window_steps=list(window))
    result["runs"] = [
        {"name": side.name, "runs": [str(r.path) for r in side.runs], "recipe": side.runs[0].recipe,
         "scores": score["means"][i], "fps": speed["means"][i] if speed else None}
        for i, side in enumerate(sides)
    ]  # fmt: skip
    return result | {
        "verdict": said[0], "sentences": said, "p_value": score["p_value"], "difference": score["difference"],
        "score": score, "speed": speed, "values": "runs" if each_once else "games",
    }  # fmt: skip


def short(side: Side) -> str:
    """The name of a side in a sentence."""
    return side.runs[0].path.name or str(side.runs[0].path)


def caveats(sides: Sequence[Side]) -> list[str]:
    """What the figures cannot tell."""
    out = []
    if any(len(s.runs) == 1 for s in sides):
        out.append(
            "one run per side: this is about these runs; "
            "for the effect of a setting give several seeds per side (A,B,C D,E,F)"
        )
    machines = {(r.machine.get("cpu"), r.machine.get("cores"), r.machine.get("gpu")) for s in sides for r in s.runs}
    if len(machines) > 1:
        out.append("the runs come from different machines: their speeds tell nothing about the settings")
    else:
        out.append(
            "other load on the machine affects speeds of runs at different times; `dqnitro ladder` takes turns instead"
        )
    return out
