"""A game on the machine: power-on, start of a game, one action for one frame. All compiled, no Python in between.

Arguments, in this order everywhere: the machine (``s, ram, rom, dec, prop, log, screen``, see ``layout.py``), then
the game (``game``: its number; ``g``: its memory, see ``rules.py``), then the generators (``mt``: of the
environment, ``mt_system``: of the machine).
"""

from __future__ import annotations

from . import games
from .controls import RESET_DOWN, SELECT_DOWN, centre_paddles, press, release
from .games import (
    G_TERMINAL,
    LEGAL,
    M_BURST,
    M_KIND,
    M_MAX,
    M_PRE_NOOPS,
    M_PRE_RESET,
    M_PRE_SELECT,
    MODE,
    MODE_ADVENTURE,
    MODE_DOUBLE_DUNK,
    MODE_NONE,
    START_FLAT,
    START_LEN,
    START_OFS,
)
from .layout import *
from .machine import frame, power, reset
from .rng import mt_double, mt_next, mt_seed
from .rules import mode_ready, rules_reset, rules_step
from .target import device

SYSTEM_SEED = 4753849  # the machine's own generator starts the same way after every power-on
NOOP, DOWN, LEFT, UPFIRE, RESET_ACTION = games.NOOP, games.DOWN, games.LEFT, games.UPFIRE, games.RESET
DOUBLE_DUNK_OPTIONS = (0x08, 0x10, 0x04, 0x20)
NO_GAME = -1  # a ROM without rules: no score, never over


@device
def one_frame(s, ram, rom, dec, prop, log, screen, game, g, action, down, draw):
    """One frame with an action, then the rules. Returns the reward."""
    if action == RESET_ACTION:
        press(s, prop, NOOP, RESET_DOWN)
    else:
        press(s, prop, action, down)
    frame(s, ram, rom, dec, prop, log, screen, draw)
    if game == NO_GAME:
        return 0
    return rules_step(game, ram, g)


@device
def act(s, ram, rom, dec, prop, log, screen, game, g, mt, action, sticky, draw):
    """One frame of play: with probability `sticky` the last action instead. Nothing happens after the end."""
    if mt_double(mt) >= sticky:
        s[S_STICKY_A] = action
    mt_double(mt)  # player B, who never acts
    if g[G_TERMINAL]:
        return 0
    action = s[S_STICKY_A]
    if game != NO_GAME and not (LEGAL[game] >> action) & 1:
        action = NOOP
    reward = one_frame(s, ram, rom, dec, prop, log, screen, game, g, action, 0, draw)
    s[S_EPISODE_FRAMES] += 1
    s[S_TOTAL_FRAMES] += 1
    return reward


@device
def press_reset(s, ram, rom, dec, prop, log, screen, game, g):
    for _ in range(4):
        one_frame(s, ram, rom, dec, prop, log, screen, game, g, NOOP, RESET_DOWN, 1)
    s[S_STICKY_A] = NOOP


@device
def press_select(s, ram, rom, dec, prop, log, screen, game, g, frames):
    """SELECT for some frames, which the rules do not see, then a frame without it."""
    press(s, prop, NOOP, SELECT_DOWN)
    for _ in range(frames):
        frame(s, ram, rom, dec, prop, log, screen, 1)
    one_frame(s, ram, rom, dec, prop, log, screen, game, g, NOOP, 0, 1)
    s[S_EPISODE_FRAMES] += 1
    s[S_TOTAL_FRAMES] += 1


@device
def double_dunk_down(s, ram, rom, dec, prop, log, screen, game, g, mt):
    """Move down one line of the options screen."""
    before = ram[0x30]
    for _ in range(MODE[game, M_MAX]):
        if ram[0x30] != before:
            break
        act(s, ram, rom, dec, prop, log, screen, game, g, mt, DOWN, 0.0, 1)
        act(s, ram, rom, dec, prop, log, screen, game, g, mt, NOOP, 0.0, 1)


