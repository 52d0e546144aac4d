"""`AtariVec`: many consoles behind Gymnasium's vector interface, a drop-in for ale-py's `AtariVectorEnv`.

Same arguments, same defaults, same observations, rewards, flags and infos, byte for byte. On top of it, states
can be saved and restored exactly (`get_state`, `set_state`), and `device="cuda"` gives the same machines on a GPU
(`vec_cuda`), with torch tensors in the place of arrays.

Observations are not copied on the way out: compiled code writes the stack straight into the returned array. An
array is used again only when nobody holds it, or a view of it, any more; so an array that you keep never changes.
"""

from __future__ import annotations

import copy
import os
from collections import deque
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from .chips import layout
from .games import game_table, roms
from .observation import palette, resize
from .vector import agent_step
from .vector.batch import (
    Batch,
    Buffers,
    check,
    check_state,
    machine_of,
    make_memory,
    make_scratch,
    make_workers,
    pixels,
    restore,
    restore_one,
    saved,
    seeds_of,
)
from .vector.joystick import from_stick, stick_space
from .vector.options import chosen_of, make_options
from .vector.reset_cache import make_start

# A frame that is still being drawn when a game begins goes on in the next step, on the machine's own screen.
_UNFINISHED_AT_START = frozenset({"qbert", "entombed"})


