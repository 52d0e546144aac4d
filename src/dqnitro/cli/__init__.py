"""The command line. One file per command; heavy imports happen inside, so that help answers at once."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

COMMANDS = {
    "train": "train an agent until it is solved, a limit is reached, or Ctrl-C",
    "play": "watch, record or score a trained agent",
    "watch": "a live page of a run that is training: curve, speed, the game as it is played now",
    "export": "write a trained agent into a folder to take away: weights, scores, model card, ONNX",
    "runs": "list the stored runs: game, recipe, score, speed, state",
    "report": "write a page about runs, results of the lab, or both",
    "env": "show this machine, the versions, and what `auto` would choose and why",
    "ladder": "climb from the textbook DQN to the fastest: what each speed-up buys here",
    "sweep": "train with several values of one setting: speed and score, over wall clock and steps",
    "ablate": "leave one speed-up out at a time; `ablate cost`: where the CPU time goes",
    "tune": "find the fastest settings for this machine; `auto` and `fast` use them from then on",
    "compare": "tell whether the difference between two runs is real or noise",
    "bench": "small benchmarks, also of other libraries: ratios with intervals and a verdict",
    "profile": "show where a step's time goes and what to try next",
    "atari": "train many games under one protocol: a table beside published scores",
    "games": "list the Atari games; --check compares every frame with ale-py",
}

HELP = """\
DQNitro trains DQN on Atari as fast as this machine allows.

Examples
  dqnitro train pong                          the fastest recipe for this machine, until solved
  dqnitro train pong --recipe baseline        the textbook DQN
  dqnitro train CartPole-v1 --minutes 1       any Gymnasium environment with discrete actions
  dqnitro train --resume runs/pong-auto-...   continue a stopped run
  dqnitro train pong --seeds 8                eight seeds: medians, ranges, intervals
  dqnitro watch runs/pong-auto-...            a live page of a run while it trains
  dqnitro play runs/pong-auto-... --games 30  score it over 30 fresh games
  dqnitro ladder                              what each speed-up buys on this machine
  dqnitro env                                 what `auto` would choose here, and why

Commands
{commands}

`dqnitro COMMAND --help` shows a command's examples and options.
Exit codes: 0 done, 1 unexpected failure, 2 bad input, 3 loss diverged, 4 the player process died, 5 your code failed
(environment, callback, network, ...), 6 a rank was lost, 7 ranks differ, 129 SIGHUP, 130 Ctrl-C, 143 SIGTERM.
"""


HINT = "lower --batch-size, --n-envs, --hidden-units or --replay-capacity, or close other programs"


def out_of_memory(error: BaseException) -> bool:
    """Whether an error tells of too little memory: Python's own, or torch's, which has no class for it on CPUs."""
    return (
        isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error)
    )


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
    """Run the module of a command; errors that a user can act on become one line and an exit code."""
    from dqnitro.errors import DQNitroError, UserError

    # numba, torch and gymnasium warn about things that our users cannot change.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:gymnasium")
    try:
        return importlib.import_module(f"dqnitro.cli.{name}").main(rest)
    except DQNitroError as e:
        print(f"{e.trace if e.prints_trace else ''}dqnitro {name}: {e}", file=sys.stderr)
        return e.exit_code
    except BrokenPipeError:  # `dqnitro runs | head`
        sys.stderr.close()
        return 0
    except OSError as e:
        from dqnitro.common.files import short, storage_error

        if (problem := storage_error(e, e.filename or "the output")) is None:
            if e.filename is None:
                raise
            # A wrong path: a file where a folder must be, a name that is too long, no permission.
            problem = UserError(f"cannot use {short(e.filename)} ({e.strerror})", "check the path and its permissions")
        print(f"dqnitro {name}: {problem}", file=sys.stderr)
        return problem.exit_code
    except (MemoryError, RuntimeError) as e:
        if not out_of_memory(e):
            raise
        problem = UserError(f"memory is not enough ({str(e).splitlines()[0] if str(e) else 'out of memory'})", HINT)
        print(f"dqnitro {name}: {problem}", file=sys.stderr)
        return problem.exit_code
    except KeyboardInterrupt:
        print(f"dqnitro {name}: interrupted", file=sys.stderr)
        return 130
