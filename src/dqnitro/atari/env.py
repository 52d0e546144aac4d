"""`AtariEnv`: one console behind Gymnasium's interface, a drop-in for ale-py's `ALE/Pong-v5` and the like.

`gymnasium.make("dqnitro.atari:DQNitro/Pong-v5")` makes one. Observations, rewards, flags, infos and seeds are those of
ale-py. For training, `AtariVec` is much faster: here Python is called for every frame.
"""

from __future__ import annotations

import operator
import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import seeding

from .console import Console
from .games import game_table
from .observation.palette import GRAY, RGB
from .vector.options import WrongActions, WrongFrameskip, check_whole

OBSERVATIONS = ("rgb", "grayscale", "ram")
ZOOM = 3  # of the window of render_mode "human"; the console's pixels are twice as wide as high
MEANINGS = (
    "NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE", "RIGHTFIRE",
    "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE", "DOWNLEFTFIRE",
)  # fmt: skip


class AtariEnv(gymnasium.Env[np.ndarray, Any]):
    """One game: an action is held for `frameskip` frames, and the observation is the whole screen, or the RAM."""

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        *,
        obs_type: str = "rgb",
        frameskip: int = 4,
        repeat_action_probability: float = 0.25,
        full_action_space: bool = False,
        max_num_frames_per_episode: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if obs_type not in OBSERVATIONS:
            raise gymnasium.error.Error(f"obs_type must be one of {', '.join(OBSERVATIONS)}, got {obs_type!r}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise gymnasium.error.Error(f"render_mode must be human, rgb_array or None, got {render_mode!r}")
        if type(frameskip) is not int or not 1 <= frameskip <= 1000:
            raise WrongFrameskip(f"frameskip must be a positive int (at most 1000), got {frameskip!r}. hint: 4")
        check_whole("max_num_frames_per_episode", max_num_frames_per_episode or 0, 0, 2**31 - 1, "0: no limit")
        if not 0.0 <= repeat_action_probability <= 1.0:
            raise ValueError(f"repeat_action_probability must be from 0 to 1, got {repeat_action_probability!r}")
        self.game = game_table.game(game)
        self.obs_type, self.frameskip, self.render_mode = obs_type, frameskip, render_mode
        self._sticky, self._most_frames = repeat_action_probability, max_num_frames_per_episode or 0
        legal = [a for a in range(len(MEANINGS)) if game_table.LEGAL[self.game.id] >> a & 1]
        self._actions = legal if full_action_space else [int(a) for a in self.game.actions]
        self._console = self._switched_on(int(np.random.SeedSequence().generate_state(1)[0]))
        self._window: Window | None = None
        self.action_space = Discrete(len(self._actions))
        self.observation_space = Box(0, 255, self._observation().shape, np.uint8)

    def _switched_on(self, seed: int) -> Console:
        return Console(self.game.name, seed=seed, repeat_action_probability=self._sticky)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A new game. With a seed the console is switched off and on, so that nothing of the last game is left."""
        super().reset(seed=seed)
        info: dict[str, Any] = {}
        if seed is not None:
            mine, consoles = np.random.SeedSequence(seed).generate_state(2)
            self._np_random, self._np_random_seed = seeding.np_random(int(mine))
            self._console = self._switched_on(int(consoles.astype(np.int32)))
            info = {"seeds": (mine, consoles)}
        self._console.reset()
        self._show()
        return self._observation(), self._info() | info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        code = self._actions[self._checked(action)]
        reward = 0
        for _ in range(self.frameskip):
            if self._cut_off():
                self._console.sit_out(code)
            else:
                reward += int(self._console.act(code)[0])
        self._show()
        over = bool(self._console.game_over[0])
        return self._observation(), float(reward), over, self._cut_off() and not over, self._info()

    def render(self) -> np.ndarray | None:
        """The screen in colour with `rgb_array`; with `human` every reset and step has shown it already."""
        return self._rgb() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def get_action_meanings(self) -> list[str]:
        """What each action presses: NOOP, FIRE, UP, ..."""
        return [MEANINGS[a] for a in self._actions]

    def _checked(self, action: Any) -> int:
        try:
            number = operator.index(action)
        except TypeError:
            raise WrongActions(f"an action is a whole number, got {action!r}. hint: see action_space") from None
        if not 0 <= number < len(self._actions):
            raise WrongActions(f"an action is in 0..{len(self._actions) - 1}, got {number}. hint: see action_space")
        return number

    def _cut_off(self) -> bool:
        return bool(0 < self._most_frames <= self._console.episode_frames[0])

    def _observation(self) -> np.ndarray:
        if self.obs_type == "ram":
            return self._console.ram[0].copy()
        return self._rgb() if self.obs_type == "rgb" else GRAY[int(self._console.rom.pal)][self._console.screen[0]]

    def _rgb(self) -> np.ndarray:
        return RGB[int(self._console.rom.pal)][self._console.screen[0]]

    def _info(self) -> dict[str, Any]:
        c = self._console
        numbers = {"lives": c.lives, "episode_frame_number": c.episode_frames, "frame_number": c.frames}
        return {name: int(of_all[0]) for name, of_all in numbers.items()}

    def _show(self) -> None:
        if self.render_mode == "human":
            if self._window is None:
                self._window = Window(f"{self.game.name} - DQNitro", self.metadata["render_fps"])
            self._window.show(self._rgb())


class Window:
    """A window of pygame, as Gymnasium's own environments have."""

    def __init__(self, title: str, frames_per_s: float) -> None:
        try:
            import pygame
        except ImportError as error:
            raise gymnasium.error.DependencyNotInstalled(
                "render_mode 'human' needs pygame, which is not installed. hint: pip install pygame-ce, "
                "or render_mode='rgb_array'"
            ) from error
        self._pygame, self._title, self._fps = pygame, title, frames_per_s
        self._surface: Any = None

    def show(self, picture: np.ndarray) -> None:
        """Draw a picture (height, width, RGB), and wait until it is its turn."""
        pygame = self._pygame
        size = (picture.shape[1] * ZOOM * 2, picture.shape[0] * ZOOM)
        if self._surface is None:
            # Without this, SDL may load OpenGL and Mesa's LLVM with it, and importing Triton later ends in a crash.
            os.environ.setdefault("SDL_FRAMEBUFFER_ACCELERATION", "0")
            pygame.display.init()
            pygame.display.set_caption(self._title)
            self._surface, self._clock = pygame.display.set_mode(size), pygame.time.Clock()
        pixels = pygame.surfarray.make_surface(picture.swapaxes(0, 1))
        self._surface.blit(pygame.transform.scale(pixels, size), (0, 0))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        self._pygame.display.quit()
