"""The player in a thread instead of a process: the same code and the same messages without two seconds of imports.

What only a real process can show (signals, kill -9, orphans) is tested with real ones in tests/run/test_crashes.py.
"""

import os
import threading

from dqnitro.run.processes import player, remote


class ThreadProcess:
    """As much of multiprocessing.Process as RemotePlayer uses."""

    def __init__(self, conn, order, memory):
        conn = type(conn)(os.dup(conn.fileno()))  # the caller closes its own, as after a spawn
        self.exitcode, self.pid = None, os.getpid()
        self._thread = threading.Thread(target=self._run, args=(conn, order, memory), daemon=True)
        self._thread.start()

    def _run(self, conn, order, memory):
        self.exitcode = player.perform(conn, order, *memory)
        conn.close()

    def join(self, timeout=None):
        self._thread.join(timeout)

    def kill(self):
        raise AssertionError("a thread cannot be killed: it should have ended by itself")


def in_threads(monkeypatch):
    """Players become threads from here on."""
    monkeypatch.setattr(
        remote.RemotePlayer, "_launch", lambda self, conn: ThreadProcess(conn, self._order, self._memory)
    )
