"""`plain`: a list of transitions per environment. Slow, large and simple: the reference implementation."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec, Step
from dqnitro.replay.base import Sample, draw_uniform, gamma_powers, saved


class Record(NamedTuple):
    """One step. `cut` (its name in checkpoints): the game was truncated at obs_tm1, so no transition starts there."""

    obs_tm1: np.ndarray
    action_tm1: int
    reward_t: float
    terminated: bool
    cut: bool
    obs_t: np.ndarray  # the same array as the next record's obs_tm1, so each observation is stored once


class PlainReplay:
    """A deque per environment; n-step returns are computed when sampling."""

    def __init__(self, capacity: int, spec: EnvSpec, n_step: int, gamma: float) -> None:
        self._spec, self._n_step = spec, n_step
        self._gamma_power = gamma_powers(gamma, n_step)
        self._gamma = float(self._gamma_power[1])
        self._capacity = capacity // spec.n_envs
        # n_step - 1 more than can be sampled: the newest ones still wait for their rewards.
        self._records: list[deque[Record]] = [deque(maxlen=self._capacity + n_step - 1) for _ in range(spec.n_envs)]
        self._obs: list[np.ndarray] = []
        self._truncated = np.zeros(spec.n_envs, bool)

    def start(self, obs: np.ndarray) -> None:
        self._obs = [o.copy() for o in obs]

    def add(self, actions: np.ndarray, step: Step) -> None:
        for e, records in enumerate(self._records):
            obs_t = step.obs_t[e].copy()
            if not step.reset[e]:
                records.append(
                    Record(
                        self._obs[e], int(actions[e]), float(step.reward_t[e]), bool(step.terminated[e]), False, obs_t
                    )
                )
            elif self._truncated[e]:
                records.append(Record(self._obs[e], 0, 0.0, False, True, obs_t))
            self._obs[e] = obs_t
        self._truncated = step.truncated & ~step.terminated

    def _sizes(self) -> np.ndarray:
        return np.array([max(0, len(r) - self._n_step + 1) for r in self._records])

    def __len__(self) -> int:
        return int(self._sizes().sum())

    def sample(self, batch_size: int, rng: np.random.Generator, beta: float = 1.0) -> Sample:
        sizes = self._sizes()
        env, rank = draw_uniform(sizes, batch_size, rng)
        while any(bad := [self._records[e][r].cut for e, r in zip(env.tolist(), rank.tolist(), strict=True)]):
            env[bad], rank[bad] = draw_uniform(sizes, sum(bad), rng)
        rows = [self._transition(self._records[e], r) for e, r in zip(env.tolist(), rank.tolist(), strict=True)]
        obs_tm1, action, reward, discount, obs_t = zip(*rows, strict=True)
        batch = Batch(
            torch.from_numpy(np.stack(obs_tm1)),
            torch.tensor(action),
            torch.tensor(reward),
            torch.tensor(discount),
            torch.from_numpy(np.stack(obs_t)),
            torch.ones(batch_size),
        )
        return Sample(batch, np.zeros(0, np.int64))

    def _transition(self, records: deque[Record], i: int) -> tuple[np.ndarray, int, float, float, np.ndarray]:
        first = records[i]
        if self._n_step == 1:
            return (
                first.obs_tm1,
                first.action_tm1,
                first.reward_t,
                0.0 if first.terminated else self._gamma,
                first.obs_t,
            )
        reward, discount, obs_t = np.float32(0.0), self._gamma_power[0], first.obs_t
        for k in range(self._n_step):
            record = records[i + k]
            if record.cut:  # truncated: the final observation is the last record's obs_t, so bootstrap from it
                break
            reward += self._gamma_power[k] * np.float32(record.reward_t)
            discount = self._gamma_power[k + 1]
            obs_t = record.obs_t
            if record.terminated:
                discount = np.float32(0.0)
                break
        return first.obs_tm1, first.action_tm1, float(reward), float(discount), obs_t

    def update_priorities(self, ids: np.ndarray, td_error: Tensor) -> None:
        """Uniform: nothing to do."""

    @property
    def bytes_per_transition(self) -> float:
        return plain_bytes(self._spec)

    def get_state(self) -> Mapping[str, np.ndarray]:
        out: dict[str, np.ndarray] = {"obs": np.stack(self._obs), "truncated": self._truncated}
        for e, records in enumerate(self._records):
            if records:
                columns = list(zip(*records, strict=True))
                for name, column in zip(Record._fields, columns, strict=True):
                    if name != "obs_t":
                        out[f"{e}.{name}"] = np.array(column)
                # obs_t differs from the next record's obs_tm1 only where a game ended; elsewhere it is saved once.
                odd = [i for i in range(len(records) - 1) if records[i].obs_t is not records[i + 1].obs_tm1]
                out[f"{e}.odd"] = np.array(odd, np.int64)
                out[f"{e}.odd_obs"] = np.array([records[i].obs_t for i in odd])
                out[f"{e}.last_obs"] = records[-1].obs_t
        return out

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        self._obs = [np.array(o) for o in state["obs"]]
        self._truncated = np.array(state["truncated"])
        for e, records in enumerate(self._records):
            records.clear()
            if f"{e}.obs_tm1" not in state:
                continue
            obs = [np.array(o) for o in state[f"{e}.obs_tm1"]]
            nexts = [*obs[1:], np.array(state[f"{e}.last_obs"])]
            for i, o in zip(state[f"{e}.odd"], state[f"{e}.odd_obs"], strict=True):
                nexts[int(i)] = np.array(o)
            like = np.zeros((len(obs), *self._spec.obs_shape), self._spec.obs_dtype)
            saved(state, f"{e}.obs_tm1", like)
            saved(state, f"{e}.last_obs", like[0])
            saved(state, f"{e}.action_tm1", np.zeros(len(obs), np.int64), 0, self._spec.n_actions - 1)
            columns = [state[f"{e}.{name}"].tolist() for name in Record._fields[1:-1]]
            records.extend(map(Record, obs, *columns, nexts))
            if np.array_equal(records[-1].obs_t, self._obs[e]):
                self._obs[e] = records[-1].obs_t


def plain_bytes(spec: EnvSpec) -> float:
    """Bytes per transition of `plain`: one observation, and the Python objects around it."""
    return float(np.prod(spec.obs_shape)) * spec.obs_dtype.itemsize + 400.0
