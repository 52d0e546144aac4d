"""Errors that a user can act on: what was expected, what was given, what to do."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterable

FRAME = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)
OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib")})


class DQNitroError(Exception):
    """An error that explains itself: the command line prints it as one line and exits with `exit_code`."""

    exit_code = 1
    trace = ""  # the traceback of the user's own code that led here
    prints_trace = True  # the command line prints it above the line

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))  # one line, even if it contains a library's message of several


class UserError(DQNitroError):
    """Invalid input."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; hint: {hint}" if hint else message)


class ConfigError(UserError, ValueError):
    """A setting that cannot work."""


class CheckpointError(UserError):
    """A checkpoint that is damaged, not ours, or of a newer format. Nothing was overwritten."""


class StorageError(CheckpointError):
    """A file could not be written: a full disk, a quota, a failing or read-only device. The last complete checkpoint is
    kept.
    """


class DivergedError(DQNitroError):
    """The loss became NaN or infinite. The run was saved before this was raised."""

    exit_code = 3

    def __init__(self, update: int, loss: float) -> None:
        super().__init__(
            f"the loss became {loss} at update {update}; the run was saved; "
            "hint: lower --learning-rate, set --grad-clip 10, or leave out bfloat16 (--without bfloat16)"
        )
        self.update = update


class PlayerDied(DQNitroError):
    """The player process died and could not be restarted. The run was saved before this was raised."""

    exit_code = 4
    prints_trace = False  # the runner has printed it, beside those of the restarts

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace  # the player's own traceback, if it could still send one


class EnvFailed(DQNitroError):
    """An environment raised an exception or returned something that is not a number. The run was saved first."""

    exit_code = 5

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(f"{message}; hint: repair it; --resume continues a run that had begun")
        self.trace = trace  # of the environment's own exception


class RankLost(DQNitroError):
    """A rank of a run on several GPUs is gone. All others stop; the run is as its last checkpoint."""

    exit_code = 6

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; all ranks have stopped; hint: --resume continues from the last checkpoint")

    @staticmethod
    def because(error: BaseException) -> RankLost:
        """What was noticed by a message that did not come."""
        return RankLost(f"a rank is gone ({str(error).splitlines()[0][:200] if str(error) else type(error).__name__})")


class RanksDiffer(DQNitroError):
    """The ranks of a run have different weights. Nothing was saved; the last checkpoint is whole."""

    exit_code = 7

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; nothing was saved; hint: --resume continues from the last checkpoint")


class CallbackFailed(DQNitroError):
    """A callback of the user's raised an exception, which is the cause. The run was saved before."""

    exit_code = 5

    def __init__(self, what: str, cause: BaseException) -> None:
        """`what` names the method: "EarlyStop.on_game"."""
        super().__init__(f"{user_line(cause)}{type(cause).__name__}: {cause} (in {what})")
        self.trace = "".join(traceback.format_exception(cause))


class PieceFailed(DQNitroError):
    """An exception, the cause, broke off a run with a network, loss, optimiser or replay of the user's own. What was
    half done is not saved: the last checkpoint stays.
    """

    exit_code = 5

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(
            f"{user_line(cause)}{type(cause).__name__}: {cause} (in a run with {what}); the last checkpoint stays; "
            "hint: repair it, then --resume"
        )
        self.trace = "".join(traceback.format_exception(cause))


def user_line(error: BaseException) -> str:
    """`file.py:12: ` of the user's innermost line on the way to an error; empty if it has none."""
    return line_in(traceback.format_exception(error))


def line_in(trace: Iterable[str]) -> str:
    """The same of a traceback as text, which is all that another process can send."""
    found = [(str(x[1]), str(x[2])) for text in trace for x in FRAME.finditer(text) if not x[1].startswith("<")]
    lines = [at for at in found if not at[0].startswith(OURS)]
    theirs = [at for at in lines if "site-packages" not in at[0] and not at[0].startswith(LIBRARIES)] or lines
    return "{}:{}: ".format(*theirs[-1]) if theirs else ""
