"""Players in processes of this machine, without Ray: what a process of its own costs, whoever passes the messages.

As with Ray, weights and chunks lie in files in memory that both sides map, and nobody copies them to read them. A pipe
for each player says which file comes next. `cost` compares.
"""

from __future__ import annotations

import itertools
import mmap
import multiprocessing
import os
import pathlib
import pickle
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from dqnitro.common.signals import end_with_parent
from dqnitro.run.cluster.hosts import Lost
from dqnitro.run.cluster.player import THREADS, Order, Permit, Player, Position
from dqnitro.run.processes.spawn import quiet_birth

IN_MEMORY = "/dev/shm"
KEPT = 4  # versions of the weights


class Written(NamedTuple):
    """An object whose arrays lie in a file."""

    path: str
    pickled: bytes
    sizes: list[int]


def write(path: str, value: Any) -> Written:
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    raws = [b.raw() for b in buffers]
    with open(path, "wb") as f:
        f.writelines(raws)
    return Written(path, pickled, [raw.nbytes for raw in raws])


def read(written: Written) -> Any:
    """The object. Its arrays are views of the file, which may be removed from now on."""
    if not sum(written.sizes):
        return pickle.loads(written.pickled, buffers=[b""] * len(written.sizes))
    with open(written.path, "rb") as f:
        whole = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
    ends = list(itertools.accumulate(written.sizes))
    parts = [whole[end - size : end] for end, size in zip(ends, written.sizes, strict=True)]
    return pickle.loads(written.pickled, buffers=parts)


def serve(pipe: Connection, order: Order, folder: str) -> None:
    """The player's process: answers calls in their order until the pipe is closed."""
    import torch

    end_with_parent()
    torch.set_num_threads(THREADS)
    player = Player(order)
    pipe.send(player.spec)
    for n in itertools.count():
        try:
            name, *args = pipe.recv()
        except EOFError:
            return
        if name == "begin":
            pipe.send(player.begin(*args))
        else:
            permit, weights = args
            pipe.send(write(f"{folder}/{order.player}-{n}", player.play(permit, read(weights))))


@dataclass(eq=False)
class Seat:
    """The handle of a player."""

    process: Any
    pipe: Connection
    asked: int = 0
    came: dict[int, Any] = field(default_factory=dict)
    read: int = 0

    def ask(self, *call: Any) -> Answer:
        self.pipe.send(call)
        self.asked += 1
        return Answer(self, self.asked)

    def receive(self) -> None:
        try:
            self.came[self.read] = self.pipe.recv()
        except EOFError:
            raise Lost("its process ended") from None
        self.read += 1


class Answer(NamedTuple):
    """The n-th thing that a player says; the first is its EnvSpec, which is asked for more than once."""

    seat: Seat
    n: int


class PipedHosts:
    """As many processes as players; a lost one ends everything."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=IN_MEMORY if os.path.isdir(IN_MEMORY) else None)
        self._seats: list[Seat] = []
        self._weights = deque[str]()
        self._versions = itertools.count()

    def processes(self) -> list[int]:
        return [seat.process.pid for seat in self._seats]

    def start(self, order: Order, instead: Any = None) -> Seat:
        assert instead is None, "a player is gone"
        ours, theirs = multiprocessing.Pipe()
        spawn = multiprocessing.get_context("spawn")
        process = spawn.Process(target=serve, args=(theirs, order, self._folder.name), daemon=True)
        with quiet_birth(THREADS):
            process.start()
        theirs.close()
        self._seats.append(Seat(process, ours))
        return self._seats[-1]

    def hello(self, player: Seat) -> Answer:
        return Answer(player, 0)

    def begin(self, player: Seat, at: Position) -> Answer:
        return player.ask("begin", at)

    def play(self, player: Seat, permit: Permit, weights: Written) -> Answer:
        return player.ask("play", permit, weights)

    def put(self, weights: np.ndarray) -> Written:
        while len(self._weights) >= KEPT:
            pathlib.Path(self._weights.popleft()).unlink()
        self._weights.append(f"{self._folder.name}/weights-{next(self._versions)}")
        return write(self._weights[-1], weights)

    def get(self, answer: Answer, seconds: float) -> Any:
        seat, n = answer
        while n not in seat.came:
            seat.receive()
        value = seat.came[n] if n == 0 else seat.came.pop(n)
        if not isinstance(value, Written):
            return value
        played = read(value)
        pathlib.Path(value.path).unlink()
        return played

    def has(self, answer: Answer) -> bool:
        while answer.n >= answer.seat.read and answer.seat.pipe.poll():
            answer.seat.receive()
        return answer.n < answer.seat.read

    def sharing(self, player: Seat) -> int:
        return 1

    def together(self, one: Seat, other: Seat) -> bool:
        return one is other

    def prepare(self, order: Order) -> None: ...

    def better(self, player: Seat, order: Order) -> None:
        return None

    def room(self) -> int:
        return len(self._seats)

    def grow(self, players: int, order: Order) -> bool:
        return True

    def again(self, players: Sequence[Seat], orders: Sequence[Order]) -> list[Any]:
        raise NotImplementedError("the number of players is fixed")

    def leave(self, player: Seat) -> None: ...

    def end(self, player: Seat) -> None: ...

    def close(self) -> None:
        for seat in self._seats:
            seat.pipe.close()
        for seat in self._seats:
            seat.process.join()
        self._folder.cleanup()
