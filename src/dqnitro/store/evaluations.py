"""The evaluations of a run on disk: `RUN/evaluations/`, two files for each point at which fresh games are played.

000000250000.safetensors   the weights at that step, until its games are played; afterwards only if they may be needed
000000250000.json          the scores, with the protocol
"""

from __future__ import annotations

import pathlib
from dataclasses import asdict, dataclass, field
from typing import Any

from dqnitro.common.files import seal_holds, sealed, write_json
from dqnitro.common.parsing import items, mapping, number, read_object

FOLDER = "evaluations"


@dataclass(frozen=True)
class Evaluation:
    """Fresh games with the weights of one moment of a run: their scores, and the mean with its 95% interval."""

    steps: int
    wall_s: float  # of the run, when the weights were copied
    scores: list[float]
    mean: float
    low: float
    high: float
    truncated: int  # games in which nothing happened any more
    seconds: float  # that the games took
    protocol: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """For summaries: everything but the single scores."""
        return {k: v for k, v in asdict(self).items() if k != "scores"} | {"games": len(self.scores)}


def weights_path(run_dir: pathlib.Path, steps: int) -> pathlib.Path:
    return run_dir / FOLDER / f"{steps:012d}.safetensors"


def result_path(run_dir: pathlib.Path, steps: int) -> pathlib.Path:
    return run_dir / FOLDER / f"{steps:012d}.json"


def write(run_dir: pathlib.Path, e: Evaluation) -> None:
    write_json(result_path(run_dir, e.steps), sealed(asdict(e)))


def read(path: pathlib.Path) -> Evaluation | None:
    """None if the file is missing or damaged."""
    data = read_object(path)
    scores = [s for x in items(data.get("scores")) if (s := number(x)) is not None]
    steps, wall_s, mean, low, high, seconds, truncated = (
        number(data.get(k)) for k in ("steps", "wall_s", "mean", "low", "high", "seconds", "truncated")
    )
    if not seal_holds(data) or not scores or steps is None or mean is None or low is None or high is None:
        return None
    return Evaluation(
        int(steps), wall_s or 0.0, scores, mean, low, high, int(truncated or 0), seconds or 0.0,
        mapping(data.get("protocol")),
    )  # fmt: skip


def read_all(run_dir: pathlib.Path) -> list[Evaluation]:
    """In the order of their steps."""
    found = [read(p) for p in sorted((run_dir / FOLDER).glob("*.json"))]
    return [e for e in found if e is not None]


def waiting(run_dir: pathlib.Path) -> list[int]:
    """The steps of weights whose games are not played yet."""
    kept = sorted((run_dir / FOLDER).glob("*.safetensors"))
    return [int(p.stem) for p in kept if p.stem.isdigit() and read(p.with_suffix(".json")) is None]


def best_of(evaluations: list[Evaluation]) -> Evaluation | None:
    """The highest mean; of equal ones the earliest."""
    return max(evaluations, key=lambda e: (e.mean, -e.steps), default=None)
