"""`AtariVec(..., device="cuda")`: the same environments on a GPU, one thread a console; torch tensors in and out.

Observations, rewards and flags are torch tensors that stay the same from step to step: they are overwritten by the next
step, so that a CUDA graph can record steps and nothing is copied. `clone()` what you want to keep.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ..chips import layout
from ..chips.cpu_predecode import predecode
from ..chips.rng import MT_SIZE
from ..games import game_table, roms, table_language
from ..games.roms import Rom
from ..jit.code_cache import say_once
from ..observation import resize_plan
from ..translate.program import OFF, SETTING
from ..vector import agent_step
from ..vector.arrays import Shared
from ..vector.joystick import STICK, from_stick
from ..vector.memory import make_shared
from ..vector.options import VecOptions, chosen_of, seeds_of
from .build import check_memory, kernels, require
from .link import CudaUnavailable
from .microcode import microcode
from .observation import MOST_TAPS
from .placement import LANES, PLACEMENT, TOGETHER_FROM, Placement, registers_of, sharing
from .start_phases import T_SIZE, before_a_start
from .state_check import check_shapes, check_values

WORDS_OF_MASKS = 18  # see cuda/target.py
SHOW_THREADS = 256
# The order of `A_...` in kernels.py, which only a machine with numba-cuda can import.
ARRAYS = (
    "state", "ram", "log", "screen", "rules", "rng_actions", "rng_machine", "rng_noops", "episode",
    "rom", "dec", "prop", "ntsc", "options", "action_set", "luts",
    "commands", "seeds", "actions", "strengths",
    "view", "obs", "raw", "results", "terminated", "truncated",
    "away", "starts", "rows",
    "x_first", "x_taps", "x_weight", "x_units", "y_first", "y_taps", "y_weight", "y_units",
)  # fmt: skip
# The log of TIA writes is empty between two frames.
KEPT = ("state", "ram", "screen", "rules", "rng_actions", "rng_machine", "rng_noops", "episode", "obs", "raw",
        "away", "starts")  # fmt: skip


def on_gpu(
    game: str,
    num_envs: int,
    *,
    device: str,
    batch_size: int = 0,
    num_threads: int = 0,
    thread_affinity_offset: int = -1,
    resets_aside: bool = False,
    machines_per_warp: int = 0,
    **options: Any,
) -> CudaVec:
    """What `AtariVec(..., device=...)` gives. Threads mean nothing here; what a GPU does not do is refused."""
    VecOptions(**options).check(num_envs, batch_size)
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise ValueError(f"device must be cpu, cuda or cuda:N, got {device!r}. hint: device='cuda'")
    if batch_size not in (0, num_envs):
        what = f"batches of {batch_size} out of {num_envs} environments"
        raise NotImplementedError(f"device={device!r} has no {what}. hint: device='cpu' has")
    return CudaVec(
        game, num_envs, device=device, resets_aside=resets_aside, machines_per_warp=machines_per_warp, **options
    )


def starts_of(away: np.ndarray) -> np.ndarray:
    """Where the consoles of an older version's state stand in their start: before its first frame, or in no start."""
    waits = (away == 1) | (away == 2)
    return np.where(waits[:, None], before_a_start(len(away)), 0)


def _numpy_type(tensor: Any) -> np.dtype[Any]:
    """The type of a tensor's numbers, without looking at them."""
    return tensor.new_empty(0, device="cpu").numpy().dtype


