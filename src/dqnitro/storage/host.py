"""The process of a run whose folder is elsewhere, or that a cluster has placed: started, watched, told to stop.

A Ray actor on a node of a cluster has a `RunHost`, and so has a process on this machine whose runs are stored at a URL.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dqnitro.common.files import temporary_folder
from dqnitro.errors import UserError
from dqnitro.storage.away import PREFIX, Away, Courier
from dqnitro.storage.by_url import storage_at
from dqnitro.storage.mailbox import Answer, Mailbox, MailboxStorage, Request
from dqnitro.storage.mirror import Superseded

PATIENCE_S = 60.0  # for saving, before what was told to stop is killed
TRAVEL_S = 600.0  # the same where what was saved has to travel
LOCK_S = 300.0  # for a lost process of the same run, which may not know yet that its node is cut off
LOOK_S = 0.25


class Order(NamedTuple):
    """What a node has to know to start a run."""

    arguments: tuple[str, ...]  # after the name of the interpreter, which each node has its own of
    log: str
    folder: str  # of the run: its lock is waited for
    environment: dict[str, str]
    away: Away | None = None  # of a folder that the node does not see

    def moved(self, scratch: pathlib.Path) -> Order:
        """The same work in a scratch folder."""
        assert self.away is not None
        at = self.away.moved
        arguments = tuple(at(word, scratch) for word in self.arguments)
        return Order(arguments, at(self.log, scratch), at(self.folder, scratch), self.environment)


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    why: str = ""  # where that does not stand in its log


class RunHost:
    """Starts a run and stays with it until it has ended. On a node of a cluster it is an actor."""

    def __init__(self, parent: int = 0) -> None:
        """`parent`: the process without which the run saves and ends; the one that started this one."""
        self._parent = parent or os.getppid()
        self._process: subprocess.Popen[bytes] | None = None
        self._told = 0  # the signal that came before there was a process
        self._mailbox = Mailbox()

    def node(self) -> str:
        """Where it is; answered as soon as Ray has placed the actor."""
        return platform.node()

    def exchange(self, answer: Answer | None) -> Request | None:
        """Called by the command again and again where files travel by messages."""
        return self._mailbox.exchange(answer)

    def run(self, order: Order) -> Ended:
        """The process from start to end."""
        if order.away is None:
            return Ended(self._train(order))
        try:
            with temporary_folder(PREFIX) as scratch:
                url = order.away.url
                storage = storage_at(url) if url else MailboxStorage(self._mailbox.call)
                courier = Courier(order.away, storage, scratch)
                courier.begin()
                return Ended(self._train(order.moved(scratch), courier))
        except Superseded as e:
            return Ended(-signal.SIGKILL, str(e))  # on a cluster nobody waits for this answer
        except UserError as e:
            return Ended(e.exit_code, str(e))

    def _train(self, order: Order, courier: Courier | None = None) -> int:
        from dqnitro.common.files import is_locked

        end = time.monotonic() + LOCK_S
        while is_locked(pathlib.Path(order.folder)) and time.monotonic() < end and not self._told:
            time.sleep(LOOK_S)  # a lost process of this run is still saving
        code = 128 + self._told if self._told else self._follow(self._start(order), courier)
        if courier is not None:
            courier.end()
        return code

    def _follow(self, process: subprocess.Popen[bytes], courier: Courier | None) -> int:
        try:
            while (code := process.poll()) is None and os.getppid() == self._parent:
                time.sleep(LOOK_S)
                if courier is not None:
                    courier.look()
        except BaseException:  # what it computes cannot be stored, or is not wanted
            self._end(process)
            raise
        if code is None:
            # The node, or the command, is dead. Ray would let this call come to its end first, with a process that
            # nobody knows of.
            self._end(process)
            if courier is not None:
                courier.end_alone()
            os._exit(1)
        return code

    def _start(self, order: Order) -> subprocess.Popen[bytes]:
        # Ray blocks Ctrl-C in its workers, and a child inherits that from the thread that starts it.
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        source = str(pathlib.Path(__file__).parents[2])
        paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        with pathlib.Path(order.log).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *order.arguments], stdin=subprocess.PIPE, stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": paths, **order.environment}, start_new_session=True,
            )  # fmt: skip
        if self._told:
            self._tell()
        return self._process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Let it save, but not for ever."""
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def stop(self, number: int) -> None:
        """Pass a signal on."""
        self._told = number
        if self._process is not None:
            self._tell()

    def _tell(self) -> None:
        assert self._process is not None
        if not hasattr(signal, "SIGCONT") and self._process.stdin is not None:
            self._process.stdin.close()  # Windows has no signals between processes: this is how a run is told there
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self._told)


def order_of(
    command: Sequence[str], log: pathlib.Path, folder: pathlib.Path, env: Mapping[str, str], away: Away | None = None
) -> Order:
    """An order from a command as `subprocess` takes it, whose first word is this machine's interpreter."""
    return Order(tuple(command[1:]), str(log.resolve()), str(folder.resolve()), dict(env), away)
