"""The `hybrid` runner: games on the CPU's cores, replay and learner on the GPU, at the same time.

A tick: the GPU chooses actions (one graph) and sends them to the host; the host starts a step on its threads and, while
they play, starts the updates that are owed (one graph each); when a step is done, only its newest frames go to the GPU,
which keeps the stacks and the replay. The one wait of a tick is for the actions.

With the console the environments are two groups that take turns: while the GPU chooses for one, the cores play the
other. A tick is then a step of one group, and `turn` says whose actions are chosen next; all others are at play.
Updates have a stream of their own on the GPU, so that a choice waits only for those that followed the last turn of the
same group (`turns.Acting`).

Any environment backend with images works, and the clock is the inline loop's: the same updates and target syncs are
owed at the same steps. Random numbers are the GPU's, so it is another run of the same experiment, not the same run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnitro.agent import State, Tick
from dqnitro.config import Config
from dqnitro.distributed.ranks import ALONE, Ranks
from dqnitro.envs.base import Envs, GameEnd, Step
from dqnitro.envs.turns import EnvGroups, make_env_groups
from dqnitro.errors import CheckpointError, ConfigError, DivergedError
from dqnitro.learn.transforms import for_graphs
from dqnitro.replay.base import saved as kept_as
from dqnitro.requirements import needs_grey_frames
from dqnitro.run.build import resolve_device
from dqnitro.run.gpu.agent import FIRST_BAD, LOSS, GpuAgent
from dqnitro.run.gpu.kernels_ahead import gpu_meanwhile
from dqnitro.run.gpu.streams import Lanes, NoStreams, Streams


class HostPlayer:
    """A group of environments on the host, seen from the GPU: tensors that keep their address."""

    def __init__(self, envs: Envs, device: torch.device) -> None:
        self._envs, n = envs, envs.spec.n_envs
        stack, height, width = envs.spec.obs_shape
        self.n_actions = envs.spec.n_actions
        pin = device.type == "cuda"
        self.obs = torch.zeros((n, stack, height, width), dtype=torch.uint8, device=device)
        self.actions = torch.zeros(n, dtype=torch.int64, device=device)
        self.resetting = torch.zeros(n, dtype=torch.int32, device=device)  # this environment resets in its next step
        self.reset = torch.zeros(n, dtype=torch.bool, device=device)
        # What a step brings, first on the host (pinned, so that the copy does not wait), then here: one piece of
        # memory.
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
        """Whole stacks to the GPU: at the start and after a resume."""
        self.obs.copy_(torch.from_numpy(np.ascontiguousarray(obs)))

    def take(self, step: Step) -> None:
        """What a step has brought, where the GPU fetches it. Ends are numbered among all environments."""
        self._frame_host[:] = step.obs_t[:, -1]
        self._reward_host[:] = step.reward_t
        self._flags_host[:3] = step.terminated, step.truncated, step.reset
        self._flags_host[3] = False
        self._flags_host[3, [end.env % len(self.actions) for end in step.ends]] = True

    # ---- what `GpuAgent.take_step` calls; a graph can hold it

    def step(self) -> None:
        """Fetch the new frames and push them; a new game's stack is black but for its first frame."""
        self._there.copy_(self._here, non_blocking=True)
        reset = self.flags[2]
        older = self.obs[:, 1:].clone().masked_fill_(reset[:, None, None, None], 0)
        self.obs[:, :-1].copy_(older)
        self.obs[:, -1].copy_(self.frame)
        self.reset.copy_(reset)
        self.resetting.copy_(self.flags[3])

    def outcome(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.reward, self.flags[0], self.flags[1]

    # ---- state: what the GPU was shown; the environments' own is `EnvGroups.get_state`, for all groups together

    def get_state(self) -> dict[str, np.ndarray]:
        return {"obs": self.obs.cpu().numpy(), "away": self.resetting.cpu().numpy()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.show(state["obs"])
        self.resetting.copy_(torch.from_numpy(state["away"]))

    def close(self) -> None:
        self._envs.close()


class HybridAgent(GpuAgent):
    """Replay and learner on the GPU, games on the host, whose clock counts."""

    envs: EnvGroups
    players: tuple[HostPlayer, ...]

    def __init__(self, config: Config, envs: EnvGroups, device: torch.device, ranks: Ranks = ALONE) -> None:
        super().__init__(config, device, envs, [HostPlayer(group, device) for group in envs.groups], ranks)
        self._show(envs.reset())
        self.playing: list[int] = []  # groups at play, in the order of their turns
        self.early: dict[int, tuple[int, tuple[GameEnd, ...]]] = {}  # of them, those that finished before their turn
        pin = device.type == "cuda"
        self.report_host = torch.zeros(self.report.shape, dtype=self.report.dtype, pin_memory=pin)
        self._epsilon_host = torch.zeros(1, dtype=torch.float64, pin_memory=pin)
        self._epsilon_there = torch.zeros(1, dtype=torch.float64, device=device)
        # Choices and updates run side by side, so each have random numbers of their own.
        if ranks is ALONE:
            self.chances = {name: torch.Generator(device) for name in ("choose", "learn")}
            for i, chance in enumerate(self.chances.values()):
                chance.manual_seed(2 * config.seed + i)
        self.refreshed = [0] * len(self.players)  # updates in the weights that a group acts with
        self.lanes: Lanes = Streams(device, len(self.players)) if device.type == "cuda" else NoStreams()

    @property
    def turn(self) -> int:
        """The group whose actions are chosen next: those at play follow in the order of the groups."""
        return (self.playing[-1] + 1) % len(self.players) if self.playing else 0

    def _show(self, obs: np.ndarray) -> None:
        for player, shown in zip(self.players, np.split(obs, len(self.players)), strict=True):
            player.show(shown)

    # ---- pieces of a graph

    def epsilon(self) -> Tensor:
        """By the host's clock, which counts a step when its turn has come; the GPU may have seen it earlier."""
        return self._epsilon_there

    def choose(self, k: int = 0) -> None:
        """A choice, with epsilon brought to the GPU before it, and actions and report to the host after it."""
        player = self.players[k]
        self._epsilon_there.copy_(self._epsilon_host, non_blocking=True)
        super().choose(k)
        player.actions_host.copy_(player.actions, non_blocking=True)
        self.report_host.copy_(self.report, non_blocking=True)

    def play(self, k: int = 0) -> None:
        self.take_step(k)
        self.groups[k].age.masked_fill_(self.players[k].reset, 0)

    def learn_after_turn(self, size: int, k: int, last: bool) -> None:
        """`size` updates that follow group k's turn; after the last of them it acts with what was learned."""
        if size:
            self.learn(size, k)
        if last:
            self.acting.refresh(k)

    # ---- a tick

    def prepare(self) -> None:
        """Compile before the clock runs; recording changes nothing, so the graphs can wait for their first use."""
        if self.device.type == "cuda":
            self.warm_up()
            torch.cuda.synchronize(self.device)

    def actions(self, k: int) -> np.ndarray:
        """The GPU's choice for group k, on the host: the one wait of a tick."""
        self._epsilon_host.fill_(self.clock.epsilon())
        self.lanes.wait_for_updates(k)
        self.lanes.play(self.choose, k, chance=self.chances["choose"])
        self.lanes.wait_for_play()
        if self.ranks is ALONE:
            self.check_finite(self.bad)
        return self.players[k].actions_host.numpy()

    @property
    def bad(self) -> int:
        """The number of the first bad update, of which the host knows with the last choice; 0 if there was none."""
        return max(0, int(self.report_host[FIRST_BAD].item()))

    def check_finite(self, bad: int) -> None:
        if bad:
            raise DivergedError(self.bad or self.clock.updates, self.report_host[LOSS].item())

    def agreed(self, decided: int) -> int:
        """The decisions of all ranks. A bad update ends them all in the same tick, whichever rank has noticed it."""
        decided, bad = self.ranks.totals((decided, self.bad))
        if self.ranks is not ALONE:
            self.check_finite(bad)
        return decided

    def send(self, actions: np.ndarray) -> None:
        """The group whose turn it is plays; the next turn is that of the group that has played longest."""
        k = self.turn
        self.envs.send(k, actions)
        self.playing.append(k)

    def finish(self) -> tuple[int, tuple[GameEnd, ...]]:
        """The step of the group that played longest comes to the GPU: how many decisions it had, which games ended."""
        k = self.playing.pop(0)
        return self.early.pop(k) if k in self.early else self._receive(k)

    def _receive(self, k: int) -> tuple[int, tuple[GameEnd, ...]]:
        step = self.envs.recv(k)
        self.phases.end("env")
        self.players[k].take(step)
        self.lanes.play(self.play, k)
        self.phases.end("store")
        return int(np.count_nonzero(~step.reset)), step.ends

    def learn_owed(self, k: int) -> None:
        """The updates that are owed, as many at a time as share a target network."""
        clock, owed = self.clock, 0
        while clock.owes_update():
            if clock.owes_sync():
                self._learn(owed, k)
                owed = 0
                self.lanes.learn(self.sync_target)
                clock.count_sync()
            clock.count_update()
            owed += 1
        self._learn(owed, k, last=self.refreshed[k] != clock.updates)
        self.refreshed[k] = clock.updates
        self.lanes.learned(k)

    def _learn(self, updates: int, k: int, last: bool = False) -> None:
        sizes = self.sizes(updates) or [0] * (last and len(self.groups) > 1)
        for i, size in enumerate(sizes, 1):
            self.lanes.learn(self.learn_after_turn, size, k, last and i == len(sizes), chance=self.chances["learn"])

    # ---- state: the GPU's, and the environments' own

    def get_state(self) -> State:
        """Waits for the groups at play; what their step brought is on the GPU and in `early` until their turn comes."""
        self.phases.begin()
        for k in self.playing:
            if k not in self.early:
                self.early[k] = self._receive(k)
        arrays, record = super().get_state()
        saved = dict(arrays["agent"])
        shown = [player.get_state() for player in self.players]
        saved |= {name: np.concatenate([state[name] for state in shown]) for name in shown[0]}
        saved["heads"] = np.concatenate([group.ring.head.cpu().numpy() for group in self.groups])
        saved["readable"] = np.array([[int(group.head), int(group.filled)] for group in self.groups])
        saved |= {f"chance.{name}": chance.get_state().numpy() for name, chance in self.chances.items()}
        saved |= self.acting.get_state()
        parts = {"playing": list(self.playing), "early": {str(k): v for k, v in self.early.items()}}
        return {**arrays, "agent": saved, "envs": self.envs.get_state()}, {**record, "parts": parts}

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        super().set_state(arrays, record)
        playing, early = self._parts_of(record)
        self.envs.set_state(arrays["envs"])
        saved = {k: np.array(v) for k, v in arrays["agent"].items() if not k.startswith("ring.")}
        pieces = (np.split(saved[name], len(self.players)) for name in ("obs", "away"))
        for player, obs, away in zip(self.players, *pieces, strict=True):
            player.set_state(
                {
                    "obs": kept_as({"obs": obs}, "obs", player.obs.cpu().numpy()),
                    "away": kept_as({"away": away}, "away", player.resetting.cpu().numpy(), 0, 1),
                }
            )
        # A checkpoint of before there were groups was taken while none was at play.
        now, filled = int(self.ring.head), int(self.ring.filled)
        heads = saved.get("heads", [now] * len(self.groups))
        readable = saved.get("readable", [(now, filled)] * len(self.groups))
        if len(heads) != len(self.groups):
            raise CheckpointError(f"{len(heads)} groups were saved, this run has {len(self.groups)}", "keep env_parts")
        _check_places(heads, readable, self.ring.slots)
        for group, head, (seen, full) in zip(self.groups, heads, readable, strict=True):
            group.ring.head.fill_(int(head))
            group.head.fill_(int(seen))
            group.filled.fill_(int(full))
        for name, chance in self.chances.items():
            if (kept := saved.get(f"chance.{name}")) is not None:
                chance.set_state(torch.from_numpy(kept))
        self.acting.set_state(saved)
        self.refreshed = [-1] * len(self.groups)
        self.playing, self.early = playing, early
        self.lanes.synchronize()

    def _parts_of(self, record: Mapping[str, Any]) -> tuple[list[int], dict[int, tuple[int, tuple[GameEnd, ...]]]]:
        """Groups at play and what their steps brought, out of a checkpoint's record; ValueError if it cannot be."""
        parts = record.get("parts", {"playing": [], "early": {}})
        playing, n = [int(k) for k in parts["playing"]], len(self.players)
        early = {
            int(k): (int(decided), tuple(GameEnd(int(env), float(score), int(steps)) for env, score, steps in ends))
            for k, (decided, ends) in parts["early"].items()
        }
        in_turn = all((a + 1) % n == b for a, b in itertools.pairwise(playing))
        if len(playing) >= n or not in_turn or sorted(early) != sorted(playing) or not set(playing) <= set(range(n)):
            raise ValueError(f"groups {playing} are at play and {sorted(early)} have finished, of {n}")
        if not all(0 <= decided <= self.envs.spec.n_envs for decided, _ in early.values()):
            raise ValueError("a group decided for more environments than there are")
        return playing, early


def _check_places(heads: Any, readable: Any, slots: int) -> None:
    """ValueError unless the groups' places in the ring are in it."""
    places = np.array([(int(head), int(seen), int(full)) for head, (seen, full) in zip(heads, readable, strict=True)])
    if (places < 0).any() or (places > (slots - 1, slots - 1, slots)).any():
        raise ValueError(f"places {places.tolist()} are not in a ring of {slots}")


def ticks(agent: HybridAgent) -> Iterator[Tick]:
    """Endless; between two ticks nothing is under way but updates on the GPU and the steps of other groups."""
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
        if len(a.playing) < len(a.players):  # at the very start: the other groups begin, too
            continue
        decided, ends = a.finish()
        clock.count_steps(a.agreed(decided))
        a.lanes.join(k)
        loss = a.report_host[LOSS].float() if clock.updates else None
        yield Tick(clock.steps, clock.updates, epsilon, loss, ends)


def make(config: Config) -> tuple[HybridAgent, Iterator[Tick]]:
    """Environments on the host, the rest on the GPU (or, slower, on the CPU: for tests)."""
    from dqnitro.envs import env_kind

    if env_kind(config.env_id, config.images) == "vector":
        raise ConfigError(f"runner hybrid needs images, {config.env_id} has none", "use --runner inline")
    if why := needs_grey_frames(config):
        raise ConfigError(f"runner hybrid: {why}", "use --runner inline, or --images grey")
    device = torch.device(resolve_device(config.device))
    if device.type == "cuda":
        config = config.replace(wrappers=for_graphs(config.wrappers))
    if config.torch_threads or device.type == "cuda":
        # On the host torch only moves frames; threads of its own would spin on the cores that play.
        torch.set_num_threads(config.torch_threads or 1)
    with gpu_meanwhile(config, device, lambda c, blank: HybridAgent(c, blank, device)):
        envs = make_env_groups(config)
    try:
        agent = HybridAgent(config, envs, device)
        return agent, started(agent)
    except BaseException:
        envs.close()
        raise


def started(agent: HybridAgent) -> Iterator[Tick]:
    """Compile and record; then the ticks."""
    agent.prepare()
    return ticks(agent)
