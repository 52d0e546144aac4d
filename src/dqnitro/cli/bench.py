"""`dqnitro bench`."""

from __future__ import annotations

from dqnitro.cli.flags import Parser

DESCRIPTION = """\
Measure on this machine, contenders interleaved in rounds, as ratios with intervals.

Examples
  dqnitro bench learn                 learner against Stable-Baselines3 and a CleanRL-style loop
"""


def main(argv: list[str]) -> int:
    p = Parser("bench", "WHAT [options]", DESCRIPTION)
    p.parse(argv)
    return 0
