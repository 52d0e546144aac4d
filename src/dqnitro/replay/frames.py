"""`frames`: preallocated rings in which every frame is stored once, as bytes, on the CPU or on the GPU.

Layout. Environment e writes its own ring of `slots` slots; logical position p is in slot p % slots.

    position        ... h-2    h-1     h = head[e]
    frame           the newest frame of the observation at that position, written ahead: h holds the current one
    action, reward  of the step from there; written when the step is complete, so up to h-1
    flags           TERMINATED: the step from here ended the return. TRUNCATED: the game was cut off here, no step
    age             frames of this game before this one, up to frame_stack-1: how far the stack reaches back

A stack is gathered from positions p, p-1, ...; frames older than `age` are zero, as they were during play. When a game
has terminated, the first frame of the next game overwrites its final frame, which is not needed; only a truncated game
keeps it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec, Step
from dqnitro.replay.base import Sample, draw_uniform, gamma_powers, saved

# Bits of `flags`; checkpoints store them.
TERMINATED = 1
TRUNCATED = 2


class FrameReplay:
    """Uniform sampling over the last `capacity` transitions."""

    black_frames = 0  # rows behind the ring that are never written, for observations from before a game began

    def __init__(
        self,
        capacity: int,
        spec: EnvSpec,
        n_step: int,
        gamma: float,
        device: str | torch.device = "cpu",
        channels_last: bool = False,
        compiled: bool = False,
    ) -> None:
        """`channels_last` asks for sampled stacks in that memory order (with the same values). It is supported for
        stacks of four bytes in main memory on little-endian machines, and ignored elsewhere. `compiled` asks for
        batches that compiled code puts together; it is supported for floats that are not stacked, in main memory.
        """
        self._spec = spec
        self._n_step = n_step
        self.device = torch.device(device)
        self._stack = spec.frame_stack
        self._kept = capacity // spec.n_envs + n_step - 1  # positions before the head that may be read
        self.slots = self._kept + self._stack
        n = spec.n_envs
        dtype = torch.from_numpy(np.zeros(0, spec.obs_dtype)).dtype
        # Flat over (slot, env), so that one index selects a frame. Linux commits this memory lazily, so running out of
        # it would show only in the middle of a run; that is why the caller checks the size first.
        rows = self.slots * n + self.black_frames
        self._frames = torch.zeros((rows, *spec.frame_shape), dtype=dtype, device=self.device)
        self._action = np.zeros((self.slots, n), np.int16)
        self._reward = np.zeros((self.slots, n), np.float32)
        self._flags = np.zeros((self.slots, n), np.uint8)
        self._age = np.zeros((self.slots, n), np.uint8)
        self._head = np.zeros(n, np.int64)
        self._truncated = np.zeros(n, bool)
        self._gamma_power = gamma_powers(gamma, n_step)
        self._envs = np.arange(n)
        supported = self._stack == 4 and spec.channels == 1 and dtype == torch.uint8 and self.device.type == "cpu"
        self._gather = self._gather_plain
        if channels_last and supported and sys.byteorder == "little":
            self._gather = self._gather_compiled
            self._gather(np.zeros(1, np.int64), np.zeros(1, np.int64), None)  # compiles now, not at the first sample

        if compiled and self._stack == 1 and dtype == torch.float32 and self.device.type == "cpu":
            self._gather = self._gather_vectors
            self._gather(np.zeros(1, np.int64), np.zeros(1, np.int64), None)

    # -- writing

    def start(self, obs: np.ndarray) -> None:
        self._write_frames(obs, np.zeros(self._spec.n_envs, np.uint8))

    def _write_frames(self, obs: np.ndarray, age: np.ndarray) -> None:
        slot = self._head % self.slots
        newest = self._spec.newest(obs)
        flat = torch.from_numpy(slot * self._spec.n_envs + self._envs)
        self._frames[flat.to(self.device)] = torch.from_numpy(np.ascontiguousarray(newest)).to(self.device)
        self._age[slot, self._envs] = age

    def add(self, actions: np.ndarray, step: Step) -> None:
        here = self._head % self.slots
        envs = self._envs
        age = np.minimum(self._age[here, envs] + 1, self._stack - 1).astype(np.uint8)
        self._action[here, envs] = actions
        self._reward[here, envs] = step.reward_t
        after_truncation = step.reset & self._truncated
        self._flags[here, envs] = np.where(after_truncation, TRUNCATED, np.where(step.terminated, TERMINATED, 0))
        # A reset after a terminated game does not move the head: its first frame overwrites the final one.
        self._head = self._head + (~step.reset | after_truncation)
        self._write_frames(step.obs_t, np.where(step.reset, 0, age).astype(np.uint8))
        self._truncated = step.truncated & ~step.terminated

    # -- reading

    def _sizes(self) -> np.ndarray:
        return np.maximum(0, np.minimum(self._head, self._kept) - (self._n_step - 1))

    def __len__(self) -> int:
        if len(self._head) == 1:  # asked before every update
            return max(0, min(int(self._head[0]), self._kept) - self._n_step + 1)
        return int(self._sizes().sum())

    def _oldest(self) -> np.ndarray:
        return self._head - np.minimum(self._head, self._kept)

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 1.0) -> Sample:
        return Sample(self.gather(*self.draw(batch_size, rng)), np.zeros(0, np.int64))

    def draw(self, batch_size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Environments and positions of `batch_size` transitions, each as likely as any other."""
        sizes, oldest = self._sizes(), self._oldest()
        env, rank = draw_uniform(sizes, batch_size, rng)
        position = oldest[env] + rank
        while (bad := (self._flags[position % self.slots, env] & TRUNCATED) != 0).any():
            env[bad], rank[bad] = draw_uniform(sizes, int(bad.sum()), rng)
            position = oldest[env] + rank
        return env, position

    def gather(self, env: np.ndarray, position: np.ndarray, weight: np.ndarray | None = None) -> Batch:
        """The transitions that start at these positions."""
        return self._gather(env, position, weight)

    def _gather_plain(self, env: np.ndarray, position: np.ndarray, weight: np.ndarray | None) -> Batch:
        slot = position % self.slots
        reward, discount, length = self.returns(env, position)
        tensors = (self._action[slot, env].astype(np.int64), reward, discount)
        action_t, reward_t, discount_t = (torch.from_numpy(x).to(self.device) for x in tensors)
        w = torch.ones(len(env)) if weight is None else torch.from_numpy(weight.astype(np.float32))
        obs_tm1, obs_t = self._observations(env, position), self._observations(env, position + length)
        return Batch(obs_tm1, action_t, reward_t, discount_t, obs_t, w.to(self.device))

    def returns(self, env: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The n-step returns from these positions, their discounts, and how many steps each of them spans."""
        reward = np.zeros(len(env), np.float32)
        discount = np.full(len(env), self._gamma_power[0], np.float32)
        length = np.zeros(len(env), np.int64)
        alive = np.ones(len(env), bool)
        for k in range(self._n_step):
            at = (position + k) % self.slots
            flags = self._flags[at, env]
            alive &= (flags & TRUNCATED) == 0
            reward += np.where(alive, self._gamma_power[k] * self._reward[at, env], np.float32(0.0))
            length += alive
            discount = np.where(alive, self._gamma_power[k + 1], discount)
            terminated = alive & ((flags & TERMINATED) != 0)
            discount[terminated] = 0.0
            alive &= ~terminated
        return reward, discount.astype(np.float32), length

    def _observations(self, env: np.ndarray, position: np.ndarray) -> Tensor:
        n = self._spec.n_envs
        if self._stack == 1:
            return self._frames.index_select(0, torch.from_numpy(position % self.slots * n + env).to(self.device))
        back = np.arange(self._stack - 1, -1, -1)
        # Before a game's first frame the position may be negative; those frames are zeroed below.
        where = (position[:, None] - back) % self.slots
        flat = torch.from_numpy((where * n + env[:, None]).reshape(-1)).to(self.device)
        obs = self._frames.index_select(0, flat).view(len(env), *self._spec.obs_shape)
        row, column = np.nonzero(back > self._age[position % self.slots, env][:, None])
        if len(row):
            frames = obs.view(len(env), self._stack, -1)  # the channels of a frame lie together
            frames[torch.from_numpy(row).to(self.device), torch.from_numpy(column).to(self.device)] = 0
        return obs

    def _gather_compiled(self, env: np.ndarray, position: np.ndarray, weight: np.ndarray | None) -> Batch:
        """The same, compiled, with stacks stored channels-last."""
        from dqnitro.replay import frames_numba

        n = len(env)
        frames = self._frames.view(len(self._frames), -1).numpy()
        reward = np.empty(n, np.float32)
        discount = np.empty(n, np.float32)
        length = np.empty(n, np.int64)
        played = (self._reward, self._flags, self._gamma_power)
        frames_numba.returns(*played, env, position, reward, discount, length, TERMINATED, TRUNCATED)
        channels, height, width = self._spec.obs_shape

        def stacks(ahead: np.ndarray) -> Tensor:
            out = np.empty((n, frames.shape[1]), np.uint32)
            frames_numba.stacks(frames, self._age, env, position, ahead, out)
            # Views by NumPy, because torch takes microseconds for each.
            return torch.from_numpy(out.view(np.uint8).reshape(n, height, width, channels).transpose(0, 3, 1, 2))

        action = self._action[position % self.slots, env].astype(np.int64)
        weight = np.ones(n, np.float32) if weight is None else weight.astype(np.float32)
        action_tm1, reward_t, discount_t, w = (torch.from_numpy(x) for x in (action, reward, discount, weight))
        return Batch(stacks(np.zeros(n, np.int64)), action_tm1, reward_t, discount_t, stacks(length), w)

    def _gather_vectors(self, env: np.ndarray, position: np.ndarray, weight: np.ndarray | None) -> Batch:
        """The same, compiled, for observations that are not stacked."""
        from dqnitro.replay import frames_numba

        n = len(env)
        reward, discount = np.empty(n, np.float32), np.empty(n, np.float32)
        action, length = np.empty(n, np.int64), np.empty(n, np.int64)
        frames = self._frames.view(len(self._frames), -1).numpy()
        obs_tm1, obs_t = (np.empty((n, frames.shape[1]), np.float32) for _ in range(2))
        played = (self._reward, self._flags, self._gamma_power)
        frames_numba.returns(*played, env, position, reward, discount, length, TERMINATED, TRUNCATED)
        frames_numba.vectors(frames, self._action, env, position, length, obs_tm1, obs_t, action)
        weight = np.ones(n, np.float32) if weight is None else weight.astype(np.float32)
        obs_tm1, obs_t = (x.reshape(n, *self._spec.obs_shape) for x in (obs_tm1, obs_t))
        return Batch(*map(torch.from_numpy, (obs_tm1, action, reward, discount, obs_t, weight)))

    def update_priorities(self, ids: np.ndarray, td_error: Tensor) -> None:
        """Uniform: nothing to do."""

    @property
    def bytes_per_transition(self) -> float:
        total = sum(x.nbytes for x in (self._action, self._reward, self._flags, self._age)) + self._frames.nbytes
        return total / ((self._kept - self._n_step + 1) * self._spec.n_envs)

    # -- saving

    def get_state(self) -> Mapping[str, np.ndarray]:
        used = min(int(self._head.max()) + 1, self.slots)
        n = self._spec.n_envs
        return {
            "frames": self._frames[: used * n].cpu().numpy(),
            "action": self._action[:used],
            "reward": self._reward[:used],
            "flags": self._flags[:used],
            "age": self._age[:used],
            "head": self._head,
            "truncated": self._truncated,
        }

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        head = saved(state, "head", self._head, low=0)
        used = min(int(head.max()) + 1, self.slots)
        there = self._frames[: used * self._spec.n_envs]
        frames = saved(state, "frames", np.zeros(there.shape, self._spec.obs_dtype))
        finite = float(np.finfo(np.float32).max)
        limits = {"action": (0, self._spec.n_actions - 1), "reward": (-finite, finite), "flags": (0, TRUNCATED),
                  "age": (0, self._stack - 1)}  # fmt: skip
        columns = {name: saved(state, name, getattr(self, f"_{name}")[:used], *limits[name]) for name in limits}
        if used > 1 and (columns["flags"] == TRUNCATED).all():
            raise ValueError("every game was truncated before its first step")
        truncated = saved(state, "truncated", self._truncated)
        there.copy_(torch.from_numpy(frames))
        for name, column in columns.items():
            getattr(self, f"_{name}")[:used] = column
        self._head, self._truncated = head.copy(), truncated.copy()


def frame_bytes(spec: EnvSpec) -> float:
    """Bytes per transition of `frames`: one frame, and 8 bytes for action, reward, flags and age."""
    return float(np.prod(spec.frame_shape)) * spec.obs_dtype.itemsize + 8.0
