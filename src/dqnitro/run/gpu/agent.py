"""What both GPU runners are made of: a ring of experience, a learner, acting and updates as pieces of CUDA graphs.

Environments come in groups that take turns (`hybrid`) or in one (`device`). Each group has a player: tensors at fixed
addresses that say what its environments show. Nothing in `choose`, `play`, `learn` and `sync_target` waits for the GPU
or asks it anything, so that a graph can hold them; without a GPU they are called as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from dqnitro import dqn
from dqnitro.agent import HasSpec, Phases, State
from dqnitro.clock import Clock
from dqnitro.config import Config
from dqnitro.distributed.ranks import ALONE, Ranks
from dqnitro.learn.learner import Learner
from dqnitro.learn.own_pieces import check_runner
from dqnitro.learn.ring_update import make_update
from dqnitro.replay.base import saved
from dqnitro.replay.gpu_ring import Ring
from dqnitro.requirements import MOST_TOGETHER
from dqnitro.run.build import make_clock
from dqnitro.run.gpu.turns import Acting, Group

# The numbers that the GPU keeps of a run; STEPS and ENDS only with `device`, where the host does not see the games.
STEPS, UPDATES, ENDS, LOSS, FIRST_BAD = range(5)
REPORT = 5
MOST = 2**53  # of any number that is counted as a float64
FINITE = float(np.finfo(np.float32).max)


class Player(Protocol):
    """A group of environments, seen from the GPU: tensors that keep their address, steps that a graph can hold."""

    n_actions: int

    @property
    def obs(self) -> Tensor:
        """uint8 (n, stack, height, width): what to act on."""
        ...

    @property
    def actions(self) -> Tensor:
        """int64 (n,): what was chosen."""
        ...

    @property
    def resetting(self) -> Tensor:
        """int32 (n,): not 0 where an environment does not decide, because its next game is still to begin."""
        ...

    def step(self) -> None: ...

    def outcome(self) -> tuple[Tensor, Tensor, Tensor]:
        """Reward, terminated, truncated of the last step."""
        ...

    def get_state(self) -> Mapping[str, Any]: ...

    def set_state(self, state: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def chances_of(seed: int, device: torch.device, rank: int, deal: int = 0) -> dict[str, torch.Generator]:
    """Random numbers of a rank. `deal`: how many steps the run had made when its shards were dealt out again."""
    made = {name: torch.Generator(device) for name in ("choose", "learn")}
    for i, chance in enumerate(made.values()):
        chance.manual_seed(int(np.random.SeedSequence((seed, rank, i, deal)).generate_state(1, np.uint64)[0] >> 1))
    return made


class GpuAgent(ABC):
    """A run with its replay and learner on a GPU. `players`: one for each group of environments, all of one size."""

    # Values that `state_tensors` may have in a checkpoint.
    LIMITS: ClassVar[dict[str, tuple[float, float]]] = {
        "age": (0, MOST), "without_reward": (0, MOST), "score": (-FINITE, FINITE), "length": (0, MOST),
        "ends": (-FINITE, FINITE),
    }  # fmt: skip

    def __init__(
        self, config: Config, device: torch.device, envs: HasSpec, players: Sequence[Player], ranks: Ranks = ALONE
    ) -> None:
        """With several `ranks`, `config` is of this one's share (`share.config_of`); schedules count all steps."""
        check_runner(config)
        self.ranks = ranks
        self.config, self.device, self.envs = config, device, envs
        self.players: tuple[Any, ...] = tuple(players)
        if device.type == "cuda":
            # Sizes never change: try the kernels once, keep the fastest. Another process may find another one fastest.
            torch.backends.cudnn.benchmark = not config.deterministic
        torch.manual_seed(config.seed)  # of the GPU, too: exploration and samples are drawn there
        n, size = config.n_envs, config.screen_size
        self.learner = Learner(config, envs.spec, str(device))
        deep = size % 4 == 0 and config.network in ("nature", "small")
        self.ring = self.replay = Ring(config.replay_capacity // n, n, size, config.frame_stack, device, deep)
        if config.prioritized:
            self.ring.prioritize(config.priority_alpha)
        self.clock: Clock = make_clock(config)
        self.phases = Phases()
        # Compiled code knows its sizes: updates that a group's step owes are made together, single ones for what is
        # left.
        turn = n * ranks.size / len(self.players)
        self.together = max(1, min(MOST_TOGETHER, int(turn / config.steps_per_update)))
        self.update = make_update(config, self.learner, self.ring, self.together, ranks)
        self.age = torch.zeros(n, dtype=torch.int64, device=device)
        self.was_resetting = torch.zeros(n, dtype=torch.bool, device=device)
        # Steps of each environment since its last reward, and how many of them make it idle (0: nobody wants to know).
        self.without_reward = torch.zeros(n, dtype=torch.int64, device=device)
        self.idle_steps = -(-config.idle_frames // envs.spec.frames_per_step)
        # Random numbers of the choices and of the updates, where they are not torch's own.
        self.chances: dict[str, torch.Generator] = {} if ranks is ALONE else chances_of(config.seed, device, ranks.rank)
        each = n // len(self.players)
        rings = [self.ring] if each == n else [self.ring.group(first, each) for first in range(0, n, each)]
        # The last group is behind the others: up to its head all of them have been.
        rings[-1].head, rings[-1].filled = self.ring.head, self.ring.filled
        self.groups = tuple(Group(ring, self.age, self.was_resetting) for ring in rings)
        self.acting = Acting(self.update, len(self.groups))
        self.report = torch.zeros(REPORT, dtype=torch.float64, device=device)
        self.report[FIRST_BAD] = -1

    # ---- pieces of a graph: tensors in, tensors out, nothing waits

    @abstractmethod
    def epsilon(self) -> Tensor:
        """How often a choice is random, on the device."""

    def values(self, k: int = 0) -> Tensor:
        """What the online network makes of the current observations of group k, (n, n_actions)."""
        chance = self.chances.get("choose")
        return self.update.values(self.groups[k].ring, self.players[k].obs, self.acting.weights[k], chance)

    def choose(self, k: int = 0) -> None:
        """Group k looks and decides; what the updates after it may read is fixed."""
        group, player = self.groups[k], self.players[k]
        here = player.resetting == 0
        group.ring.see(player.obs[:, -1], group.age)
        greedy = self.values(k).argmax(1)
        chance: dict[str, Any] = {"device": self.device, "generator": self.chances.get("choose")}
        explore = torch.rand(len(here), **chance) < self.chance_of_random(group)
        actions = torch.where(explore, torch.randint(0, player.n_actions, (len(here),), **chance), greedy)
        if self.idle_steps:
            holds = self.idle(group) & (torch.rand(len(here), **chance) < dqn.IDLE_HOLDS)
            actions = torch.where(holds, group.ring.last_actions(), actions)
        player.actions.copy_(actions)
        group.ring.decide(actions, here)
        group.was_resetting.copy_(~here)
        last = self.groups[-1]
        group.head.copy_(self.ring.head if group is last else last.head)
        group.filled.copy_(self.ring.filled if group is last else last.filled)

    def chance_of_random(self, group: Group) -> Tensor:
        """Epsilon, and more where an environment of the group is idle."""
        epsilon = self.epsilon()
        if not self.idle_steps:
            return epsilon
        return torch.where(self.idle(group), epsilon.clamp(min=dqn.IDLE_EPSILON), epsilon)

    def idle(self, group: Group) -> Tensor:
        """bool (n,): which environments of the group have had no reward for long."""
        return self.without_reward[group.ring.first : group.ring.first + group.ring.n] >= self.idle_steps

    @abstractmethod
    def play(self, k: int = 0) -> None:
        """One step of every environment of group k that decided."""

    def take_step(self, k: int) -> tuple[Tensor, Tensor]:
        """A step, and what came of it into the ring; its reward, and which environments made it."""
        group, player = self.groups[k], self.players[k]
        player.step()
        reward, terminated, truncated = player.outcome()
        here = ~group.was_resetting
        learned = reward.clamp(-1, 1) if self.config.clip_rewards else reward
        group.ring.outcome(learned * here, terminated & here, truncated & here)
        group.age.add_(1)
        if self.idle_steps:
            mine = self.without_reward[group.ring.first : group.ring.first + group.ring.n]
            again = (reward * here != 0) | terminated | truncated | ~here
            mine.copy_(torch.where(again, 0, mine + 1))
        return reward, here

    def learn(self, size: int = 1, k: int = -1) -> None:
        """`size` updates, drawn together, from what group k's choice has left to read."""
        c, readable = self.config, self.groups[k]
        chance = self.chances.get("learn")
        if self.ring.priorities is None:
            t, env = self.ring.draw(size * c.batch_size, c.n_step, readable.head, readable.filled, chance)
            self.count_updates(self.update.learn(t, env, None, chance)[0])
            return
        window = self.ring.window(c.n_step, readable.head, readable.filled)
        t, env, weight = self.ring.priorities.draw(size, c.batch_size, window, self.beta(), chance)
        losses, errors = self.update.learn(t, env, weight, chance)
        assert errors is not None
        self.ring.priorities.update(t, env, errors)
        self.count_updates(losses)

    def beta(self) -> Tensor:
        """The importance-sampling correction. The GPU counts updates in both runners, so steps follow from them."""
        c = self.config
        steps = c.first_fill_steps + self.report[UPDATES] * c.steps_per_update
        share = (steps / max(c.priority_beta_steps, 1)).clamp(max=1.0)
        return c.priority_beta + (1.0 - c.priority_beta) * share

    def count_updates(self, losses: Tensor) -> None:
        """Count them, keep the last loss and the number of the first bad update there ever was."""
        report = self.report
        bad = ~torch.isfinite(losses)
        first = report[UPDATES] + 1 + bad.to(torch.int8).argmax()
        report[FIRST_BAD].copy_(torch.where(bad.any() & (report[FIRST_BAD] < 0), first, report[FIRST_BAD]))
        report[UPDATES].add_(len(losses))
        report[LOSS].copy_(losses[-1])

    def sizes(self, updates: int) -> list[int]:
        """How many of these updates are drawn together each time."""
        return [self.together] * (updates // self.together) + [1] * (updates % self.together)

    def sync_target(self) -> None:
        for to, of in self.update.target_copies():
            to.copy_(of)

    # ---- before the clock runs

    def all_passes(self) -> None:
        """Every kind of pass that a run makes, once."""
        for size in sorted({1, self.together}):
            self.learn(size)
        self.values()

    def warm_up(self) -> None:
        """Allocate and compile on what is in the ring; then everything is put back as it was. Only on a GPU."""
        optimizer = self.learner.optimizer
        network = {k: v.clone() for k, v in self.learner.online.state_dict().items()}
        moments = {p: {k: v.clone() for k, v in s.items()} for p, s in optimizer.state.items()}
        report, rng = self.report.clone(), torch.cuda.get_rng_state(self.device)
        priorities = self.ring.priorities
        before = None if priorities is None else (priorities.values.clone(), priorities.largest.clone())
        chances = {name: chance.get_state() for name, chance in self.chances.items()}
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.update.compile_for(self.all_passes)
            for _ in range(3):
                self.all_passes()
        torch.cuda.current_stream().wait_stream(stream)
        self.learner.online.load_state_dict(network)
        self.update.refresh()
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                value.copy_(moments[parameter][name]) if parameter in moments else value.zero_()
        self.report.copy_(report)
        if priorities is not None and before is not None:
            priorities.values.copy_(before[0])
            priorities.largest.copy_(before[1])
        torch.cuda.set_rng_state(rng, self.device)
        for name, state in chances.items():
            self.chances[name].set_state(state)

    # ---- state

    def state_tensors(self) -> dict[str, Tensor]:
        """What of the run is neither the learner's nor the ring's, by the names of a checkpoint."""
        idle = {"without_reward": self.without_reward} if self.idle_steps else {}
        return {"age": self.age, "was_away": self.was_resetting, "report": self.report, **idle}

    def get_state(self) -> State:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        tensors = {k: v.cpu().numpy() for k, v in self.state_tensors().items()}
        tensors |= {f"ring.{k}": v for k, v in self.ring.get_state().items()}
        tensors["torch_rng"] = torch.get_rng_state().numpy()
        if self.device.type == "cuda":
            tensors["cuda_rng"] = torch.cuda.get_rng_state(self.device).numpy()
        record = {"clock": self.clock.get_state(), "phases": dict(self.phases.seconds)}
        return {"learner": self.learner.get_state(), "agent": tensors}, record

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        self.learner.set_state({k: torch.from_numpy(np.array(np.asarray(v))) for k, v in arrays["learner"].items()})
        self.update.refresh()
        kept = arrays["agent"]
        ring = {k.removeprefix("ring."): v for k, v in kept.items() if k.startswith("ring.")}
        saved(ring, "action", np.asarray(ring["action"]), 0, self.envs.spec.n_actions - 1)
        self.ring.set_state(ring)
        for k, v in self.state_tensors().items():
            low, high = self.LIMITS.get(k, (-np.inf, np.inf))
            v.copy_(torch.from_numpy(np.array(saved(kept, k, v.cpu().numpy(), low, high))))
        counts = self.report[[STEPS, UPDATES, ENDS]]
        if not bool(((counts >= 0) & (counts <= MOST)).all()):
            raise ValueError(f"report counts {counts.tolist()}")
        torch.set_rng_state(torch.from_numpy(np.array(kept["torch_rng"])))
        if "cuda_rng" in kept:
            torch.cuda.set_rng_state(torch.from_numpy(np.array(kept["cuda_rng"])), self.device)
        self.clock.set_state(record["clock"])
        self.phases.seconds.update(record["phases"])

    def close(self) -> None:
        for player in self.players:
            player.close()
