"""One process per seed. Every process saves before it ends, also if its parent is killed."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# Windows has no signals between processes but the one that kills: there a member is told by closing its input.
SIGNALS_TRAVEL = hasattr(signal, "SIGCONT")
PATIENCE_S = 60.0  # for saving, before a process that was told to stop is killed


@dataclass
class Member:
    """A seed that was started."""

    seed: int
    process: subprocess.Popen[bytes]
    code: int | None = None  # how it ended; None: it runs
    why: str = ""  # it ended so, where the log of the run does not say it


class Team:
    """Starts processes in the order of their seeds, `at_once` in parallel."""

    def __init__(
        self, command: Callable[[int], Sequence[str]], seeds: Sequence[int], at_once: int,
        log: Callable[[int], pathlib.Path], environment: Mapping[str, str] | None = None,
        patience_s: float = 0.0, beside: bool = False,
    ) -> None:  # fmt: skip
        """`beside`: the processes are not the runs themselves, so that a log of theirs is no log of a run."""
        self._command, self._at_once, self._log = command, at_once, log
        self._patience_s, self._beside = patience_s, beside
        self._environment = {**os.environ, **(environment or {})}
        self.waiting = list(seeds)
        self.stopping = False
        self.peak = 0  # the most that were under way at a time
        self.members: dict[int, Member] = {}

    @property
    def running(self) -> list[int]:
        return [m.seed for m in self.members.values() if m.code is None]

    def poll(self) -> list[Member]:
        """Return the members that ended since the last call, and start the next ones."""
        ended = []
        for member in self.members.values():
            if member.code is None and (code := member.process.poll()) is not None:
                member.code = code
                member.why = last_words(self._log(member.seed)) if code and self._beside else ""
                if member.process.stdin is not None:
                    member.process.stdin.close()
                ended.append(member)
        while self.waiting and len(self.running) < self._at_once:
            self._start(self.waiting.pop(0))
        self.peak = max(self.peak, len(self.running))
        return ended

    @property
    def over(self) -> bool:
        return not self.waiting and not self.running

    def _start(self, seed: int) -> None:
        with self._log(seed).open("ab") as log:
            # A session of its own: Ctrl-C in a terminal goes to whole groups, and a second one would end it before it
            # has saved. Its standard input is never written to; it closes when this process is gone, however it went.
            process = subprocess.Popen(
                self._command(seed), stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environment,
                start_new_session=True,
            )  # fmt: skip
        self.members[seed] = Member(seed, process)

    def stop(self, number: int) -> None:
        """Send the signal to all processes and start no more. On the first signal they save; on the second they end at
        once.
        """
        self.waiting, self.stopping = [], True
        for seed in self.running:
            _tell(self.members[seed].process, number)

    def stopped(self) -> list[Member]:
        """Members that were stopped (SIGSTOP) and wait for ever."""
        import psutil

        def is_stopped(member: Member) -> bool:
            try:
                return psutil.Process(member.process.pid).status() == psutil.STATUS_STOPPED
            except psutil.Error:
                return False

        return [self.members[seed] for seed in self.running if is_stopped(self.members[seed])]

    def close(self) -> None:
        """Stop all processes that still run; they have a minute to save, or more if what they save has to travel."""
        self.stop(signal.SIGTERM)
        end = time.monotonic() + (self._patience_s or PATIENCE_S)
        for seed in self.running:
            process = self.members[seed].process
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.poll()


def _tell(process: subprocess.Popen[bytes], number: int) -> None:
    """Ask a member to save and end; asked again, it ends at once."""
    if SIGNALS_TRAVEL:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)  # one that was stopped could not answer
    elif process.stdin is not None and not process.stdin.closed:
        process.stdin.close()  # `stop_with_parent`
    else:
        process.terminate()


def last_words(log: pathlib.Path) -> str:
    """The last line that a process wrote: its error, if it had one."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:500] if lines else ""


def stop_with_parent(fd: int = 0) -> None:
    """Called in a member: save and end when standard input closes, because then the parent is gone."""

    def watch() -> None:
        # Not `sys.stdin`: a thread that is blocked in there holds its lock, and Python aborts when it ends.
        while os.read(fd, 1):
            pass
        if SIGNALS_TRAVEL:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            signal.raise_signal(signal.SIGTERM)  # os.kill would end the process before it has saved

    threading.Thread(target=watch, daemon=True, name="parent watch").start()
