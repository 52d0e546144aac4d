"""An exception in an environment, in one line that names the line of the environment's own code."""

from __future__ import annotations

import pathlib
import sysconfig
import traceback

from dqnitro.errors import EnvFailed, PlayerDied, UserError

_OURS = str(pathlib.Path(__file__).resolve().parents[1])
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib")})


def env_failure(e: Exception) -> Exception:
    """The EnvFailed of an environment's exception. An error that says already what to do stays as it is."""
    if isinstance(e, UserError | PlayerDied | EnvFailed):
        return e
    # An environment in a worker process tells its traceback in the text of the exception.
    lines = [line.strip() for line in str(e).splitlines() if line.strip()] or [""]
    words = lines[-1] if len(lines) > 1 else f"{type(e).__name__}: {lines[0]}".rstrip(": ")
    return EnvFailed(f"{words}{_place(e)}", "".join(traceback.format_exception(e)))


def _place(e: BaseException) -> str:
    """File, line and source of the innermost frame that belongs to neither DQNitro nor a library."""
    frames = [
        f for f in traceback.extract_tb(e.__traceback__)
        if not f.filename.startswith((_OURS, "<", *_LIBRARIES)) and "site-packages" not in f.filename
    ]  # fmt: skip
    return f" at {frames[-1].filename}:{frames[-1].lineno}, `{frames[-1].line}`" if frames else ""
