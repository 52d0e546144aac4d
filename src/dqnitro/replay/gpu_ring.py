"""Replay on one device, as tensors that never move: what a CUDA graph can write to and sample from.

Slot t holds what n environments saw and did at one moment: the newest frame (each frame once), the action, and, written
one step later, what came of it. `head` is the slot of the current observation. Time is a ring: slot t is followed by t
+ 1 modulo `slots`.

An environment whose next game is still to begin has no decision in a slot; `valid` says so. Sampling draws slots and
environments without looking, and gives such draws, a few in a hundred, the weight 0.

It keeps what `base.ReplayMemory` asks of every replay. `add` and `sample` of a replay on the host are in pieces here,
since a graph plays and learns at the same time: `see`, `decide`, `outcome`; `draw`, `look_up`, `fetch`, `assemble`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dqnitro.dqn import Batch
from dqnitro.replay.base import saved
from dqnitro.replay.gpu_priorities import Priorities, Window

COLUMNS = ("frames", "action", "reward", "terminated", "truncated", "valid", "age")  # (slots, environments, ...)
# attribute -> its name in checkpoints
STATE = {name: name for name in (*COLUMNS, "head", "filled")} | {"terminated": "done", "truncated": "cut"}
PRIORITIES = {"priorities": "values", "max_priority": "largest"}  # name in checkpoints -> attribute
GUARD = 8  # slots next to the one being written that are never sampled: play goes on while the learner reads


def space_to_depth(frame: Tensor) -> Tensor:
    """(..., 84, 84) -> (..., 21, 21, 16): blocks of 4x4 pixels become channels, as the first convolution reads them."""
    *lead, height, width = frame.shape
    blocks = frame.reshape(*lead, height // 4, 4, width // 4, 4)
    return blocks.transpose(-3, -2).reshape(*lead, height // 4, width // 4, 16)


class Drawn(NamedTuple):
    """Transitions as places in the ring: which frames (B, stack) each observation is made of, and which of them are
    black.
    """

    rows_tm1: Tensor
    seen_tm1: Tensor
    action_tm1: Tensor
    reward_t: Tensor
    discount_t: Tensor
    rows_t: Tensor
    seen_t: Tensor
    weight: Tensor


class Ring:
    """`slots` moments of `n` environments."""

    def __init__(self, slots: int, n: int, size: int, stack: int, device: torch.device | str, deep: bool) -> None:
        if slots < 4 * GUARD:
            raise ValueError(f"{slots} slots are too few. hint: at least {4 * GUARD} times the number of environments")
        self.slots, self.n, self.stack, self.deep = slots, n, stack, deep
        self.first, self.width = 0, n  # its environments are those from number `first` on, among `width`
        shape = (size // 4, size // 4, 16) if deep else (size, size)
        self.frames = torch.zeros((slots, n, *shape), dtype=torch.uint8, device=device)
        self.action = torch.zeros((slots, n), dtype=torch.int64, device=device)
        self.reward = torch.zeros((slots, n), dtype=torch.float32, device=device)
        self.terminated = torch.zeros((slots, n), dtype=torch.bool, device=device)
        self.truncated = torch.zeros((slots, n), dtype=torch.bool, device=device)
        self.valid = torch.zeros((slots, n), dtype=torch.bool, device=device)
        self.age = torch.zeros((slots, n), dtype=torch.int64, device=device)  # steps since the game began
        self.head = torch.zeros(1, dtype=torch.int64, device=device)
        self.filled = torch.zeros(1, dtype=torch.int64, device=device)  # slots with a decision in them
        self._back = torch.arange(stack - 1, -1, -1, device=device)
        self._rows = self.frames.view(slots * n, *shape)  # all frames, also those of other groups
        self.priorities: Priorities | None = None

    def prioritize(self, alpha: float) -> None:
        """From now on `draw` samples by temporal-difference error. Call it before there is a group."""
        self.priorities = Priorities(self.slots, self.n, alpha, self.frames.device)

    @property
    def bytes_per_transition(self) -> float:
        kept = (getattr(self, name) for name in COLUMNS)
        return sum(t.numel() * t.element_size() for t in kept) / (self.slots * self.n)

    def group(self, first: int, n: int) -> Ring:
        """n environments from number `first` on, as a ring that is written by itself:
        the same memory, another `head`.
        """
        group = copy.copy(self)
        group.first, group.n = first, n
        for name in COLUMNS:
            setattr(group, name, getattr(self, name)[:, first : first + n])
        group.head, group.filled = self.head.clone(), self.filled.clone()
        return group

    def see(self, frame: Tensor, age: Tensor) -> None:
        """The newest frame (n, height, width) of the current observation."""
        self.frames.index_copy_(0, self.head, (space_to_depth(frame) if self.deep else frame)[None])
        self.age.index_copy_(0, self.head, age[None])

    def decide(self, action: Tensor, valid: Tensor) -> None:
        self.action.index_copy_(0, self.head, action[None])
        self.valid.index_copy_(0, self.head, valid[None])

    def last_actions(self) -> Tensor:
        """(n,): what was decided in the slot before the current one."""
        return self.action.index_select(0, (self.head - 1) % self.slots)[0]

    def outcome(self, reward: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        """What came of the current slot's decisions; then the next slot is the current one."""
        self.reward.index_copy_(0, self.head, reward[None])
        self.terminated.index_copy_(0, self.head, terminated[None])
        self.truncated.index_copy_(0, self.head, truncated[None])
        if self.priorities is not None:
            self.priorities.add(self.head, self.first, self.valid.index_select(0, self.head)[0])
        self.head.copy_((self.head + 1) % self.slots)
        self.filled.copy_((self.filled + 1).clamp(max=self.slots))

    def rows(self, t: Tensor, env: Tensor) -> tuple[Tensor, Tensor]:
        """Where the frames of the observations at slots t lie, and which of them are not from before the game began."""
        slot = (t[:, None] - self._back) % self.slots
        return slot * self.width + (env + self.first)[:, None], self._back <= self.age[t, env][:, None]

    def fetch(self, rows: Tensor) -> Tensor:
        """The frames in these rows, as they are stored: whole frames are copied, at the speed of memory."""
        return self._rows.index_select(0, rows.flatten()).view(*rows.shape, *self._rows.shape[1:])

    def assemble(self, frames: Tensor, seen: Tensor) -> Tensor:
        """Observations (B, stack, ...) out of their frames: those from before the game began are black."""
        x = frames * seen.view(*seen.shape, *(1,) * (frames.dim() - 2))
        if self.deep:  # (B, stack, 21, 21, 16) -> (B, 16 * stack, 21, 21), channels innermost in memory
            b, s, h, w, c = x.shape
            x = x.permute(0, 2, 3, 1, 4).reshape(b, h, w, s * c).permute(0, 3, 1, 2)
        return x

    def stacks(self, t: Tensor, env: Tensor) -> Tensor:
        """Observations (B, stack, ...) at slots t."""
        rows, seen = self.rows(t, env)
        return self.assemble(self.fetch(rows), seen)

    def window(self, n_step: int, head: Tensor, filled: Tensor) -> Window:
        """The slots that may be drawn. `head` and `filled` are copies: play may be moving the real ones."""
        size = (filled.clamp(max=self.slots - GUARD) - n_step - self.stack).clamp(min=1)
        return Window((head - n_step) % self.slots, size)

    def draw(
        self, batch: int, n_step: int, head: Tensor, filled: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Slots and environments of `batch` transitions, each as likely as any other."""
        chance: dict[str, Any] = {"device": self.frames.device, "generator": generator}
        window = self.window(n_step, head, filled)
        back = (torch.rand(batch, **chance) * window.size).long()
        return (window.newest - back) % self.slots, torch.randint(0, self.n, (batch,), **chance)

    def look_up(self, t: Tensor, env: Tensor, n_step: int, gamma: float) -> Drawn:
        """The transitions that begin at slots t, without their pictures."""
        alive = self.valid[t, env]
        weight = alive.float()
        total = torch.zeros_like(weight)
        discount = torch.ones_like(weight)
        steps = torch.zeros_like(t)
        for k in range(n_step):
            at = (t + k) % self.slots
            alive = alive & self.valid[at, env]
            total = total + alive * gamma**k * self.reward[at, env]
            steps = steps + alive
            discount = torch.where(alive, torch.full_like(discount, gamma ** (k + 1)), discount)
            ended = alive & self.terminated[at, env]
            discount = torch.where(ended, torch.zeros_like(discount), discount)
            # truncated: the next slot holds its last observation, which is worth what the network thinks
            alive = alive & ~ended & ~self.truncated[at, env]
        return Drawn(
            *self.rows(t, env), self.action[t, env], total, discount, *self.rows((t + steps) % self.slots, env), weight
        )

    def transitions(self, t: Tensor, env: Tensor, n_step: int, gamma: float) -> Batch:
        """The transitions that begin at slots t."""
        d = self.look_up(t, env, n_step, gamma)
        obs_tm1 = self.assemble(self.fetch(d.rows_tm1), d.seen_tm1)
        obs_t = self.assemble(self.fetch(d.rows_t), d.seen_t)
        return Batch(obs_tm1, d.action_tm1, d.reward_t, d.discount_t, obs_t, d.weight)

    def get_state(self) -> dict[str, np.ndarray]:
        """All that a checkpoint needs. Waits for the GPU."""
        state = {key: getattr(self, name).cpu().numpy() for name, key in STATE.items()}
        if self.priorities is not None:
            state |= {name: getattr(self.priorities, k).cpu().numpy() for name, k in PRIORITIES.items()}
        return state

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Into the tensors that are there: a graph knows them by address. ValueError if they do not fit; a kernel would
        not notice a place outside the ring.
        """
        finite = float(np.finfo(np.float32).max)
        limits = {"head": (0, self.slots - 1), "filled": (0, self.slots), "age": (0, 2**62), "action": (0, 2**31),
                  "reward": (-finite, finite)}  # fmt: skip
        pairs = [(getattr(self, name), key, limits.get(name, (0, 255))) for name, key in STATE.items()]
        if self.priorities is not None:
            pairs += [(getattr(self.priorities, name), key, (0, finite)) for key, name in PRIORITIES.items()]
        found = [(to, saved(state, key, to.cpu().numpy(), *bounds)) for to, key, bounds in pairs]
        for to, array in found:
            to.copy_(torch.from_numpy(np.array(array)))
