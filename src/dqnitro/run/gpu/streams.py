"""Where the `hybrid` runner's work on the GPU runs: two streams and their CUDA graphs; without a GPU, plain
calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch


class Lanes(Protocol):
    """Two lanes for work: play (choices and new frames) and learning."""

    def play(self, work: Callable[..., None], *arguments: Any, chance: torch.Generator | None = None) -> None:
        """Start a piece of play. Work draws its random numbers from `chance`, if it draws any."""
        ...

    def learn(self, work: Callable[..., None], *arguments: Any, chance: torch.Generator | None = None) -> None: ...

    def learned(self, k: int) -> None:
        """The updates that follow group k's turn were started."""
        ...

    def wait_for_updates(self, k: int) -> None:
        """Play goes on when the updates that followed group k's last turn are done."""
        ...

    def wait_for_play(self) -> None:
        """The host goes on when all play that was started is done."""
        ...

    def join(self, k: int) -> None:
        """What anybody else starts on the GPU from now on comes after all that is under way; k had the last turn."""
        ...

    def synchronize(self) -> None: ...


class NoStreams:
    """Without a GPU: work is done when it is started."""

    def play(self, work: Callable[..., None], *arguments: Any, chance: torch.Generator | None = None) -> None:
        work(*arguments)

    def learn(self, work: Callable[..., None], *arguments: Any, chance: torch.Generator | None = None) -> None:
        work(*arguments)

    def learned(self, k: int) -> None: ...

    def wait_for_updates(self, k: int) -> None: ...

    def wait_for_play(self) -> None: ...

    def join(self, k: int) -> None: ...

    def synchronize(self) -> None: ...


class _Lane:
    """A stream, and the graphs of what runs on it. Work is recorded when it first comes with these arguments."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        # Graphs of a stream run one after the other and keep nothing in their memory, so one piece of it serves all.
        self._pool: Any = torch.cuda.graph_pool_handle()
        self._graphs: dict[tuple[Any, ...], torch.cuda.CUDAGraph] = {}

    def run(self, work: Callable[..., None], arguments: tuple[Any, ...], chance: torch.Generator | None) -> None:
        key = work, *arguments
        with torch.cuda.stream(self.stream):
            if key not in self._graphs:
                graph = torch.cuda.CUDAGraph()
                if chance is not None:
                    graph.register_generator_state(chance)
                with torch.cuda.graph(graph, pool=self._pool, stream=self.stream):
                    work(*arguments)
                self._graphs[key] = graph
            self._graphs[key].replay()


class Streams:
    """On a GPU: play and learning side by side where groups take turns, else one after the other."""

    def __init__(self, device: torch.device, groups: int) -> None:
        self._device = device
        self._play = _Lane(torch.cuda.Stream(device, priority=-1))  # short, and the host waits for it
        self._learn = _Lane(torch.cuda.Stream(device) if groups > 1 else self._play.stream)
        self._learned = [torch.cuda.Event() for _ in range(groups)]
        self._played = torch.cuda.Event()

    def play(self, work: Callable[..., None], *arguments: Any, chance: torch.Generator | None = None) -> None:
        self._play.run(work, arguments, chance)

    def learn(self, work: Callable[..., None], *arguments: Any, chance: torch.Generator | None = None) -> None:
        self._learn.run(work, arguments, chance)

    def learned(self, k: int) -> None:
        self._learned[k].record(self._learn.stream)

    def wait_for_updates(self, k: int) -> None:
        self._play.stream.wait_event(self._learned[k])

    def wait_for_play(self) -> None:
        self._play.stream.synchronize()

    def join(self, k: int) -> None:
        current = torch.cuda.current_stream(self._device)
        self._played.record(self._play.stream)
        current.wait_event(self._played)
        current.wait_event(self._learned[k])

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._device)
