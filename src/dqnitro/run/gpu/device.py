"""The `device` runner: games, replay and learner on one GPU, many steps and updates in one CUDA graph.

A graph holds `STEPS_PER_GRAPH` vector steps (fewer where each owes very many updates). Each of them chooses actions,
then plays on one stream while the updates that are owed run on another, and both meet again before the next choice. A
console whose game has ended plays the start of the next one in its steps, so games that end and begin change nothing
about a graph. The target is copied inside it where that is due. The host only starts graphs and reads, one graph later,
what came back: in the steady state it waits for that alone.

Play acts on weights that are at most one vector step old. Updates sample from slots that play does not touch
(`gpu_ring.GUARD`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dqnitro.agent import State, Tick
from dqnitro.config import Config
from dqnitro.distributed.ranks import ALONE, Ranks
from dqnitro.envs.base import EnvSpec, GameEnd
from dqnitro.errors import ConfigError, DivergedError
from dqnitro.learn.transforms import for_graphs
from dqnitro.run.gpu.agent import ENDS, STEPS, UPDATES, GpuAgent, Player
from dqnitro.run.gpu.cuda_envs import CudaEnvs

STEPS_PER_GRAPH = 16
MOST_UPDATES = 1024  # in a graph that holds more than one vector step: each is some twenty nodes of it
PLAY_PRIORITY, LEARN_PRIORITY = 0, 0  # of their streams, and so of their kernels in a graph; -1 is the higher one
FEWEST_ENDS = 4096  # rows for games that end in one graph; more where there are more environments


class DevicePlayer(Player, Protocol):
    """Environments on the GPU. One whose game has ended starts the next in the steps that follow: it is `resetting`."""

    def ended(self) -> Tensor:
        """bool (n,): whose game ended with the last step."""
        ...


@dataclass(frozen=True)
class SpecOnly:
    """What is known on the host of environments on a GPU."""

    spec: EnvSpec


class DeviceAgent(GpuAgent):
    """A whole run on one GPU. `player`: other environments than the consoles of the config."""

    players: tuple[DevicePlayer]

    def __init__(
        self, config: Config, device: torch.device, player: DevicePlayer | None = None, ranks: Ranks = ALONE
    ) -> None:
        player = CudaEnvs(config, device) if player is None else player
        n, stack, size = config.n_envs, config.frame_stack, config.screen_size
        shape = (stack, size, size)
        frames = getattr(player, "frames_per_step", config.frame_skip)
        spec = EnvSpec(n, player.n_actions, shape, np.dtype(np.uint8), stack, frames, True)
        super().__init__(config, device, SpecOnly(spec), [player], ranks)
        self.score = torch.zeros(n, device=device)
        self.length = torch.zeros(n, dtype=torch.int64, device=device)
        self._decided = torch.zeros((), dtype=torch.float64, device=device)  # environments, in the last vector step
        self._numbers = torch.arange(n, device=device).float()
        # environment, score, steps; the last row takes what is not an end
        self.most_ends = max(FEWEST_ENDS, n)
        self.ends = torch.zeros((self.most_ends + 1, 3), device=device)
        # Syncs of the target made, and their period: as a tensor, because torch divides by a plain number inexactly.
        self.syncs = torch.zeros((), dtype=torch.float64, device=device)
        self._sync_steps = torch.tensor(float(config.target_sync_steps), dtype=torch.float64, device=device)
        self.behind = int(device.type == "cuda")  # graphs that may be started before the numbers of the last are read
        self.in_flight = 0  # of them, those that were started: their numbers are still to be read
        self.learned = 0  # vector steps started that had updates beside them

    @property
    def player(self) -> DevicePlayer:
        return self.players[0]

    def epsilon(self) -> Tensor:
        """By the steps that the GPU has counted."""
        c = self.config
        share = (self.report[STEPS] / max(c.epsilon_decay_steps, 1)).clamp(max=1.0)
        return c.epsilon_start + (c.epsilon_end - c.epsilon_start) * share

    def play(self, k: int = 0) -> None:
        """A step, and the book-keeping of the games, which nobody else sees."""
        reward, here = self.take_step(k)
        self.age.masked_fill_(~here & (self.player.resetting == 0), 0)  # the first observation of a game
        ended = self.player.ended() & here
        self.score.add_(reward * here)
        self.length.add_(here)
        place = torch.where(ended, self.report[ENDS].long() + ended.cumsum(0) - 1, self.most_ends).clamp(
            max=self.most_ends
        )
        self.ends.index_copy_(0, place, torch.stack([self._numbers, self.score, self.length.float()], 1))
        self.score.masked_fill_(ended, 0)
        self.length.masked_fill_(ended, 0)
        self._decided.copy_(here.sum())
        self.report[ENDS].add_(ended.sum())

    def count_steps(self) -> None:
        """Count the decisions of all ranks in this vector step, once play and updates have met again."""
        self.ranks.total_(self._decided)
        self.report[STEPS].add_(self._decided)

    def syncs_due(self) -> Tensor:
        """`Clock.owes_sync`, on the GPU: syncs that are due before the next update."""
        c = self.config
        return torch.floor((self.report[UPDATES] * c.steps_per_update + c.first_fill_steps) / self._sync_steps)

    def sync_target_if_due(self) -> None:
        """What the clock would ask before an update, as a copy under a condition: no graph ends because of it."""
        due = self.syncs_due()
        owed = due > self.syncs
        for to, of in self.update.target_copies():
            torch.where(owed, of.to(to.dtype), to, out=to)  # a target may be kept in half precision
        self.syncs.copy_(due)

    # ---- state: also of the games, and of what was started and not yet read

    def state_tensors(self) -> dict[str, Tensor]:
        return {**super().state_tensors(), "score": self.score, "length": self.length, "ends": self.ends}

    def get_state(self) -> State:
        """The clock is that of the last tick. The GPU may be a graph ahead: the resumed run reads its numbers first."""
        arrays, record = super().get_state()
        arrays["envs"] = self.player.get_state()
        chances = {f"chance.{name}": chance.get_state().numpy() for name, chance in self.chances.items()}
        arrays["agent"] = {**arrays["agent"], **chances}
        started = {"in_flight": self.in_flight, "learned": self.learned, "syncs": int(self.syncs)}
        return arrays, {**record, "started": started}

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        ends = np.asarray(arrays["agent"]["ends"])
        if missing := len(self.ends) - len(ends):  # older runs had fewer rows for many environments
            ends = np.concatenate([ends[:-1], np.zeros((missing, 3), ends.dtype), ends[-1:]])
        super().set_state({**arrays, "agent": {**arrays["agent"], "ends": ends}}, record)
        self.player.set_state(arrays.get("envs", {}))
        for name, chance in self.chances.items():
            if (kept := arrays["agent"].get(f"chance.{name}")) is not None:  # shards that were dealt again have none
                chance.set_state(torch.from_numpy(np.array(kept)))
        started = record["started"]
        # Older runs copied the target before the graph in which it was due.
        self.syncs.copy_(torch.tensor(float(started["syncs"])) if "syncs" in started else self.syncs_due())
        self.in_flight, self.learned = int(started["in_flight"]), int(started["learned"])


class Graphs:
    """Records whole vector steps as CUDA graphs and starts them; without a GPU it makes them one after the other."""

    def __init__(self, agent: DeviceAgent) -> None:
        self.agent, self.cuda = agent, agent.device.type == "cuda"
        c = agent.config
        self.updates_per_step = c.n_envs * agent.ranks.size / c.steps_per_update
        self.per_graph = max(1, min(STEPS_PER_GRAPH, int(MOST_UPDATES / self.updates_per_step)))
        self._graphs: dict[tuple[int, ...], Any] = {}
        # Over gloo (several ranks on one GPU, for measurements) nothing can be recorded.
        self._mode = "global" if agent.ranks is ALONE else "thread_local"  # NCCL has threads that ask the GPU things
        self.recording = self.cuda and getattr(agent.ranks, "graphs", True)
        if self.cuda:
            self._play = torch.cuda.Stream(agent.device, priority=PLAY_PRIORITY)
            self._main = torch.cuda.Stream(agent.device, priority=LEARN_PRIORITY)

    def _body(self, updates: tuple[int, ...]) -> None:
        """`updates[i]` updates beside vector step i."""
        a = self.agent
        a.report[ENDS].zero_()
        if not self.cuda:
            for k in updates:
                a.choose()
                self._learn(k)
                a.play()
                a.count_steps()
            return
        main = torch.cuda.current_stream()
        for k in updates:
            a.choose()
            self._play.wait_stream(main)
            with torch.cuda.stream(self._play):
                a.play()
            self._learn(k)
            main.wait_stream(self._play)
            a.count_steps()

    def _learn(self, updates: int) -> None:
        """Updates that are drawn together share a target: a sync that is due between them comes after the last one."""
        for size in self.agent.sizes(updates):
            self.agent.sync_target_if_due()
            self.agent.learn(size)

    def prepare(self) -> None:
        """Compile and record what the run begins with, before any clock runs."""
        if self.cuda:
            self.agent.warm_up()
        if self.recording:
            self.recorded((0,) * self.per_graph)
            self.recorded(self.plan(0, self.per_graph))

    def recorded(self, updates: tuple[int, ...]) -> Any:
        if updates not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            for chance in self.agent.chances.values():
                graph.register_generator_state(chance)
            with torch.cuda.graph(graph, stream=self._main, capture_error_mode=self._mode):
                self._body(updates)
            self._graphs[updates] = graph
        return self._graphs[updates]

    def run(self, updates: tuple[int, ...]) -> None:
        """Start a graph with these updates; a pattern that was not seen before is recorded first."""
        if self.recording:
            self.recorded(updates).replay()
        else:
            self._body(updates)

    def plan(self, first: int, steps: int) -> tuple[int, ...]:
        """Updates beside each of the next `steps` vector steps, `first` of them after the fill: owed, never lost."""
        rate = self.updates_per_step
        return tuple(int((first + i + 1) * rate) - int((first + i) * rate) for i in range(steps))


def ticks(agent: DeviceAgent, graphs: Graphs) -> Iterator[Tick]:
    """Endless: one tick a graph. The numbers of a graph are read while the next one runs."""
    a, c, cuda = agent, agent.config, graphs.cuda
    waiting: deque[tuple[Any, Tensor, Tensor]] = deque()
    if a.in_flight:  # of the run that is resumed
        waiting.append((None, a.report.cpu().clone(), a.ends.cpu().clone()))
    while True:
        begun = time.perf_counter()
        updates = (0,) * graphs.per_graph
        if a.clock.steps >= c.first_fill_steps:
            updates = graphs.plan(a.learned, graphs.per_graph)
            a.learned += graphs.per_graph
        graphs.run(updates)
        report, ends = _fetch(a, cuda)
        event = torch.cuda.Event() if cuda else None
        if event is not None:
            event.record()
        waiting.append((event, report, ends))
        if len(waiting) > a.behind:
            event, report, ends = waiting.popleft()
            a.in_flight = len(waiting)
            if event is not None:
                event.synchronize()
            a.phases.seconds["learn"] += time.perf_counter() - begun
            yield _tick(a, report, ends)


def _fetch(a: DeviceAgent, cuda: bool) -> tuple[Tensor, Tensor]:
    """Copies of the numbers, on their way to the host."""
    if not cuda:
        return a.report.clone(), a.ends.clone()
    report = torch.empty(a.report.shape, dtype=a.report.dtype, pin_memory=True)
    ends = torch.empty(a.ends.shape, dtype=a.ends.dtype, pin_memory=True)
    return report.copy_(a.report, non_blocking=True), ends.copy_(a.ends, non_blocking=True)


def _tick(a: DeviceAgent, report: Tensor, ends: Tensor) -> Tick:
    steps, updates, n_ends, loss, bad = report.tolist()
    a.clock.steps, a.clock.updates = int(steps), int(updates)
    if bad >= 0:
        raise DivergedError(int(bad), loss)
    rows = ends[: min(int(n_ends), a.most_ends)].tolist()
    games = tuple(GameEnd(int(env), score, int(length)) for env, score, length in rows)
    last = torch.tensor(loss) if updates else None
    return Tick(int(steps), int(updates), a.clock.epsilon(), last, games)


def make(config: Config) -> tuple[DeviceAgent, Iterator[Tick]]:
    """An agent on the GPU and its ticks."""
    from dqnitro.envs import env_kind

    if env_kind(config.env_id) != "atari":
        raise ConfigError(f"runner device only plays Atari games, got {config.env_id}", "use --runner inline")
    name = "cuda" if config.device in ("auto", "cpu") else config.device
    agent = make_agent(config, torch.device(name))
    graphs = Graphs(agent)
    graphs.prepare()
    return agent, ticks(agent, graphs)


def fitting(config: Config) -> Config:
    """The config as this runner uses it; ConfigError for what it does not do."""
    if config.act_device != "same":
        raise ConfigError(f"runner device acts where it learns, got act_device {config.act_device}", "leave it at same")
    if config.resize != "area":
        raise ConfigError(f"runner device supports resize area only, got {config.resize!r}", "leave --resize at area")
    return config.replace(wrappers=for_graphs(config.wrappers))


def make_agent(config: Config, device: torch.device, ranks: Ranks = ALONE) -> DeviceAgent:
    """An agent with its consoles on a GPU; with several `ranks`, `config` is of this one's share."""
    from dqnitro.atari.cuda.build import CudaUnavailable, require

    config = fitting(config)
    try:
        require(device.index)
        if device.index is not None:
            torch.cuda.set_device(device)  # kernels are launched on the current GPU
        player = CudaEnvs(config, device, ranks.rank * config.n_envs, ranks.size * config.n_envs)
        return DeviceAgent(config, device, player, ranks)
    except CudaUnavailable as error:
        raise ConfigError(f"runner device: {error}") from None
    except torch.OutOfMemoryError:
        raise ConfigError(
            f"runner device: the GPU has no memory for {config.n_envs} consoles and {config.replay_capacity} "
            "transitions",
            "lower --replay-capacity or --n-envs",
        ) from None
