"""The `hybrid` runner: games on the CPU's cores, replay and learner on the GPU, at the same time.

A tick: the card chooses actions (one graph) and sends them to the host; the host starts a vector step on its threads and, while
they play, starts the updates that are owed (one graph each); when the step is done, only its newest frames go to the card, which
keeps the stacks and the replay. The one wait of a tick is for the actions.

Where threads play, the environments are two parts that take turns: a tick sends one part its actions and then finishes the other's
step, so that the cores do not wait for the card.

Any environment part with images works, and the clock is the inline loop's: the same updates and target syncs are owed at the
same steps. Random numbers are the card's, so it is another run of the same experiment, not the same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnitro.config import Config
from dqnitro.envs.base import Envs, GameEnd, Step
from dqnitro.errors import CheckpointError, ConfigError, DivergedError
from dqnitro.loop import Tick, resolve_device
from dqnitro.machine import usable_cores
from dqnitro.run.device import DeviceAgent

SEED_STEP = 1 << 20  # between the seeds of two parts


class HostPlayer:
    """Environments on the host, seen from the card: tensors that keep their address."""

    def __init__(self, envs: Envs, device: torch.device) -> None:
        self.envs, spec = envs, envs.spec
        n, (stack, height, width) = spec.n_envs, spec.obs_shape
        self.n_actions = spec.n_actions
        pin = device.type == "cuda"
        self.obs = torch.zeros((n, stack, height, width), dtype=torch.uint8, device=device)
        self.actions = torch.zeros(n, dtype=torch.int64, device=device)
        self.away = torch.zeros(n, dtype=torch.int32, device=device)  # this environment resets in the next tick
        self.reset = torch.zeros(n, dtype=torch.bool, device=device)
        # What a step brings, first on the host (pinned, so that copies do not wait), then here.
        self.frame, self.frame_host = self._pair((n, height, width), torch.uint8, device, pin)
        self.reward, self.reward_host = self._pair((n,), torch.float32, device, pin)
        self.flags, self.flags_host = self._pair((4, n), torch.bool, device, pin)  # terminated, truncated, reset, ended
        self.actions_host = torch.zeros(n, dtype=torch.int64, pin_memory=pin)
        self.sent = False  # a step is under way
        self.received: tuple[GameEnd, ...] | None = None  # it is over, and what it brought is on the host: its ends
        self.show(envs.reset())

    @staticmethod
    def _pair(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, pin: bool) -> tuple[Tensor, Tensor]:
        return torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, pin_memory=pin)

    def show(self, obs: np.ndarray) -> None:
        """Whole stacks to the card: at the start and after a resume."""
        self.obs.copy_(torch.from_numpy(np.ascontiguousarray(obs)))

    def send(self, actions: np.ndarray) -> None:
        self.envs.send(actions)
        self.sent = True

    def receive(self) -> tuple[GameEnd, ...]:
        """Wait for the step; its newest frames, rewards and flags are then on the host, and the games that ended are returned."""
        if self.received is None:
            step = self.envs.recv()
            self._keep(step)
            self.received = step.ends
        return self.received

    def _keep(self, step: Step) -> None:
        self.frame_host.copy_(torch.from_numpy(step.obs_t[:, -1]))
        self.reward_host.copy_(torch.from_numpy(step.reward_t))
        ended = np.zeros(len(step.reset), bool)
        ended[[end.env for end in step.ends]] = True
        for row, flag in zip(self.flags_host, (step.terminated, step.truncated, step.reset, ended), strict=True):
            row.copy_(torch.from_numpy(flag))

    def upload(self) -> None:
        """What was received, on its way to the card."""
        for to, of in self._pairs():
            to.copy_(of, non_blocking=True)
        self.sent, self.received = False, None

    def _pairs(self) -> tuple[tuple[Tensor, Tensor], ...]:
        return (self.frame, self.frame_host), (self.reward, self.reward_host), (self.flags, self.flags_host)

    def get_state(self) -> dict[str, np.ndarray]:
        """A step that is under way is waited for and kept; it is not on the card yet."""
        kept = {"obs": self.obs.cpu().numpy(), "away": self.away.cpu().numpy(), "sent": np.array(self.sent)}
        if self.sent:
            ends = self.receive()
            kept |= {"ends": np.array([(e.env, e.score, e.steps) for e in ends], np.float64).reshape(-1, 3)}
            kept |= {f"came.{i}": host.numpy().copy() for i, (_, host) in enumerate(self._pairs())}
        return kept

    def set_state(self, kept: Mapping[str, Any]) -> None:
        self.show(np.array(kept["obs"]))
        self.away.copy_(torch.from_numpy(np.array(kept["away"])))
        self.sent = bool(kept["sent"])
        if self.sent:
            ends = np.asarray(kept["ends"]).tolist()
            self.received = tuple(GameEnd(int(env), score, int(steps)) for env, score, steps in ends)
            for i, (_, host) in enumerate(self._pairs()):
                host.copy_(torch.from_numpy(np.array(kept[f"came.{i}"])))

    # ---- what `Part.play` calls, on the card alone

    def step(self) -> None:
        """Push the new frames; a new game's stack is black but for its first frame."""
        reset = self.flags[2]
        older = self.obs[:, 1:].clone().masked_fill_(reset[:, None, None, None], 0)
        self.obs[:, :-1].copy_(older)
        self.obs[:, -1].copy_(self.frame)
        self.reset.copy_(reset)
        self.away.copy_(self.flags[3])

    def outcome(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.reward, self.flags[0], self.flags[1], self.flags[3]


class HybridAgent(DeviceAgent):
    """Half of the run on the card, half on the host."""

    def __init__(self, config: Config, envs: Sequence[Envs], device: torch.device) -> None:
        self.players = [HostPlayer(e, device) for e in envs]
        super().__init__(config, device, *self.players)
        self.turn = len(envs) - 1  # the part that acts next
        self.report_host = torch.zeros(self.report.shape, dtype=self.report.dtype, pin_memory=device.type == "cuda")
        self._graphs: dict[tuple[Any, ...], Any] = {}
        # They run one after the other and keep nothing in it, so one piece of memory serves all.
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def choose(self, turn: int) -> None:
        self.parts[turn].choose()

    def play(self, turn: int) -> None:
        part = self.parts[turn]
        part.play()
        part.age.masked_fill_(part.player.reset, 0)

    def _run(self, name: str, *arguments: int) -> None:
        """`choose`, `play` or `learn`: from its graph on a GPU."""
        part = getattr(self, name)
        if self.device.type != "cuda":
            part(*arguments)
            return
        key = name, *arguments
        if key not in self._graphs:
            self._graphs[key] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graphs[key], pool=self._pool):
                part(*arguments)
        self._graphs[key].replay()

    def prepare(self) -> None:
        """Compile before the clock runs; recording changes nothing, so the graphs can wait for their first use."""
        if self.device.type == "cuda":
            from dqnitro.run.device import Graphs

            Graphs(self).warm_up()

    def send(self, turn: int) -> None:
        """The card's choice goes to a part's environments. The one wait of a tick: everything enqueued before it is done, too."""
        player: HostPlayer = self.players[turn]
        self._run("choose", turn)
        player.actions_host.copy_(player.actions, non_blocking=True)
        self.report_host.copy_(self.report, non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        bad, loss = self.report_host[4].item(), self.report_host[3].item()
        if bad >= 0:
            raise DivergedError(int(bad), loss)
        self.phases.end("act")
        player.send(player.actions_host.numpy())
        self.phases.end("env")

    def finish(self, turn: int) -> tuple[GameEnd, ...]:
        """A part's step is waited for and stored."""
        player, part = self.players[turn], self.parts[turn]
        ends = player.receive()
        decided = int(player.flags_host[2].numel() - player.flags_host[2].count_nonzero())
        self.phases.end("env")
        player.upload()
        self._run("play", turn)
        self.clock.count_steps(decided)
        self.phases.end("store")
        return tuple(e._replace(env=e.env + part.first) for e in ends) if part.first else ends

    def learn_owed(self) -> None:
        """The updates that are owed, as many at a time as share a target network."""
        clock, together = self.clock, 0
        while clock.owes_update():
            if clock.owes_sync():
                self._learn(together)
                together = 0
                self.sync_target()
                clock.count_sync()
            clock.count_update()
            together += 1
        self._learn(together)

    def _learn(self, k: int) -> None:
        for group in self.updates.parts(k):
            self._run("learn", group)

    # ---- state: the card's, and the environments' own

    def get_state(self) -> tuple[dict[str, Mapping[str, Any]], dict[str, Any]]:
        players = [p.get_state() for p in self.players]
        arrays, record = super().get_state()
        card = {**arrays["agent"], **{f"player.{i}.{k}": v for i, p in enumerate(players) for k, v in p.items()}}
        envs = {f"{i}.{k}": v for i, p in enumerate(self.players) for k, v in p.envs.get_state().items()}
        return {**arrays, "agent": card, "envs": envs}, {**record, "turn": self.turn}

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        if "turn" not in record:
            raise CheckpointError("a run of runner hybrid from before its environments took turns", "begin it anew")
        super().set_state({k: v for k, v in arrays.items() if k != "envs"}, record)
        for i, player in enumerate(self.players):
            player.envs.set_state(_under(f"{i}.", arrays["envs"]))
            player.set_state(_under(f"player.{i}.", arrays["agent"]))
        self.turn = int(record["turn"])

    def close(self) -> None:
        for player in self.players:
            player.envs.close()


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {k[len(prefix) :]: v for k, v in arrays.items() if k.startswith(prefix)}


def ticks(agent: HybridAgent) -> Iterator[Tick]:
    """Endless; a tick finishes one part's step, while the others' are under way."""
    a, clock, n = agent, agent.clock, len(agent.parts)
    a.phases.begin()
    if not any(p.sent for p in a.players):
        for turn in range(n - 1):
            a.send(turn)
    while True:
        a.phases.begin()
        epsilon = clock.epsilon()
        a.send(a.turn)
        a.learn_owed()
        a.phases.end("learn")
        a.turn = (a.turn + 1) % n
        ends = a.finish(a.turn)
        loss = a.report_host[3].float() if clock.updates else None
        yield Tick(clock.steps, clock.updates, epsilon, loss, ends)


def parts_of(config: Config, device: torch.device) -> list[Config]:
    """The environments as one part, or as two that take turns: where threads play, and every one of them still has work."""
    threads = config.env_threads or usable_cores()
    if device.type != "cuda" or config.envs not in ("console", "ale") or config.n_envs < 2 * threads:
        return [config]
    return split(config, 2)


def split(config: Config, parts: int) -> list[Config]:
    sizes = [len(x) for x in np.array_split(np.arange(config.n_envs), parts)]
    return [config.replace(n_envs=n, seed=config.seed + i * SEED_STEP) for i, n in enumerate(sizes)]


def make(config: Config) -> tuple[HybridAgent, Iterator[Tick]]:
    """Environments on the host, the rest on the card (or, slower, on the CPU: for tests)."""
    from dqnitro.envs import env_kind, make_envs

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
    envs: list[Envs] = []
    try:
        for part in parts_of(config, device):
            envs.append(make_envs(part))
        agent = HybridAgent(config, envs, device)
        agent.prepare()
    except BaseException:
        for made in envs:
            made.close()
        raise
    return agent, ticks(agent)