@device
def double_dunk_options(s, ram, rom, dec, prop, log, screen, game, g, mt):
    """All options off."""
    press_select(s, ram, rom, dec, prop, log, screen, game, g, 1)
    double_dunk_down(s, ram, rom, dec, prop, log, screen, game, g, mt)
    for option in DOUBLE_DUNK_OPTIONS:
        double_dunk_down(s, ram, rom, dec, prop, log, screen, game, g, mt)
        for _ in range(MODE[game, M_MAX]):
            if not ram[0x00] & option:
                break
            act(s, ram, rom, dec, prop, log, screen, game, g, mt, LEFT, 0.0, 1)
            act(s, ram, rom, dec, prop, log, screen, game, g, mt, NOOP, 0.0, 1)
    press_reset(s, ram, rom, dec, prop, log, screen, game, g)
    act(s, ram, rom, dec, prop, log, screen, game, g, mt, UPFIRE, 0.0, 1)
    act(s, ram, rom, dec, prop, log, screen, game, g, mt, NOOP, 0.0, 1)


@device
def choose_mode(s, ram, rom, dec, prop, log, screen, game, g, mt):
    """Press SELECT until the default variant of the game is chosen."""
    kind = MODE[game, M_KIND]
    if kind == MODE_NONE:
        return
    if kind == MODE_DOUBLE_DUNK:
        double_dunk_options(s, ram, rom, dec, prop, log, screen, game, g, mt)
        return
    for _ in range(MODE[game, M_PRE_NOOPS]):
        act(s, ram, rom, dec, prop, log, screen, game, g, mt, NOOP, 0.0, 1)
    if MODE[game, M_PRE_RESET]:
        press_reset(s, ram, rom, dec, prop, log, screen, game, g)
    if MODE[game, M_PRE_SELECT]:
        press_select(s, ram, rom, dec, prop, log, screen, game, g, MODE[game, M_PRE_SELECT])
    for _ in range(MODE[game, M_MAX]):
        if mode_ready(game, ram):
            break
        if kind == MODE_ADVENTURE:
            press_select(s, ram, rom, dec, prop, log, screen, game, g, 2 + mt_next(mt) % 256)
            act(s, ram, rom, dec, prop, log, screen, game, g, mt, NOOP, 0.0, 1)
        else:
            press_select(s, ram, rom, dec, prop, log, screen, game, g, MODE[game, M_BURST])
    press_reset(s, ram, rom, dec, prop, log, screen, game, g)


@device
def start_game(s, ram, rom, dec, prop, log, screen, game, g, mt, mt_system):
    """Reset the machine and begin a new game. RAM keeps what the last game left, as on the real console."""
    s[S_EPISODE_FRAMES] = 0
    centre_paddles(s, prop)
    reset(s, ram, rom, prop, log, screen, mt_system)
    for _ in range(60):
        one_frame(s, ram, rom, dec, prop, log, screen, game, g, NOOP, 0, 1)
    press_reset(s, ram, rom, dec, prop, log, screen, game, g)
    if game == NO_GAME:
        return
    rules_reset(game, ram, g)
    choose_mode(s, ram, rom, dec, prop, log, screen, game, g, mt)
    press_reset(s, ram, rom, dec, prop, log, screen, game, g)
    for k in range(START_LEN[game]):
        action = START_FLAT[START_OFS[game] + k]
        one_frame(s, ram, rom, dec, prop, log, screen, game, g, action, 0, 1)


@device
def power_on(s, ram, rom, dec, prop, ntsc, log, screen, game, g, mt_system):
    """Power, and the 60 frames by which the television standard is found (with NTSC limits: `ntsc`).

    Returns how many of the last 30 frames had more than 285 lines; 15 or more mean PAL.
    """
    mt_seed(mt_system, SYSTEM_SEED)
    power(s, ram, mt_system)
    for k in range(g.shape[0]):
        g[k] = 0
    release(s, prop)
    reset(s, ram, rom, ntsc, log, screen, mt_system)
    long = 0
    for k in range(60):
        frame(s, ram, rom, dec, ntsc, log, screen, 1)
        if k >= 30 and s[S_LINES] > 285:
            long += 1
    reset(s, ram, rom, prop, log, screen, mt_system)
    return long
