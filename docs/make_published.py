"""Make src/dqnitro/published/*.json from local copies of the repositories that the figures come from.

    python docs/make_published.py --dopamine DIR --dqn-zoo DIR --cleanba DIR    (git directories or clones)

Only numbers are taken: scores, minutes, and what each was measured with. Every entry names repository, path, commit.
"""

from __future__ import annotations

import argparse
import ast
import collections
import csv
import io
import json
import math
import pathlib
import subprocess
from typing import Any

OUT = pathlib.Path(__file__).resolve().parents[1] / "src" / "dqnitro" / "published"
MILLIONS = (10, 50, 100, 200)
CURVE_AT = (2, 4, 6, 8, 10, 15, 20, 30, 40, 50, 60, 70, 80, 100, 120, 140, 160, 180, 190, 200)  # million frames
# name here -> (suffix of the file, agent in it)
DOPAMINE = {
    "DQN": ("", "DQN"), "DQN (Adam, MSE)": ("", "DQN (Adam + MSE in JAX)"), "C51": ("", "C51"),
    "Rainbow": ("", "Rainbow"), "IQN": ("", "IQN"), "DQN Impala": ("_Impala", "DQN"),
    "Rainbow Impala": ("_Impala", "Rainbow"), "IQN Impala": ("_Impala", "IQN"),
}  # fmt: skip
CURVES = ("DQN", "Rainbow", "IQN Impala")
CLEANBA = {"main_10CPU": None, "spec_out": "8 A100"}  # file -> only columns with these words
DOPAMINE_PROTOCOL = {
    "name": "machado", "sticky_actions": 0.25, "noop_max": 0, "fire_reset": False, "lives_told": False,
    "frame_limit": 108_000, "counted": "training games", "epsilon": 0.01,
}  # fmt: skip
CLEANBA_PROTOCOL = {
    "name": "machado", "sticky_actions": 0.25, "noop_max": 1, "fire_reset": True, "lives_told": False,
    "frame_limit": 108_000, "counted": "training games", "epsilon": 0.0,
}  # fmt: skip


def git(folder: str, *args: str) -> str:
    return subprocess.run(["git", "-C", folder, *args], check=True, capture_output=True, text=True).stdout


def show(folder: str, path: str) -> str:
    return git(folder, "show", f"HEAD:{path}")


def source(folder: str, repository: str, path: str) -> dict[str, str]:
    return {"repository": repository, "path": path, "commit": git(folder, "rev-parse", "HEAD").strip()}


def short(x: float) -> float:
    """Five digits are more than any of these means is known to."""
    return float(f"{x:.5g}")


def squeezed(name: str) -> str:
    return name.replace("_", "").lower()


def reference(zoo: str) -> dict[str, Any]:
    """Scores of random play and of a human tester, 57 games."""
    path = "dqn_zoo/atari_data.py"
    tree = ast.parse(show(zoo, path))
    (table,) = [
        ast.literal_eval(n.value)
        for n in tree.body
        if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "_ATARI_DATA"
    ]
    games = {game: {"random": float(a), "human": float(b)} for game, (a, b) in sorted(table.items())}
    return {"format": 1, "source": source(zoo, "google-deepmind/dqn_zoo", path), "games": games}


def runs_of(rows: list[dict[str, Any]], agent: str) -> list[list[float]]:
    """One list of values per seed, a value per million frames. The k-th value of an iteration is the k-th seed's."""
    by_iteration: dict[int, list[float]] = collections.defaultdict(list)
    for row in rows:
        if row["Agent"] == agent:
            by_iteration[int(row["Iteration"])].append(float(row["Value"]))
    n = min((len(v) for v in by_iteration.values()), default=0)
    return [[by_iteration[i][k] for i in sorted(by_iteration)] for k in range(n)]


def window(run: list[float], millions: int) -> float:
    """The mean of the last tenth of these frames, at most of 5 million: early curves are too steep for more."""
    values = [v for v in run[:millions][-max(1, min(5, millions // 10)) :] if math.isfinite(v)]
    return short(sum(values) / len(values))


def dopamine(folder: str, games: list[str]) -> dict[str, Any]:
    files = git(folder, "ls-tree", "--name-only", "HEAD", "baselines/atari/data/").split()
    agents = {}
    for name, (suffix, inside) in DOPAMINE.items():
        scores: dict[str, dict[str, list[float]]] = {str(m): {} for m in MILLIONS}
        curves: dict[str, list[float]] = {}
        for game in games:
            path = f"baselines/atari/data/{squeezed(game)}{suffix}.json"
            if path not in files:
                continue
            runs = runs_of(json.loads(show(folder, path)), inside)
            if not runs:
                continue
            for m in MILLIONS:
                if min(len(r) for r in runs) >= m - 1:  # some runs have 199 values
                    scores[str(m)][game] = [window(r, m) for r in runs]
            if name in CURVES:
                reached = [m for m in CURVE_AT if m <= min(len(r) for r in runs) + 1]
                curves[game] = [short(sum(window(r, m) for r in runs) / len(runs)) for m in reached]
        agents[name] = {
            "source": source(folder, "google/dopamine", f"baselines/atari/data/GAME{suffix}.json"),
            "agent": inside, "scores": scores, **({"curves": curves} if curves else {}),
        }  # fmt: skip
        print(f"{name}: {len(scores['200'])} games")
    return {
        "format": 1, "what": "a value per seed: the mean of the last tenth of the frames, at most of 5 million",
        "family": "Dopamine",
        "protocol": DOPAMINE_PROTOCOL, "millions": list(MILLIONS), "curve_millions": list(CURVE_AT), "agents": agents,
    }  # fmt: skip


def cleanba(folder: str, games: list[str]) -> dict[str, Any]:
    known = {squeezed(g): g for g in games}
    agents: dict[str, Any] = {}
    for file, words in CLEANBA.items():
        path = f"static/cleanba/{file}.csv"
        scores = list(csv.DictReader(io.StringIO(show(folder, path))))
        minutes = list(csv.DictReader(io.StringIO(show(folder, f"static/cleanba/{file}_runtimes.csv"))))
        for column in (c for c in scores[0] if c and (words is None or words in c)):
            named = {known[squeezed(row[""].split("-")[0])]: row[column] for row in scores if row[column]}
            taken = {known[squeezed(row[""].split("-")[0])]: row[column] for row in minutes if row[column]}
            agents[column] = {
                "source": source(folder, "vwxyzjn/cleanba", path),
                "scores": {"200": {game: short(float(text.split("±")[0])) for game, text in sorted(named.items())}},
                "minutes": {game: short(float(text)) for game, text in sorted(taken.items())},
            }
            print(f"{column}: {len(named)} games")
    return {
        "format": 1, "what": "the mean of three seeds at the end", "family": "Cleanba", "protocol": CLEANBA_PROTOCOL,
        "millions": [200], "agents": agents,
    }  # fmt: skip


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    for name in ("dopamine", "dqn-zoo", "cleanba"):
        p.add_argument(f"--{name}", required=True)
    args = p.parse_args()
    base = reference(args.dqn_zoo)
    games = list(base["games"])
    OUT.mkdir(exist_ok=True)
    for name, data in (
        ("reference", base), ("dopamine", dopamine(args.dopamine, games)), ("cleanba", cleanba(args.cleanba, games)),
    ):  # fmt: skip
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        # One line a game keeps differences readable.
        (OUT / f"{name}.json").write_text(text.replace('],"', '],\n"').replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()
