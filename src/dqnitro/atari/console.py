# ruff: noqa: F403, F405
"""n consoles with one game: NumPy in, NumPy out.

>>> console = Console("pong", n=2)
>>> console.reset()
>>> rewards = console.act([3, 4])  # one frame
>>> console.screen.shape, console.ram.shape
((2, 210, 160), (2, 128))
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .chips.cpu_predecode import predecode
from .chips.layout import *
from .chips.rng import MT_SIZE, mt_seed
from .games import game_table, roms, table_language
from .games.environment import NO_GAME, Chips, Play, act, power_on, start_game
from .jit.target import compiled

State = dict[str, np.ndarray]
ALL = slice(None)


@compiled
def act_all(chips, play, actions, sticky, draw, rewards):
    """One frame of all consoles; in both tuples each array of a console has another axis in front."""
    state, ram, rom, dec, prop, log, screen = chips
    for i in range(actions.shape[0]):
        one = Chips(state[i], ram[i], rom, dec, prop, log, screen[i])
        rewards[i] = act(one, Play(play.game, play.g[i], play.mt[i]), actions[i], sticky, draw)


class Console:
    """Consoles that run side by side, each with its own RAM, screen and random generators.

    `game` is a game that ale-py ships; `rom` is an image of your own: a file, or its bytes. An image whose file is
    named like a known game, or that comes with `game`, is scored by that game's rules; any other has no score and
    never ends.
    """

    def __init__(
        self,
        game: str | None = None,
        n: int = 1,
        rom: str | Path | bytes | None = None,
        *,
        cartridge: str | None = None,
        seed: int = 0,
        repeat_action_probability: float = 0.0,
    ) -> None:
        if game is None and rom is None:
            raise ValueError("no game. hint: Console('pong'), or Console(rom='file.bin')")
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}. hint: Console('pong', n=4)")
        self.rom = _open(game, rom, cartridge)
        known = game_table.GAMES.get(self.rom.name)
        self.game = known
        self._game = NO_GAME if known is None else known.id
        self.n = n
        self._sticky = float(np.float32(repeat_action_probability))
        prop = self._prop = self.rom.prop.copy()
        prop[P_PADDLE_MAX] = table_language.PADDLE_MAX_DEFAULT if known is None else known.paddle_max
        self._ntsc = prop.copy()
        self._ntsc[P_PAL] = 0
        self._dec = predecode(self.rom)
        from .translate import program  # here: `act_all` is not made of it, so it need not be compiled again for it

        self.translation = program.Request(self.rom, prop, self._ntsc)
        self._log = np.zeros(LOG_SIZE, np.int64)
        self._state = np.zeros((n, S_SIZE), np.int64)
        self._ram = np.zeros((n, 256), np.uint8)
        self._screen = np.zeros((n, 2, ROWS, WORDS), np.uint64)
        self._g = np.zeros((n, table_language.G_SIZE), np.int32)
        self._mt = np.zeros((n, MT_SIZE), np.uint32)
        self._mt_system = np.zeros((n, MT_SIZE), np.uint32)
        self._long_frames = [self._power(i, seed + i) for i in range(n)]
        if rom is not None and not self.rom.pal and min(self._long_frames) >= 15:
            # A PAL image: its frames are longer, which is the only sign of it.
            self.rom = roms.build(self.rom.name, self.rom.image.tobytes(), self.rom.cartridge, pal=True)
            prop[P_PAL], prop[P_HEIGHT] = 1, self.rom.height
            for i in range(n):
                self._power(i, seed + i)
        self.reset()

    def _chips(self, i: int | slice) -> Chips:
        return Chips(self._state[i], self._ram[i], self.rom.image, self._dec, self._prop, self._log, self._screen[i])

    def _play(self, i: int | slice) -> Play:
        return Play(self._game, self._g[i], self._mt[i])

    def _power(self, i: int, seed: int) -> int:
        if self._prop[P_PAL]:
            self._ntsc[P_HEIGHT] = 210
        mt_seed(self._mt[i], seed)
        return power_on(self._chips(i), self._ntsc, self._play(i), self._mt_system[i])

    def reset(self, machines: Iterable[int] | None = None) -> None:
        """Start a new game on all consoles, or on some. RAM keeps what the last game left in it."""
        for i in range(self.n) if machines is None else machines:
            start_game(self._chips(i), self._play(i), self._mt_system[i], self._sticky)

    def act(self, actions: ArrayLike, draw: bool = True) -> NDArray[np.int64]:
        """One frame with an action (0..17) for each console; returns the rewards.

        `draw=False` does not draw the pixels of this frame, which is faster; everything else is the same.
        """
        chosen = np.ascontiguousarray(np.broadcast_to(np.asarray(actions, np.int64), (self.n,)))
        if chosen.min() < 0 or chosen.max() > 17:
            raise ValueError(f"actions are 0..17, got {chosen.tolist()}. hint: see `dqnitro.atari.games`")
        rewards = np.zeros(self.n, np.int64)
        self.translation.played(self.n)
        drawn = int(draw) | int(self._prop[P_ALWAYS_DRAW])
        act_all(self._chips(ALL), self._play(ALL), chosen, self._sticky, drawn, rewards)
        return rewards

    def sit_out(self, actions: ArrayLike) -> None:
        """A frame after a game was cut off: nothing moves, but actions stick or do not, as in every frame of ale-py."""
        over = self._g[:, table_language.G_TERMINAL].copy()
        self._g[:, table_language.G_TERMINAL] = 1
        self.act(actions, draw=False)
        self._g[:, table_language.G_TERMINAL] = over

    @property
    def ram(self) -> NDArray[np.uint8]:
        """[n, 128], live: a write changes the console."""
        return self._ram[:, :128]

    @property
    def screen(self) -> NDArray[np.uint8]:
        """[n, height, 160] palette codes of the last frame (a copy)."""
        current = self._screen[np.arange(self.n), self._state[:, S_BUFFER], : self.rom.height]
        return current.view(np.uint8)

    @property
    def lives(self) -> NDArray[np.int32]:
        return self._g[:, table_language.G_LIVES].copy()

    @property
    def game_over(self) -> NDArray[np.bool_]:
        return self._g[:, table_language.G_TERMINAL] != 0

    @property
    def episode_frames(self) -> NDArray[np.int64]:
        """Frames played in this game."""
        return self._state[:, S_EPISODE_FRAMES].copy()

    @property
    def frames(self) -> NDArray[np.int64]:
        """Frames played since power-on."""
        return self._state[:, S_TOTAL_FRAMES].copy()

    def get_state(self) -> State:
        """The whole state of the consoles: plain arrays, fit for `np.savez`."""
        return {name: array.copy() for name, array in self._arrays().items()}

    def set_state(self, state: State) -> None:
        """Continue from a state of a console with the same game and n."""
        arrays = self._arrays()
        for name, array in arrays.items():
            if name not in state or state[name].shape != array.shape or state[name].dtype != array.dtype:
                raise ValueError(
                    f"this state does not fit: {name!r} should be {array.dtype}{list(array.shape)}. "
                    "hint: it must come from a console with the same game, n and version"
                )
        if not np.array_equal(state["rom"], arrays["rom"]):
            raise ValueError(
                "this state belongs to another ROM. hint: build the console with the game it was saved with"
            )
        for name, array in arrays.items():
            if name != "rom":
                array[...] = state[name]

    def _arrays(self) -> State:
        return {
            "rom": self.rom.image, "state": self._state, "ram": self._ram, "screen": self._screen, "game": self._g,
            "mt": self._mt, "mt_system": self._mt_system,
        }  # fmt: skip


def _open(game: str | None, rom: str | Path | bytes | None, cartridge: str | None) -> roms.Rom:
    if rom is None:
        assert game is not None
        return roms.load(game_table.game(game).name)
    name = game_table.game(game).name if game is not None else ""
    if isinstance(rom, bytes):
        return roms.build(name, rom, cartridge)
    path = Path(rom)
    if not path.exists():
        raise FileNotFoundError(f"no ROM file {str(path)!r}. hint: give a path, or a game's name as `game`")
    return roms.build(name or path.stem.lower(), path.read_bytes(), cartridge)
