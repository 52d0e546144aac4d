"""Several ranks in one process: ranks that are threads, and the reference implementation, one learner with all shards.

The reference does not use `AveragedStep`, `Ranks` or the ring's update: it draws from every shard, asks the learner for
the loss of each part, adds the gradients in the order of the ranks and makes one step of the optimiser.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from dqnitro.config import Config
from dqnitro.distributed import world
from dqnitro.distributed.ranks import added
from dqnitro.dqn import Batch
from dqnitro.run.gpu import replicas
from dqnitro.run.gpu.agent import STEPS, UPDATES
from dqnitro.run.gpu.device import DeviceAgent, Graphs
from dqnitro.run.gpu.share import config_of


class ThreadRanks:
    """A rank among `size` threads of this process."""

    def __init__(self, rank: int, size: int, shared: dict[Any, Any], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, size
        self._shared, self._barrier, self._calls = shared, barrier, 0

    @staticmethod
    def make(size: int) -> list[ThreadRanks]:
        shared, barrier = {}, threading.Barrier(size, timeout=120)
        return [ThreadRanks(rank, size, shared, barrier) for rank in range(size)]

    def _start(self, x: torch.Tensor) -> Callable[[], None]:
        call, self._calls = self._calls, self._calls + 1
        self._shared[call, self.rank] = x.clone()

        def wait() -> None:
            self._barrier.wait()
            added([self._shared[call, rank] for rank in range(self.size)], x)
            self._barrier.wait()
            del self._shared[call, self.rank]

        return wait

    def total_(self, x: torch.Tensor) -> None:
        self._start(x)()

    def start_mean_(self, x: torch.Tensor) -> Callable[[], None]:
        wait = self._start(x)

        def mean() -> None:
            wait()
            x.mul_(1.0 / self.size)

        return mean

    def totals(self, numbers: Sequence[int]) -> list[int]:
        x = torch.tensor(list(numbers))
        self.total_(x)
        return x.tolist()


def in_threads(work: Callable[[int], Any], size: int) -> list[Any]:
    """Call work(0), work(1), ... at the same time; what each returns."""
    with ThreadPoolExecutor(size) as pool:
        return [f.result() for f in [pool.submit(work, rank) for rank in range(size)]]


class AllShards:
    """One process with the shards of all ranks and one learner. `whole`: the loss of the whole batch at once, as one
    learner with all environments has it, not the mean of the parts' losses.
    """

    def __init__(self, config: Config, make: Callable[[Config, int, Any], DeviceAgent], whole: bool = False) -> None:
        self.config, self.whole = config, whole
        ranks = ThreadRanks.make(config.gpus)
        self.shards = [make(config_of(config), rank, ranks[rank]) for rank in range(config.gpus)]
        self.learner = self.shards[0].learner
        for shard in self.shards[1:]:  # they act with the one network that learns
            shard.acting.weights[0] = self.learner.online
        self.steps = 0
        self.graphs = Graphs(self.shards[0])
        self.learned = 0
        self.losses: list[float] = []

    def tick(self) -> None:
        """As many vector steps as a graph holds."""
        updates = (0,) * self.graphs.per_graph
        if self.steps >= self.config.first_fill_steps:
            updates = self.graphs.plan(self.learned, self.graphs.per_graph)
            self.learned += self.graphs.per_graph
        for k in updates:
            for shard in self.shards:
                shard.choose()
            for _ in range(k):
                self.update()
            for shard in self.shards:
                shard.play()
                self.steps += int(shard._decided)
            for shard in self.shards:
                shard.report[STEPS].fill_(self.steps)

    def update(self) -> None:
        first = self.shards[0]
        due = int(first.syncs_due())
        if due > int(first.syncs):
            self.learner.sync_target()
        for shard in self.shards:
            shard.syncs.fill_(due)
            shard.report[UPDATES].add_(1)
        parts = [self.drawn(shard) for shard in self.shards]
        if self.whole:
            parts = [Batch(*(torch.cat(columns) for columns in zip(*parts, strict=True)))]
        gradients, losses = [], []
        for batch in parts:
            loss, _ = self.learner.loss(self.learner.online, self.learner.target, batch)
            gradients.append(torch.autograd.grad(loss, list(self.learner.online.parameters())))
            losses.append(loss.detach())
        self.losses.append(float(sum(losses) / len(losses)))
        for p, *of_ranks in zip(self.learner.online.parameters(), *gradients, strict=True):
            p.grad = torch.empty_like(p)
            added(of_ranks, p.grad)
            p.grad.mul_(1.0 / len(parts))
        if self.config.grad_clip:
            torch.nn.utils.clip_grad_norm_(self.learner.online.parameters(), self.config.grad_clip)
        self.learner.optimizer.step()

    def drawn(self, shard: DeviceAgent) -> Batch:
        c, group = shard.config, shard.groups[-1]
        t, env = shard.ring.draw(c.batch_size, c.n_step, group.head, group.filled, shard.chances["learn"])
        return shard.ring.transitions(t, env, c.n_step, c.gamma)


class ThreadMessages:
    """`distributed.messages.Messages` between threads."""

    def __init__(self, rank: int, size: int, shared: dict[Any, Any], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, size
        self._shared, self._barrier = shared, barrier

    @staticmethod
    def make(size: int) -> list[ThreadMessages]:
        shared, barrier = {}, threading.Barrier(size, timeout=120)
        return [ThreadMessages(rank, size, shared, barrier) for rank in range(size)]

    def gather(self, message: Any) -> list[Any]:
        self._shared[self.rank] = json.dumps(message)
        self._barrier.wait()
        said = [json.loads(self._shared[rank]) for rank in range(self.size)]
        self._barrier.wait()
        return said

    def tell(self, message: Any = None) -> Any:
        return self.gather(message)[0]


class Crew:
    """Ranks of a session as threads of this process: `run(config, call)` makes the call as rank 0, others follow."""

    def __init__(self, monkeypatch: Any) -> None:
        self._local = local = threading.local()
        lock, build = threading.Lock(), replicas.build

        def one_at_a_time(*args: Any) -> Any:  # fresh weights are drawn from a generator that all threads share
            with lock:
                return build(*args)

        monkeypatch.setattr(replicas, "build", one_at_a_time)
        monkeypatch.setattr(replicas, "Messages", lambda: local.messages)
        monkeypatch.setattr(replicas, "GroupRanks", lambda: local.ranks)
        monkeypatch.setattr(world, "current", lambda: local.place)
        self.agents: dict[int, Any] = {}
        self.on_built: Callable[[int, Any], None] = lambda rank, agent: None
        make_rank = replicas.Rank

        def watched(agent: Any, messages: Any) -> Any:
            self.agents[messages.rank] = agent
            self.on_built(messages.rank, agent)
            return make_rank(agent, messages)

        monkeypatch.setattr(replicas, "Rank", watched)

    def run(self, config: Config, call: Callable[[], Any]) -> Any:
        size = config.gpus
        messages, ranks = ThreadMessages.make(size), ThreadRanks.make(size)

        def as_rank(rank: int, work: Callable[[], Any]) -> Any:
            self._local.place = world.Place(rank, size, rank, size)
            self._local.messages, self._local.ranks = messages[rank], ranks[rank]
            return work()

        with ThreadPoolExecutor(size) as pool:
            others = [pool.submit(as_rank, rank, lambda: replicas.follow(config)) for rank in range(1, size)]
            try:
                return as_rank(0, call)
            finally:
                for other in others:
                    other.result(120)
