"""The command line. One file per command; heavy imports happen inside, so that help answers at once."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "train": "train an agent until it is solved, a limit is reached, or Ctrl-C",
    "play": "watch, record or score a trained agent",
    "runs": "list what is there: game, recipe, score, speed, state",
    "report": "write the page of runs, of the lab's results, or of both",
    "env": "this machine, the versions, and what `auto` would choose and why",
    "ladder": "climb from the textbook DQN to the fastest: what each speed-up buys here",
    "sweep": "one setting over values: speed and score, over wall clock and steps",
    "ablate": "leave one speed-up out at a time; `ablate cost`: where does the CPU go",
    "tune": "measure the knobs on this machine; `auto` and `fast` use the result from then on",
    "compare": "is the difference between two runs real, or noise",
    "bench": "small benchmarks and peers, interleaved, as ratios with intervals and a verdict",
    "profile": "where a step's time goes, and what to try next",
    "games": "the Atari games there are; --check plays them side by side with ale-py",
}

HELP = """\
DQNitro trains DQN on Atari as fast as this machine allows.

Examples
  dqnitro train pong                          the fastest recipe for this machine, until solved
  dqnitro train pong --recipe baseline        the textbook DQN
  dqnitro train CartPole-v1 --minutes 1       any Gymnasium environment with discrete actions
  dqnitro train --resume runs/pong-auto-...   go on where a run stopped
  dqnitro train pong --seeds 8                eight learners; medians, ranges, intervals
  dqnitro play runs/pong-auto-... --games 30  score it over 30 fresh games
  dqnitro ladder                              what each speed-up buys on this machine
  dqnitro env                                 what would `auto` choose here, and why

Commands
{commands}

`dqnitro COMMAND --help` shows a command's examples and options.
Exit codes: 0 done, 1 unexpected failure, 2 bad input, 3 loss diverged, 4 the player process died (both save
the run first), 130 Ctrl-C, 143 SIGTERM (both leave a checkpoint).
"""


def help_text() -> str:
    return HELP.format(commands="\n".join(f"  {name:<8} {what}" for name, what in COMMANDS.items()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    if args[0] in ("-V", "--version"):
        from dqnitro import __version__

        print(f"dqnitro {__version__}")
        return 0
    name, rest = args[0], args[1:]
    if name not in COMMANDS:
        from dqnitro.config import nearest

        print(f"dqnitro: unknown command {name!r}; hint: {nearest(name, COMMANDS, 'commands')}", file=sys.stderr)
        return 2
    return run_command(name, rest)


def run_command(name: str, rest: list[str]) -> int:
    """A command by its module; errors that a person can act on become one line and an exit code."""
    from dqnitro.errors import DivergedError, PlayerDied, UserError

    # numba, torch and gymnasium warn about things that no user of ours can change.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:gymnasium")
    try:
        return importlib.import_module(f"dqnitro.cli.{name}").main(rest)
    except (UserError, DivergedError, PlayerDied) as e:
        print(f"dqnitro {name}: {e}", file=sys.stderr)
        return e.exit_code
    except KeyboardInterrupt:
        print(f"dqnitro {name}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `dqnitro runs | head`
        sys.stderr.close()
        return 0
