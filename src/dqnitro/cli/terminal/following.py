"""Following runs in processes of their own until all have ended: signals are passed on, so that every run saves."""

from __future__ import annotations

import pathlib
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dqnitro.cli.terminal.flags import note
from dqnitro.seeds.launcher import Team, last_words

if TYPE_CHECKING:
    from dqnitro.cluster.team import RayTeam
    from dqnitro.common.signals import Signals

    AnyTeam = Team | RayTeam

LOOK_EVERY_S = 0.2
STOPPED_EVERY_S = 5.0


def follow(
    team: AnyTeam, look: Callable[[Sequence[Any]], None], name: Callable[[int], str], what: str = "run"
) -> tuple[str | None, float]:
    """Wait until all members have ended; returns the signal that stopped them, if any, and the seconds it took.

    `look` is called again and again with the members that have ended since; `name` says which run a member is.
    """
    from dqnitro.common.signals import Signals

    begun, signals = time.monotonic(), Signals()
    try:
        with signals.installed():
            stopped = _watch(team, look, name, what, signals)
    except KeyboardInterrupt:  # the second one
        stopped = signals.caught or "SIGINT"
        team.stop(signal.SIGINT)
    finally:
        team.close()
    return stopped, time.monotonic() - begun


def last_line(member: Any, log: pathlib.Path) -> str:
    """Why a member ended with an error, in a line."""
    told = member.why or last_words(log)
    return told.partition("dqnitro one_seed: ")[2] or told


def _watch(
    team: AnyTeam, look: Callable[[Sequence[Any]], None], name: Callable[[int], str], what: str, signals: Signals
) -> str | None:
    """Start members and show how they stand; the first signal is passed on to them and returned."""
    stopped, looked = None, time.monotonic()
    told: set[int] = set()
    while not team.over:
        ended = team.poll()
        if time.monotonic() - looked >= STOPPED_EVERY_S:
            looked = time.monotonic()
            held = {m.process.pid: m.seed for m in team.stopped()} if isinstance(team, Team) else {}
            for pid in held.keys() - told:
                note(f"{name(held[pid])} waits: its process was stopped; hint: `kill -CONT {pid}` lets it go on")
            told = set(held)
        if signals.caught and not stopped:
            stopped = signals.caught
            note(f"stopping: every {what} saves first; a second signal ends them at once")
            team.stop(signal.Signals[stopped])
        look(ended)
        time.sleep(LOOK_EVERY_S)
    return stopped
