"""`dqnitro runs`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from dqnitro.cli.terminal.flags import Parser
from dqnitro.errors import ConfigError

DESCRIPTION = """\
List the stored runs: game, recipe, score, speed, state.

Examples
  dqnitro runs
  dqnitro runs --root /data/runs --json

States: solved, reached --steps, reached --minutes, stopped (Ctrl-C or SIGTERM), running, diverged (the loss became
NaN), crashed (the process died without a result). All but running ones can be resumed if they have a checkpoint. With
--json each state is one word (solved, steps, minutes, ...). Names are never shortened, not even through a pipe.
Several seeds (`train --seeds`) have a row before their runs: median score and time, total steps and speed.
"""


def main(argv: list[str]) -> int:
    p = Parser("runs", "[options]", DESCRIPTION)
    p.add_argument("--root", default="runs", metavar="DIR", help="where the runs are (default: runs)")
    p.add_argument("--json", action="store_true", help="print as JSON")
    args = p.parse(argv)
    root = pathlib.Path(args.root)
    if args.root != "runs" and not root.is_dir():
        raise ConfigError(f"{root} is not a folder", "give --root the folder that contains the runs")
    rows = [row for path in sorted(root.iterdir()) for row in rows_of(path)] if root.is_dir() else []
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
        return 0
    if not rows:
        print(f"no runs in {root}; `dqnitro train pong` starts one", file=sys.stderr)
        return 0
    _print(rows)
    return 0


def rows_of(path: pathlib.Path) -> list[dict[str, Any]]:
    """One row for a run; for several seeds one for all of them and one for each; none for any other folder."""
    from dqnitro.seeds.folder import is_seeds
    from dqnitro.store.read_run import run_folders

    if is_seeds(path):
        runs = [describe(p) | {"of": str(path)} for p in run_folders(path)]
        return [describe_seeds(path, runs), *runs]
    return [describe(path)] if (path / "config.json").is_file() else []


def describe_seeds(path: pathlib.Path, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Several seeds in one row: median score and time, total steps and speed."""
    import statistics

    from dqnitro.errors import CheckpointError
    from dqnitro.seeds.folder import SeedsFolder

    def known(name: str) -> list[Any]:
        return [r[name] for r in runs if r.get(name) is not None]

    try:
        folder = SeedsFolder.read(path)
    except CheckpointError:
        return {"run": str(path), "state": "damaged seeds.json"}
    states = [r["state"] for r in runs] + ["waiting"] * (len(folder.seeds) - len(runs))
    return {
        "run": str(path), "game": folder.config.env_id, "recipe": folder.recipe, "seeds": list(folder.seeds),
        "state": ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states)),
        "score": statistics.median(known("score")) if known("score") else None, "steps": sum(known("steps")) or None,
        "steps_per_s": sum(known("steps_per_s")) or None,
        "wall_s": statistics.median(known("wall_s")) if known("wall_s") else None,
        "resumable": "running" not in states and not all(folder.is_done(s) for s in folder.seeds),
        "megabytes": round(sum(r.get("megabytes", 0.0) for r in runs), 1),
    }  # fmt: skip


def describe(path: pathlib.Path) -> dict[str, Any]:
    """The facts of a run; a damaged file costs its facts, not the list."""
    from dqnitro.common.files import seal_holds
    from dqnitro.common.parsing import number, read_object
    from dqnitro.store.checkpoint import complete
    from dqnitro.store.run_folder import RunFolder

    head = read_object(path / "config.json")
    config = head.get("config")
    if not isinstance(config, dict) or not seal_holds(head):
        return {"run": str(path), "state": "damaged config.json"}
    folder = RunFolder(path)
    s = folder.read_summary()
    state = folder.state()
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    score, steps, steps_per_s, wall_s = (number(s.get(k)) for k in ("mean_score", "steps", "steps_per_s", "wall_s"))
    return {
        "run": str(path), "game": config.get("env_id"), "recipe": head.get("recipe"), "seed": config.get("seed"),
        "state": state, "score": score, "steps": None if steps is None else int(steps), "steps_per_s": steps_per_s,
        "wall_s": wall_s, "resumable": state != "running" and bool(complete(path / "checkpoints")),
        "megabytes": round(size / 1e6, 1),
    }  # fmt: skip


STATE_WORDS = {"steps": "reached --steps", "minutes": "reached --minutes"}


def state_text(state: str) -> str:
    """`3 steps, 1 running` (of several seeds) or `steps`, in words."""
    parts = []
    for part in state.split(", "):
        count, space, word = part.rpartition(" ") if part[:1].isdigit() else ("", "", part)
        parts.append(f"{count}{space}{STATE_WORDS.get(word, word)}")
    return ", ".join(parts)


def _print(rows: list[dict[str, Any]]) -> None:
    from dqnitro.cli.terminal.tables import plain_table
    from dqnitro.cli.terminal.wording import duration

    def number(x: Any, form: str) -> str:
        return "–" if x is None else format(x, form)

    columns = (("run", "left"), ("state", "left"), ("score", "right"), ("steps", "right"), ("steps/s", "right"),
               ("time", "right"), ("size", "right"))  # fmt: skip
    # Plain text also on a terminal: a name that is cut or broken into two lines cannot be copied.
    print(plain_table(columns, [
        [f"  {r['run']}" if "of" in r else r["run"], state_text(r["state"]), number(r.get("score"), ".1f"),
         number(r.get("steps"), ",d"), number(r.get("steps_per_s"), ",.0f"),
         "–" if r.get("wall_s") is None else duration(r["wall_s"]), f"{r.get('megabytes', 0):,.0f} MB"]
        for r in rows
    ]))  # fmt: skip
