"""`AtariVec`: many consoles behind Gymnasium's vector interface, a drop-in for ale-py's `AtariVectorEnv`.

Same arguments, same defaults, same observations, rewards, flags and infos, byte for byte. On top of it, states
can be saved and restored exactly (`get_state`, `set_state`), and `device="cuda"` gives the same consoles on a GPU
(`cuda/vec.py`), with torch tensors in the place of arrays.

The way of a step: `step` makes a `Batch` of the actions, `ThreadPool` publishes it in a queue, threads that run
`worker.work` take consoles from the queue, and `cpu_step.serve` plays each one's step.

Observations are not copied on the way out: compiled code writes the stack straight into the returned array. An
array is used again only when the caller holds neither it nor a view of it; so an array that you keep never changes.
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from .chips.cpu_predecode import predecode
from .games import game_table, roms
from .jit.parallel_compile import usable_cores
from .jit.target import CHECKED
from .translate import program
from .vector import agent_step, worker
from .vector.arrays import Tasks
from .vector.batch import Batch, Buffers, Serial
from .vector.joystick import from_stick
from .vector.memory import (
    checked,
    keeps_screens,
    make_memory,
    make_scratch,
    make_shared,
    restore,
    restore_one,
    saved,
    some,
)
from .vector.options import (
    LONG_NOOPS,
    MOST_ENVS,
    MOST_THREADS,
    VecOptions,
    check_whole,
    chosen_of,
    continuous_of,
    discrete_of,
    pixels,
    seeds_of,
)
from .vector.state_check import last_ids_of, waiting_of
from .vector.thread_pool import ThreadPool

Todo = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # commands, seeds, actions, strengths


class _Threads:
    """Held by all environments that share a pool. When the last of them is gone without `close`, its threads end.

    (The threads hold the pool, so the pool itself is never collected.)
    """

    def __init__(self, pool: ThreadPool | Serial) -> None:
        weakref.finalize(self, pool.close)


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
        options = VecOptions.among(locals())
        options.check(num_envs, batch_size)
        check_whole("num_threads", num_threads, 0, MOST_THREADS, "0: one for each core")
        check_whole("thread_affinity_offset", thread_affinity_offset, -1, 2**20, "-1: threads are not pinned")
        if not isinstance(game, str):
            raise TypeError(f"game must be a name such as 'pong', got {game!r}")
        self.game = game_table.game(game)
        self.num_envs, self.batch_size = num_envs, batch_size or num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        self.continuous, self.continuous_action_threshold = continuous, continuous_action_threshold
        self._same_step = options.same_step

        rom = roms.load(self.game.name)
        self._shared = make_shared(options, self.game, rom, predecode(rom))
        self.translation = program.Request(rom, self._shared.prop, self._shared.ntsc)
        self._frameskip = frameskip
        self._memory = make_memory(num_envs, rom.height, options, keeps_screens(self._shared, self.game))

        self.single_observation_space = pixels(options.obs_shape)
        self.single_action_space = options.action_space(self.game)
        self.observation_space = pixels((self.batch_size, *options.obs_shape))
        self.action_space = batch_space(self.single_action_space, self.batch_size)

        self._scratch = [
            make_scratch(self._shared.plan, self._shared.luts)
            for _ in range(
                min(num_threads or usable_cores(), self.batch_size) + 1
            )  # each thread has one, and the caller
        ]
        self._first_core = thread_affinity_offset
        self._patient = noop_max >= LONG_NOOPS
        # batches under way at a time: no two of them with the same console
        self._pool = self._make_pool(num_envs // self.batch_size + 1)
        self._threads = _Threads(self._pool)
        self._first_console = 0
        self._forget()

    def _make_pool(self, slots: int) -> ThreadPool | Serial:
        """Threads for up to `slots` batches at a time."""
        memory, shared, scratch = self._memory, self._shared, self._scratch
        if CHECKED:
            return Serial(memory, shared, scratch[0])
        arguments = [(tuple(memory), tuple(shared), tuple(each)) for each in scratch]
        return ThreadPool(worker.work, arguments, slots, self._first_core, patient=self._patient)

    def _forget(self) -> None:
        """No step is under way and no environment was reset."""
        n, shape = self.batch_size, self.single_observation_space.shape or ()
        self._in_order, self._all_step = np.arange(n), np.full(n, agent_step.STEP)
        self._no_seeds, self._full_strength = np.zeros(n, np.int64), np.ones(n, np.float32)
        self._reset_next: np.ndarray | None = None  # environments whose next step begins a game, if there are any
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
        self._check_open()
        chosen = chosen_of(options, self.num_envs)
        seeds = seeds_of(seed, len(chosen), first=self._last_ids is None)
        if len(chosen) < self.num_envs:
            if self.batch_size != self.num_envs:
                sizes = f"got batch_size={self.batch_size}, num_envs={self.num_envs}"
                raise ValueError(
                    f"Partial reset is not supported where batch_size < num_envs ({sizes}). hint: batch_size=0"
                )
            if self._last_ids is None:
                count = f"{len(chosen)} of {self.num_envs}"
                raise RuntimeError(f"The first reset() must reset every environment (got {count})")
        self._drop_flight()
        commands = np.full(self.num_envs, agent_step.LOOK, np.int64)
        given = np.zeros(self.num_envs, np.int64)
        commands[chosen] = np.where(seeds >= 0, agent_step.SEEDED_RESET, agent_step.RESET)
        given[chosen] = seeds
        if self.batch_size == self.num_envs:
            ids = np.arange(self.num_envs, dtype=np.int32)
            batch = self._make_batch(ids, self._in_order, 0, (commands, given, self._no_seeds, self._full_strength))
            self._run(batch)
            obs, _, _, _, info = self._collect(batch)
        else:
            for k in range(self.num_envs):
                self._waiting.append((k, int(commands[k]), int(given[k]), 0, 1.0))
            self._launch()
            obs, _, _, _, info = self.recv()
        info.pop("final_obs", None)
        return obs, info

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        if self._flight or self._waiting or self.batch_size != self.num_envs:
            self.send(actions)
            return self.recv()
        batch = self._batch_of(actions)
        self._run(batch)
        return self._collect(batch)

    def send(self, actions: np.ndarray, look: np.ndarray | None = None) -> None:
        """Start a step of the environments that the last `recv` (or `reset`) returned.

        Those in the mask `look` do not step: they only show their observation again (after `put_state`, a new one).
        """
        batch = self._batch_of(actions, look)
        if not self._waiting:
            self._start(batch)
            return
        t = batch.tasks
        rows = zip(t.ids, t.commands, t.seeds, t.actions, t.strengths, strict=True)
        self._waiting.extend((int(i), int(c), int(s), int(a), float(f)) for i, c, s, a, f in rows)
        self._launch()

    def recv(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """The next `batch_size` results, in the order in which they were asked for."""
        self._check_open()
        if not self._flight:
            raise RuntimeError("recv() without a send(). hint: call send(actions) or reset() first")
        batch = self._flight.popleft()
        with self._all_or_none():
            batch.job.wait()
        return self._collect(batch)

    def close_extras(self, **kwargs: Any) -> None:
        self._drop_flight()
        self._pool.close()

    def xla(self) -> None:
        raise NotImplementedError("AtariVec has no XLA interface. hint: ale-py's AtariVectorEnv has one")

    def split(self, parts: int) -> list[AtariVec]:
        """The same consoles in `parts` groups of `num_envs / parts` each, for one set of threads.

        While you look at the results of one group, the threads play what you sent to the others: `send` to all of them,
        then `recv` and `send` in turn. From now on use the groups alone, and reset them first.
        """
        self._check_open()
        check_whole("parts", parts, -MOST_ENVS, MOST_ENVS)
        if parts < 1 or self.num_envs % parts or self.batch_size != self.num_envs:
            what = f"{self.num_envs} environments in batches of {self.batch_size}"
            raise ValueError(f"{what} cannot be split into {parts} parts. hint: equal parts, batch_size left at 0")
        self._drop_flight()
        self._pool.close()
        pool, n, made = self._make_pool(parts + 1), self.num_envs // parts, []
        threads = _Threads(pool)
        for first in range(0, self.num_envs, n):
            group = copy.copy(self)
            group.num_envs = group.batch_size = n
            group._first_console, group._pool, group._threads = first, pool, threads
            group._memory = some(self._memory, first, n)
            group.observation_space = pixels((n, *(self.single_observation_space.shape or ())))
            group.action_space = batch_space(self.single_action_space, n)
            group._forget()
            made.append(group)
        return made

    # ---- states

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that decides how these environments go on; plain arrays, fit for `np.savez`."""
        self._check_open()
        if self._flight:
            raise RuntimeError("get_state() while a step is under way. hint: call recv() first")
        last = np.empty(0, np.int32) if self._last_ids is None else self._last_ids
        waiting = np.array(self._waiting, np.float64).reshape(-1, 5)
        return {
            "game": np.array(self.game.name),
            "options": self._shared.options.copy(),
            "last_ids": last.copy(),
            "waiting": waiting,
            **saved(self._memory),
        }

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a state of an environment with the same game, size and options.

        ValueError if it is of another one or damaged; then nothing has changed.
        """
        self._check_open()
        self._check_origin(state, "hint: build the environment with the arguments it was saved with")
        waiting = waiting_of(state, self.num_envs, self.batch_size, len(self._shared.action_set))
        last_ids = last_ids_of(state, self.num_envs, self.batch_size)
        arrays = checked(self._memory, self._shared, state)
        self._drop_flight()
        restore(self._memory, arrays)
        self._waiting, self._last_ids, self._reset_next = waiting, last_ids, None

    def _check_origin(self, state: Mapping[str, Any], hint: str) -> None:
        """Refuse the state of another game, or with other options."""
        for key in ("game", "options", "waiting", "last_ids"):
            if key not in state:
                raise ValueError(f"{key} is not in the state. hint: give what get_state() returned")
        if str(state["game"]) != self.game.name or not np.array_equal(state["options"], self._shared.options):
            there = f"{str(state['game'])[:40]} with options {np.asarray(state['options']).tolist()}"
            here = f"{self.game.name} with {self._shared.options.tolist()}"
            raise ValueError(f"this state is of {there}; here is {here}. {hint}")

    def put_state(self, i: int, state: dict[str, np.ndarray]) -> None:
        """Environment `i` goes on from the state of one with `num_envs=1` and otherwise the same arguments."""
        self._check_open()
        if self._flight:
            raise RuntimeError("put_state() while a step is under way. hint: call recv() first")
        self._check_origin(state, "hint: same arguments but num_envs=1")
        restore_one(self._memory, self._shared, i, state)

    # ---- batches

    def _batch_of(self, actions: np.ndarray, look: np.ndarray | None = None) -> Batch:
        self._check_open()
        if self._last_ids is None:
            raise RuntimeError("send() called before reset(). hint: reset() first")
        n = self.batch_size
        strengths = self._full_strength
        if self.continuous:
            actions, radius = from_stick(continuous_of(actions, n), self.continuous_action_threshold)
            strengths = radius.copy()
        actions = discrete_of(actions, n, len(self._shared.action_set))
        if look is not None and not (isinstance(look, np.ndarray) and look.dtype == np.bool_ and look.shape == (n,)):
            raise ValueError(f"`look` must be a boolean numpy array of shape {(n,)}")
        # a new game takes as long as some 25 steps: handed out first, it keeps no thread waiting at the end
        order, long, commands = self._in_order, 0, self._all_step
        if look is not None and look.any():
            commands = np.where(look, agent_step.LOOK, agent_step.STEP)
        elif self._reset_next is not None:
            order, long = np.argsort(~self._reset_next, kind="stable"), int(np.count_nonzero(self._reset_next))
        return self._make_batch(self._last_ids, order, long, (commands, self._no_seeds, actions, strengths))

    def _make_batch(self, ids: np.ndarray, order: np.ndarray, long: int, todo: Todo) -> Batch:
        obs, final_obs, n = self._buffers.take(), None, len(ids)
        if self._same_step:
            # zeros until an episode ends; then it is the caller's and the next batch gets another one
            final_obs, self._unused_final = self._unused_final, None
            if final_obs is None:
                final_obs = np.zeros_like(obs)
        flat = obs.reshape(n, -1)
        tasks = Tasks(
            order, ids + np.int32(self._first_console), *todo,
            flat, flat if final_obs is None else final_obs.reshape(n, -1),
            np.empty((agent_step.R_SIZE, n), np.int32), np.empty((2, n), np.bool_),
        )  # fmt: skip
        return Batch(obs, final_obs, ids, long, tasks)

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("this AtariVec is closed. hint: make another one")

    @contextlib.contextmanager
    def _all_or_none(self) -> Iterator[None]:
        """A batch that ends half-way (Ctrl-C) leaves consoles that have not made the same step: only a reset helps."""
        try:
            yield
        except BaseException:
            self._flight.clear()
            self._waiting, self._last_ids = [], None
            raise

    def _run(self, batch: Batch) -> None:
        if self._patient:
            with self._all_or_none():
                self._pool.run(batch)
        else:
            self._pool.run(batch)

    def _launch(self) -> None:
        """Start as many whole batches as are waiting."""
        n = self.batch_size
        while len(self._waiting) >= n:
            ids, *whole, strengths = zip(*self._waiting[:n], strict=True)
            del self._waiting[:n]
            commands, seeds, actions = (np.array(v, np.int64) for v in whole)
            todo = commands, seeds, actions, np.array(strengths, np.float32)
            self._start(self._make_batch(np.array(ids, np.int32), self._in_order, 0, todo))

    def _start(self, batch: Batch) -> None:
        """Hand a batch to the threads, after those that it shares consoles with (sent twice without a recv)."""
        for earlier in self._flight:
            if np.isin(batch.ids, earlier.ids).any():
                earlier.job.wait()
        batch.job = self._pool.start(batch)
        self._flight.append(batch)

    def _drop_flight(self) -> None:
        while self._flight:
            self._flight.popleft().job.wait()
        self._waiting = []

    def _collect(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        self._last_ids = batch.ids
        self.translation.played(self._frameskip * batch.size)
        r, flags = batch.tasks.results, batch.tasks.flags
        info = {
            "env_id": batch.ids.copy(),
            "lives": r[agent_step.R_LIVES],
            "frame_number": r[agent_step.R_FRAMES],
            "episode_frame_number": r[agent_step.R_EPISODE_FRAMES],
        }
        terminated, truncated = flags
        ended = flags.any()
        self._reset_next = terminated | truncated if ended and not self._same_step else None
        if batch.final_obs is not None:
            if ended:
                info["final_obs"] = batch.final_obs
            else:
                self._unused_final = batch.final_obs
        return batch.obs, r[agent_step.R_REWARD], terminated, truncated, info
