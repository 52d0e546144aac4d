"""Notices a player that hangs: one that was stopped (SIGSTOP), or whose vector step does not end.

Silence is counted in the trainer's own polls, not by a clock: Ctrl-Z and a closed laptop stop both processes, and then
neither is late.
"""

from __future__ import annotations

import sys

STOPPED_S = 8.0  # a process that is stopped for so long is given up
SILENT_S = 10.0  # a vector step that takes longer is mentioned
START_S = 60.0  # a start that takes longer is mentioned: torch is imported there, and a console may be compiled


class HeldUp:
    """Notices that a process was stopped, and tells so once that has lasted too long."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waited_s = self._stopped_s = 0.0

    def waited(self, seconds: float) -> str | None:
        """So much time has passed for the one who waits, who looks once a second. The reason to give it up, if any."""
        self._waited_s += seconds
        if self._waited_s < 1.0:
            return None
        self._waited_s -= 1.0
        self._stopped_s = self._stopped_s + 1.0 if process_state(self._pid) == "stopped" else 0.0
        return f"process {self._pid} was stopped for {STOPPED_S:g} s" if self._stopped_s >= STOPPED_S else None


class Watchdog:
    """Watches one player while the trainer waits for its next message."""

    def __init__(self, pid: int, limit_s: float, playing: bool) -> None:
        self._pid, self._limit_s, self._playing = pid, limit_s, playing
        self._held = HeldUp(pid)
        self._silent_s = 0.0
        self._mentioned = False

    def waited(self, seconds: float) -> str | None:
        """Nothing came for this long again. The reason to give the player up, if there is one."""
        self._silent_s += seconds
        if why := self._held.waited(seconds):
            return why
        if self._playing and self._limit_s and self._silent_s >= self._limit_s:
            return f"a vector step of process {self._pid} took longer than --player-timeout-s {self._limit_s:g}"
        if not self._mentioned and self._silent_s >= (SILENT_S if self._playing else START_S):
            self._mentioned = True
            sys.stderr.write(f"dqnitro: {self._mention(process_state(self._pid))}\n")
        return None

    def _mention(self, state: str) -> str:
        if not self._playing:
            return f"the player process {self._pid} has been starting for {START_S:g} s ({state}); Ctrl-C ends the run"
        after = f"it is started again after {self._limit_s:g} s" if self._limit_s else "there is no limit"
        return (
            f"the player process {self._pid} has been in one vector step for {SILENT_S:g} s ({state}); {after} "
            "(--player-timeout-s); Ctrl-C saves the run and ends it"
        )


def process_state(pid: int) -> str:
    """What the operating system says of a process: running, sleeping, stopped, ..., or gone."""
    import psutil

    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return "gone"
