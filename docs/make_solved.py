"""Writes src/dqnitro/cli/terminal/solved.json, from which runs without a limit estimate their time.

Run it as `python docs/make_solved.py`.
"""

import json
import pathlib
from typing import Any

from dqnitro.cli.terminal.estimate import NOT_LEARNING, RECORDS, learning_settings

RESULTS = pathlib.Path(__file__).parents[1] / "results"
# Several seeds of what `auto` is today.
FILES = (
    "pong-auto-2-cores.json", "pong-h200.json", "peers-cartpole-2-cores.json", "peers-lunarlander-2-cores.json",
)  # fmt: skip


def solved(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that were solved, each with its steps and its config."""
    if result.get("what") == "peers":
        mine = [r for r in result["rows"] if r["contender"] == "dqnitro" and r["solved"]]
        return [{"steps": r["steps"], "config": result["config"]} for r in mine]
    return [r for r in result["runs"] if r["ended"] == "solved"]


def render() -> str:
    """One record for each config: its settings, and the steps after which each of its seeds was solved."""
    records = []
    for name in FILES:
        if not (RESULTS / name).is_file():
            continue  # not measured yet
        runs = solved(json.loads((RESULTS / name).read_text()))
        first = learning_settings(runs[0]["config"])
        if any(learning_settings(r["config"]) != first for r in runs):
            raise ValueError(f"{name}: its runs have different settings")
        config = {k: v for k, v in runs[0]["config"].items() if k not in NOT_LEARNING}
        records.append({"source": f"results/{name}", "steps": sorted(r["steps"] for r in runs), "config": config})
    return json.dumps(records, indent=1) + "\n"


if __name__ == "__main__":
    RECORDS.write_text(render())
