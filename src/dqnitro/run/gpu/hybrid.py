"""The `hybrid` runner: games on the CPU's cores, replay and learner on the GPU, at the same time.

A tick: the card chooses actions (one graph) and sends them to the host; the host starts a step on its threads and, while they play,
starts the updates that are owed (one graph each); when a step is done, only its newest frames go to the card, which keeps the stacks
and the replay. The one wait of a tick is for the actions.

With the console the environments are two parts that take turns: while the card chooses for one, the cores play the other. A
tick is then a step of one part, and `turn` says whose actions are chosen next; all others are at play. Updates have a stream of their
own on the card, so that a choice waits for none but those that followed the last turn of the same part (`parts.Acting`).

Any environment part with images works, and the clock is the inline loop's: the same updates and target syncs are owed at the
same steps. Random numbers are the card's, so it is another run of the same experiment, not the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec, GameEnd, Step
from dqnitro.envs.turns import EnvParts, make_env_parts
from dqnitro.errors import CheckpointError, ConfigError, DivergedError
from dqnitro.loop import Tick, resolve_device
from dqnitro.run.gpu.device import DeviceAgent


class HostPlayer:
    """n environments on the host, seen from the card: tensors that keep their address."""

    def __init__(self, spec: EnvSpec, n: int, device: torch.device) -> None:
        stack, height, width = spec.obs_shape
        self.n_actions = spec.n_actions
        pin = device.type == "cuda"
        self.obs = torch.zeros((n, stack, height, width), dtype=torch.uint8, device=device)
        self.actions = torch.zeros(n, dtype=torch.int64, device=device)
        self.away = torch.zeros(n, dtype=torch.int32, device=device)  # this environment resets in the next tick
        self.reset = torch.zeros(n, dtype=torch.bool, device=device)
        # What a step brings, first on the host (pinned, so that the copy does not wait), then here: one piece of memory.
        size = n * height * width
        size += -size % 4
        self._there = torch.zeros(size + 8 * n, dtype=torch.uint8, device=device)
        self._here = torch.zeros(size + 8 * n, dtype=torch.uint8, pin_memory=pin)

        def parts(memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """Frames, rewards, and four flags: terminated, truncated, reset, ended."""
            reward = memory[size : size + 4 * n].view(torch.float32)
            return (
                memory[: n * height * width].view(n, height, width),
                reward,
                memory[size + 4 * n :].view(torch.bool).view(4, n),
            )

        self.frame, self.reward, self.flags = parts(self._there)
        self._frame_host, self._reward_host, self._flags_host = (x.numpy() for x in parts(self._here))
        self.actions_host = torch.zeros(n, dtype=torch.int64, pin_memory=pin)

    def show(self, obs: np.ndarray) -> None:
        """Whole stacks to the card: at the start and after a resume."""
        self.obs.copy_(torch.from_numpy(np.ascontiguousarray(obs)))

    def take(self, step: Step) -> None:
        """What a step has brought, where the card fetches it. Ends are numbered among all environments."""
        self._frame_host[:] = step.obs_t[:, -1]
        self._reward_host[:] = step.reward_t
        self._flags_host[:3] = step.terminated, step.truncated, step.reset
        self._flags_host[3] = False
        self._flags_host[3, [end.env % len(self.actions) for end in step.ends]] = True

    # ---- what `DeviceAgent.play` calls; a graph can hold it

    def step(self) -> None:
        """Fetch the new frames and push them; a new game's stack is black but for its first frame."""
        self._there.copy_(self._here, non_blocking=True)
        reset = self.flags[2]
        older = self.obs[:, 1:].clone().masked_fill_(reset[:, None, None, None], 0)
        self.obs[:, :-1].copy_(older)
        self.obs[:, -1].copy_(self.frame)
        self.reset.copy_(reset)
        self.away.copy_(self.flags[3])

    def outcome(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.reward, self.flags[0], self.flags[1], self.flags[3]


class Streams:
    """Play and learning on the card: side by side where there are parts that take turns, one after the other where there is one."""

    def __init__(self, device: torch.device, parts: int) -> None:
        self.device = device
        self.play = torch.cuda.Stream(device, priority=-1)  # short, and somebody waits for it
        self.learn = torch.cuda.Stream(device) if parts > 1 else self.play
        self.learned = [torch.cuda.Event() for _ in range(parts)]  # the updates that followed a part's turn are done
        self._played = torch.cuda.Event()
        # Graphs of a stream run one after the other and keep nothing in their memory, so one piece of it serves all.
        self._pools = {name: torch.cuda.graph_pool_handle() for name in ("play", "learn")}

    def of(self, name: str) -> tuple[torch.cuda.Stream, Any]:
        """Where a part of the run belongs, and the memory of its graph. A graph's scratch memory is that of its stream."""
        mine = "play" if name in ("choose", "play") else "learn"
        return getattr(self, mine), self._pools[mine]

    def join(self, k: int) -> None:
        """What somebody else starts on the card from now on comes after all that is under way; k had the last turn."""
        current = torch.cuda.current_stream(self.device)
        self._played.record(self.play)
        current.wait_event(self._played)
        current.wait_event(self.learned[k])


class HybridAgent(DeviceAgent):
    """Half of the run on the card, half on the host."""

    players: tuple[HostPlayer, ...]

    def __init__(self, config: Config, envs: EnvParts, device: torch.device) -> None:
        super().__init__(config, device, [HostPlayer(envs.spec, envs.n_each, device) for _ in envs.parts])
        self.envs = envs  # type: ignore[assignment]
        self._show(envs.reset())
        self.playing: list[int] = []  # who is at play, in the order of their turns
        self.early: dict[int, tuple[int, tuple[GameEnd, ...]]] = {}  # of them, who was finished before its turn came
        pin = device.type == "cuda"
        self.report_host = torch.zeros(self.report.shape, dtype=self.report.dtype, pin_memory=pin)
        self._epsilon_host = torch.zeros(1, dtype=torch.float64, pin_memory=pin)
        self._epsilon_there = torch.zeros(1, dtype=torch.float64, device=device)
        # Choices and updates run side by side, so each have random numbers of their own.
        self.chances = {name: torch.Generator(device) for name in ("choose", "learn")}
        for i, chance in enumerate(self.chances.values()):
            chance.manual_seed(2 * config.seed + i)
        self.refreshed = [0] * len(self.players)  # updates in the weights that a part acts with
        self._graphs: dict[tuple[Any, ...], Any] = {}
        self._on_card = Streams(device, len(self.players)) if device.type == "cuda" else None

    @property
    def turn(self) -> int:
        """Whose actions are chosen next: who is at play follows in the order of the parts."""
        return (self.playing[-1] + 1) % len(self.players) if self.playing else 0

    def _show(self, obs: np.ndarray) -> None:
        for player, part in zip(self.players, np.split(obs, len(self.players)), strict=True):
            player.show(part)

    def _epsilon(self) -> Tensor:
        """By the host's clock, which counts a step when its turn has come; the card may have seen it earlier."""
        return self._epsilon_there

    def choose(self, k: int = 0) -> None:
        """As on the card alone, with what the host has to know brought to it, and the other way round."""
        player = self.players[k]
        self._epsilon_there.copy_(self._epsilon_host, non_blocking=True)
        super().choose(k)
        player.actions_host.copy_(player.actions, non_blocking=True)
        self.report_host.copy_(self.report, non_blocking=True)

    def play(self, k: int = 0) -> None:
        super().play(k)
        self.parts[k].age.masked_fill_(self.players[k].reset, 0)

    def learn(self, k: int = 1, part: int = -1, last: int = 0) -> None:
        """After the `last` updates that follow a part's turn, it acts with what was learned."""
        super().learn(k, part)
        if last:
            self.acting.refresh(part)

    def _run(self, name: str, *arguments: int) -> None:
        """`choose`, `play`, `learn` or `sync_target`: from its graph on a GPU."""
        part = getattr(self, name)
        if self._on_card is None:
            part(*arguments)
            return
        stream, pool = self._on_card.of(name)
        key = name, *arguments
        with torch.cuda.stream(stream):
            if key not in self._graphs:
                graph = torch.cuda.CUDAGraph()
                if name in self.chances:
                    graph.register_generator_state(self.chances[name])
                with torch.cuda.graph(graph, pool=pool, stream=stream):
                    part(*arguments)
                self._graphs[key] = graph
            self._graphs[key].replay()

    def prepare(self) -> None:
        """Compile before the clock runs; recording changes nothing, so the graphs can wait for their first use."""
        if self.device.type == "cuda":
            from dqnitro.run.gpu.device import Graphs

            Graphs(self).warm_up()
            torch.cuda.synchronize(self.device)

    def actions(self, k: int) -> np.ndarray:
        """The card's choice for part k, on the host: the one wait of a tick."""
        card = self._on_card
        self._epsilon_host.fill_(self.clock.epsilon())
        if card is not None:
            card.play.wait_event(card.learned[k])
        self._run("choose", k)
        if card is not None:
            card.play.synchronize()
        bad, loss = self.report_host[4].item(), self.report_host[3].item()
        if bad >= 0:
            raise DivergedError(int(bad), loss)
        return self.players[k].actions_host.numpy()

    def send(self, actions: np.ndarray) -> None:
        """Whose turn it is plays; the next turn is that of who has played longest."""
        k = self.turn
        self.envs.send(k, actions)
        self.playing.append(k)

    def finish(self) -> tuple[int, tuple[GameEnd, ...]]:
        """The step of who has played longest comes to the card: how many decisions it had, and which games ended."""
        k = self.playing.pop(0)
        return self.early.pop(k) if k in self.early else self._receive(k)

    def _receive(self, k: int) -> tuple[int, tuple[GameEnd, ...]]:
        step = self.envs.recv(k)
        self.phases.end("env")
        self.players[k].take(step)
        self._run("play", k)
        self.phases.end("store")
        return int(np.count_nonzero(~step.reset)), step.ends

    def learn_owed(self, k: int) -> None:
        """The updates that are owed, as many at a time as share a target network."""
        clock, together = self.clock, 0
        while clock.owes_update():
            if clock.owes_sync():
                self._learn(together, k)
                together = 0
                self._run("sync_target")
                clock.count_sync()
            clock.count_update()
            together += 1
        self._learn(together, k, last=self.refreshed[k] != clock.updates)
        self.refreshed[k] = clock.updates
        if self._on_card is not None:
            self._on_card.learned[k].record(self._on_card.learn)

    def _learn(self, updates: int, k: int, last: bool = False) -> None:
        groups = self.updates.parts(updates) or [0] * (last and len(self.parts) > 1)
        for i, group in enumerate(groups, 1):
            self._run("learn", group, k, int(last and i == len(groups)))

    # ---- state: the card's, and the environments' own

    def get_state(self) -> tuple[dict[str, Mapping[str, Any]], dict[str, Any]]:
        """Who is at play is waited for; what its step brought is on the card and in `early` until its turn comes."""
        self.phases.begin()
        for k in self.playing:
            if k not in self.early:
                self.early[k] = self._receive(k)
        arrays, record = super().get_state()
        card = dict(arrays["agent"])
        for name in ("obs", "away"):
            card[name] = np.concatenate([getattr(player, name).cpu().numpy() for player in self.players])
        card["heads"] = np.concatenate([part.ring.head.cpu().numpy() for part in self.parts])
        card["readable"] = np.array([[int(part.head), int(part.filled)] for part in self.parts])
        card |= {f"chance.{name}": chance.get_state().numpy() for name, chance in self.chances.items()}
        card |= self.acting.get_state()
        parts = {"playing": list(self.playing), "early": {str(k): v for k, v in self.early.items()}}
        return {**arrays, "agent": card, "envs": self.envs.get_state()}, {**record, "parts": parts}  # type: ignore[attr-defined]

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        super().set_state({k: v for k, v in arrays.items() if k != "envs"}, record)
        self.envs.set_state(arrays["envs"])  # type: ignore[attr-defined]
        card = {k: np.array(v) for k, v in arrays["agent"].items() if not k.startswith("ring.")}
        self._show(card["obs"])
        for player, away in zip(self.players, np.split(card["away"], len(self.players)), strict=True):
            player.away.copy_(torch.from_numpy(away))
        # A checkpoint of before there were parts was taken with nobody at play.
        now, filled = int(self.ring.head), int(self.ring.filled)
        heads = card.get("heads", [now] * len(self.parts))
        readable = card.get("readable", [(now, filled)] * len(self.parts))
        if len(heads) != len(self.parts):
            raise CheckpointError(f"{len(heads)} parts were saved, this run has {len(self.parts)}", "keep env_parts")
        for part, head, (seen, full) in zip(self.parts, heads, readable, strict=True):
            part.ring.head.fill_(int(head))
            part.head.fill_(int(seen))
            part.filled.fill_(int(full))
        for name, chance in self.chances.items():
            if (kept := card.get(f"chance.{name}")) is not None:
                chance.set_state(torch.from_numpy(kept))
        self.acting.set_state(card)
        self.refreshed = [-1] * len(self.parts)
        parts = record.get("parts", {"playing": [], "early": {}})
        self.playing = [int(k) for k in parts["playing"]]
        self.early = {int(k): (int(n), tuple(GameEnd(*end) for end in ends)) for k, (n, ends) in parts["early"].items()}
        if self._on_card is not None:
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        self.envs.close()  # type: ignore[attr-defined]


def ticks(agent: HybridAgent) -> Iterator[Tick]:
    """Endless; between two ticks nothing is under way but updates on the card and the steps of other parts."""
    a, clock, phases = agent, agent.clock, agent.phases
    while True:
        phases.begin()
        epsilon = clock.epsilon()
        k = a.turn
        actions = a.actions(k)
        phases.end("act")
        a.send(actions)
        phases.end("env")
        a.learn_owed(k)
        phases.end("learn")
        if len(a.playing) < len(a.players):  # at the very start: the other parts begin, too
            continue
        decided, ends = a.finish()
        clock.count_steps(decided)
        if a._on_card is not None:
            a._on_card.join(k)
        loss = a.report_host[3].float() if clock.updates else None
        yield Tick(clock.steps, clock.updates, epsilon, loss, ends)


def make(config: Config) -> tuple[HybridAgent, Iterator[Tick]]:
    """Environments on the host, the rest on the card (or, slower, on the CPU: for tests)."""
    from dqnitro.envs import env_kind

    if env_kind(config.env_id) == "vector":
        raise ConfigError(f"runner hybrid stores frames, {config.env_id} shows none", "use --runner inline")
    if config.prioritized:
        raise ConfigError("runner hybrid samples uniformly", "drop --prioritized, or use --runner inline")
    device = torch.device(resolve_device(config.device))
    if device.type == "cuda" and "fused-adam" not in config.wrappers:
        raise ConfigError("runner hybrid needs the fused optimiser in its graph", "add --also fused-adam")
    if config.torch_threads or device.type == "cuda":
        # On the host torch only moves frames; threads of its own would spin on the cores that play.
        torch.set_num_threads(config.torch_threads or 1)
    envs = make_env_parts(config)
    try:
        agent = HybridAgent(config, envs, device)
        agent.prepare()
    except BaseException:
        envs.close()
        raise
    return agent, ticks(agent)
