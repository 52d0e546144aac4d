# ruff: noqa: F403, F405
"""A game on the console: power-on, start of a game, one action for one frame. All of it is compiled.

A console and its game go through all of it as two named tuples, `Chips` and `Play`. Only what is compiled as a unit
takes numbers: the addresses of the same arrays, in the same order.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy import int64

from ..chips.controls import RESET_DOWN, SELECT_DOWN, centre_paddles, press, release
from ..chips.frame import frame, frame_unit, power, reset
from ..chips.layout import *
from ..chips.rng import mt_next, mt_seed
from ..jit.target import address, as_bytes, as_int32, as_log, as_ram, as_screen, as_state, as_words, compiled, unit
from . import table_language
from .game_table import LEGAL, MODE, START_FLAT, START_LEN, START_OFS
from .rules import mode_ready, rules_reset, rules_step
from .table_language import (
    G_SIZE,
    G_TERMINAL,
    M_BURST,
    M_KIND,
    M_MAX,
    M_PRE_NOOPS,
    M_PRE_RESET,
    M_PRE_SELECT,
    MODE_ADVENTURE,
    MODE_DOUBLE_DUNK,
    MODE_NONE,
)

SYSTEM_SEED = 4753849  # of the console's own generator, the same after every power-on
NOOP, DOWN, LEFT, UPFIRE = (
    int64(a) for a in (table_language.NOOP, table_language.DOWN, table_language.LEFT, table_language.UPFIRE)
)
RESET_ACTION = table_language.RESET
# Typed, so that one compiled version of a function serves all its callers.
UP, RESET_SWITCH, SELECT_SWITCH, DRAW = int64(0), int64(RESET_DOWN), int64(SELECT_DOWN), int64(1)
DOUBLE_DUNK_OPTIONS = (0x08, 0x10, 0x04, 0x20)
NO_GAME = -1  # a ROM without rules: it has no score and never ends


class Chips(NamedTuple):
    """One console and the program that it runs, see `chips/layout.py`."""

    s: np.ndarray
    ram: np.ndarray
    rom: np.ndarray
    dec: np.ndarray
    prop: np.ndarray
    log: np.ndarray
    screen: np.ndarray


class Play(NamedTuple):
    """The game on a console."""

    game: int  # its number, or NO_GAME
    g: np.ndarray  # its memory, see `games/rules.py`
    mt: np.ndarray  # the environment's random generator, for sticky actions; the console has one of its own


@unit
def one_frame_unit(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at, game, g_at, action, down, draw):
    """One frame with an action, then the rules. Returns the reward."""
    s, ram, prop = as_state(s_at), as_ram(ram_at), as_state(prop_at)
    if action == RESET_ACTION:
        press(s, prop, NOOP, RESET_SWITCH)
    else:
        press(s, prop, action, down)
    frame_unit(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at, draw)
    # ale-py reads all of RAM through the bus, so the last byte stays in the latch; a program that runs in TIA space
    # sees it.
    s[S_LATCH] = ram[127]
    if game == NO_GAME:
        return int64(0)
    return int64(rules_step(game, ram, as_int32(g_at)))


@compiled
def one_frame(chips, play, action, down, draw):
    s, ram, rom, dec, prop, log, screen = chips
    return one_frame_unit(
        address(s), address(ram), address(rom), address(dec), address(prop), address(log), address(screen),
        play.game, address(play.g), action, down, draw,
    )  # fmt: skip


@compiled
def act_raw(chips, play, action, sticky, draw):
    """One frame of play; a random number below `sticky` repeats the last action. Nothing happens after the end."""
    s = chips.s
    if mt_next(play.mt) >= sticky:
        s[S_STICKY_A] = action
        s[S_PADDLE_STEP] = s[S_PADDLE_WANT]
    mt_next(play.mt)  # for player B, who never acts
    if play.g[G_TERMINAL]:
        return int64(0)
    action = s[S_STICKY_A]
    if play.game != NO_GAME and not (LEGAL[play.game] >> action) & 1:
        action = NOOP
    reward = one_frame(chips, play, action, UP, draw)
    s[S_EPISODE_FRAMES] += 1
    s[S_TOTAL_FRAMES] += 1
    return reward


@compiled
def between_frames(s, ram, prop):
    """Between frames of one run ale-py reads only the bytes that its rules need; the last one stays in the latch."""
    s[S_LATCH] = ram[prop[P_LAST_READ]]


@compiled
def press_reset(chips, play):
    for k in range(4):
        if k > 0:
            between_frames(chips.s, chips.ram, chips.prop)
        one_frame(chips, play, NOOP, RESET_SWITCH, DRAW)
    chips.s[S_STICKY_A] = NOOP


@compiled
def press_select(chips, play, frames):
    """Press SELECT for some frames, which the rules do not see, then run a frame without it."""
    s, ram, rom, dec, prop, log, screen = chips
    press(s, prop, NOOP, SELECT_SWITCH)
    for _ in range(frames):
        frame(s, ram, rom, dec, prop, log, screen, DRAW)
    s[S_LATCH] = ram[127]
    one_frame(chips, play, NOOP, UP, DRAW)
    s[S_EPISODE_FRAMES] += 1
    s[S_TOTAL_FRAMES] += 1


@compiled
def double_dunk_down(chips, play, sticky):
    """Move down one line of the options screen."""
    ram = chips.ram
    before = ram[0x30]
    for _ in range(MODE[play.game, M_MAX]):
        if ram[0x30] != before:
            break
        act_raw(chips, play, DOWN, sticky, DRAW)
        act_raw(chips, play, NOOP, sticky, DRAW)


@compiled
def double_dunk_options(chips, play, sticky):
    """All options off."""
    press_select(chips, play, int64(1))
    double_dunk_down(chips, play, sticky)
    for option in DOUBLE_DUNK_OPTIONS:
        double_dunk_down(chips, play, sticky)
        for _ in range(MODE[play.game, M_MAX]):
            if not chips.ram[0x00] & option:
                break
            act_raw(chips, play, LEFT, sticky, DRAW)
            act_raw(chips, play, NOOP, sticky, DRAW)
    press_reset(chips, play)
    act_raw(chips, play, UPFIRE, sticky, DRAW)
    act_raw(chips, play, NOOP, sticky, DRAW)


@compiled
def choose_mode(chips, play, sticky):
    """Press SELECT until the default variant of the game is chosen."""
    game = play.game
    kind = MODE[game, M_KIND]
    if kind == MODE_NONE:
        return
    if kind == MODE_DOUBLE_DUNK:
        double_dunk_options(chips, play, sticky)
        return
    for _ in range(MODE[game, M_PRE_NOOPS]):
        act_raw(chips, play, NOOP, sticky, DRAW)
    if MODE[game, M_PRE_RESET]:
        press_reset(chips, play)
    if MODE[game, M_PRE_SELECT]:
        press_select(chips, play, int64(MODE[game, M_PRE_SELECT]))
    for _ in range(MODE[game, M_MAX]):
        if mode_ready(game, chips.ram):
            break
        if kind == MODE_ADVENTURE:
            press_select(chips, play, 2 + mt_next(play.mt) % 256)
            act_raw(chips, play, NOOP, sticky, DRAW)
        else:
            press_select(chips, play, int64(MODE[game, M_BURST]))
    press_reset(chips, play)


@unit
def start_unit(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at, game, g_at, mt_at, mt_system_at, sticky):
    s, ram, rom, dec = as_state(s_at), as_ram(ram_at), as_bytes(rom_at), as_words(dec_at)
    prop, log, screen = as_state(prop_at), as_log(log_at), as_screen(screen_at)
    g, mt, mt_system = as_int32(g_at), as_words(mt_at), as_words(mt_system_at)
    chips, play = Chips(s, ram, rom, dec, prop, log, screen), Play(game, g, mt)
    s[S_EPISODE_FRAMES] = 0
    centre_paddles(s, prop)
    reset(s, ram, rom, prop, log, screen, mt_system)
    for k in range(60):
        if k > 0:
            between_frames(s, ram, prop)
        one_frame(chips, play, NOOP, UP, DRAW)
    press_reset(chips, play)
    if game == NO_GAME:
        return 0
    rules_reset(game, ram, g)
    choose_mode(chips, play, sticky)
    press_reset(chips, play)
    for k in range(START_LEN[game]):
        action = START_FLAT[START_OFS[game] + k]
        one_frame(chips, play, int64(action), UP, DRAW)
    return 0


@unit
def power_unit(s_at, ram_at, rom_at, dec_at, prop_at, ntsc_at, log_at, screen_at, g_at, mt_system_at):
    s, ram, rom, dec = as_state(s_at), as_ram(ram_at), as_bytes(rom_at), as_words(dec_at)
    prop, ntsc, log, screen = as_state(prop_at), as_state(ntsc_at), as_log(log_at), as_screen(screen_at)
    g, mt_system = as_int32(g_at), as_words(mt_system_at)
    mt_seed(mt_system, SYSTEM_SEED)
    power(s, ram, mt_system)
    for k in range(G_SIZE):
        g[k] = 0
    release(s, prop)
    reset(s, ram, rom, ntsc, log, screen, mt_system)
    long = 0
    for k in range(60):
        frame(s, ram, rom, dec, ntsc, log, screen, DRAW)
        if k >= 30 and s[S_LINES] > 285:
            long += 1
    reset(s, ram, rom, prop, log, screen, mt_system)
    return long


# ---- the interface: arrays instead of addresses, a probability instead of a threshold


@compiled
def threshold(probability):
    """32-bit random numbers below this one are drawn with the given probability."""
    return int64(math.ceil(probability * 4294967296.0))


@compiled
def act(chips, play, action, sticky, draw):
    """One frame of play: with probability `sticky` the last action instead. Returns the reward."""
    return act_raw(chips, play, int64(action), threshold(sticky), int64(draw))


@compiled
def start_game(chips, play, mt_system, sticky):
    """Reset the console and begin a new game. RAM keeps what the last game left, as on the real console."""
    s, ram, rom, dec, prop, log, screen = chips
    start_unit(
        address(s), address(ram), address(rom), address(dec), address(prop), address(log), address(screen),
        play.game, address(play.g), address(play.mt), address(mt_system), threshold(sticky),
    )  # fmt: skip


@compiled
def power_on(chips, ntsc, play, mt_system):
    """Power-on, and the 60 frames that show the television standard (with the limits of NTSC: `ntsc`).

    Returns how many of the last 30 frames had more than 285 lines; 15 or more mean PAL.
    """
    s, ram, rom, dec, prop, log, screen = chips
    return power_unit(
        address(s), address(ram), address(rom), address(dec), address(prop), address(ntsc), address(log),
        address(screen), address(play.g), address(mt_system),
    )  # fmt: skip
