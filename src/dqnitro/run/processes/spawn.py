"""What the player process needs before it can start, and how its end is described."""

from __future__ import annotations

import contextlib
import multiprocessing.resource_tracker
import os
import signal
from collections.abc import Iterator

from dqnitro import own
from dqnitro.common.signals import NUMBERS, signal_name
from dqnitro.config import Config
from dqnitro.errors import ConfigError


def own_pieces(config: Config) -> bytes:
    """What the player has to know of this process: the registration of an environment, and the user's own pieces."""
    import cloudpickle

    from dqnitro.envs import atari_game

    spec = None
    if atari_game(config.env_id) is None:
        from dqnitro.envs.generic import find_spec

        spec = find_spec(config.env_id)
    try:
        return cloudpickle.dumps((spec, own.get_table()))
    except Exception as e:  # whatever an object raises that cannot be copied to another process
        raise ConfigError(
            f"{config.env_id} cannot be made in another process ({e})",
            "give a class or function of a module, or use --runner inline",
        ) from e


def check_memory(needed: int, config: Config) -> None:
    import psutil

    free = psutil.virtual_memory().available
    if needed > 0.5 * free:
        raise ConfigError(
            f"slack_steps {config.slack_steps} keeps {needed / 2**30:.1f} GiB of weights, {free / 2**30:.1f} "
            "GiB are free",
            f"--slack-steps {int(config.slack_steps * 0.5 * free / needed)} fits",
        )


def exit_text(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal_name(-code)}"
    return f"exit code {code}"


@contextlib.contextmanager
def quiet_birth(threads: int) -> Iterator[None]:
    """Start a child that never sees Ctrl-C, and whose OpenMP knows its share of the cores before torch is imported."""
    multiprocessing.resource_tracker.ensure_running()  # starting it unblocks the signals again
    blocked = set(NUMBERS)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    old = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        if old is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = old
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
