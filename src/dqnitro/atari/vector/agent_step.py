"""One agent's step of one console, compiled: frame skip, pooling, resize, stack, rewards, lives, new games.

It follows ale-py's `AtariVectorEnv`, including what its buffers hold when an episode ends in the middle of a step:

* the last two frames of a step are pooled; an episode that ends earlier shows the last picture once more;
* one that ends *in* the last frame shows the frame before it, pooled with the last step's picture.

So the grey picture of the last step is kept (`raw`, `source`), at the price of its changed rows only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import int64

from ..chips.controls import PADDLE_STEP
from ..chips.layout import (
    P_ALWAYS_DRAW,
    S_BUFFER,
    S_PADDLE_WANT,
    S_PARTIAL,
    WORDS,
)
from ..chips.rng import mt_below, mt_seed
from ..games.environment import Chips, Play, act, power_on, start_game
from ..games.table_language import FIRE, G_LIVES, G_TERMINAL, NOOP
from ..jit.target import compiled, spliced
from ..observation.resize import resize_codes, resize_gray
from ..observation.resize_plan import WIDTH

# what to do with a console
STEP, RESET, SEEDED_RESET, LOOK = range(4)
# options of an environment
(O_GAME, O_SKIP, O_STACK, O_POOL, O_NOOPS, O_FIRE, O_EPISODIC, O_LIFE_FLAG, O_CLIP, O_MOST_FRAMES, O_CHANNELS,
 O_SAME_STEP, O_FRAME_BYTES, O_SIZE) = range(14)  # fmt: skip
# memory of one environment beside its console; E_RESET: the next step begins a new game
E_RESET, E_LIVES, E_ELAPSED, E_SLOT, E_SIZE = range(5)
# results of one environment
R_REWARD, R_LIVES, R_FRAMES, R_EPISODE_FRAMES, R_SIZE = range(5)
# what a step's picture is made of: its last two screens, the last picture pooled with a screen, the last picture
WHOLE, STALE, AGAIN = range(3)


class ConsoleArrays(NamedTuple):
    """One console's own arrays: its share of `arrays.Memory`, and where it draws."""

    state: np.ndarray
    ram: np.ndarray
    log: np.ndarray
    screen: np.ndarray  # its two buffers
    spare: np.ndarray  # a third one, for a frame that is shown before it is finished
    rules: np.ndarray
    rng_actions: np.ndarray
    episode: np.ndarray


class Setup(NamedTuple):
    """What the consoles of an environment play, and how: fields of `arrays.Shared`."""

    rom: np.ndarray
    program: np.ndarray
    prop: np.ndarray
    ntsc: np.ndarray
    options: np.ndarray
    sticky: float


class Generators(NamedTuple):
    """What the start of a game draws from, beside the generator for sticky actions."""

    machine: np.ndarray
    noops: np.ndarray


@spliced
def show(p, luts, first, second, raw, source, scratch, frame, channels):
    """Two screens, pooled and resized, into a frame of the stack."""
    first8, second8 = first.view(np.uint8), second.view(np.uint8)
    for c in range(channels):
        resize_codes(p, first8, first, second8, second, luts[c], c, raw[c], source, scratch, frame, c, channels)


@spliced
def show_stale(p, luts, screen, raw, source, frame, channels):
    """The last step's picture pooled with one more screen."""
    codes = screen.view(np.uint8)
    for c in range(channels):
        # from below, because a row may stand for rows beneath it
        for y in range(p.height - 1, -1, -1):
            from_ = raw[c, source[y]]
            for x in range(WIDTH):
                raw[c, y, x] = max(from_[x], luts[c, codes[y, x]])
    for y in range(p.height):
        source[y] = y
    for c in range(channels):
        resize_gray(p, raw[c], source, frame, c, channels)


@compiled
def chips_of(console, setup):
    return Chips(console.state, console.ram, setup.rom, setup.program, setup.prop, console.log, console.screen)


@compiled
def start(console, setup, rngs, seed):
    """Start a game. A seed switches power off and on first."""
    chips = chips_of(console, setup)
    game = Play(setup.options[O_GAME], console.rules, console.rng_actions)
    if seed >= 0:
        mt_seed(console.rng_actions, seed)
        mt_seed(rngs.noops, seed)
        power_on(chips, setup.ntsc, game, rngs.machine)
        start_game(chips, game, rngs.machine, setup.sticky)
    start_game(chips, game, rngs.machine, setup.sticky)


