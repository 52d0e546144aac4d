"""The `hybrid` runner: games on the CPU's cores, replay and learner on the GPU, at the same time.

A tick: the card chooses actions (one graph) and sends them to the host; the host starts a vector step on its threads and, while
they play, starts the updates that are owed (one graph each); when the step is done, only its newest frames go to the card, which
keeps the stacks and the replay. The one wait of a tick is for the actions.

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
from dqnitro.envs.base import Envs, Step
from dqnitro.errors import ConfigError, DivergedError
from dqnitro.loop import Tick, resolve_device
from dqnitro.run.device import DeviceAgent


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
        self.first = envs.reset()
        self.show(self.first)

    def show(self, obs: np.ndarray) -> None:
        """Whole stacks to the card: at the start and after a resume."""
        self.obs.copy_(torch.from_numpy(np.ascontiguousarray(obs)))

    def upload(self, step: Step) -> None:
        self._frame_host[:] = step.obs_t[:, -1]
        self._reward_host[:] = step.reward_t
        self._flags_host[:3] = step.terminated, step.truncated, step.reset
        self._flags_host[3] = False
        self._flags_host[3, [end.env for end in step.ends]] = True
        self._there.copy_(self._here, non_blocking=True)

    # ---- what `DeviceAgent.play` calls, on the card alone

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

    player: HostPlayer

    def __init__(self, config: Config, envs: Envs, device: torch.device) -> None:
        super().__init__(config, device, HostPlayer(envs, device))
        self.envs = envs  # type: ignore[assignment]
        self.report_host = torch.zeros(self.report.shape, dtype=self.report.dtype, pin_memory=device.type == "cuda")
        self._graphs: dict[tuple[Any, ...], Any] = {}
        # They run one after the other and keep nothing in it, so one piece of memory serves all.
        self._pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def play(self) -> None:
        super().play()
        self.age.masked_fill_(self.player.reset, 0)

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

    def actions(self) -> np.ndarray:
        """The card's choice, on the host: the one wait of a tick. Everything enqueued before it is done, too."""
        self._run("choose")
        self.player.actions_host.copy_(self.player.actions, non_blocking=True)
        self.report_host.copy_(self.report, non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        bad, loss = self.report_host[4].item(), self.report_host[3].item()
        if bad >= 0:
            raise DivergedError(int(bad), loss)
        return self.player.actions_host.numpy()

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
        arrays, record = super().get_state()
        card = dict(arrays["agent"])
        card |= {"obs": self.player.obs.cpu().numpy(), "away": self.player.away.cpu().numpy()}
        return {**arrays, "agent": card, "envs": self.envs.get_state()}, record  # type: ignore[attr-defined]

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        super().set_state({k: v for k, v in arrays.items() if k != "envs"}, record)
        self.envs.set_state(arrays["envs"])  # type: ignore[attr-defined]
        self.player.show(np.array(arrays["agent"]["obs"]))
        self.player.away.copy_(torch.from_numpy(np.array(arrays["agent"]["away"])))

    def close(self) -> None:
        self.player.envs.close()


def ticks(agent: HybridAgent) -> Iterator[Tick]:
    """Endless; between two ticks nothing is under way but updates on the card."""
    a, clock, phases = agent, agent.clock, agent.phases
    while True:
        phases.begin()
        epsilon = clock.epsilon()
        actions = a.actions()
        phases.end("act")
        a.player.envs.send(actions)
        phases.end("env")
        a.learn_owed()
        phases.end("learn")
        step = a.player.envs.recv()
        phases.end("env")
        a.player.upload(step)
        a._run("play")
        clock.count_steps(int(np.count_nonzero(~step.reset)))
        phases.end("store")
        loss = a.report_host[3].float() if clock.updates else None
        yield Tick(clock.steps, clock.updates, epsilon, loss, step.ends)


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
    envs = make_envs(config)
    try:
        agent = HybridAgent(config, envs, device)
        agent.prepare()
    except BaseException:
        envs.close()
        raise
    return agent, ticks(agent)