class CudaVec(VectorEnv):
    """`num_envs` consoles of one game on a GPU. `options` are the fields of `VecOptions`, with its defaults.

    `resets_aside`: a console whose game is over does not begin the next one in a single step, while all others wait,
    but frame by frame in the steps that follow (see `start_in_steps`); `away` says which do. `machines_per_warp`: how
    many share 32 lanes; `registers`: of a thread; 0 chooses both. `translated`: the game runs as a program of its own
    (`cuda/program.py`) instead of being interpreted. `placement`: how the consoles lie on the GPU.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        device: str = "cuda",
        resets_aside: bool = False,
        machines_per_warp: int = 0,
        registers: int = 0,
        translated: bool = SETTING != OFF,
        placement: Placement | None = None,
        **options: Any,
    ) -> None:
        self._placement = placement or PLACEMENT
        chosen = VecOptions(**options)
        chosen.check(num_envs)
        self.autoreset_mode = AutoresetMode(chosen.autoreset_mode)
        self._same_step = chosen.same_step
        if self._same_step and resets_aside:
            raise ValueError("resets_aside cannot be used with autoreset_mode SAME_STEP. hint: leave out one of them")
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        number = int(device.partition(":")[2]) if ":" in device else None
        torch = self._torch = require(number)
        self.device = torch.device(device)
        self._index = torch.cuda.current_device() if number is None else number
        self.game = game_table.game(game)
        self.num_envs, self.resets_aside = num_envs, resets_aside
        self.continuous, self.continuous_action_threshold = chosen.continuous, chosen.continuous_action_threshold
        self._began = self._sent = False
        rom = roms.load(self.game.name)
        shared = make_shared(chosen, self.game, rom, predecode(rom))
        self._plan, self._sticky = shared.plan, shared.sticky
        self.single_observation_space = Box(0, 255, chosen.obs_shape, np.uint8)
        self.single_action_space = chosen.action_space(self.game)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._allocate(rom.height, chosen.obs_shape, chosen.channels)
        processors = torch.cuda.get_device_properties(self._index).multi_processor_count
        self._load_kernels(rom if translated else None, machines_per_warp, registers, processors)
        self._kernels.prefer_shared("step_kernel", self._placement.shared_percent)
        self._put_shared(shared, self.machines_per_warp >= TOGETHER_FROM)
        self._tensors["strengths"].fill_(1.0)
        self._at = torch.tensor(
            [self._tensors[k].data_ptr() if k in self._tensors else 0 for k in ARRAYS], dtype=torch.int64, device=device
        )

    def _load_kernels(self, rom: Rom | None, machines_per_warp: int, registers: int, processors: int) -> None:
        """The kernels, with the game's translated program if a ROM is given; if that cannot be had, interpreted."""
        self.translated = rom is not None
        share, few_or_many = sharing(self.num_envs, processors, self.translated)
        if machines_per_warp:
            share, few_or_many = machines_per_warp, registers_of(machines_per_warp)
        self.machines_per_warp = share
        try:
            self._kernels = kernels(self._index, registers or few_or_many, rom, share >= TOGETHER_FROM)
        except CudaUnavailable:
            raise
        except Exception as error:
            if rom is None:
                raise
            say_once(f"dqnitro: cannot translate {rom.name} for this GPU ({error!r}): it stays interpreted")
            self._load_kernels(None, machines_per_warp, registers, processors)

    def _put_shared(self, shared: Shared, together: bool) -> None:
        """What all consoles share, into GPU memory. With `together` the consoles of a warp share instructions."""
        for numbers in (shared.prop, shared.ntsc):
            numbers[layout.P_TOGETHER], numbers[layout.P_PROGRAM] = together, self.translated
        program = microcode(shared.rom, shared.prop) if together else shared.program
        self._put(rom=shared.rom, dec=program.view(np.int32), options=shared.options, action_set=shared.action_set)
        self._put(luts=shared.luts.reshape(-1), rows=np.arange(layout.ROWS, dtype=np.int32))
        for name, numbers in (("prop", shared.prop), ("ntsc", shared.ntsc)):
            self._put(**{name: np.repeat(numbers.astype(np.int32)[:, None], LANES, 1)})
        self._put(**{k: getattr(shared.plan, k) for k in ARRAYS[-8:]})

    @functools.cached_property
    def observation_space(self) -> Space[Any]:  # type: ignore[override]
        """Made at the first use: its bounds are as large as the observations, gigabytes for many consoles."""
        return batch_space(self.single_observation_space, self.num_envs)

    def _allocate(self, height: int, shape: tuple[int, ...], channels: int) -> None:
        torch, n = self._torch, self.num_envs
        groups = -(-n // LANES)
        i32, i64, u8 = torch.int32, torch.int64, torch.uint8
        sizes: dict[str, tuple[tuple[int, ...], Any]] = {
            "state": ((groups, layout.S_SIZE + WORDS_OF_MASKS, LANES), i32),
            "ram": ((groups, 256, LANES), u8),
            "log": ((n, layout.LOG_PITCH), i64),
            "screen": ((n, 3, layout.ROWS, layout.WORDS), i64),
            "rules": ((n, table_language.G_SIZE), i32),
            "rng_actions": ((n, MT_SIZE), i32),
            "rng_machine": ((n, MT_SIZE), i32),
            "rng_noops": ((n, MT_SIZE), i32),
            "episode": ((n, agent_step.E_SIZE), i64),
            "commands": ((n,), i32),
            "seeds": ((n,), i64),
            "actions": ((n,), i64),
            "strengths": ((n,), torch.float32),
            "view": ((n,), i32),
            "obs": ((n, *shape), u8),
            "raw": ((n, channels, height, resize_plan.WIDTH), u8),
            "results": ((agent_step.R_SIZE, n), i32),
            "terminated": ((n,), torch.bool),
            "truncated": ((n,), torch.bool),
            "away": ((n,), i32),
            "starts": ((n, T_SIZE), i64),
        }
        if self._same_step:
            sizes["final_obs"] = sizes["obs"]
        need = sum(int(np.prod(s)) * t.itemsize for s, t in sizes.values())
        free = torch.cuda.mem_get_info(self._index)[0]
        check_memory(need, free, n)
        self._tensors = {k: torch.zeros(s, dtype=t, device=self.device) for k, (s, t) in sizes.items()}

    def _put(self, **arrays: np.ndarray) -> None:
        for name, array in arrays.items():
            self._tensors[name] = self._torch.from_numpy(np.array(array, order="C")).to(self.device)

    # ---- one step, as kernels on the current stream; nothing here waits for the GPU

    def launch_step(self) -> None:
        """A step with the actions in `self.actions`; a graph may record it."""
        self._play()
        if self._same_step:
            self._begin_again()

    def _begin_again(self) -> None:
        """New games where they are over, in the same step: its reward and flags stay, and its last observation is kept.

        The kernels do not know this, so all others wait for the new games, in every step in which there is one.
        """
        torch, t = self._torch, self._tensors
        reset = t["episode"][:, agent_step.E_RESET] != 0
        self.final_obs.copy_(torch.where(reset.view(-1, *(1,) * (self.obs.dim() - 1)), self.obs, 0))
        kept = {k: t[k].clone() for k in ("terminated", "truncated")}
        reward = self.rewards.clone()
        t["commands"].copy_(torch.where(reset, agent_step.RESET, agent_step.LOOK))
        self._play()
        t["commands"].fill_(agent_step.STEP)
        self.rewards.copy_(reward)
        for k, v in kept.items():
            t[k].copy_(v)

    def _play(self) -> None:
        """Every console carries out its command."""
        n, k = self.num_envs, self.machines_per_warp
        blocks, threads = self._placement.grid(n, k)
        self._kernels.launch(
            "step_kernel", blocks, threads, self._at.data_ptr(), n, k, self._sticky, int(self.resets_aside)
        )
        self.launch_show()

    def restart(self, which: Any) -> None:
        """With `resets_aside`: these consoles (bool, num_envs) leave their game and start the next one in steps."""
        torch, t = self._torch, self._tensors
        first = torch.from_numpy(before_a_start(1)).to(self.device)
        t["starts"].copy_(torch.where(which[:, None], first, t["starts"]))
        t["away"].masked_fill_(which, 1)

    def launch_show(self) -> None:
        p = self._plan
        sizes = p.height, p.out_height, p.out_width, p.total
        if p.kind == resize_plan.INTEGER and p.x_taps.max() <= MOST_TAPS:
            name, numbers = "shrink_kernel", sizes
        else:
            name, numbers = "show_kernel", (p.kind, *sizes)
        self._kernels.launch(name, self.num_envs, SHOW_THREADS, self._at.data_ptr(), self.num_envs, *numbers)

    @property
    def obs(self) -> Any:
        return self._tensors["obs"]

    @property
    def final_obs(self) -> Any:
        """With autoreset in the same step: the last observations of the games that ended in it, black for the rest."""
        return self._tensors["final_obs"]

    @property
    def actions(self) -> Any:
        return self._tensors["actions"]

    @property
    def rewards(self) -> Any:
        return self._tensors["results"][agent_step.R_REWARD]

    @property
    def terminated(self) -> Any:
        return self._tensors["terminated"]

    @property
    def truncated(self) -> Any:
        return self._tensors["truncated"]

    @property
    def away(self) -> Any:
        """int32, 0: the console plays; else its steps are frames of the start of its next game."""
        return self._tensors["away"]

    @property
    def game_over(self) -> Any:
        """The game, not only a life, has ended."""
        return self._tensors["rules"][:, table_language.G_TERMINAL] != 0

    def _info(self) -> dict[str, Any]:
        r = self._tensors["results"]
        return {
            "env_id": np.arange(self.num_envs, dtype=np.int32),
            "lives": r[agent_step.R_LIVES],
            "frame_number": r[agent_step.R_FRAMES],
            "episode_frame_number": r[agent_step.R_EPISODE_FRAMES],
        }

    # ---- Gymnasium

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """New games everywhere, or in the environments of `options["reset_mask"]`.

        An int seeds environment i with `seed + i`; an array gives each that is reset its own.
        """
        torch, t = self._torch, self._tensors
        chosen = chosen_of(options, self.num_envs)
        if len(chosen) < self.num_envs and not self._began:
            raise RuntimeError(f"The first reset() must reset every environment (got {len(chosen)} of {self.num_envs})")
        if len(chosen) < self.num_envs and self.resets_aside:
            raise RuntimeError("a console may be between two games. hint: reset all environments")
        seeds = seeds_of(seed, len(chosen), first=not self._began)
        commands, given = np.full(self.num_envs, agent_step.LOOK, np.int32), np.full(self.num_envs, -1, np.int64)
        commands[chosen], given[chosen] = agent_step.SEEDED_RESET, seeds
        with torch.cuda.device(self._index):
            t["seeds"].copy_(torch.from_numpy(given))
            t["commands"].copy_(torch.from_numpy(commands))
            t["away"][torch.from_numpy(chosen).to(self.device)] = 0
            aside, self.resets_aside = self.resets_aside, False
            self._play()
            self.resets_aside = aside
            t["commands"].fill_(agent_step.STEP)
        self._began, self._sent = True, False
        return self.obs, self._info()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step; `actions` is a torch tensor (or an array) of num_envs integers, or sticks if they are continuous.

        Actions that are on the GPU already are not looked at, which would wait for it: keep them in the action space.
        """
        self.send(actions)
        return self.recv()

    def send(self, actions: Any) -> None:
        """Start a step. Nothing waits for the GPU; `recv` gives the tensors in which its results will be."""
        if not self._began:
            raise RuntimeError("step() called before reset(). hint: reset() first")
        if self._sent:
            raise RuntimeError("send() twice would overwrite the first step's results. hint: recv() first")
        torch = self._torch
        self._copy_actions(torch.as_tensor(actions))
        with torch.cuda.device(self._index):
            self.launch_step()
        self._sent = True

    def recv(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if not self._sent:
            raise RuntimeError("recv() without a send(). hint: call send(actions) first")
        self._sent = False
        info = self._info()
        if self._same_step:
            info["final_obs"] = self.final_obs
        return self.obs, self.rewards, self.terminated, self.truncated, info

    def _copy_actions(self, actions: Any) -> None:
        last = int(self._tensors["action_set"].numel()) - 1
        shape = (self.num_envs, 3) if self.continuous else (self.num_envs,)
        if tuple(actions.shape) != shape:  # `copy_` would spread a single one over all
            raise ValueError(
                f"actions must have shape {shape}, got {tuple(actions.shape)}. hint: one action for each environment"
            )
        if self.continuous:
            actions, strengths = self._from_stick(actions)
            self._tensors["strengths"].copy_(strengths)
        if not actions.is_cuda and (int(actions.min()) < 0 or int(actions.max()) > last):
            raise ValueError(f"actions must be in 0..{last}, got {actions.tolist()}. hint: see action_space")
        self.actions.copy_(actions)

    def _from_stick(self, actions: Any) -> tuple[Any, Any]:
        """On the host by NumPy, as everywhere else: cosines of other libraries may differ in the last bit."""
        torch, edge = self._torch, self.continuous_action_threshold
        if actions.is_cuda:
            return from_stick(actions, edge, torch, torch.from_numpy(STICK).to(actions.device))
        chosen, strengths = from_stick(actions.numpy().astype(np.float32), edge)
        return torch.from_numpy(chosen), torch.from_numpy(strengths)

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything that decides how these environments go on."""
        return {k: self._tensors[k].cpu().numpy() for k in (*KEPT, "options")}

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from a state of environments with the same game, size and options.

        ValueError if it is of others or damaged; then nothing has changed.
        """
        here = self._tensors["options"].cpu().numpy()
        if "options" not in state or "away" not in state:
            raise ValueError("options or away is not in the state. hint: give what get_state() returned")
        if not np.array_equal(state["options"], here):
            raise ValueError(
                f"this state is of an environment with options {np.asarray(state['options']).tolist()}; here they are "
                f"{here.tolist()}. hint: build the environment with the arguments it was saved with"
            )
        if "starts" not in state:
            state = {**state, "starts": starts_of(np.asarray(state["away"]))}
        check_shapes(state, {k: (tuple(v.shape), _numpy_type(v)) for k, v in self._tensors.items() if k in KEPT})
        check_values(state, self.num_envs, self._tensors["rom"].numel(), int(here[agent_step.O_STACK]))
        for k in KEPT:
            self._tensors[k].copy_(self._torch.from_numpy(np.array(state[k])))
        self._began = True

    def close_extras(self, **kwargs: Any) -> None:
        self._tensors = {}
