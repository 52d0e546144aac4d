"""Scores of many games in one number, as rliable defines them (Agarwal et al. 2021), and the Atari-5 estimate.

`scores` is a list per game of a value per seed: human-normalised scores, 0 for random play and 1 for a human tester.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dqnitro.common.intervals import Interval

PerGame = Sequence[Sequence[float]]  # a list per game of a value per seed
Statistic = Callable[[PerGame], float]
RESAMPLES = 2_000
# Aitchison et al. 2023, appendix E: weights of log10(1 + score in per cent) that predict the median of 57 games.
ATARI5 = {
    "battle_zone": 0.3820, "name_this_game": 0.3108, "phoenix": 0.1241, "qbert": 0.0805, "double_dunk": 0.0679,
}  # fmt: skip


def median(scores: PerGame) -> float:
    """The median over games of the mean over seeds."""
    return float(np.median([np.mean(game) for game in scores]))


def mean(scores: PerGame) -> float:
    """The mean over games of the mean over seeds."""
    return float(np.mean([np.mean(game) for game in scores]))


def iqm(scores: PerGame) -> float:
    """The interquartile mean: of all runs of all games, without the lowest and the highest quarter."""
    runs = np.sort(np.concatenate([np.asarray(game, np.float64) for game in scores]))
    cut = len(runs) // 4
    return float(runs[cut : len(runs) - cut].mean())


def above_human(scores: PerGame) -> int:
    """Games whose mean over seeds is that of a human, or better."""
    return sum(float(np.mean(game)) >= 1.0 for game in scores)


def bootstrap(
    scores: PerGame, statistic: Statistic, games: bool = False, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """A statistic with its 95% interval, by the stratified bootstrap: the seeds of each game are resampled with
    replacement (`games`: and so are the games), and the interval is that between the percentiles 2.5 and 97.5.

    With one seed a game there is nothing to resample but games: without `games` the interval has no width.
    """
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(game, np.float64) for game in scores]
    n = resamples if games or any(len(a) > 1 for a in arrays) else 1
    if len({len(a) for a in arrays}) == 1 and statistic in AT_ONCE:
        found = AT_ONCE[statistic](_resampled(np.stack(arrays), games, n, rng))
    else:
        found = np.array([statistic(_resample(arrays, games, rng)) for _ in range(n)])
    low, high = np.percentile(found, (2.5, 97.5))
    return Interval(statistic(scores), float(low), float(high), sum(len(a) for a in arrays))


def _resample(arrays: list[np.ndarray], games: bool, rng: np.random.Generator) -> Any:
    """One resample: the reference implementation of `_resampled`, for games with different numbers of seeds, too."""
    picked = [arrays[i] for i in rng.integers(0, len(arrays), len(arrays))] if games else arrays
    return [a[rng.integers(0, len(a), len(a))] for a in picked]


def _resampled(scores: np.ndarray, games: bool, n: int, rng: np.random.Generator) -> np.ndarray:
    """Many resamples at once, (n, games, seeds)."""
    g, s = scores.shape
    which = rng.integers(0, g, (n, g, 1)) if games else np.arange(g)[None, :, None]
    return scores[which, rng.integers(0, s, (n, g, s))]


def _iqms(many: np.ndarray) -> np.ndarray:
    runs = np.sort(many.reshape(len(many), -1), axis=1)
    cut = runs.shape[1] // 4
    return runs[:, cut : runs.shape[1] - cut].mean(1)


# Statistics of many resamples (n, games, seeds) at once.
AT_ONCE: dict[Statistic, Callable[[np.ndarray], np.ndarray]] = {
    median: lambda many: np.median(many.mean(2), axis=1),
    mean: lambda many: many.mean((1, 2)),
    iqm: _iqms,
}


def atari5(scores: Mapping[str, float]) -> float | None:
    """The median of 57 games that five of them predict, in per cent; None if one of the five is missing.

    A score below that of random play counts as random play: the logarithm has no value there.
    """
    if any(game not in scores for game in ATARI5):
        return None
    return 10 ** sum(w * math.log10(1 + max(0.0, 100 * scores[game])) for game, w in ATARI5.items()) - 1
