"""`dqnitro report`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from dqnitro.cli.terminal.flags import Parser, out_file
from dqnitro.common.files import check_writable
from dqnitro.errors import ConfigError

DESCRIPTION = """\
Write a page: one HTML file that opens anywhere, without a network.

Examples
  dqnitro report runs/pong-auto-s1-...             a run: curves, speed, settings, video
  dqnitro report ladders/pong-....json             a result of the lab: ladder, sweep, ablate, bench, profile, tune
  dqnitro report results/*.json runs/pong-*        everything on one page: runs by recipe, seeds with a band
  dqnitro report runs/pong-auto-s1-8-...           several seeds (`train --seeds`): one curve with a band
  dqnitro report runs/pong-auto-s1-... --json      the path of the page, and the headline numbers

A run may be in any state: one that is still running is shown as far as it got. Results of older versions stay readable.
The page of a run is page.html in its folder, the page of a result is NAME.html next to it; several go to ./report.html.
Exit codes: 0 done, 2 bad input.
"""


def main(argv: list[str]) -> int:
    p = Parser("report", "RUN|RESULT.json ... [options]", DESCRIPTION)
    p.add_argument("sources", nargs="+", metavar="RUN|RESULT.json", help="run folders and result files")
    p.add_argument("--out", type=out_file, metavar="FILE", help="write the page to this file")
    p.add_argument("--json", action="store_true", help="print the path of the page and the headline numbers as JSON")
    args = p.parse(argv)
    from dqnitro.report.read_result import read_sources

    sources = [pathlib.Path(s) for s in args.sources]
    runs, results = read_sources(sources)
    out = pathlib.Path(args.out) if args.out else _place(sources)
    check_writable(out)
    _write(out, runs, results)
    if args.json:
        json.dump({"page": str(out), "bytes": out.stat().st_size, **_facts(runs, results)}, sys.stdout, indent=1)
        print()
    else:
        print(out)
    return 0


def _place(sources: list[pathlib.Path]) -> pathlib.Path:
    if len(set(sources)) > 1:
        return pathlib.Path("report.html")
    return sources[0].with_suffix(".html") if sources[0].is_file() else sources[0] / "page.html"


def _write(out: pathlib.Path, runs: list[Any], results: list[Any]) -> None:
    from dqnitro.report.html import write_page

    try:
        if _one_run(runs, results):
            from dqnitro.report.run_page import render_run

            write_page(out, render_run(runs[0], out))
        else:
            from dqnitro.report.lab_page import render_lab

            write_page(out, render_lab(runs, results, out))
    except OSError as e:
        raise ConfigError(f"cannot write {out} ({e.strerror})", "give another place with --out") from e


def _one_run(runs: list[Any], results: list[Any]) -> bool:
    """A single run folder has a page of its own, with settings and losses; a stored summary lacks those."""
    return len(runs) == 1 and not results and (runs[0].path / "config.json").is_file()


def _facts(runs: list[Any], results: list[Any]) -> dict[str, Any]:
    """The facts of a single run are at the top level, as before there were results."""
    if _one_run(runs, results):
        return runs[0].to_dict()
    return {
        "runs": [r.to_dict() for r in runs],
        "results": [{"file": str(r.path), "what": r.what, "game": r.game, "command": r.command} for r in results],
    }
