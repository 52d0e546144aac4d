"""`dqnitro report`."""

from __future__ import annotations

import json
import pathlib
import sys

from dqnitro.cli.flags import Parser
from dqnitro.errors import ConfigError

DESCRIPTION = """\
Write the page of a run: curves, speed, settings, machine and video in one HTML file that opens anywhere.

Examples
  dqnitro report runs/pong-auto-s1-...                  writes page.html into the run's folder
  dqnitro report runs/pong-auto-s1-... --out pong.html  somewhere else
  dqnitro report runs/pong-auto-s1-... --json           where the page is, and the headline numbers

A run may be in any state: one that is going on is shown as far as it got.
Exit codes: 0 done, 2 bad input.
"""


def main(argv: list[str]) -> int:
    p = Parser("report", "RUN [options]", DESCRIPTION)
    p.add_argument("run", help="a run's folder")
    p.add_argument("--out", metavar="FILE", help="where the page goes (default: RUN/page.html)")
    p.add_argument("--json", action="store_true", help="where the page is and the headline numbers, as JSON")
    args = p.parse(argv)
    from dqnitro.report.page import write_page
    from dqnitro.report.run_page import read_run, render_run

    run_dir = pathlib.Path(args.run)
    run = read_run(run_dir)
    out = pathlib.Path(args.out) if args.out else run_dir / "page.html"
    if out.is_dir():
        raise ConfigError(f"--out {out} is a folder", f"name a file: --out {out / 'page.html'}")
    try:
        write_page(out, render_run(run, out))
    except OSError as e:
        raise ConfigError(f"cannot write {out} ({e.strerror})", "give another place with --out") from e
    if args.json:
        json.dump({"page": str(out), "bytes": out.stat().st_size, **run.to_dict()}, sys.stdout, indent=1)
        print()
    else:
        print(out)
    return 0