class AtariVec(VectorEnv):
    """`num_envs` consoles of one game; see `AtariVectorEnv` for the arguments, all but `device`."""

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __new__(cls, *arguments: Any, device: str = "cpu", **options: Any) -> AtariVec:
        if device == "cpu":
            return super().__new__(cls)
        from .cuda.vec import on_gpu

        return on_gpu(*arguments, device=device, **options)  # type: ignore[return-value]  # the same face, other arrays

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        batch_size: int = 0,
        num_threads: int = 0,
        thread_affinity_offset: int = -1,
        max_num_frames_per_episode: int = 108000,
        repeat_action_probability: float = 0.0,
        full_action_space: bool = False,
        continuous: bool = False,
        continuous_action_threshold: float = 0.5,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        img_height: int = 84,
        img_width: int = 84,
        grayscale: bool = True,
        stack_num: int = 4,
        frameskip: int = 4,
        maxpool: bool = True,
        noop_max: int = 30,
        episodic_life: bool = False,
        life_loss_info: bool = False,
        reward_clipping: bool = True,
        use_fire_reset: bool = True,
        device: str = "cpu",
    ) -> None:
        check(num_envs, batch_size, frameskip, stack_num, autoreset_mode)
        self.game = game_table.game(game)
        self.num_envs, self.batch_size = num_envs, batch_size or num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.continuous, self.continuous_action_threshold = continuous, continuous_action_threshold
        legal = [a for a in range(18) if game_table.LEGAL[self.game.id] >> a & 1]
        self._actions = np.array(legal if full_action_space or continuous else self.game.actions, np.int64)
        self._sticky = float(np.float32(repeat_action_probability))
        channels = 1 if grayscale else 3

        rom = roms.load(self.game.name)
        self._rom, self._prop, self._ntsc = machine_of(rom, self.game)
        self._plan = resize.plan(rom.height, img_height, img_width)
        table = palette.PAL if rom.pal else palette.NTSC
        self._luts = palette.GRAY[table][None] if grayscale else np.ascontiguousarray(palette.RGB[table].T)
        self._same_step = self.autoreset_mode == AutoresetMode.SAME_STEP
        frame_bytes = img_height * img_width * channels
        self._options = make_options(
            self.game, self._actions, frameskip=frameskip, stack_num=stack_num, maxpool=maxpool, noop_max=noop_max,
            use_fire_reset=use_fire_reset, episodic_life=episodic_life, life_loss_info=life_loss_info,
            reward_clipping=reward_clipping, max_num_frames_per_episode=max_num_frames_per_episode,
            same_step=self._same_step, channels=channels, frame_bytes=frame_bytes,
        )  # fmt: skip
        keeps = bool(self._prop[layout.P_ALWAYS_DRAW]) or self.game.name in _UNFINISHED_AT_START
        self._memory = make_memory(num_envs, rom.height, stack_num, frame_bytes, channels, keeps)

        shape = (stack_num, img_height, img_width) + (() if grayscale else (3,))
        self.single_observation_space = pixels(shape)
        self.single_action_space = stick_space() if continuous else Discrete(len(self._actions))
        self.observation_space = pixels((self.batch_size, *shape))
        self.action_space = batch_space(self.single_action_space, self.batch_size)

        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        threads = min(num_threads or cores, self.batch_size)
        self._first = make_start()
        scratch = [make_scratch(self._plan, self._luts) for _ in range(threads + 1)]
        shared = (*self._memory.values(), *self._rom, self._prop, self._ntsc, self._options, self._sticky, self._actions,
                  self._plan, self._luts, self._first)  # fmt: skip
        self._make_workers = lambda slots: make_workers(shared, scratch, threads, slots, thread_affinity_offset)
        # batches under way at a time: no two of them with the same machine
        self._workers = self._make_workers(num_envs // self.batch_size + 1)
        self._first_machine = 0
        self._forget()

    def _forget(self) -> None:
        """Nothing is under way and nobody was reset."""
        n, shape = self.batch_size, self.single_observation_space.shape
        assert shape is not None
        self._in_order, self._all_step, self._no_seeds = (
            np.arange(n),
            np.full(n, agent_step.STEP),
            np.zeros(n, np.int64),
        )
        self._full_strength = np.ones(n, np.float32)
        self._late: np.ndarray | None = None  # environments whose next step is a new game, if there are any
        self._unused_final: np.ndarray | None = None
        self._buffers = Buffers((n, *shape))
        self._flight: deque[Batch] = deque()
        self._waiting: list[tuple[int, int, int, int, float]] = []
        self._last_ids: np.ndarray | None = None

    # ---- Gymnasium

    def reset(
        self, *, seed: int | np.ndarray | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """New games in all environments, or in those of `options["reset_mask"]`.

        An int seeds environment i with `seed + i`; an array gives each its own; negative or None: unseeded.
        """
        chosen = chosen_of(options, self.num_envs)
        if len(chosen) < self.num_envs:
            if self._last_ids is None:
                count = f"{len(chosen)} of {self.num_envs}"
                raise RuntimeError(f"The first reset() must reset every environment (got {count})")
            if self.batch_size != self.num_envs:
                raise RuntimeError("partial resets need batch_size == num_envs")
        seeds = seeds_of(seed, len(chosen), first=self._last_ids is None)
        self._drop_flight()
        commands = np.full(self.num_envs, agent_step.LOOK, np.int64)
        given = np.zeros(self.num_envs, np.int64)
        commands[chosen] = np.where(seeds >= 0, agent_step.SEEDED_RESET, agent_step.RESET)
        given[chosen] = seeds
        if self.batch_size == self.num_envs:
            ids = np.arange(self.num_envs, dtype=np.int32)
            batch = Batch(self, self._in_order, 0, ids, commands, given, self._no_seeds, self._full_strength)
            self._workers.run(batch)
            obs, _, _, _, info = self._collect(batch)
        else:
            for k in range(self.num_envs):
                self._waiting.append((k, int(commands[k]), int(given[k]), 0, 1.0))
            self._launch()
            obs, _, _, _, info = self.recv()
        info.pop("final_obs", None)
        return obs, info

    def step(  # type: ignore[override]
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        if self._flight or self._waiting or self.batch_size != self.num_envs:
            self.send(actions)
            return self.recv()
        batch = self._batch_of(actions)
        self._workers.run(batch)
        return self._collect(batch)

    def send(self, actions: np.ndarray, look: np.ndarray | None = None) -> None:
        """Start a step of the environments that the last `recv` (or `reset`) returned.

        Those in the mask `look` do not step: they only show their observation again (after `put_state`, a new one).
        """
        batch = self._batch_of(actions, look)
        if not self._waiting:
            self._start(batch)
            return
        rows = zip(*batch.inputs[1:], strict=True)
        self._waiting.extend((int(i), int(c), int(s), int(a), float(f)) for i, c, s, a, f in rows)
        self._launch()

    def recv(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """The next `batch_size` results, in the order in which they were asked for."""
        if not self._flight:
            raise RuntimeError("recv() without a send(). hint: call send(actions) or reset() first")
        batch = self._flight.popleft()
        batch.job.wait()
        return self._collect(batch)

    def close_extras(self, **kwargs: Any) -> None:
        self._drop_flight()
        self._workers.close()

    def xla(self) -> None:
        raise NotImplementedError("AtariVec has no XLA interface. hint: ale-py's AtariVectorEnv has one")

    def split(self, parts: int) -> list[AtariVec]:
        """The same machines as `parts` environments of `num_envs / parts` each, for one set of threads.

        While you look at the results of one part, the threads play what you sent to the others: `send` to all of them, then
        `recv` and `send` in turn. From now on use the parts alone, and reset them first.
        """
        if parts < 1 or self.num_envs % parts or self.batch_size != self.num_envs:
            what = f"{self.num_envs} environments in batches of {self.batch_size}"
            raise ValueError(f"{what} cannot be split into {parts} parts. hint: equal parts, batch_size left at 0")
        self._drop_flight()
        self._workers.close()
        workers, n, made = self._make_workers(parts + 1), self.num_envs // parts, []
        for first in range(0, self.num_envs, n):
            part = copy.copy(self)
            part.num_envs = part.batch_size = n
            part._first_machine, part._workers = self._first_machine + first, workers
            part._memory = {key: array[first : first + n] for key, array in self._memory.items()}
            part.observation_space = pixels((n, *(self.single_observation_space.shape or ())))
            part.action_space = batch_space(self.single_action_space, n)
            part._forget()
            made.append(part)
        return made

    # ---- states

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that decides how these environments go on; plain arrays, fit for `np.savez`."""
        if self._flight:
            raise RuntimeError("get_state() while a step is under way. hint: call recv() first")
        last = np.empty(0, np.int32) if self._last_ids is None else self._last_ids
        waiting = np.array(self._waiting, np.float64).reshape(-1, 5)
        return {
            "game": np.array(self.game.name),
            "options": self._options.copy(),
            "last_ids": last.copy(),
            "waiting": waiting,
            **saved(self._memory),
        }

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a state of an environment with the same game, size and options."""
        if str(state["game"]) != self.game.name or not np.array_equal(state["options"], self._options):
            raise ValueError(
                f"this state is of {state['game']} with options {state['options'].tolist()}; here is {self.game.name} "
                f"with {self._options.tolist()}. hint: build the environment with the arguments it was saved with"
            )
        check_state(self._memory, state)
        self._drop_flight()
        restore(self._memory, state)
        self._waiting = [(int(i), int(c), int(s), int(a), f) for i, c, s, a, f in state["waiting"].tolist()]
        self._last_ids = state["last_ids"].astype(np.int32) if len(state["last_ids"]) else None

    def put_state(self, i: int, state: dict[str, np.ndarray]) -> None:
        """Environment `i` goes on from the state of an environment with `num_envs=1` and otherwise the same arguments."""
        if self._flight:
            raise RuntimeError("put_state() while a step is under way. hint: call recv() first")
        if str(state["game"]) != self.game.name or not np.array_equal(state["options"], self._options):
            raise ValueError("this state is of another game or has other options. hint: same arguments but num_envs=1")
        restore_one(self._memory, i, state)

    # ---- batches

    def _batch_of(self, actions: np.ndarray, look: np.ndarray | None = None) -> Batch:
        if self._last_ids is None:
            raise RuntimeError("send() called before reset(). hint: reset() first")
        assert isinstance(actions, np.ndarray), f"actions must be a NumPy array, got {type(actions)}"
        n = self.batch_size
        strengths = self._full_strength
        if self.continuous:
            assert actions.dtype == np.float32, f"actions must be float32, got {actions.dtype}"
            assert actions.shape == (n, 3), f"{actions.shape=}, {self.batch_size=}"
            actions, radius = from_stick(actions, self.continuous_action_threshold)
            strengths = radius.copy()
        else:
            assert actions.dtype == np.int64 or actions.dtype == np.int32, f"actions of type {actions.dtype}"
            assert actions.shape == (n,), f"{actions.shape=}, {self.batch_size=}"
        actions = actions.astype(np.int64)  # a copy: the caller may change its array while we work
        if actions.min() < 0 or actions.max() >= len(self._actions):
            raise ValueError(f"actions must be in 0..{len(self._actions) - 1}, got {actions}. hint: see action_space")
        # a new game takes as long as some 25 steps: whoever has one begins first, so that nobody waits for it at the end
        order, long, commands = self._in_order, 0, self._all_step
        if look is not None and look.any():
            commands = np.where(look, agent_step.LOOK, agent_step.STEP)
        elif self._late is not None:
            order, long = np.argsort(~self._late, kind="stable"), int(np.count_nonzero(self._late))
        return Batch(self, order, long, self._last_ids, commands, self._no_seeds, actions, strengths)

    def _launch(self) -> None:
        """Start as many whole batches as are waiting."""
        n = self.batch_size
        while len(self._waiting) >= n:
            ids, commands, seeds, actions, strengths = zip(*self._waiting[:n], strict=True)
            del self._waiting[:n]
            todo = *(np.array(v, np.int64) for v in (commands, seeds, actions)), np.array(strengths, np.float32)
            self._start(Batch(self, self._in_order, 0, np.array(ids, np.int32), *todo))

    def _start(self, batch: Batch) -> None:
        """Hand a batch to the threads, after those that it shares machines with (sent twice without a recv)."""
        for earlier in self._flight:
            if np.isin(batch.ids, earlier.ids).any():
                earlier.job.wait()
        batch.job = self._workers.start(batch)
        self._flight.append(batch)

    def _drop_flight(self) -> None:
        while self._flight:
            self._flight.popleft().job.wait()
        self._waiting = []

    def _collect(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        self._last_ids = batch.ids
        r = batch.results
        info = {
            "env_id": batch.ids.copy(),
            "lives": r[agent_step.R_LIVES],
            "frame_number": r[agent_step.R_FRAMES],
            "episode_frame_number": r[agent_step.R_EPISODE_FRAMES],
        }
        terminated, truncated = batch.flags
        ended = batch.flags.any()
        self._late = terminated | truncated if ended and not self._same_step else None
        if batch.final_obs is not None:
            if ended:
                info["final_obs"] = batch.final_obs
            else:
                self._unused_final = batch.final_obs
        return batch.obs, r[agent_step.R_REWARD], terminated, truncated, info
