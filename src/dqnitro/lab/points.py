"""The score of a run as it went on, from its metrics.jsonl, thinned out for results and their charts."""

from __future__ import annotations

import json
import pathlib

MOST_POINTS = 150


def score_points(run_dir: pathlib.Path, most: int = MOST_POINTS) -> list[dict[str, float]]:
    """Steps, seconds and the mean score of the last 100 games; at most about `most` of them."""
    path = run_dir / "metrics.jsonl"
    out = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            event = json.loads(line)
        except ValueError:  # half a line of a run that was killed
            continue
        if event.get("event") == "progress" and event.get("mean_score") is not None:
            out.append({"steps": event["steps"], "wall_s": event["wall_s"], "score": event["mean_score"]})
    return out[:: len(out) // most + 1]
