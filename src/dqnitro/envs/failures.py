"""An exception in an environment, in one line that begins with the line of the environment's own code."""

from __future__ import annotations

import traceback

from dqnitro.errors import EnvFailed, PlayerDied, UserError, user_line


def env_failure(e: Exception) -> Exception:
    """The EnvFailed of an environment's exception. An error that says already what to do stays as it is."""
    if isinstance(e, UserError | PlayerDied | EnvFailed):
        return e
    # An environment in a worker process tells its traceback in the text of the exception.
    lines = [line.strip() for line in str(e).splitlines() if line.strip()] or [""]
    words = lines[-1] if len(lines) > 1 else f"{type(e).__name__}: {lines[0]}".rstrip(": ")
    return EnvFailed(f"{user_line(e)}{words} (in the environment)", "".join(traceback.format_exception(e)))
