"""The `device` runner: games, replay and learner on one GPU, many steps and updates in one CUDA graph.

A graph holds `STEPS_PER_GRAPH` vector steps. Each of them chooses actions, then plays on one stream while the updates that are
owed run on another, and both meet again before the next choice. Beside all of them a third stream begins the next games of
machines whose game is over. The host only starts graphs and reads, one graph later, what came back: nothing in the steady state
waits for the card but that reading.

Play acts on weights that are at most one vector step old. Updates sample from slots that play does not touch (`ring.GUARD`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnitro import dqn
from dqnitro.clock import Clock
from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec, GameEnd
from dqnitro.errors import ConfigError, DivergedError
from dqnitro.learn.learner import Learner
from dqnitro.learn.transforms import wrap
from dqnitro.loop import Phases, Tick, make_clock
from dqnitro.replay.gpu_ring import Ring
from dqnitro.run.gpu.cuda_envs import Machines
from dqnitro.run.gpu.turns import Acting, Part
from dqnitro.run.gpu.updates import Updates

STEPS_PER_GRAPH = 16
MOST_ENDS = 4096  # games that may end in one graph
REPORT = 5  # numbers that come back with every graph: steps, updates, ends, loss, first bad update


class DeviceAgent:
    """A whole run on one card, behind the attributes that a session asks of an agent.

    `players`: one for each part of the environments, all of the same size.
    """

    def __init__(self, config: Config, device: torch.device, players: Sequence[Any] = ()) -> None:
        self.config, self.device = config, device
        self.players = tuple(players) or (Machines(config, device),)
        if device.type == "cuda":
            torch.backends.cudnn.benchmark = True  # sizes never change: try the kernels once, keep the fastest
        torch.manual_seed(config.seed)  # of the card, too: exploration and samples are drawn there
        n = config.n_envs
        shape = (config.frame_stack, config.screen_size, config.screen_size)
        spec = EnvSpec(
            n, self.players[0].n_actions, shape, np.dtype(np.uint8), config.frame_stack, config.frame_skip, True
        )
        self.envs = _EnvsFace(spec)
        self.learner = Learner(config, spec, str(device))
        # Every tick brings the first bad update; asking the card would wait for it.
        self.learner.check_finite = lambda: None
        deep = config.screen_size % 4 == 0 and config.network in ("nature", "small")
        self.ring = self.replay = Ring(
            config.replay_capacity // n, n, config.screen_size, config.frame_stack, device, deep
        )
        self.clock: Clock = make_clock(config)
        self.phases = Phases()
        self._act = wrap(tuple(w for w in config.wrappers if w != "compile"), str(device)).act
        if "bfloat16" in config.wrappers:
            plain = self._act

            def act(network: torch.nn.Module, obs: Tensor) -> Tensor:
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    return plain(network, obs)

            self._act = act

        self.updates = Updates(self)
        self.age = torch.zeros(n, dtype=torch.int64, device=device)
        self.score = torch.zeros(n, device=device)
        self.length = torch.zeros(n, dtype=torch.int64, device=device)
        self.was_away = torch.zeros(n, dtype=torch.bool, device=device)
        # Random numbers of the choices and of the updates, where they are not torch's own.
        self.chances: dict[str, torch.Generator] = {}
        each = n // len(self.players)
        rings = [self.ring] if each == n else [self.ring.part(first, each) for first in range(0, n, each)]
        # The last one is behind the others: up to its head all of them have been.
        rings[-1].head, rings[-1].filled = self.ring.head, self.ring.filled
        self.parts = tuple(Part(self, ring) for ring in rings)
        self.acting = Acting(self.learner.online, self.updates.own, len(self.parts))
        self.report = torch.zeros(REPORT, dtype=torch.float64, device=device)
        self.report[4] = -1
        # environment, score, steps; the last row takes what is no end
        self.ends = torch.zeros((MOST_ENDS + 1, 3), device=device)
        self.behind = int(device.type == "cuda")  # graphs that may be started before the numbers of the last are read
        self.in_flight = 0  # of them, those that were started: their numbers are still to be read
        self.enqueued = self.learned = 0  # updates started; vector steps started that had updates beside them

    @property
    def player(self) -> Any:
        """Where there is but one part."""
        return self.players[0]

    # ---- the parts of a graph: tensors in, tensors out, nothing waits

    def _epsilon(self) -> Tensor:
        c = self.config
        share = (self.report[0] / max(c.epsilon_decay_steps, 1)).clamp(max=1.0)
        return c.epsilon_start + (c.epsilon_end - c.epsilon_start) * share

    def values(self, k: int = 0) -> Tensor:
        """What the online network makes of the current observations of part k, (n, n_actions)."""
        if self.updates.own is not None:
            return self.updates.own.act(self.parts[k].ring, self.acting.weights[k])
        return dqn.q_values(self._act(self.acting.weights[k], self.players[k].obs), self.learner._atoms)

    def choose(self, k: int = 0) -> None:
        """Part k looks and decides; what the updates after it may read is fixed."""
        part, player = self.parts[k], self.players[k]
        here = player.away == 0
        part.ring.see(player.obs[:, -1], part.age)
        greedy = self.values(k).argmax(1)
        chance: dict[str, Any] = {"device": self.device, "generator": self.chances.get("choose")}
        explore = torch.rand(len(here), **chance) < self._epsilon()
        actions = torch.where(explore, torch.randint(0, player.n_actions, (len(here),), **chance), greedy)
        player.actions.copy_(actions)
        part.ring.decide(actions, here)
        part.was_away.copy_(~here)
        last = self.parts[-1]
        part.head.copy_(self.ring.head if part is last else last.head)
        part.filled.copy_(self.ring.filled if part is last else last.filled)

    def play(self, k: int = 0) -> None:
        """One step of every machine of part k that is here, and the book-keeping of its games."""
        part, player = self.parts[k], self.players[k]
        player.step()
        reward, done, cut, over = player.outcome()
        here = ~part.was_away
        over = over & here
        learned = reward.clamp(-1, 1) if self.config.clip_rewards else reward
        part.ring.outcome(learned * here, done & here, cut & here)
        part.age.add_(1)
        part.score.add_(reward * here)
        part.length.add_(here)
        place = torch.where(over, self.report[2].long() + over.cumsum(0) - 1, MOST_ENDS).clamp(max=MOST_ENDS)
        self.ends.index_copy_(0, place, torch.stack([part.numbers, part.score, part.length.float()], 1))
        part.score.masked_fill_(over, 0)
        part.length.masked_fill_(over, 0)
        self.report[0].add_(here.sum())
        self.report[2].add_(over.sum())

    def admit(self) -> None:
        """Once a graph: finished starts come in, waiting machines go out to start."""
        before = self.player.away.clone()
        self.player.admit()
        self.age.masked_fill_((before != 0) & (self.player.away == 0), 0)
        self.report[2].zero_()

    def learn(self, k: int = 1, part: int = -1) -> None:
        """k updates."""
        for group in self.updates.parts(k):
            self.updates.run(group, part)

    @torch.no_grad()
    def sync_target(self) -> None:
        for to, of in zip(self.learner.target.parameters(), self.learner.online.parameters(), strict=True):
            to.copy_(of)
        self.updates.sync_target()

    # ---- state

    def state_tensors(self) -> dict[str, Tensor]:
        own = {k: getattr(self, k) for k in ("age", "score", "length", "was_away", "report", "ends")}
        return {**{f"ring.{k}": v for k, v in self.ring.tensors().items()}, **own}

    def get_state(self) -> tuple[dict[str, Mapping[str, Any]], dict[str, Any]]:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        tensors = {k: v.cpu().numpy() for k, v in self.state_tensors().items()}
        tensors["torch_rng"] = torch.get_rng_state().numpy()
        if self.device.type == "cuda":
            tensors["cuda_rng"] = torch.cuda.get_rng_state(self.device).numpy()
        arrays: dict[str, Mapping[str, Any]] = {"learner": self.learner.get_state(), "agent": tensors}
        if hasattr(self.player, "vec"):
            arrays["envs"] = self.player.vec.get_state()
        # The clock is that of the last tick; the card may be a graph ahead, whose numbers the resumed run reads first.
        started = {k: getattr(self, k) for k in ("in_flight", "enqueued", "learned")}
        return arrays, {"clock": self.clock.get_state(), "phases": dict(self.phases.seconds), "started": started}

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        self.learner.set_state(
            {k: v if isinstance(v, Tensor) else torch.from_numpy(np.array(v)) for k, v in arrays["learner"].items()}
        )
        self.updates.refresh()
        saved = arrays["agent"]
        for k, v in self.state_tensors().items():
            v.copy_(torch.from_numpy(np.array(saved[k])))
        torch.set_rng_state(torch.from_numpy(np.array(saved["torch_rng"])))
        if "cuda_rng" in saved:
            torch.cuda.set_rng_state(torch.from_numpy(np.array(saved["cuda_rng"])), self.device)
        if "envs" in arrays:
            self.player.vec.set_state(dict(arrays["envs"]))
        self.clock.set_state(record["clock"])
        for k, v in record["started"].items():
            setattr(self, k, int(v))
        self.phases.seconds.update(record["phases"])

    def close(self) -> None:
        if hasattr(self.player, "vec"):
            self.player.vec.close()


class _EnvsFace:
    """What a session asks of environments."""

    def __init__(self, spec: EnvSpec) -> None:
        self.spec = spec


class Graphs:
    """Records the parts as CUDA graphs and starts them; without a GPU it calls them one after the other."""

    def __init__(self, agent: DeviceAgent) -> None:
        self.agent, self.cuda = agent, agent.device.type == "cuda"
        c = agent.config
        self.updates_per_step = c.n_envs / c.steps_per_update
        # A graph ends where the target is due, since only between graphs it is copied.
        self.per_graph = max(1, min(STEPS_PER_GRAPH, c.target_sync_steps // c.n_envs or 1))
        self._graphs: dict[tuple[int, ...], Any] = {}
        if self.cuda:
            self._play, self._start = torch.cuda.Stream(agent.device), torch.cuda.Stream(agent.device)

    def _body(self, updates: tuple[int, ...]) -> None:
        """`updates[i]` updates beside vector step i."""
        a = self.agent
        a.admit()
        if not self.cuda:
            a.player.begin_games()
            for k in updates:
                a.choose()
                a.learn(k)
                a.play()
            return
        main = torch.cuda.current_stream()
        self._start.wait_stream(main)
        with torch.cuda.stream(self._start):
            a.player.begin_games()
        for k in updates:
            a.choose()
            self._play.wait_stream(main)
            with torch.cuda.stream(self._play):
                a.play()
            a.learn(k)
            main.wait_stream(self._play)
        main.wait_stream(self._start)

    def warm_up(self) -> None:
        """Allocate and compile on what is in the ring; then everything is put back as it was."""
        a = self.agent
        optimizer = a.learner._optimizer
        network = {k: v.clone() for k, v in a.learner.online.state_dict().items()}
        moments = {p: {k: v.clone() for k, v in s.items()} for p, s in optimizer.state.items()}
        report, rng = a.report.clone(), torch.cuda.get_rng_state(a.device)
        chances = {name: chance.get_state() for name, chance in a.chances.items()}
        stream = torch.cuda.Stream(a.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for k in {1, a.updates.group}:
                for _ in range(3):
                    a.learn(k)
            a.values()
        torch.cuda.current_stream().wait_stream(stream)
        a.learner.online.load_state_dict(network)
        a.updates.refresh()
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                value.copy_(moments[parameter][name]) if parameter in moments else value.zero_()
        a.report.copy_(report)
        torch.cuda.set_rng_state(rng, a.device)
        for name, state in chances.items():
            a.chances[name].set_state(state)

    def prepare(self) -> None:
        """Compile and record what the run begins with, before any clock runs."""
        if self.cuda:
            self.warm_up()
            self.recorded((0,) * self.per_graph)
            self.recorded(self.plan(0, self.per_graph))

    def recorded(self, updates: tuple[int, ...]) -> Any:
        if updates not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._body(updates)
            self._graphs[updates] = graph
        return self._graphs[updates]

    def run(self, updates: tuple[int, ...]) -> None:
        """Start a graph with these updates; a pattern that was not seen before is recorded first."""
        if self.cuda:
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
    sync_every = max(1, round(c.target_sync_steps / c.steps_per_update))
    waiting: deque[tuple[Any, Tensor, Tensor]] = deque()
    if a.in_flight:  # of the run that is resumed
        waiting.append((None, a.report.cpu().clone(), a.ends.cpu().clone()))
    while True:
        begun = time.perf_counter()
        updates = (0,) * graphs.per_graph
        if a.clock.steps >= c.first_fill_steps:
            updates = graphs.plan(a.learned, graphs.per_graph)
            a.learned += graphs.per_graph
        if a.enqueued // sync_every != (a.enqueued + sum(updates)) // sync_every:
            a.sync_target()
        a.enqueued += sum(updates)
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
    rows = ends[: min(int(n_ends), MOST_ENDS)].tolist()
    games = tuple(GameEnd(int(env), score, int(length)) for env, score, length in rows)
    last = torch.tensor(loss) if updates else None
    return Tick(int(steps), int(updates), a.clock.epsilon(), last, games)


def make(config: Config) -> tuple[DeviceAgent, Iterator[Tick]]:
    """An agent on the card and its ticks."""
    from dqnitro.atari.cuda.build import CudaUnavailable, require
    from dqnitro.envs import env_kind

    if env_kind(config.env_id) != "atari":
        raise ConfigError(f"runner device plays Atari games, {config.env_id} is none", "use --runner inline")
    if config.prioritized:
        raise ConfigError("runner device samples uniformly", "drop --prioritized, or use --runner inline")
    if "fused-adam" not in config.wrappers:  # the other one reads its step counter on the host: no graph could hold it
        config = config.replace(wrappers=(*config.wrappers, "fused-adam"))
    if config.act_device != "same":
        raise ConfigError(f"runner device acts where it learns, got act_device {config.act_device}", "leave it at same")
    if config.resize != "area":
        raise ConfigError(
            f"runner device shrinks pictures by area, got resize {config.resize!r}", "leave --resize at area"
        )
    name = "cuda" if config.device in ("auto", "cpu") else config.device
    device = torch.device(name)
    try:
        require(device.index)
        if device.index is not None:
            torch.cuda.set_device(device)  # kernels are launched on the current card
        agent = DeviceAgent(config, device)
    except CudaUnavailable as error:
        raise ConfigError(f"runner device: {error}") from None
    except torch.OutOfMemoryError:
        raise ConfigError(
            f"runner device: the GPU has no memory for {config.n_envs} machines and {config.replay_capacity} transitions",
            "lower --replay-capacity or --n-envs",
        ) from None
    graphs = Graphs(agent)
    graphs.prepare()
    return agent, ticks(agent, graphs)