@compiled
def get_ready(console, setup, rngs):
    """After the start: press FIRE where it is an action, wait some frames; then it is the agent's turn."""
    g, e, o, sticky = console.rules, console.episode, setup.options, setup.sticky
    chips, always = chips_of(console, setup), setup.prop[P_ALWAYS_DRAW]
    game = Play(o[O_GAME], g, console.rng_actions)
    noops = mt_below(rngs.noops, o[O_NOOPS]) if o[O_NOOPS] > 0 else 0
    if o[O_FIRE]:
        noops -= 1
        act(chips, game, int64(FIRE), sticky, 1 if noops <= 0 else always)
    for k in range(noops):
        act(chips, game, int64(NOOP), sticky, 1 if k == noops - 1 else always)
        if g[G_TERMINAL]:
            start_game(chips, game, rngs.machine, sticky)
    e[E_RESET], e[E_ELAPSED], e[E_LIVES], e[E_SLOT] = 0, 0, g[G_LIVES], o[O_STACK] - 1


@compiled
def keep_screen(screen, spare):
    for y in range(screen.shape[0]):
        for k in range(WORDS):
            spare[y, k] = screen[y, k]


@compiled
def stack_into(frames, slot, out):
    """The stack in order of time: `slot` is the newest frame."""
    n, size = frames.shape
    for k in range(n):
        frame = frames[(slot + 1 + k) % n]
        to = out[k * size : (k + 1) * size]
        for x in range(size):
            to[x] = frame[x]


@compiled
def play(console, setup, action, strength):
    """The frames of one step, without its picture. Returns reward, terminated, truncated, view, other.

    `view` says what the step's picture is made of (`WHOLE`, `STALE`, `AGAIN`); `other` is the screen that is pooled
    with the last one: 0 or 1, a buffer of the console; 2, `spare`.
    """
    s, screen, spare, g, e = console.state, console.screen, console.spare, console.rules, console.episode
    prop, o, pool = setup.prop, setup.options, setup.options[O_POOL]
    chips, game = chips_of(console, setup), Play(o[O_GAME], g, console.rng_actions)
    s[S_PADDLE_WANT] = int64(PADDLE_STEP * abs(strength))
    game_over, lost, in_last_frame, whole = False, False, False, False
    reward, other = 0, int64(-1)
    for left in range(o[O_SKIP], 0, -1):
        shown = left == 1 or (left == 2 and pool)
        drawn = 1 if shown or s[S_PARTIAL] else prop[P_ALWAYS_DRAW]
        reward += act(chips, game, action, setup.sticky, drawn)
        e[E_ELAPSED] += 1
        game_over = g[G_TERMINAL] != 0
        lost = 0 < g[G_LIVES] < e[E_LIVES]
        if game_over or e[E_ELAPSED] >= o[O_MOST_FRAMES] or (o[O_EPISODIC] and lost):
            in_last_frame = left == 1 and o[O_SKIP] > 1
            break
        if left == 2 and pool:
            other = s[S_BUFFER]
            if s[S_PARTIAL]:
                # the next frame goes on drawing in the same buffer
                keep_screen(screen[other], spare)
                other = int64(2)
        whole = left == 1
    if other < 0:
        other = s[S_BUFFER]
    view = WHOLE if whole else STALE if in_last_frame and pool else AGAIN
    e[E_LIVES] = g[G_LIVES]
    terminated = game_over or ((o[O_LIFE_FLAG] or o[O_EPISODIC]) and lost)
    time_up = e[E_ELAPSED] >= o[O_MOST_FRAMES]
    truncated = time_up and not terminated
    e[E_RESET] = 1 if game_over or time_up or (o[O_EPISODIC] and lost) else 0
    if o[O_CLIP]:
        reward = min(max(reward, -1), 1)
    return reward, terminated, truncated, view, other


@compiled
def begin(console, setup, rngs, seed):
    """A new game, ready for its first step."""
    start(console, setup, rngs, seed)
    get_ready(console, setup, rngs)
