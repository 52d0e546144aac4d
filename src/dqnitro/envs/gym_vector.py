"""Gymnasium's own vector environments as engines: SyncVectorEnv (a loop) and AsyncVectorEnv (one process each)."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from dqnitro.envs.bookkeeping import Outcome
from dqnitro.envs.serial import EnvFn, Plan

CLOSE_TIMEOUT_S = 2.0  # for a worker to finish its current step


class EnvCrashed(RuntimeError):
    """An environment failed in its process; the message ends with its traceback."""


class SyncEngine:
    """Steps all environments in `recv`, in this process."""

    _vec: Any

    def __init__(self, env_fns: Sequence[EnvFn]) -> None:
        self._vec = self._make(env_fns)
        self._n = len(env_fns)
        self.n_actions = int(self._vec.single_action_space.n)
        self.obs_shape = self._vec.single_observation_space.shape
        self.obs_dtype = np.dtype(self._vec.single_observation_space.dtype)
        self._actions = np.zeros(self._n, np.int64)

    def _make(self, env_fns: Sequence[EnvFn]) -> Any:
        return SyncVectorEnv(env_fns, autoreset_mode=AutoresetMode.NEXT_STEP)

    def begin(self, games: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
        # The vector environment itself must make the last step of each game; otherwise it would not notice that the
        # game ended, and would not reset it. An environment without a step to make idles in that vector step.
        plans = [Plan(int(g), a[:-1], idle=len(a) == 0) for g, a in zip(games, actions, strict=True)]
        if all(plan.idle for plan in plans):
            plans = [plan._replace(idle=False) for plan in plans]
        self._vec.set_attr("plan", plans)
        obs, _ = self._vec.reset()
        if any(len(a) for a in actions):
            obs, *_ = self._vec.step(np.array([a[-1] if len(a) else 0 for a in actions], np.int64))
        return obs

    def send(self, actions: np.ndarray) -> None:
        self._actions = actions

    def recv(self) -> Outcome:
        return self._outcome(self._vec.step(self._actions))

    def _outcome(self, result: tuple[Any, Any, Any, Any, dict[str, Any]]) -> Outcome:
        obs, reward, terminated, truncated, infos = result
        lost = infos.get("_life_lost")
        return Outcome(obs, reward, terminated, truncated, np.zeros(self._n, np.bool_) if lost is None else lost)

    def close(self) -> None:
        self._vec.close()


class AsyncEngine(SyncEngine):
    """Steps from `send` on, each environment in its own process; observations come back through shared memory."""

    def _make(self, env_fns: Sequence[EnvFn]) -> Any:
        # Forked workers start in milliseconds and have everything that this process registered. On macOS and Windows
        # they start as new processes, and env_fn carries what they need of the parent.
        context = "fork" if sys.platform == "linux" else None
        try:
            return AsyncVectorEnv(
                [_InWorker(fn, i) for i, fn in enumerate(env_fns)],
                shared_memory=True,
                context=context,
                autoreset_mode=AutoresetMode.NEXT_STEP,
            )
        except (EOFError, ConnectionError) as e:
            raise EnvCrashed("the process of an environment died while starting; its output is above") from e

    def begin(self, games: np.ndarray, actions: Sequence[np.ndarray]) -> np.ndarray:
        with _DeathsExplained(self._vec):
            return super().begin(games, actions)

    def send(self, actions: np.ndarray) -> None:
        with _DeathsExplained(self._vec):
            self._vec.step_async(actions)

    def recv(self) -> Outcome:
        with _DeathsExplained(self._vec):
            return self._outcome(self._vec.step_wait())

    def close(self) -> None:
        try:
            if self._vec._state.value == "step":
                self._vec.step_wait(timeout=CLOSE_TIMEOUT_S)
            self._vec.close()
        except (EOFError, OSError, EnvCrashed, multiprocessing.TimeoutError):
            self._vec.closed = True  # otherwise its __del__ would wait for workers that are gone
        finally:
            for process in self._vec.processes:
                if process.is_alive():
                    process.kill()
                process.join()


class _InWorker:
    """Makes an environment; in a worker process it also sets up signals and tracebacks."""

    def __init__(self, env_fn: EnvFn, index: int) -> None:
        self.env_fn = env_fn
        self.index = index
        self.parent = os.getpid()

    def __call__(self) -> gym.Env:
        # Gymnasium also calls this once in the parent, to read the spaces.
        if os.getpid() != self.parent:
            # Ctrl-C reaches the whole process group. The parent decides what happens; workers continue.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return _TracebackCarrier(self.env_fn(), self.index)


class _TracebackCarrier(gym.Wrapper):
    """Gymnasium rebuilds a worker's exception from its type and text, so the traceback has to be in the text."""

    def __init__(self, env: gym.Env, index: int) -> None:
        super().__init__(env)
        self.index = index

    def reset(self, **kwargs: Any) -> Any:
        try:
            return self.env.reset(**kwargs)
        except Exception as e:
            raise self._crashed("reset") from e

    def step(self, action: Any) -> Any:
        try:
            return self.env.step(action)
        except Exception as e:
            raise self._crashed("step") from e

    def _crashed(self, where: str) -> EnvCrashed:
        return EnvCrashed(f"environment {self.index} failed in {where}:\n{traceback.format_exc()}")


class _DeathsExplained:
    """A killed worker shows only as a closed pipe; this adds which one it was and its exit code."""

    def __init__(self, vec: Any) -> None:
        self.vec = vec

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
            processes = self.vec.processes
            # A dying process closes its pipes a moment before its exit code is available.
            for sentinel in multiprocessing.connection.wait([p.sentinel for p in processes], timeout=1.0):
                next(p for p in processes if p.sentinel == sentinel).join(timeout=5.0)
            dead = [
                f"environment {i} (exit code {p.exitcode})" for i, p in enumerate(processes) if p.exitcode is not None
            ]
            raise EnvCrashed(f"a worker process died: {', '.join(dead) or 'unknown'}") from error
